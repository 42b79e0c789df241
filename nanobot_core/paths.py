"""PathGuard: decides which files a tool may use, and opens them without a gap after the check.

A path is resolved once, including symbolic links, and the result is checked. It is then opened
through `Folder`, which follows no links, so that a name that becomes a link after the check is
refused.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import os
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from nanobot_core.errors import ToolDenied, ToolError, ToolFailed, ToolInputError
from nanobot_core.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import BufferedReader

Access = Literal["read", "write"]

_PSEUDO = (("dev",), ("proc",), ("sys",))
_STATE = (
    ("sessions",),
    ("memory", "history.jsonl"),
    ("memory", "history-archive.jsonl"),
    ("memory", ".cursor"),
    ("memory", ".dream_cursor"),
    ("memory", ".dream_pending.json"),
    ("memory", "scopes"),  # what others said, which stays out of the owner's conversations
    (".nanobot",),
)
"""The agent's own records in the workspace; other parts of nanobot write them."""
_CONVERSATIONS = "sessions"
"""Conversations with anyone, in the workspace; reading them needs an approval."""
_MAX_PATH_BYTES, _MAX_NAME_BYTES = 4_096, 255
_ROOT = Folder(Path("/"))


class Judged(NamedTuple):
    """What a path given as text means.

    Attributes:
        path: absolute and free of links.
        needs_approval: only the owner's approval permits its use.
    """

    path: Path
    needs_approval: bool


