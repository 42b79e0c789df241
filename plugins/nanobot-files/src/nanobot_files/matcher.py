"""The Python search engine: a separate program, so that it can be ended at any moment.

``re`` holds the interpreter's lock while it matches and cannot be interrupted; in a process of its
own, a pattern that never ends costs only its own call, up to the time limit. Uses the
standard library only and is started by path, without site packages.

    matcher.py PATTERN i|- MAX_PER_FILE PATH...

Writes ``PATH NUL LINE_NUMBER NEWLINE`` for each line that matches. Exit code 3: a bad pattern, with
the reason on stderr.
"""

from __future__ import annotations

import io
import os
import re
import resource
import sys
from collections.abc import Iterator

_SAMPLE_BYTES = 65_536
_LINE_CHARS = 10_000_000
_MEMORY_BYTES = 1_000_000_000
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


def main(arguments: list[str]) -> int:
    """Search the files that the command line names."""
    pattern, case, limit, *paths = arguments
    soft_limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if soft_limit == resource.RLIM_INFINITY and sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    try:
        expression = re.compile(pattern, re.IGNORECASE if case == "i" else 0)
    except (re.error, RecursionError, OverflowError) as error:
        sys.stderr.write(str(error))
        return 3
    for path in paths:
        for number in matching_lines(path, expression, int(limit)):
            sys.stdout.buffer.write(b"%s\0%d\n" % (os.fsencode(path), number))
    sys.stdout.buffer.flush()
    return 0


def matching_lines(path: str, expression: re.Pattern[str], limit: int) -> Iterator[int]:
    """Yield the numbers of at most `limit` lines that match; none for a binary file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    with os.fdopen(handle, "rb") as file:
        sample = file.read(_SAMPLE_BYTES)
        encoding = _UTF16.get(sample[:2], "utf-8-sig")
        if encoding == "utf-8-sig" and b"\0" in sample:
            return
        file.seek(2 if encoding != "utf-8-sig" else 0)
        number = found = 0
        with io.TextIOWrapper(file, encoding, errors="replace", newline="\n") as text:
            while found < limit and (line := text.readline(_LINE_CHARS)):
                number += 1
                if expression.search(line.removesuffix("\n").removesuffix("\r")):
                    found += 1
                    yield number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
