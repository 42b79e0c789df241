"""Pages of the documentation as programs: what a reader would type and write, in order.

A fenced block is run by its language:

- ``console``: each line that begins with ``$ `` is a command; the lines below it are what it
  prints, where ``...`` stands for anything: on stdout, or on stderr when it fails. Without such
  lines it must succeed.
- ``python``, ``toml`` and ``yaml``: a block whose first line is a comment with a path is written
  there; a Python block without a path is run.
- anything else, ``sh`` included, is for the reader alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PATH = re.compile(r"^# ((?:~/)?(?:[\w.-]+/)*[\w.-]+\.(?:py|toml|yaml))\n")


@dataclass(frozen=True, slots=True)
class Command:
    """A command with the output that the page shows, or ``None`` where it shows none."""

    line: str
    expected: str | None

    def is_met_by(self, output: str) -> bool:
        """Tell whether `output` is what the page shows."""
        if self.expected is None:
            return True
        pattern = ".*".join(re.escape(part) for part in self.expected.split("..."))
        return re.fullmatch(pattern, output.strip(), re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that the reader writes; `path` is relative, or begins with ``~/.nanobot/``."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Program:
    """Python to run."""

    text: str


Step = Command | WrittenFile | Program


def steps_of(page: Path) -> Iterator[Step]:
    """Yield what a reader of `page` does, in order."""
    for language, text in _BLOCK.findall(page.read_text("utf-8")):
        if language == "console":
            yield from _commands(text)
        elif language in {"python", "toml", "yaml"}:
            path = _PATH.match(text)
            if path is not None:
                yield WrittenFile(path[1], text)
            elif language == "python":
                yield Program(text)


def _commands(text: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        yield Command(line, output.strip() or None)
