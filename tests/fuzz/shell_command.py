"""Command lines before the guard: an answer for each, and no way around it by what stands before.

`refusal_of` alone knows the guard.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from nanobot_core import PathGuard, ToolError
from nanobot_shell.guard import Guard
from nanobot_shell.reading import read_command_line
from nanobot_shell.settings import ExecSettings
from tests.fuzz.choices import Choices

TOKENS: Final = (
    b"$(", b"`", b"${", b"$'\\x", b'$"', b"<<EOF\n", b"\nEOF\n", b"<<-'E'\n", b"<(", b">(",
    b"&>", b">|", b"2>&1", b"| ", b"&& ", b"|| ", b"; ", b"\\\n", b"{ ", b"; }", b"( ", b"(( ",
    b"[[ ", b"case x in ", b";; esac", b"for i in ", b"; do ", b"; done", b"if ", b"; then ",
    b"; fi", b"f() { ", b"eval ", b"bash -c '", b"exec ", b"env -i ", b"sudo ",
    b"find . -exec ", b" \\;", b"xargs ", b"..", b"~/", b"$HOME", b"$((", b"))", b"!", b"*",
    b"?", b"# ", b"\x00", b"\r", b"\xc2\xa0", b"a=b ", b"time ", b"coproc ", b"alias x=",
    b"IFS=", b"declare -f ", b"trap ", b"source ", b". ", b"\xe2\x80\xae",
)  # fmt: skip
_FOLDERS: Final = (None, "", ".", "..", "/", "a/b", "~", "\0")
_OUTSIDE: Final = (
    "\nrm -rf /\n",
    "\ncat /etc/passwd\n",
    "\ncat ../secret\n",
    "\necho x > /tmp/x\n",
)


def fuzz_one(data: bytes) -> None:
    """Judge a command line, and the same with something forbidden behind it."""
    choices = Choices(data)
    shape = choices.byte()
    command = choices.rest().decode("utf-8", "surrogateescape" if shape & 1 else "replace")
    is_sandboxed = bool(shape & 2)
    folder = _FOLDERS[shape >> 5]
    reason = refusal_of(command, folder, is_sandboxed=is_sandboxed)
    assert isinstance(reason, str)
    assert refusal_of(command, folder, is_sandboxed=is_sandboxed) == reason
    if "<<" in command:  # what follows may be data
        return
    behind = _OUTSIDE[shape >> 2 & 3]
    line = command + behind
    assert refusal_of(line, None, is_sandboxed=False) or not _is_read(line), f"{behind!r} passes"


def seeds() -> Iterator[bytes]:
    """Yield command lines of many kinds."""
    for line in (
        "ls -la src && grep -rn 'x y' . | sort -u > out.txt 2>&1",
        'for f in *.py; do echo "$f" ${f%.py}; done; if [ -f a ]; then cat a; fi',
        "cat <<'EOF' > a.txt\nhello $HOME\nEOF\n",
        "f() { f | f & }; f",
        "bash -c \"python3 -c 'print(1)'\" ; env A=b timeout 5 tar -czf x.tgz ./a",
        "echo $(cat $(ls)) `pwd` <(sort a) $'\\x2f' \"${a[@]:1:2}\" ~/x //etc/passwd",
        "find . -name '*.txt' -exec rm {} \\; ; git -C .. log; sed -i s/a/b/w/x f",
    ):
        yield b"\x00" + line.encode()
        yield b"\x06" + line.encode()


def _is_read(command: str) -> bool:
    """Whether bash reads the whole of a command line, of which it runs nothing here."""
    try:
        line = ["bash", "-n", "-c", command]
        return subprocess.run(line, check=False, capture_output=True, timeout=10).returncode == 0
    except ValueError:  # NUL, or what is no text
        return False


def refusal_of(command: str, working_dir: str | None, *, is_sandboxed: bool) -> str:
    """Return why a command must not run in a restricted workspace; empty when it may."""
    workspace = _workspace()
    guard = Guard(
        settings=ExecSettings(), files=PathGuard(workspace), must_confine=not is_sandboxed
    )
    try:
        folder = guard.files.resolve_read(working_dir or ".")
    except ToolError as error:
        return str(error)
    return guard.refusal(read_command_line(command), folder)


@cache
def _kept() -> TemporaryDirectory[str]:
    return TemporaryDirectory()


def _workspace() -> Path:
    return Path(_kept().name).resolve()
