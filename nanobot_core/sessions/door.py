"""The one place that opens session files: by name, through no link, regular files only."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from nanobot_core.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader, BufferedWriter
    from pathlib import Path

_IRREGULAR: Final = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})
"""A link, a pipe without a reader or another special file, a folder."""


class NotRegular(OSError):
    """A link, a pipe, a device or a folder has the name of a session file."""

    def __init__(self, name: str) -> None:
        super().__init__(errno.EINVAL, f"'{name}' is no regular file")


class SessionDoor:
    """Opens, adds, replaces and removes files of one folder. Blocking.

    Args:
        folder: where the files are; made when the first one is written.
        fsync: whether what is written must be on the disk when a method returns.
    """

    def __init__(self, folder: Path, *, fsync: bool = True) -> None:
        self._files, self._fsync = Folder(folder), fsync

    def stat(self, name: str) -> os.stat_result | None:
        """Return the facts of a regular file; ``None`` if there is nothing of that name.

        Raises:
            NotRegular: something else is there.
        """
        try:
            facts = self._files.stat(name)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(facts.st_mode):
            raise NotRegular(name)
        return facts

    def scan(self, suffix: str) -> Iterator[str]:
        """Yield the names of regular files that end in `suffix`; nothing if there is no folder."""
        with suppress(FileNotFoundError):
            for name, facts in self._files.scan():
                if name.endswith(suffix) and stat.S_ISREG(facts.st_mode):
                    yield name

    @contextmanager
    def open_read(self, name: str) -> Iterator[BufferedReader]:
        """Lend a file to read."""
        with os.fdopen(self._open(name, os.O_RDONLY), "rb") as file:
            yield file

    def append(self, name: str, data: bytes, modified_ns: int | None = None) -> int:
        """Add `data` in one write, all or nothing, and return the file's size.

        Args:
            name: the file, which is made if need be.
            data: what to add.
            modified_ns: time of modification to set; that of the write without it.
        """
        self._files.make()
        file = self._open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(file).st_size
            try:
                if os.write(file, data) != len(data):
                    msg = "the disk took only part of the data; make room"
                    raise OSError(errno.ENOSPC, msg)
                if self._fsync:
                    os.fsync(file)
            except OSError:
                os.ftruncate(file, size)
                raise
            if modified_ns is not None:
                os.utime(file, ns=(modified_ns, modified_ns))
        finally:
            os.close(file)
        if size == 0:
            self.sync()
        return size + len(data)

    def truncate(self, name: str, size: int) -> None:
        """Cut a file off at `size` bytes."""
        file = self._open(name, os.O_WRONLY)
        try:
            os.ftruncate(file, size)
        finally:
            os.close(file)

    @contextmanager
    def replacing(self, name: str, modified_ns: int | None = None) -> Iterator[BufferedWriter]:
        """Lend a new file that takes the place of `name` when the block ends without an error."""
        self._files.make()
        temporary = f"{name}.tmp"
        self.remove(temporary)
        try:
            descriptor = self._open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                if self._fsync:
                    os.fsync(descriptor)
                if modified_ns is not None:
                    os.utime(descriptor, ns=(modified_ns, modified_ns))
            self._files.rename(temporary, name)
        finally:
            self.remove(temporary)
        self.sync()

    def keep(self, name: str) -> str:
        """Give a file a second name, ``….corrupt-1`` or the next free one, and return it."""
        kept = self._free(name)
        with self.open_read(name) as file:
            try:
                self._files.link(name, kept)
            except OSError:  # a file system without hard links
                descriptor = self._open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                with os.fdopen(descriptor, "wb") as copy:
                    shutil.copyfileobj(file, copy)
        return kept

    def set_aside(self, name: str) -> str:
        """Rename what has a session file's name, whatever it is; return the name as `keep` does."""
        kept = self._free(name)
        self._files.rename(name, kept)
        self.sync()
        return kept

    def remove(self, name: str) -> bool:
        """Remove a file, or a link and not what it names; False if there is none."""
        try:
            self._files.unlink(name)
        except FileNotFoundError:
            return False
        return True

    def remove_kept(self, name: str) -> None:
        """Remove what `keep` and `set_aside` made of a file; folders stay."""
        with suppress(FileNotFoundError):
            for kept, facts in self._files.scan():
                if kept.startswith(f"{name}.corrupt-") and not stat.S_ISDIR(facts.st_mode):
                    self.remove(kept)

    def sync(self) -> None:
        """Make new names in the folder durable, where the system can."""
        if self._fsync:
            with self._files.directory() as folder:
                os.fsync(folder)

    def _free(self, name: str) -> str:
        taken = {entry.name for entry in self._files.scan()}
        number = 1
        while f"{name}.corrupt-{number}" in taken:
            number += 1
        return f"{name}.corrupt-{number}"

    def _open(self, name: str, flags: int) -> int:
        try:
            return self._files.open(name, flags)
        except OSError as error:
            if error.errno in _IRREGULAR:
                raise NotRegular(name) from error
            raise
