"""Repository: each change of the memory files as a commit in a git repository of their own.

It is ``memory/.git``; its work tree is the workspace. Git itself is never run, and no
hook, filter or configuration of a person or a model has an effect: dulwich reads objects, and
`Folder` writes them, completely or not at all, through no link.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import itertools
import re
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from loguru import logger

from nanobot_core import Folder
from nanobot_memory.merge import merge

if TYPE_CHECKING:
    from dulwich.object_store import DiskObjectStore
    from dulwich.objects import Commit, ObjectID, ShaFile

PLACE: Final = "memory/.git"
DREAM: Final = "nanobot dream"
"""Author of the changes that Dream makes."""
PERSON: Final = "owner"
"""Author of the changes that a person, or a tool for a person, made in between."""
_REFERENCE = f"{PLACE}/refs/heads/main"
_CONFIG = b"""\
[core]
\trepositoryformatversion = 0
\tfilemode = false
\tbare = false
\tworktree = ../..
\tautocrlf = false
\thooksPath = /dev/null
"""
_MIN_NAME_CHARS = 4
_WALK_LIMIT = 100_000
_MAX_PACKED_BYTES = 1_000_000
_FILE_MODE = 0o100644
_HASH = re.compile(r"[0-9a-f]{40}")


class VersionUnknown(LookupError):
    """The name matches no version, or several."""


class RepositoryDamaged(Exception):
    """An object of the repository is missing or damaged; the next commit begins a new one."""


class RestoreConflict(ValueError):
    """Later changes touch the same lines as the change that should be reverted."""


@dataclass(frozen=True, slots=True)
class Version:
    """A commit.

    Attributes:
        id: its whole hash.
        time: when it was made, in UTC.
        author: `DREAM` or `PERSON`.
        message: the whole message, trailers included.
        files: names of the changed files.
    """

    id: str
    time: datetime
    author: str
    message: str
    files: tuple[str, ...]

    @property
    def title(self) -> str:
        """First line of the message."""
        return self.message.partition("\n")[0]

    def trailer(self, name: str) -> str:
        """Return the value of a ``Name: value`` line of the message, or nothing."""
        for line in self.message.splitlines()[1:]:
            key, colon, value = line.partition(": ")
            if colon and key == name:
                return value
        return ""


class Repository:
    """The history of the memory files. All methods block.

    Only one process may commit at a time; see `DreamLock`.

    Args:
        workspace: the agent's workspace.
    """

    def __init__(self, workspace: Folder) -> None:
        self._workspace = workspace

    def commit(
        self, files: Mapping[str, bytes | None], *, author: str, message: str, time: datetime
    ) -> str | None:
        """Record the content of files.

        Args:
            files: path in the workspace to content, or to ``None`` if the file does not exist.
            author: who changed them.
            message: the first line is the title.
            time: of the change.

        Returns:
            The version's hash; ``None`` if nothing differs from the last version.

        Raises:
            OSError: it cannot be written.
        """
        from dulwich.objects import Commit

        head, known = self._prepared()
        now = {path: data for path, data in {**known, **files}.items() if data is not None}
        if now == known:
            return None
        made = Commit()
        made.tree = self._write_tree({tuple(path.split("/")): now[path] for path in now})
        made.parents = [head] if head else []
        made.author = made.committer = f"{author} <nanobot@localhost>".encode()
        made.author_time = made.commit_time = int(time.timestamp())
        made.author_timezone = made.commit_timezone = 0
        made.encoding = b"UTF-8"
        made.message = message.encode()
        self._write(made)
        self._workspace.replace(_REFERENCE, made.id + b"\n", mode=0o600)
        return made.id.decode()

    def log(self, limit: int, paths: frozenset[str] | None = None) -> list[Version]:
        """Return the newest versions, newest first.

        Args:
            limit: how many.
            paths: only versions that change one of these files.
        """
        found: list[Version] = []
        with self._store() as store:
            for commit in self._commits(store):
                version = _version(store, commit)
                if paths is None or paths & set(version.files):
                    found.append(version)
                if len(found) == limit:
                    break
        return found

    def find(self, name: str) -> Version:
        """Return the version whose hash begins with `name`.

        Raises:
            VersionUnknown: no version matches, or several do.
        """
        name = name.strip().lower()
        with self._store() as store:
            found = [
                _version(store, commit)
                for commit in self._commits(store)
                if len(name) >= _MIN_NAME_CHARS and commit.id.decode().startswith(name)
            ]
        if len(found) != 1:
            problem = "is not unique" if found else "does not exist"
            raise VersionUnknown(f"the version '{name}' {problem}")
        return found[0]

    def diff(self, version: Version) -> str:
        """Return what a version changed, as a unified diff."""
        parts: list[str] = []
        for path, (before, after) in self._changes(version).items():
            parts += difflib.unified_diff(
                _text(before).splitlines(),
                _text(after).splitlines(),
                f"a/{path}" if before is not None else "/dev/null",
                f"b/{path}" if after is not None else "/dev/null",
                lineterm="",
            )
        return "\n".join(parts)

    def reverted(
        self, version: Version, read: Callable[[str], bytes | None]
    ) -> dict[str, bytes | None]:
        """Return the files as they would be without the change of a version.

        Args:
            version: the version.
            read: returns the present content of a file.

        Raises:
            RestoreConflict: later changes touch the same lines.
        """
        result: dict[str, bytes | None] = {}
        for path, (before, after) in self._changes(version).items():
            present = read(path)
            if present == after:
                result[path] = before
                continue
            merged = merge(_text(after), _text(before), _text(present))
            if merged is None:
                raise RestoreConflict(
                    f"{path} was changed in the same lines since then; revert the later versions "
                    "first, or edit the file"
                )
            result[path] = _bytes(merged)
        return result

    def last(self) -> Mapping[str, bytes]:
        """Return the content of all files in the newest version."""
        with self._store() as store:
            head = self._head()
            return _contents(store, head) if head else {}

    def _changes(self, version: Version) -> dict[str, tuple[bytes | None, bytes | None]]:
        with self._store() as store:
            commit = _commit(store, _name(version.id))
            after = _contents(store, commit.id)
            before = _contents(store, commit.parents[0]) if commit.parents else {}
        return {
            path: (before.get(path), after.get(path))
            for path in sorted({*before, *after})
            if before.get(path) != after.get(path)
        }

    def _prepared(self) -> tuple[ObjectID | None, Mapping[str, bytes]]:
        """Return the newest commit and its files; make the repository if necessary.

        A damaged repository is kept under another name.
        """
        try:
            with self._store() as store:
                if (head := self._head()) is not None:
                    return head, _contents(store, head)
        except RepositoryDamaged as error:
            taken = {entry.name for entry in self._workspace.scan("memory")}
            names = (f".git.corrupt-{number}" for number in itertools.count(1))
            aside = next(name for name in names if name not in taken)
            self._workspace.rename(PLACE, aside)
            logger.error("{}; they were renamed to memory/{}", error, aside)
        for folder in ("objects", "refs/heads"):
            self._workspace.make(f"{PLACE}/{folder}")
        self._workspace.replace(f"{PLACE}/config", _CONFIG, mode=0o600)
        self._workspace.replace(f"{PLACE}/HEAD", b"ref: refs/heads/main\n", mode=0o600)
        return None, {}

    @contextlib.contextmanager
    def _store(self) -> Iterator[DiskObjectStore]:
        """Yield what reads objects, also those that a person has packed.

        Raises:
            RepositoryDamaged: an object is missing or damaged.
        """
        from dulwich.errors import ChecksumMismatch, FileFormatException
        from dulwich.object_store import DiskObjectStore

        self._require_no_links()
        store = DiskObjectStore(str(self._workspace.path / PLACE / "objects"))
        try:
            yield store
        except (
            *(KeyError, ValueError, AssertionError, zlib.error),
            *(FileFormatException, ChecksumMismatch),
        ) as error:
            raise RepositoryDamaged(
                f"the versions of the memory files are damaged ({type(error).__name__}: {error})"
            ) from error
        finally:
            store.close()

    def _require_no_links(self) -> None:
        for folder in ("", "/objects", "/objects/pack"):
            with contextlib.suppress(FileNotFoundError):
                for entry in self._workspace.scan(PLACE + folder):
                    if stat.S_ISLNK(entry.facts.st_mode):
                        name = f"{PLACE}{folder}/{entry.name}"
                        raise OSError(errno.ELOOP, "a link is not allowed here; remove it", name)

    def _head(self) -> ObjectID | None:
        try:
            return _name(self._workspace.read(_REFERENCE, 100).decode().strip())
        except FileNotFoundError:
            pass
        with contextlib.suppress(FileNotFoundError):  # made by `git gc` of a person
            packed = self._workspace.read(f"{PLACE}/packed-refs", _MAX_PACKED_BYTES)
            for line in packed.decode().splitlines():
                if line.endswith(" refs/heads/main"):
                    return _name(line.split(" ")[0])
        return None

    def _commits(self, store: DiskObjectStore) -> Iterator[Commit]:
        name = self._head()
        for _ in range(_WALK_LIMIT):
            if name is None:
                return
            commit = _commit(store, name)
            yield commit
            name = commit.parents[0] if commit.parents else None

    def _write_tree(self, files: Mapping[tuple[str, ...], bytes]) -> ObjectID:
        from dulwich.objects import Blob, Tree

        tree = Tree()
        for name in sorted({path[0] for path in files}):
            below = {path[1:]: files[path] for path in files if path[0] == name}
            if () in below:
                tree.add(name.encode(), _FILE_MODE, self._write(Blob.from_string(below[()])))
            else:
                tree.add(name.encode(), stat.S_IFDIR, self._write_tree(below))
        return self._write(tree)

    def _write(self, made: ShaFile) -> ObjectID:
        name = made.id.decode()
        path = f"{PLACE}/objects/{name[:2]}/{name[2:]}"
        try:
            self._workspace.stat(path)
        except FileNotFoundError:
            self._workspace.replace(path, made.as_legacy_object(), mode=0o400)
        return made.id


def _version(store: DiskObjectStore, commit: Commit) -> Version:
    parent = _commit(store, commit.parents[0]).tree if commit.parents else None
    changes = store.tree_changes(parent, commit.tree)
    return Version(
        id=commit.id.decode(),
        time=datetime.fromtimestamp(commit.commit_time, UTC),
        author=commit.author.decode("utf-8", "replace").partition(" <")[0],
        message=commit.message.decode("utf-8", "replace"),
        files=tuple(sorted((new or old or b"").decode() for (old, new), _, _ in changes)),
    )


def _contents(store: DiskObjectStore, name: ObjectID) -> dict[str, bytes]:
    return {
        entry.path.decode(): store[entry.sha].as_raw_string()
        for entry in store.iter_tree_contents(_commit(store, name).tree)
    }


def _commit(store: DiskObjectStore, name: ObjectID) -> Commit:
    from dulwich.objects import Commit

    found = store[name]
    if not isinstance(found, Commit):
        msg = f"{name.decode()} is not a commit"
        raise ValueError(msg)
    return found


def _name(text: str) -> ObjectID:
    from dulwich.objects import ObjectID

    if not _HASH.fullmatch(text):
        msg = f"'{text}' is not a hash"
        raise ValueError(msg)
    return ObjectID(text.encode())


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
