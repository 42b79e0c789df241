"""The patch format ``*** Begin Patch``, parsed, and applied to the text of one file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nanobot_core import ToolInputError
from nanobot_files.passages import PLAIN_QUOTES

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_ADD, _DELETE, _UPDATE = "*** Add File: ", "*** Delete File: ", "*** Update File: "
_MOVE, _END_OF_FILE = "*** Move to: ", "*** End of File"
_LEVELS: tuple[Callable[[str], str], ...] = (
    lambda line: line,
    lambda line: line.rstrip(),
    lambda line: line.rstrip().translate(PLAIN_QUOTES),
)
"""How similar a line of the patch and a line of the file must be, strictest first."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """One place in a file.

    Attributes:
        anchors: texts of lines that come before it, in order (``@@ def f():``).
        old: present lines, context included.
        new: lines that replace them.
        at_end: it is the end of the file.
    """

    anchors: tuple[str, ...]
    old: tuple[str, ...]
    new: tuple[str, ...]
    at_end: bool = False


@dataclass(frozen=True, slots=True)
class AddFile:
    """A new file."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A file to remove."""

    path: str


@dataclass(frozen=True, slots=True)
class UpdateFile:
    """A file to change, and to move if `move_to` is not ``None``."""

    path: str
    hunks: tuple[Hunk, ...]
    move_to: str | None = None


Change = AddFile | DeleteFile | UpdateFile


def parse_patch(text: str) -> list[Change]:
    """Return the changes of a patch.

    Raises:
        ToolInputError: it is not in the format; the line is named.
    """
    lines = text.strip().replace("\r\n", "\n").split("\n")
    if lines[0].strip() != _BEGIN or lines[-1].strip() != _END:
        raise ToolInputError(f"a patch begins with the line '{_BEGIN}' and ends with '{_END}'")
    reader = _Reader(lines[:-1])
    changes: list[Change] = []
    while not reader.at_end:
        changes.append(_parse_change(reader))
    if not changes:
        raise ToolInputError("the patch changes nothing; name a file in it")
    return changes


def apply_hunks(text: str, hunks: Sequence[Hunk], shown: str, newline: str) -> str:
    """Return `text` with the hunks applied; lines that they do not touch stay as they are.

    Args:
        hunks: in the order of the patch.
        shown: the file's path, for the error.
        newline: line ending of new lines.

    Raises:
        ToolInputError: a hunk fits nowhere.
    """
    lines = _split(text)
    plain = [line.rstrip("\r\n") for line in lines]
    result: list[str] = []
    position = 0
    for number, hunk in enumerate(hunks, 1):
        start = _locate(plain, hunk, position)
        if start is None:
            wanted = "\n".join(hunk.old or hunk.anchors)
            raise ToolInputError(
                f"hunk {number} for '{shown}' fits nowhere after line {position}; read the file "
                f"and take these lines from it:\n{wanted[:1_000]}"
            )
        result += lines[position:start]
        result += _merge(lines[start : start + len(hunk.old)], hunk, newline)
        position = start + len(hunk.old)
    result += lines[position:]
    return "".join(_ended(result, newline))


class _Reader:
    """Lines of a patch, one after another."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._next = 1  # the first line is the beginning mark

    @property
    def at_end(self) -> bool:
        return self._next >= len(self._lines)

    def peek(self) -> str | None:
        return None if self.at_end else self._lines[self._next]

    def take(self) -> str:
        line = self._lines[self._next]
        self._next += 1
        return line

    def error(self, expected: str) -> ToolInputError:
        found = self.peek() or ""
        return ToolInputError(
            f"line {self._next + 1} of the patch: expected {expected}, found '{found[:100]}'"
        )


def _parse_change(reader: _Reader) -> Change:
    line = reader.peek() or ""
    if path := _after(line, _ADD):
        reader.take()
        return AddFile(path, _parse_added(reader))
    if path := _after(line, _DELETE):
        reader.take()
        return DeleteFile(path)
    if path := _after(line, _UPDATE):
        reader.take()
        return _parse_update(path, reader)
    raise reader.error("'*** Add File: ', '*** Update File: ' or '*** Delete File: ' and a path")


def _after(line: str, mark: str) -> str:
    return line[len(mark) :].strip() if line.startswith(mark) else ""


def _parse_added(reader: _Reader) -> str:
    lines: list[str] = []
    while (line := reader.peek()) is not None and not line.startswith("*** "):
        if not line.startswith("+"):
            raise reader.error("a line of the new file, which begins with '+'")
        lines.append(reader.take()[1:] + "\n")
    return "".join(lines)


def _parse_update(path: str, reader: _Reader) -> UpdateFile:
    move_to = _after(reader.peek() or "", _MOVE) or None
    if move_to:
        reader.take()
    hunks: list[Hunk] = []
    while (line := reader.peek()) is not None and not line.startswith("*** "):
        hunks.append(_parse_hunk(reader))
    if not hunks and not move_to:
        raise reader.error(f"a hunk for '{path}', which begins with '@@'")
    return UpdateFile(path, tuple(hunks), move_to)


def _parse_hunk(reader: _Reader) -> Hunk:
    anchors: list[str] = []
    while (line := reader.peek()) is not None and line.startswith("@@"):
        if anchor := reader.take()[2:].strip():
            anchors.append(anchor)
    old: list[str] = []
    new: list[str] = []
    blank_lines = 0
    while (line := reader.peek()) is not None and not line.startswith(("@@", "*** ")):
        mark, rest = line[:1], line[1:]
        if mark not in {" ", "+", "-", ""}:
            raise reader.error("' ', '+' or '-' at the beginning of a line of a hunk")
        reader.take()
        blank_lines = 0 if mark else blank_lines + 1
        if mark != "+":
            old.append(rest)
        if mark != "-":
            new.append(rest)
    while old and new and blank_lines:
        # Blank lines before the next mark are layout, or context that is not needed.
        old.pop()
        new.pop()
        blank_lines -= 1
    if not old and not new:
        raise reader.error("lines of a hunk after '@@'")
    at_end = reader.peek() == _END_OF_FILE
    if at_end:
        reader.take()
    return Hunk(tuple(anchors), tuple(old), tuple(new), at_end)


def _split(text: str) -> list[str]:
    """Return the lines with their endings; only a line feed ends one."""
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), *([last] if last else [])]


def _locate(plain: Sequence[str], hunk: Hunk, position: int) -> int | None:
    for anchor in hunk.anchors:
        found = next(
            (i for i in range(position, len(plain)) if plain[i].strip() == anchor.strip()), None
        )
        if found is None:
            return None
        position = found + 1
    if not hunk.old:
        return position if hunk.anchors and not hunk.at_end else len(plain)
    last = len(plain) - len(hunk.old)
    starts = [last] if hunk.at_end and last >= position else range(position, last + 1)
    for level in _LEVELS:
        wanted = [level(line) for line in hunk.old]
        for start in starts:
            if level(plain[start]) == wanted[0] and wanted == [
                level(line) for line in plain[start : start + len(wanted)]
            ]:
                return start
    return None


def _merge(found: Sequence[str], hunk: Hunk, newline: str) -> list[str]:
    """Return the new lines; context keeps the file's own spelling and line endings."""
    own = dict(zip(hunk.old, found, strict=True))
    return [own.get(line, line + newline) for line in hunk.new]


def _ended(lines: list[str], newline: str) -> list[str]:
    """Return lines of which only the last may lack its line ending."""
    return [
        line if line.endswith("\n") or index == len(lines) - 1 else line + newline
        for index, line in enumerate(lines)
    ]