class PathGuard:
    """Decides on paths that a model names, and opens the permitted ones.

    Paths in the allowed folders may be used. nanobot's own folder, the configuration, devices and
    pseudo file systems (``/dev``, ``/proc``, ``/sys``), the agent's records and git's own files are
    always refused. All other paths, and the sessions, are refused if the guard is restricted, and
    otherwise need the owner's approval: `judge` says so, and `granting` returns a guard that has
    it.

    Names are compared without case and Unicode spelling, as some file systems do, so a name that
    only looks like one of these is refused too.

    Hard links: a file with several names can be read under each, because package managers and
    ``git clone`` create thousands of such files; only protected files are also recognised by their
    inode. Writing replaces the name, so the content under another name does not change.

    All methods block; call them in a thread.

    Args:
        workspace: folder that relative paths refer to; always readable and writable.
        read_roots: further folders that may be read.
        write_roots: further folders that may be read and written.
        restricted: refuse paths outside these folders; otherwise they need approval.
        protected: files and folders that are always closed, except for those inside them that the
            other arguments name.
        unlisted: folder whose files may be read if their path is known, such as the media store,
            where each file has a folder with a random name.
        guarded: files and folders that may be written with approval only.
    """

    def __init__(
        self,
        workspace: Path,
        *,
        read_roots: Iterable[Path] = (),
        write_roots: Iterable[Path] = (),
        restricted: bool = True,
        protected: Iterable[Path] = (),
        unlisted: Path | None = None,
        guarded: Iterable[Path] = (),
    ) -> None:
        self.workspace: Path = _resolved(workspace)
        self._write_roots = [self.workspace, *map(_resolved, write_roots)]
        self._read_roots = [*self._write_roots, *map(_resolved, read_roots)]
        self._restricted = restricted
        self._protected = [_resolved(path) for path in protected]
        self._unlisted = None if unlisted is None else _resolved(unlisted)
        self._guarded = [_fold(_resolved(path)) for path in guarded]
        self._granted: tuple[Path, ...] = ()
        opened = [*self._read_roots, *([self._unlisted] if self._unlisted else [])]
        self._folded_opened = [*(_fold(path) for path in opened), *self._guarded]
        self._folded_protected = [_fold(path) for path in self._protected]

    def extended(
        self, *, read_roots: Iterable[Path] = (), write_roots: Iterable[Path] = ()
    ) -> Self:
        """Return a guard that allows further folders as well, except in protected ones."""
        added = list(map(_resolved, write_roots))
        return self._changed(
            _write_roots=[*self._write_roots, *added],
            _read_roots=[*self._read_roots, *added, *map(_resolved, read_roots)],
        )

    def granting(self, paths: Iterable[Path]) -> Self:
        """Return a guard with the owner's approval for `paths` and what is below them.

        Args:
            paths: absolute and free of links, as `judge` returned them.
        """
        return self._changed(_granted=(*self._granted, *paths))

    def _changed(self, **attributes: object) -> Self:
        guard = copy.copy(self)
        vars(guard).update(attributes)
        return guard

    def judge(self, access: Access, text: str) -> Judged:
        """Return the path for `text`, and whether it needs the owner's approval.

        Args:
            access: the intended operation.
            text: as for `resolve_read`.

        Raises:
            ToolInputError: the text is not a usable path.
            ToolDenied: the path is closed; no approval opens it.
        """
        path = self._resolved_path(access, text)
        if reason := self._refused(access, path):
            raise ToolDenied(_refusal(access, text, reason))
        return Judged(path, self._approval_reason(access, path) is not None)

    def resolve_read(self, text: str) -> Path:
        """Return the absolute path for `text`, free of links, if it may be read.

        Args:
            text: as the model wrote it: absolute, relative to the workspace, or below ``~``.

        Raises:
            ToolInputError: the text is not a usable path.
            ToolDenied: the path may not be read.
        """
        return self._resolve("read", text)

    def resolve_write(self, text: str) -> Path:
        """Return the absolute path for `text`, free of links, if it may be written.

        Args:
            text: as for `resolve_read`.

        Raises:
            ToolInputError: the text is not a usable path.
            ToolDenied: the path may not be written.
        """
        return self._resolve("write", text)

    def may_read(self, path: Path) -> bool:
        """Whether `path`, absolute and free of links, may be read."""
        return self._objection("read", path) is None

    def shown(self, path: Path) -> str:
        """Return `path` relative to the workspace if it is inside, else absolute."""
        inside = path.is_relative_to(self.workspace)
        return str(path.relative_to(self.workspace)) if inside else str(path)

    def open_read(self, path: Path) -> BufferedReader:
        """Open a regular file.

        Args:
            path: what `resolve_read` or `resolve_write` returned, or a name below it.

        Raises:
            ToolInputError: the file does not exist, or is not a regular file.
            ToolDenied: it may not be read, or a part of it has become a link since the check.
        """
        with self._checked("read", path):
            file = _ROOT.open_read(_below_root(path))
            facts = os.fstat(file.fileno())
            if (facts.st_dev, facts.st_ino) in self._protected_inodes():
                file.close()
                raise ToolDenied(_refusal("read", str(path), _CLOSED))
            return file

    @contextlib.contextmanager
    def open_directory(self, path: Path) -> Iterator[int]:
        """Yield a descriptor of a directory, for ``os.scandir`` and as ``dir_fd``.

        Args:
            path: what `resolve_read` returned, or a name below it.

        Raises:
            ToolInputError: the directory does not exist.
            ToolDenied: it may not be read, or a part of it has become a link since the check.
        """
        if path == self._unlisted:
            raise ToolDenied(_refusal("read", str(path), "name a file in it"))
        with contextlib.ExitStack() as opened:
            with self._checked("read", path):
                handle = opened.enter_context(_ROOT.directory(_below_root(path)))
            yield handle

    def write_atomic(self, path: Path, data: bytes, *, mode: int | None = None) -> None:
        """Make `data` the content of `path`, completely and on disk, or not at all.

        Missing folders are created. An existing file keeps its permissions and, if this process
        may set it, its owner; access control lists and extended attributes are lost.

        Args:
            path: what `resolve_write` returned.
            mode: permissions instead of those of the existing file.

        Raises:
            ToolInputError: the path cannot be written.
            ToolDenied: it may not be written, or a part of it has become a link since the check.
            ToolFailed: writing failed; the previous content is unchanged.
        """
        with self._checked("write", path):
            _ROOT.replace(_below_root(path), data, mode=mode)

    def remove(self, path: Path) -> None:
        """Remove a regular file.

        Args:
            path: what `resolve_write` returned.

        Raises:
            ToolInputError: the file does not exist, or is not a regular file.
            ToolDenied: it may not be written, or a part of it has become a link since the check.
        """
        with self._checked("write", path):
            _ROOT.remove(_below_root(path))

    def _resolve(self, access: Access, text: str) -> Path:
        path = self._resolved_path(access, text)
        if reason := self._objection(access, path):
            raise ToolDenied(_refusal(access, text, reason))
        return path

    def _resolved_path(self, access: Access, text: str) -> Path:
        _require_usable(text)
        path = Path(text)
        try:
            if path.parts and path.parts[0] == "~":
                path = path.expanduser()
            absolute = self.workspace / path
            # `/dev/stdin` and `/proc/self/root` resolve to paths that look harmless.
            if reason := _pseudo_objection(Path(os.path.normpath(absolute))):
                raise ToolDenied(_refusal(access, text, reason))
            return absolute.resolve()
        except (OSError, RuntimeError) as error:
            reason = f"it cannot be resolved ({error.__class__.__name__}); check it for links"
            raise ToolInputError(f"cannot {access} '{_shown(text)}': {reason}") from error

    @contextlib.contextmanager
    def _checked(self, access: Access, path: Path) -> Iterator[None]:
        """Check `path`, and turn errors of the system into errors of tools."""
        if reason := self._objection(access, path):
            raise ToolDenied(_refusal(access, str(path), reason))
        try:
            yield
        except OSError as error:
            raise _tool_error(access, path, error) from error

    def _objection(self, access: Access, path: Path) -> str | None:
        return self._refused(access, path) or self._approval_reason(access, path)

    def _refused(self, access: Access, path: Path) -> str | None:
        """Return why no approval permits `path`, or ``None``."""
        if reason := _pseudo_objection(path):
            return reason
        if ".." in path.parts or not path.is_absolute():
            return "it was not resolved before it was opened"
        folded = _fold(path)
        opened = _longest_prefix(folded, self._folded_opened)
        if _longest_prefix(folded, self._folded_protected) > opened:
            return _CLOSED
        if access == "write" and ".git" in folded:
            return "it belongs to git, which runs programs from its files; use git itself"
        if reason := self._record_objection(access, folded):
            return reason
        if self._restricted and self._below_workspace(folded)[:1] == (_CONVERSATIONS,):
            return "it holds other conversations"
        is_askable = access == "write" and self._is_guarded(folded)
        if self._restricted and not is_askable and not self._is_allowed(access, path):
            roots = ", ".join(f"'{root}'" for root in self._roots(access))
            return f"it is outside the allowed folders ({roots}); use a path inside them"
        return None

    def _record_objection(self, access: Access, folded: tuple[str, ...]) -> str | None:
        """Return why a record of the agent may not be used in this way, or ``None``."""
        names = self._below_workspace(folded)
        if access == "write" and any(names[: len(state)] == state for state in _STATE):
            return "it belongs to the agent's own records; use another name"
        opened = _longest_prefix(folded, self._folded_opened) > len(self._folded_opened[0])
        if names[:1] == (".nanobot",) and not opened:
            return "it belongs to nanobot itself, or to another conversation"
        return None

    def _below_workspace(self, folded: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names below the workspace; empty for a path outside."""
        workspace = self._folded_opened[0]
        return folded[len(workspace) :] if folded[: len(workspace)] == workspace else ()

    def _approval_reason(self, access: Access, path: Path) -> str | None:
        """Return why `path` needs an approval that this guard does not have, or ``None``."""
        if _is_below_any(path, self._granted):
            return None
        if access == "write" and self._is_guarded(_fold(path)):
            return "it steers the agent, and the owner has not approved the change"
        if self._below_workspace(_fold(path))[:1] == (_CONVERSATIONS,):
            return "it holds other conversations, and the owner has not approved it"
        if not self._is_allowed(access, path):
            return "it is outside the workspace, and the owner has not approved it"
        return None

    def _is_allowed(self, access: Access, path: Path) -> bool:
        if access == "read" and self._unlisted and path.is_relative_to(self._unlisted):
            return True
        return _is_below_any(path, self._roots(access))

    def _is_guarded(self, folded: tuple[str, ...]) -> bool:
        return _longest_prefix(folded, self._guarded) > 0

    def _roots(self, access: Access) -> list[Path]:
        return self._read_roots if access == "read" else self._write_roots

    def _protected_inodes(self) -> set[tuple[int, int]]:
        found = set()
        for path in self._protected:
            with contextlib.suppress(OSError):
                facts = path.stat()
                found.add((facts.st_dev, facts.st_ino))
        return found


_CLOSED = "it belongs to nanobot itself or holds its secrets; ask the owner"


def _resolved(path: Path) -> Path:
    return path.expanduser().resolve()


def _below_root(path: Path) -> Path:
    return path.relative_to("/")


def _is_below_any(path: Path, roots: Iterable[Path]) -> bool:
    return any(path.is_relative_to(root) for root in roots)


def _longest_prefix(path: tuple[str, ...], prefixes: Iterable[tuple[str, ...]]) -> int:
    """Return the length of the longest of `prefixes` that `path` begins with, else 0."""
    return max((len(prefix) for prefix in prefixes if path[: len(prefix)] == prefix), default=0)


def _shown(text: str) -> str:
    """Return a path for an error message: control characters escaped, cut at 200 characters."""
    plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:200])
    return plain if len(text) <= 200 else f"{plain}…"


def _refusal(access: Access, text: str, reason: str) -> str:
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


def _tool_error(access: Access, path: Path, error: OSError) -> ToolError:
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
        case errno.ENXIO:
            reason = "it is a pipe, socket or device and not a regular file; choose another"
        case errno.EISDIR:
            reason = "it is a folder; name a file in it"
        case _:
            kind, reason = ToolFailed, os.strerror(error.errno or errno.EIO)
    return kind(_refusal(access, str(path), reason))
