"""PathGuard: which files a tool may reach, and opening them without a gap between check and use.

A path is resolved once, symbolic links included, and judged as what it resolves to. It is then
opened one component at a time, each relative to the directory before it and without following a
link, so that a name swapped for a link after the check leads to a refusal and not elsewhere.
POSIX only: this rests on ``openat(2)`` and its relatives.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nanobot_core.errors import ToolDenied, ToolError, ToolFailed, ToolInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import BufferedReader

_Access = Literal["read", "write"]

_PSEUDO = (("dev",), ("proc",), ("sys",))
_STATE = (
    ("sessions",),
    ("memory", "history.jsonl"),
    ("memory", ".cursor"),
    ("memory", ".dream_cursor"),
    ("memory", ".git"),
    (".nanobot",),
)
"""The agent's own records inside the workspace; other parts of nanobot write them."""
_MAX_PATH_BYTES, _MAX_NAME_BYTES = 4_096, 255

# O_PATH passes directories that may be entered but not listed; elsewhere reading is asked for.
_ENTER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# Without O_NONBLOCK, opening a FIFO waits for a writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


class PathGuard:
    """Decides on paths that a model named, and opens what it allowed.

    Devices and pseudo file systems (``/dev``, ``/proc``, ``/sys``), the configuration and the
    agent's own records are refused whether restricted or not. Names are compared without regard
    to case and to Unicode spelling, as some file systems do, so a name that only looks like one
    of these is refused too.

    Hard links: a file with several names is readable under each, because package managers and
    ``git clone`` make such files by the thousand; only the configuration is also recognised by
    its inode. Writing replaces the name, so the content under another name never changes.

    All methods block; call them in a thread.

    Args:
        workspace: folder that relative paths refer to; always readable and writable.
        read_roots: further folders that may be read.
        write_roots: further folders that may be read and written.
        restricted: whether paths outside these folders are refused.
        protected: files that may be neither read nor written, such as the configuration.
    """

    def __init__(
        self,
        workspace: Path,
        *,
        read_roots: Iterable[Path] = (),
        write_roots: Iterable[Path] = (),
        restricted: bool = True,
        protected: Iterable[Path] = (),
    ) -> None:
        self.workspace: Path = workspace.expanduser().resolve()
        writable = [self.workspace, *(root.expanduser().resolve() for root in write_roots)]
        readable = [*writable, *(root.expanduser().resolve() for root in read_roots)]
        self._roots: dict[_Access, list[Path]] = {"read": readable, "write": writable}
        self._restricted = restricted
        self._protected = [path.expanduser().resolve() for path in protected]
        self._folded_workspace = _fold(self.workspace)
        self._folded_protected = {_fold(path) for path in self._protected}

    def resolve_read(self, text: str) -> Path:
        """Return the absolute path, free of links, that `text` means and that may be read.

        Args:
            text: as the model wrote it: absolute, relative to the workspace, or below ``~``.

        Raises:
            ToolInputError: the text is no usable path.
            ToolDenied: the path may not be read.
        """
        return self._resolve("read", text)

    def resolve_write(self, text: str) -> Path:
        """Return the absolute path, free of links, that `text` means and that may be written.

        Args:
            text: as for `resolve_read`.

        Raises:
            ToolInputError: the text is no usable path.
            ToolDenied: the path may not be written.
        """
        return self._resolve("write", text)

    def may_read(self, path: Path) -> bool:
        """Whether `path`, absolute and free of links, may be read."""
        return self._objection("read", path) is None

    def open_read(self, path: Path) -> BufferedReader:
        """Open a regular file.

        Args:
            path: what `resolve_read` or `resolve_write` returned, or a name below it.

        Raises:
            ToolInputError: there is no such file, or it is not a regular one.
            ToolDenied: it may not be read, or a link stands where none stood at the check.
        """
        with self._parent("read", path) as parent:
            handle = os.open(path.name, _READ, dir_fd=parent)
            try:
                facts = os.fstat(handle)
                _require_regular("read", path, facts)
                if (facts.st_dev, facts.st_ino) in self._protected_inodes():
                    raise ToolDenied(_refusal("read", str(path), "it is nanobot's configuration"))
            except BaseException:
                os.close(handle)
                raise
        return os.fdopen(handle, "rb")

    @contextlib.contextmanager
    def open_directory(self, path: Path) -> Iterator[int]:
        """Lend a descriptor of a directory, for ``os.scandir`` and as ``dir_fd``.

        Args:
            path: what `resolve_read` returned, or a name below it.

        Raises:
            ToolInputError: there is no such directory.
            ToolDenied: it may not be read, or a link stands where none stood at the check.
        """
        with self._parent("read", path) as parent:
            handle = os.open(path.name or ".", _LIST, dir_fd=parent)
        try:
            yield handle
        finally:
            os.close(handle)

    def write_atomic(self, path: Path, data: bytes, *, mode: int | None = None) -> None:
        """Make `data` the content of `path`: all of it, on disk, or nothing.

        Missing folders are made. A file that is there keeps its permissions and, where this
        process may set it, its owner; access control lists and extended attributes are lost.

        Args:
            path: what `resolve_write` returned.
            data: the whole content.
            mode: permissions instead of those of the file that is there.

        Raises:
            ToolInputError: the path cannot be written.
            ToolDenied: it may not be written, or a link stands where none stood at the check.
            ToolFailed: the disk refused; the former content is whole.
        """
        with self._parent("write", path, make=True) as parent:
            _replace(parent, path, data, mode)

    def remove(self, path: Path) -> None:
        """Remove a regular file.

        Args:
            path: what `resolve_write` returned.

        Raises:
            ToolInputError: there is no such file, or it is not a regular one.
            ToolDenied: it may not be written, or a link stands where none stood at the check.
        """
        with self._parent("write", path) as parent:
            facts = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
            _require_regular("write", path, facts)
            os.unlink(path.name, dir_fd=parent)

    def _resolve(self, access: _Access, text: str) -> Path:
        _require_usable(text)
        path = Path(text)
        try:
            if path.parts and path.parts[0] == "~":
                path = path.expanduser()
            absolute = self.workspace / path
            # `/dev/stdin` and `/proc/self/root` resolve to something that looks harmless.
            if reason := _pseudo_objection(Path(os.path.normpath(absolute))):
                raise ToolDenied(_refusal(access, text, reason))
            resolved = absolute.resolve()
        except (OSError, RuntimeError) as error:
            reason = f"it cannot be resolved ({error.__class__.__name__}); check it for links"
            raise ToolInputError(f"cannot {access} '{_shown(text)}': {reason}") from error
        self._check(access, resolved, text)
        return resolved

    @contextlib.contextmanager
    def _parent(self, access: _Access, path: Path, *, make: bool = False) -> Iterator[int]:
        """Lend a descriptor of the directory that holds `path`; tell errors in our words."""
        self._check(access, path, str(path))
        try:
            parent = _open_parent(path, make=make)
            try:
                yield parent
            finally:
                os.close(parent)
        except OSError as error:
            raise _told(access, path, error) from error

    def _check(self, access: _Access, path: Path, text: str) -> None:
        if reason := self._objection(access, path):
            raise ToolDenied(_refusal(access, text, reason))

    def _objection(self, access: _Access, path: Path) -> str | None:
        if reason := _pseudo_objection(path):
            return reason
        if ".." in path.parts or not path.is_absolute():
            return "it was not resolved before it was opened"
        if self._restricted and not any(path.is_relative_to(r) for r in self._roots[access]):
            roots = ", ".join(f"'{root}'" for root in self._roots[access])
            return f"it is outside the allowed folders ({roots}); use a path inside them"
        folded = _fold(path)
        if folded in self._folded_protected:
            return "it is nanobot's configuration; ask the owner to change it"
        depth = len(self._folded_workspace)
        if folded[:depth] == self._folded_workspace:
            return _state_objection(access, folded[depth:])
        return None

    def _protected_inodes(self) -> set[tuple[int, int]]:
        found = set()
        for path in self._protected:
            with contextlib.suppress(OSError):
                facts = path.stat()
                found.add((facts.st_dev, facts.st_ino))
        return found


