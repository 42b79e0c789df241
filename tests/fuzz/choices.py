"""Decisions drawn from the bytes of one run, so that equal bytes decide alike."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_MAX_EDITS: Final = 8
_MEMORY: Final = Path("/dev/shm")


class Choices:
    """Reads decisions off the front of `data`; when it is used up, every decision is zero."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def __bool__(self) -> bool:
        return self._position < len(self._data)

    def byte(self) -> int:
        """Return a number below 256."""
        return self.take(1)[0] if self else 0

    def below(self, limit: int) -> int:
        """Return a number below `limit`, which is at least 1."""
        size = 1 if limit <= 1 << 8 else 2 if limit <= 1 << 16 else 4
        return int.from_bytes(self.take(size), "little") % limit

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes, or those that are left."""
        start = self._position
        self._position = min(start + size, len(self._data))
        return self._data[start : self._position]

    def rest(self) -> bytes:
        """Return all that is left."""
        return self.take(len(self._data))


def damaged(base: bytes, choices: Choices) -> bytes:
    """Return `base` with the edits that the rest of `choices` asks for."""
    content = bytearray(base)
    for _ in range(_MAX_EDITS):
        if not choices:
            break
        _edit(content, choices)
    return bytes(content)


def _edit(content: bytearray, choices: Choices) -> None:
    kind, at = choices.byte() % 7, choices.below(len(content) + 1)
    size = choices.byte()
    if kind == 0:
        content[at:at] = choices.take(size)
    elif kind == 1:
        del content[at : at + 1 + size * (1 + choices.byte())]
    elif kind == 2:
        new = choices.take(size)
        content[at : at + len(new)] = new
    elif kind == 3:
        del content[at:]
    elif kind == 4 and at < len(content):
        content[at] ^= 1 << size % 8
    elif kind == 5:
        content[at:at] = content[choices.below(len(content) + 1) :][: size * 8]
    elif kind == 6:
        new = bytes(size * 16)
        content[at : at + len(new)] = new[: max(0, len(content) - at)]


@contextmanager
def fresh_folder() -> Iterator[Path]:
    """Lend an empty folder, in memory where the system has a file system there."""
    folder = Path(tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
