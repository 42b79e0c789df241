"""The lines of a file that matched, read through the guard."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nanobot_core import PathGuard, ToolError
from nanobot_files.document import SAMPLE_BYTES, detect_encoding
from nanobot_files.worker import Watch

_LINE_CHARS = 500
_PIECE_CHARS = 10_000_000
_LINES_PER_CHECK = 1_000


def count_matches(shown: str, numbers: Sequence[int], output_mode: str) -> str:
    """Return the line of a file in an answer without content."""
    return f"{shown}:{len(numbers)}" if output_mode == "count" else shown


@dataclass(frozen=True, slots=True)
class Excerpts:
    """Reads passages for an answer.

    Attributes:
        guard: opens the files.
        watch: checked while reading.
        context: lines to give before and after each.
    """

    guard: PathGuard
    watch: Watch
    context: int

    def is_text(self, path: Path) -> bool:
        """Whether `path` is a text file that may be read."""
        self.watch.check()
        try:
            with self.guard.open_read(path) as file:
                encoding = detect_encoding(file.read(SAMPLE_BYTES))
        except (ToolError, OSError):
            return False
        return encoding is not None and not encoding.name.startswith("utf-32")

    def around(self, path: Path, shown: str, numbers: Sequence[int]) -> list[str]:
        """Return the lines with these numbers, ascending, as ``path:LINE:text``.

        Lines of context are ``path-LINE-text``, and ``--`` stands where lines are left out.
        """
        if not numbers:
            return []
        near = {n for at in numbers for n in range(at - self.context, at + self.context + 1)}
        result: list[str] = []
        former = 0
        for number, line in self._lines(path, max(near)):
            if number not in near:
                continue
            if self.context and former and number > former + 1:
                result.append("--")
            former = number
            result.append(_render(shown, number, line, matched=number in numbers))
        return result

    def _lines(self, path: Path, last: int) -> Iterator[tuple[int, str]]:
        """Yield the lines of a text file with their numbers, up to the last that is wanted."""
        with self.guard.open_read(path) as file:
            encoding = detect_encoding(file.read(SAMPLE_BYTES))
            if encoding is None:
                return
            file.seek(len(encoding.bom))
            with io.TextIOWrapper(file, encoding.name, errors="replace", newline="\n") as text:
                for number in range(1, last + 1):
                    if number % _LINES_PER_CHECK == 0:
                        self.watch.check()
                    line = text.readline(_PIECE_CHARS)
                    if not line:
                        return
                    yield number, line


def _render(shown: str, number: int, line: str, *, matched: bool) -> str:
    mark = ":" if matched else "-"
    content = line.rstrip("\r\n")
    if len(content) > _LINE_CHARS:
        content = f"{content[:_LINE_CHARS]}… [line of {len(content):,} characters]"
    return f"{shown}{mark}{number}{mark}{content}"