def _shown(text: str) -> str:
    """Return a path for an error message: control characters escaped, cut at 200 characters."""
    plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:200])
    return plain if len(text) <= 200 else f"{plain}…"


def _refusal(access: _Access, text: str, reason: str) -> str:
    return f"cannot {access} '{_shown(text)}': {reason}"


def _require_usable(text: str) -> None:
    if not text.strip() or "\0" in text:
        problem = f"the path '{_shown(text)}' is empty or has a NUL character; name a file"
        raise ToolInputError(problem)
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError as error:
        problem = f"the path '{_shown(text)}' has characters that no file name can have"
        raise ToolInputError(problem) from error
    if len(encoded) > _MAX_PATH_BYTES or max(map(len, encoded.split(b"/"))) > _MAX_NAME_BYTES:
        raise ToolInputError(
            f"the path '{_shown(text)}' is too long; a path has at most {_MAX_PATH_BYTES} bytes "
            f"and each name in it {_MAX_NAME_BYTES}"
        )


def _pseudo_objection(path: Path) -> str | None:
    names = path.parts[1:]
    if names[:2] == ("dev", "shm") or names[:1] not in _PSEUDO:
        return None
    return f"'/{names[0]}' holds devices and views of the system, not files; use a command"


def _state_objection(access: _Access, names: tuple[str, ...]) -> str | None:
    if access == "write" and any(names[: len(state)] == state for state in _STATE):
        return "it belongs to the agent's own records; leave it as it is and use another name"
    if names[:1] == (".nanobot",) and names[1:2] != ("tool-results",):
        return "it belongs to nanobot itself; only 'tool-results' may be read there"
    return None


