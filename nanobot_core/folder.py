"""Folder: files below a folder whose content may be hostile.

What a command or a tool has put into the agent's workspace may be anything: a link to the
configuration, a pipe that never ends, a file of gigabytes. Every name is therefore opened one
component at a time, each relative to the directory before it and without following a link, and only
regular files are read. POSIX only: this rests on ``openat(2)`` and its relatives.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from io import BufferedReader

# O_PATH passes directories that may be entered but not listed; elsewhere reading is asked for.
_ENTER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# Without O_NONBLOCK, opening a FIFO waits for the other end.
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_MAX_ENTRIES = 100_000


_IRREGULAR = frozenset({errno.ELOOP, errno.EISDIR, errno.ENXIO})
"""What opening a link, a folder, and a pipe, socket or device fails with."""


class IrregularFile(OSError):
    """A link, folder, pipe, socket or device has the name of an expected regular file.

    Its ``errno`` is ``ELOOP`` for a link, ``EISDIR`` for a folder and ``ENXIO`` for the rest.
    """


class Entry(NamedTuple):
    """A name in a folder and what ``lstat(2)`` says of it."""

    name: str
    facts: os.stat_result


class Folder:
    """A folder and what is below it. All methods block; call them in a thread.

    Names are relative to the folder and have no ``..``. Every method raises `OSError` if the
    system refuses, such as `IrregularFile`.

    Args:
        path: the folder. Links on the way to it are the owner's and are followed once, here.
    """

    def __init__(self, path: Path) -> None:
        self.path: Path = path.expanduser().resolve()
        self._parts = self.path.parts[1:]

    def open(self, name: str | PurePath, flags: int, mode: int = 0o600) -> int:
        """Return a descriptor of a regular file.

        Args:
            name: the file.
            flags: as for ``open(2)``.
            mode: permissions of a new file.
        """
        with self.parent(name) as parent:
            try:
                handle = os.open(PurePath(name).name, flags | _SAFE, mode, dir_fd=parent)
            except OSError as error:
                if error.errno in _IRREGULAR:
                    raise _irregular(error.errno, name) from error
                raise
        try:
            require_regular(os.fstat(handle), name)
            os.set_blocking(handle, True)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def open_read(self, name: str | PurePath) -> BufferedReader:
        """Open a regular file for reading."""
        return os.fdopen(self.open(name, os.O_RDONLY), "rb")

    def read(self, name: str | PurePath, max_bytes: int) -> bytes:
        """Return the first `max_bytes` bytes of a regular file."""
        with self.open_read(name) as file:
            return file.read(max_bytes)

    def stat(self, name: str | PurePath) -> os.stat_result:
        """Return what ``lstat(2)`` says of a name."""
        with self.parent(name) as parent:
            return os.stat(PurePath(name).name, dir_fd=parent, follow_symlinks=False)

    def stat_all(self, names: Sequence[str]) -> dict[str, os.stat_result]:
        """Return what ``lstat(2)`` says of `names`, all of one directory, that it can find."""
        found: dict[str, os.stat_result] = {}
        with self.parent(names[0]) as at:
            for name in names:
                with contextlib.suppress(OSError):
                    found[name] = os.stat(PurePath(name).name, dir_fd=at, follow_symlinks=False)
        return found

    def replace(self, name: str | PurePath, data: bytes, *, mode: int | None = None) -> None:
        """Make `data` the content of a file: completely, on disk, or not at all.

        Makes missing folders. An existing file keeps its permissions and, where this process
        may set it, its owner; access control lists and extended attributes are lost.

        Args:
            name: the file.
            data: the whole content.
            mode: permissions instead of those of the existing file.
        """
        with self.parent(name, make=True) as parent:
            _replace(parent, PurePath(name).name, data, mode)

    def remove(self, name: str | PurePath) -> None:
        """Remove a regular file."""
        with self.parent(name) as parent:
            file = PurePath(name).name
            require_regular(os.stat(file, dir_fd=parent, follow_symlinks=False), file)
            os.unlink(file, dir_fd=parent)

    def unlink(self, name: str | PurePath) -> None:
        """Remove a file, or a link but not its target."""
        with self.parent(name) as parent:
            os.unlink(PurePath(name).name, dir_fd=parent)

    def link(self, name: str | PurePath, new_name: str) -> None:
        """Give a regular file a second name in the same folder."""
        with self.parent(name) as parent:
            file = PurePath(name).name
            require_regular(os.stat(file, dir_fd=parent, follow_symlinks=False), file)
            os.link(file, new_name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)

    def rename(self, name: str | PurePath, new_name: str) -> None:
        """Rename `name`, whatever kind of file it is, within its folder."""
        with self.parent(name) as parent:
            os.rename(PurePath(name).name, new_name, src_dir_fd=parent, dst_dir_fd=parent)

    def make(self, name: str | PurePath = "", *, mode: int = 0o700) -> None:
        """Make a folder and its missing parents; an existing one stays unchanged.

        Raises:
            OSError: one of the names belongs to something else, such as a link.
        """
        with self.directory(name, make=True, mode=mode):
            return

    def scan(self, name: str | PurePath = "") -> list[Entry]:
        """Return the entries of a folder, at most 100,000; links are not followed."""
        found: list[Entry] = []
        with self.directory(name) as handle, os.scandir(handle) as entries:
            for entry in entries:
                # Another process may remove it first.
                with contextlib.suppress(FileNotFoundError):
                    found.append(Entry(entry.name, entry.stat(follow_symlinks=False)))
                if len(found) == _MAX_ENTRIES:
                    break
        return found

    @contextlib.contextmanager
    def directory(
        self, name: str | PurePath = "", *, make: bool = False, mode: int = 0o777
    ) -> Iterator[int]:
        """Yield a descriptor of a directory, for ``os.scandir`` and as ``dir_fd``."""
        *parts, last = self._parts_of(name) or (".",)
        parent = _walk(parts, make=make)
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(last, mode, dir_fd=parent)
            handle = os.open(last, _LIST, dir_fd=parent)
        finally:
            os.close(parent)
        try:
            yield handle
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def parent(self, name: str | PurePath, *, make: bool = False) -> Iterator[int]:
        """Yield a descriptor of the directory that holds `name`."""
        handle = _walk(self._parts_of(name)[:-1], make=make)
        try:
            yield handle
        finally:
            os.close(handle)

    def _parts_of(self, name: str | PurePath) -> tuple[str, ...]:
        """Return the components of the path of `name`, from ``/`` on."""
        path = PurePath(name)
        if path.is_absolute() or ".." in path.parts:
            raise OSError(errno.EINVAL, f"'{path}' does not name a place below the folder")
        return (*self._parts, *path.parts)


def _walk(parts: Sequence[str], *, make: bool) -> int:
    """Return a descriptor of the directory that `parts` lead to from ``/`` through no link."""
    handle = os.open("/", _ENTER)
    try:
        for name in parts:
            child = _enter(handle, name, make=make)
            os.close(handle)
            handle = child
    except BaseException:
        os.close(handle)
        raise
    return handle


def _enter(parent: int, name: str, *, make: bool) -> int:
    try:
        return os.open(name, _ENTER, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
    return os.open(name, _ENTER, dir_fd=parent)


def require_regular(facts: os.stat_result, name: str | PurePath) -> None:
    """Raise `IrregularFile` unless `facts`, of ``lstat(2)``, describe a regular file."""
    if stat.S_ISLNK(facts.st_mode):
        raise _irregular(errno.ELOOP, name)
    if stat.S_ISDIR(facts.st_mode):
        raise _irregular(errno.EISDIR, name)
    if not stat.S_ISREG(facts.st_mode):
        raise _irregular(errno.ENXIO, name)


def _irregular(number: int, name: str | PurePath) -> IrregularFile:
    return IrregularFile(number, "not a regular file", str(name))


def _replace(parent: int, name: str, data: bytes, mode: int | None) -> None:
    try:
        former = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        former = None
    if former is not None:
        require_regular(former, name)
        # A rename would replace even a file that its owner made read-only.
        if not os.access(name, os.W_OK, dir_fd=parent):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    temporary = f".nanobot-{secrets.token_hex(8)}.tmp"
    handle = os.open(temporary, _CREATE, 0o666 if former is None else 0o600, dir_fd=parent)
    try:
        with os.fdopen(handle, "wb") as file:
            _keep_attributes(handle, former, mode)
            file.write(data)
            file.flush()
            os.fsync(handle)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise
    _sync_directory(parent)


def _keep_attributes(handle: int, former: os.stat_result | None, mode: int | None) -> None:
    if former is not None:
        with contextlib.suppress(PermissionError):
            os.fchown(handle, former.st_uid, former.st_gid)
        mode = former.st_mode if mode is None else mode
    if mode is not None:
        # Like a plain write, drop the set-user-id bits.
        os.fchmod(handle, mode & 0o777)


def _sync_directory(parent: int) -> None:
    # The rename has happened: a folder that cannot be listed is no reason to report failure.
    with contextlib.suppress(OSError):
        handle = os.open(".", _LIST, dir_fd=parent)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
