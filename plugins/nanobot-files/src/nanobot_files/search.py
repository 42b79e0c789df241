"""Searching files for a regular expression, in processes that can be ended at any moment.

ripgrep and `nanobot_files.matcher` are given the same files and give line numbers only. What the
model sees is then read through the guard, so neither engine decides what may be seen.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nanobot_core import ToolFailed, ToolInputError

_CHUNK_BYTES = 100_000
_MAX_OUTPUT_BYTES = 8_000_000
_MAX_PATTERN_CHARS = 1_000
_NO_MATCH = 1
_BAD_PATTERN = 3

# Constructs that mean the same to Python and to ripgrep's engine. Everything else goes to Python:
# look-around and back references, which ripgrep lacks; possessive repeats, inline flags, POSIX
# classes and set operations, which one of the two reads in another way.
_COMMON = re.compile(
    r"""(?x: (?:
        [^\\\[\](){}*+?|^$\#&~\s]       # a plain character
      | [ \t]
      | \\[wWdDsSbBt.^$*+?()\[\]{}|/\\-] # an escape
      | \[\^?(?:[\w .,:;=!@%<>/"'_$*+?()|-]|\\[wWdDs.\]\[\\^-])+\]
      | \((?:\?:)? | \) | [|^$]
      | (?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??(?![*+?{])
      | [#&~]
    )+ )"""
)


@dataclass(frozen=True, slots=True)
class Query:
    """What to search for.

    Attributes:
        pattern: a regular expression in Python's syntax, matched against each line.
        ignore_case: whether case is disregarded.
        max_per_file: lines after which a file's search ends.
    """

    pattern: str
    ignore_case: bool
    max_per_file: int

    def __post_init__(self) -> None:
        if len(self.pattern) > _MAX_PATTERN_CHARS:
            raise ToolInputError(f"a pattern has at most {_MAX_PATTERN_CHARS} characters")
        if "\n" in self.pattern or "\0" in self.pattern:
            raise ToolInputError("patterns are matched line by line; leave line breaks and NUL out")


@dataclass(slots=True)
class Matches:
    """Line numbers by file.

    Attributes:
        lines: numbers of matching lines by the file's name as it was given.
        cut: there are more, but the engine's output reached its bound.
    """

    lines: dict[str, list[int]] = field(default_factory=dict)
    cut: bool = False


async def search(
    root: Path, names: Sequence[str], query: Query, *, ripgrep: str | None, limit_s: float
) -> Matches:
    """Return which lines of the files match.

    Args:
        root: folder that the names are relative to.
        ripgrep: path of ripgrep, or ``None`` to do without.
        limit_s: seconds for all files together.

    Raises:
        ToolInputError: the pattern is not a regular expression.
        ToolFailed: the time is up.

    Cancellation:
        The engine is ended first.
    """
    engines = [_python_command(query)]
    if ripgrep is not None and _COMMON.fullmatch(query.pattern):
        engines.insert(0, _ripgrep_command(ripgrep, query))
    matches = Matches()
    try:
        async with asyncio.timeout(limit_s):
            for chunk in _chunks(names):
                await _search_chunk(engines, root, chunk, matches)
                if matches.cut:
                    break
    except TimeoutError as error:
        raise ToolFailed(
            f"the search did not finish within {limit_s:g} seconds; use a simpler pattern, or "
            "narrow it with path, glob or type"
        ) from error
    except OSError as error:
        raise ToolFailed(f"the search cannot be run: {error.strerror}") from error
    return matches


async def _search_chunk(
    engines: Sequence[Sequence[str]], root: Path, chunk: Sequence[str], matches: Matches
) -> None:
    code, output, reason = 0, b"", ""
    for engine in engines:
        code, output, reason = await _run([*engine, *chunk], root)
        if code in {0, _NO_MATCH}:
            break
    if code == _BAD_PATTERN:
        raise ToolInputError(f"the pattern is not a regular expression: {reason}")
    if code not in {0, _NO_MATCH}:
        raise ToolFailed("the search failed; use a simpler pattern")
    for name, number in _records(output):
        matches.lines.setdefault(name.removeprefix("./"), []).append(number)
    matches.cut = len(output) >= _MAX_OUTPUT_BYTES


def _records(output: bytes) -> Iterator[tuple[str, int]]:
    """Yield (name, line number) from ``NAME NUL NUMBER …`` lines; names may hold line breaks."""
    position = 0
    while (mark := output.find(b"\0", position)) >= 0:
        end = output.find(b"\n", mark)
        if end < 0:
            return
        number = output[mark + 1 : end].partition(b":")[0]
        yield output[position:mark].decode(errors="surrogateescape"), int(number)
        position = end + 1


async def _run(command: Sequence[str], root: Path) -> tuple[int, bytes, str]:
    """Return exit code, bounded output and error text; the process has always ended."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=root,
        env={},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    if process.stdout is None or process.stderr is None:
        raise ToolFailed("the search engine has no output")
    try:
        output = bytearray()
        while piece := await process.stdout.read(65_536):
            output += piece
            if len(output) >= _MAX_OUTPUT_BYTES:
                return 0, bytes(output), ""
        reason = (await process.stderr.read(4_096)).decode(errors="replace")
        return await process.wait(), bytes(output), reason
    finally:
        if process.returncode is None:
            process.kill()
            # For asyncio, a process ends only after its pipes, and a full pipe is not read.
            while await process.stdout.read(65_536):
                pass
            await process.wait()


def _chunks(names: Sequence[str]) -> Iterator[list[str]]:
    """Yield the names in portions that fit a command line, marked as paths."""
    chunk: list[str] = []
    size = 0
    for name in names:
        marked = f"./{name}"
        size += len(marked.encode(errors="surrogateescape")) + 1
        if chunk and size > _CHUNK_BYTES:
            yield chunk
            chunk, size = [], len(marked)
        chunk.append(marked)
    if chunk:
        yield chunk


def _ripgrep_command(ripgrep: str, query: Query) -> list[str]:
    options = "--no-config --no-messages --color=never --no-heading --with-filename --null"
    # --text: whether a file is binary is decided here, the same way for both engines. --max-columns
    # keeps ripgrep from printing lines that are read through the guard anyway.
    lines = "--line-number --text --crlf --max-columns=1"
    case = "--ignore-case" if query.ignore_case else "--case-sensitive"
    count = f"--max-count={query.max_per_file}"
    return [ripgrep, *options.split(), *lines.split(), case, count, "-e", query.pattern, "--"]


def _python_command(query: Query) -> list[str]:
    program = str(Path(__file__).with_name("matcher.py"))
    case = "i" if query.ignore_case else "-"
    options = ["-I", "-S", "-X", "utf8"]
    return [sys.executable, *options, program, query.pattern, case, str(query.max_per_file)]