def _fold(path: Path) -> tuple[str, ...]:
    """Return the names of `path` with everything removed that some file system disregards."""
    return tuple(map(_fold_name, path.parts))


def _fold_name(name: str) -> str:
    # APFS and HFS+ compare normalised and without case, and HFS+ skips format characters;
    # FAT and SMB shares drop trailing dots and spaces.
    if name.isascii():
        return name.casefold().rstrip(". ")
    plain = unicodedata.normalize("NFKC", name).casefold()
    kept = "".join(c for c in plain if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFKC", kept).rstrip(". ")


def _open_parent(path: Path, *, make: bool = False) -> int:
    """Open the directory that holds `path`, from the root on and through no link."""
    handle = os.open("/", _ENTER)
    for name in path.parent.parts[1:]:
        try:
            child = _enter(handle, name, make=make)
        finally:
            os.close(handle)
        handle = child
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


def _require_regular(access: _Access, path: Path, facts: os.stat_result) -> None:
    if stat.S_ISREG(facts.st_mode):
        return
    if stat.S_ISLNK(facts.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if stat.S_ISDIR(facts.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    reason = "it is a pipe, socket or device and not a regular file; choose another"
    raise ToolInputError(_refusal(access, str(path), reason))


def _replace(parent: int, path: Path, data: bytes, mode: int | None) -> None:
    try:
        former = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        former = None
    if former is not None:
        _require_regular("write", path, former)
        # A rename would overwrite even a file that its owner made read-only.
        if not os.access(path.name, os.W_OK, dir_fd=parent):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    temporary = f".nanobot-{secrets.token_hex(8)}.tmp"
    handle = os.open(temporary, _CREATE, 0o666 if former is None else 0o600, dir_fd=parent)
    try:
        with os.fdopen(handle, "wb") as file:
            _keep_attributes(handle, former, mode)
            file.write(data)
            file.flush()
            os.fsync(handle)
        os.rename(temporary, path.name, src_dir_fd=parent, dst_dir_fd=parent)
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
        # As after a plain write, new content is not run under another user's rights.
        os.fchmod(handle, mode & 0o777)


def _sync_directory(parent: int) -> None:
    # The rename has happened: a folder that cannot be listed is no reason to report failure.
    with contextlib.suppress(OSError):
        handle = os.open(".", _LIST, dir_fd=parent)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _told(access: _Access, path: Path, error: OSError) -> ToolError:
    kind: type[ToolError] = ToolInputError
    match error.errno:
        case errno.ENOENT:
            reason = "there is no such file or folder; look with list_dir or glob"
        case errno.ELOOP:
            kind, reason = ToolDenied, "a link took its place meanwhile; name its target"
        case errno.ENOTDIR:
            reason = "a part of it is no folder, or became a link meanwhile"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            reason = "the operating system does not permit it; ask the owner"
        case errno.EISDIR:
            reason = "it is a folder; name a file in it"
        case _:
            kind, reason = ToolFailed, os.strerror(error.errno or errno.EIO)
    return kind(_refusal(access, str(path), reason))
