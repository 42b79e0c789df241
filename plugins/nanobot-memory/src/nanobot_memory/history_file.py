"""HistoryFile: a file of history entries, read as far as it has changed."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from nanobot_memory.history import HistoryEntry, parse_lines

if TYPE_CHECKING:
    from nanobot_core import Folder

MAX_HISTORY_BYTES: Final = 50_000_000
"""Bytes that are read of a file, from its end."""
NO_FILE: Final = (0, 0, 0)
"""The stamp of a file that is missing."""


class HistoryFile:
    """A file of entries below the workspace. Blocks; the caller keeps others from using it.

    All methods raise `OSError` if the system refuses.
    """

    def __init__(self, root: Folder, path: PurePosixPath) -> None:
        self._root = root
        self._path = path
        self._known: list[HistoryEntry] = []
        self._read_to = 0
        self._loaded = NO_FILE

    @property
    def stamp(self) -> tuple[int, int, int]:
        """Inode, bytes and time of change; `NO_FILE` if it is missing."""
        try:
            facts = self._root.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return NO_FILE
        return (facts.st_ino, facts.st_size, facts.st_mtime_ns)

    def load(self) -> list[HistoryEntry]:
        """Return all entries by their numbers; what was read before is not read again."""
        stamp = self.stamp
        if stamp == self._loaded:
            return self._known
        inode, size, _ = stamp
        if inode != self._loaded[0] or size <= self._loaded[1]:  # not just appended to
            self._known, self._read_to = [], max(size - MAX_HISTORY_BYTES, 0)
            self._loaded = NO_FILE
        if stamp == NO_FILE:
            return self._known
        with self._root.open_read(self._path) as file:
            file.seek(self._read_to)
            data = file.read(size - self._read_to)
        whole = data.rfind(b"\n") + 1
        known = {entry.cursor: entry for entry in self._known}
        known |= {entry.cursor: entry for entry in parse_lines(data[:whole])}
        self._known = sorted(known.values(), key=lambda entry: entry.cursor)
        self._read_to += whole
        self._loaded = stamp
        return self._known

    def append(self, data: bytes) -> None:
        """Append lines; they are on disk when the call returns, and none is if it raises."""
        handle = self._root.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        with os.fdopen(handle, "r+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            is_torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            try:
                _write_all(handle, b"\n" + data if is_torn else data)
                os.fsync(handle)
            except OSError:
                file.truncate(size)  # a full disk leaves no half of a line
                raise

    def lines_of(self, cursors: Collection[int]) -> bytes:
        """Return the lines of entries as they are in the file, keys of other programs included."""
        return b"".join(line for line in self._lines() if _is_of(line, cursors))

    def drop(self, cursors: Collection[int]) -> bool:
        """Remove entries, completely or not at all; return whether there were any."""
        lines = self._lines()
        kept = [line for line in lines if not _is_of(line, cursors)]
        if len(kept) == len(lines):
            return False
        self._root.replace(self._path, b"".join(kept))
        return True

    def _lines(self) -> list[bytes]:
        _, size, _ = self.stamp
        return self._root.read(self._path, size).splitlines(keepends=True) if size else []


def _is_of(line: bytes, cursors: Collection[int]) -> bool:
    return any(entry.cursor in cursors for entry in parse_lines(line))


def _write_all(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]
