"""One page of a text file, read as a stream."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from nanobot_files.document import Encoding
from nanobot_files.worker import Watch

_PIECE_CHARS = 65_536
_LINES_PER_CHECK = 1_000


@dataclass(frozen=True, slots=True)
class Page:
    """What a page holds.

    Attributes:
        lines: rendered as ``LINE|CONTENT``.
        first: number of the first of them.
        total: lines in the whole file, or ``None`` where it was not counted to its end.
    """

    lines: tuple[str, ...]
    first: int
    total: int | None

    @property
    def last(self) -> int:
        """Number of the last line, ``first - 1`` when there is none."""
        return self.first + len(self.lines) - 1


@dataclass(frozen=True, slots=True)
class PageLimits:
    """Where a page begins and how long it may get.

    Attributes:
        first: number of its first line, from 1.
        max_lines: most lines, or ``None``.
        max_chars: most characters; one line is given in any case, cut to this.
        count_on: whether to read to the file's end for the number of lines.
    """

    first: int
    max_lines: int | None
    max_chars: int
    count_on: bool


def read_page(file: IO[bytes], encoding: Encoding, limits: PageLimits, watch: Watch) -> Page:
    """Read one page; memory is bounded by the page, however long file and lines are.

    Args:
        file: stands behind its byte order mark; closed afterwards.
        encoding: of the file; bytes that do not fit it are shown replaced.
        limits: which page.
        watch: checked while reading.
    """
    lines: list[str] = []
    room = limits.max_chars
    number = 0
    with io.TextIOWrapper(file, encoding.name, errors="replace", newline="\n") as text:
        for number, start, length in _lines(text, limits.max_chars, watch):
            if number < limits.first:
                continue
            line = _render(number, start, length, limits.max_chars)
            full = limits.max_lines is not None and len(lines) >= limits.max_lines
            if not full and (not lines or len(line) < room):
                lines.append(line)
                room -= len(line) + 1
            elif limits.count_on:
                room = 0
            else:
                return Page(tuple(lines), limits.first, None)
    return Page(tuple(lines), limits.first, number)


def _lines(text: IO[str], max_chars: int, watch: Watch) -> Iterator[tuple[int, str, int]]:
    """Yield (number, beginning, length) of each line; only a line feed ends one."""
    number = 0
    while piece := text.readline(_PIECE_CHARS):
        number += 1
        if number % _LINES_PER_CHECK == 0:
            watch.check()
        start, length = piece, len(piece)
        while not piece.endswith("\n"):
            watch.check()
            more = text.readline(_PIECE_CHARS)
            if not more:
                break
            piece = more
            length += len(piece)
            if len(start) <= max_chars:
                start += piece
        length -= len(piece) - len(piece.rstrip("\r\n"))
        yield number, start[:length], length


def _render(number: int, start: str, length: int, max_chars: int) -> str:
    shown = start[:max_chars]
    if length <= len(shown):
        return f"{number}|{shown}"
    return f"{number}|{shown}… [line of {length:,} characters, cut here]"
