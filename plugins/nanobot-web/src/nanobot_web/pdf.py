"""The program that turns a PDF into text, run as a process of its own.

    python -m nanobot_web.pdf < FILE

PDFs come from anywhere, and parsers have looped on some of them: a process can be ended, and its
memory limited. Writes text in UTF-8; exits with 0 where it is whole and with 1 where something is
missing.
"""

from __future__ import annotations

import io
import resource
import sys
from collections.abc import Iterator

MAX_TEXT_CHARS = 2_000_000
_MEMORY_BYTES = 1_000_000_000
_MAX_PAGES = 500


def main() -> int:
    """Read the PDF on standard input."""
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    left = MAX_TEXT_CHARS
    try:
        for text in _pages(sys.stdin.buffer.read()):
            sys.stdout.buffer.write(text[:left].encode(errors="replace"))
            sys.stdout.buffer.flush()
            left -= len(text)
            if left < 0:
                return 1
    except Exception:  # noqa: BLE001 - isolation point: damaged files raise all kinds
        return 1
    return 0


def _pages(content: bytes) -> Iterator[str]:
    from pypdf import PdfReader

    pages = PdfReader(io.BytesIO(content)).pages
    for number, page in enumerate(pages):
        if number == _MAX_PAGES:
            raise ValueError
        yield ("\n\n" if number else "") + page.extract_text()


if __name__ == "__main__":
    sys.exit(main())
