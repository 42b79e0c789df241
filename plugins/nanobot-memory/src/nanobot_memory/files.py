"""MemoryFiles: the files of one memory, and where each memory keeps them."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import threading
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from nanobot_core import OWNERS_MEMORY, Folder
from nanobot_memory.history import HistoryEntry, NewEntry, numbered
from nanobot_memory.history_file import HistoryFile

if TYPE_CHECKING:
    from nanobot_core import Clock, PluginContext

OWNERS_FILES: Final = ("SOUL.md", "USER.md", "MEMORY.md")
OTHERS_FILES: Final = ("MEMORY.md",)
TOPIC: Final = re.compile(r"topics/[a-z0-9]+(?:-[a-z0-9]+)*\.md")
"""Name of a topic file."""
TEMPLATE: Final = Path(__file__).parent / "templates" / "MEMORY.md"
MAX_FILE_BYTES: Final = 1_000_000
"""Bytes that are read of a memory file."""
_MAX_CURSOR_BYTES = 100
_MAX_OPENED = 200
_SCOPES = PurePosixPath("memory/scopes")


class MemoryFiles:
    """The files of one memory, below the workspace. Blocks; use it in a thread.

    The owner's memory has ``SOUL.md`` and ``USER.md`` in the workspace, and ``MEMORY.md``,
    ``history.jsonl``, ``.cursor`` and ``.dream_cursor`` in ``memory``. Another one has the last
    four in ``memory/scopes/<name>-<hash>``. Old history is in
    ``history-archive.jsonl``. Links and anything else but regular files are refused.
    Several threads and processes may use the same memory.

    All methods raise `OSError` if the system refuses.

    Attributes:
        scope: name of the memory, see `MemoryScope.name`.
        names: its long-term files, by the names that `read` and `write` take.
        root: the workspace.
        folder: folder of its history, relative to the workspace.
    """

    def __init__(self, workspace: Path, scope: str, clock: Clock) -> None:
        self.scope: str = scope
        self.root: Folder = Folder(workspace)
        is_owners = scope == OWNERS_MEMORY
        self.names: tuple[str, ...] = OWNERS_FILES if is_owners else OTHERS_FILES
        self.folder: PurePosixPath = (
            PurePosixPath("memory") if is_owners else _SCOPES / folder_of(scope)
        )
        self._clock = clock
        self._lock = threading.RLock()
        self._is_locked = False
        self._history = HistoryFile(self.root, self.folder / "history.jsonl")
        self._archive = HistoryFile(self.root, self.folder / "history-archive.jsonl")
        self._files = (self._archive, self._history)

    def path_of(self, name: str) -> PurePosixPath:
        """Return where a long-term file is, relative to the workspace.

        Args:
            name: one of `names` or `topics`, or a new topic file.
        """
        if TOPIC.fullmatch(name):
            return self.folder / name
        if name not in self.names:
            raise FileNotFoundError(errno.ENOENT, f"this memory has no file {name}")
        return self.folder / name if name == "MEMORY.md" else PurePosixPath(name)

    def topics(self) -> list[str]:
        """Return the names of the topic files, into which ``MEMORY.md`` overflows."""
        with suppress(FileNotFoundError, NotADirectoryError):
            names = [f"topics/{entry.name}" for entry in self.root.scan(self.folder / "topics")]
            return sorted(name for name in names if TOPIC.fullmatch(name))
        return []

    def add_template(self) -> None:
        """Create the owner's ``MEMORY.md`` if it is missing."""
        if self.scope != OWNERS_MEMORY:
            return
        try:
            self.root.stat(self.path_of("MEMORY.md"))
        except FileNotFoundError:
            self._make()
            self.root.replace(self.path_of("MEMORY.md"), TEMPLATE.read_bytes(), mode=0o600)

    def read(self, name: str) -> str:
        """Return the text of a long-term file as it is, line ends included; empty if missing.

        Bytes that are not UTF-8 become replacement characters.

        Args:
            name: one of `names`.
        """
        return self._read_bytes(self.path_of(name), MAX_FILE_BYTES).decode("utf-8", "replace")

    def write(self, name: str, text: str) -> None:
        """Make `text` the content of a long-term file, completely or not at all.

        Args:
            name: one of `names`.
            text: the whole content, with its line ends.
        """
        path = self.path_of(name)
        self._make()
        self.root.replace(path, text.encode("utf-8", "replace"), mode=None)

    def append(self, entries: Sequence[NewEntry]) -> list[HistoryEntry]:
        """Append entries to the history and return them as they are kept.

        They are on disk when the call returns, and none is if it raises. An entry whose span is in
        the history already is returned as it is there. A torn last line, which a kill may leave,
        stays and is not read.
        """
        kept: list[HistoryEntry] = []
        new: list[HistoryEntry] = []
        with self.locked():
            cursor = self._newest()
            for entry in entries:
                if (known := self.find_span(entry)) is None:
                    cursor += 1
                    known = numbered(entry, cursor, self._clock.now())
                    new.append(known)
                kept.append(known)
            if new:
                self._history.append(b"".join(entry.to_line() for entry in new))
                self._write_number(".cursor", cursor)
        return kept

    def entries(self, after: int = 0) -> list[HistoryEntry]:
        """Return the entries with greater numbers than `after` that are not archived, in order.

        Args:
            after: a number, such as `dream_cursor`.
        """
        with self._lock:
            return _after(self._history.load(), after)

    def all_entries(self, after: int = 0) -> list[HistoryEntry]:
        """Return the entries with greater numbers than `after`, archived ones too, in order."""
        with self._lock:
            known = {
                entry.cursor: entry for file in self._files for entry in _after(file.load(), after)
            }
        return sorted(known.values(), key=lambda entry: entry.cursor)

    def find_span(self, span: NewEntry) -> HistoryEntry | None:
        """Return the entry that summarises the same messages, if there is one."""
        if span.first is None:
            return None
        of_span = (span.session_key, span.first, span.last, span.digest)
        with self._lock:
            for file in reversed(self._files):
                for entry in reversed(file.load()):
                    if (entry.session_key, entry.first, entry.last, entry.digest) == of_span:
                        return entry
        return None

    def remove(self, cursor: int) -> bool:
        """Remove an entry of the history; return whether it existed. Its number is not reused."""
        with self.locked():
            self._write_number(".cursor", self._newest())
            dropped = [file.drop({cursor}) for file in self._files]  # a kill leaves it in both
            return any(dropped)

    def move_to_archive(self, cursors: Collection[int]) -> None:
        """Move entries to the archive.

        They are on disk there before they leave the history. A kill in between leaves them in
        both, which counts as one.
        """
        with self.locked():
            if not cursors:
                return
            archived = {entry.cursor for entry in self._archive.load()}
            if lines := self._history.lines_of(set(cursors) - archived):
                self._archive.append(lines)
            self._write_number(".cursor", self._newest())
            self._history.drop(cursors)

    @property
    def history_stamp(self) -> tuple[int, int, int]:
        """Changes whenever the history does; zeros if it is missing."""
        return self._history.stamp

    @property
    def archive_stamp(self) -> tuple[int, int, int]:
        """Changes whenever the archive does; zeros if it is missing."""
        return self._archive.stamp

    @property
    def dream_cursor(self) -> int:
        """Number of the newest entry that Dream has worked in or set aside; 0 at first."""
        return self._read_number(".dream_cursor")

    @dream_cursor.setter
    def dream_cursor(self, cursor: int) -> None:
        self._write_number(".dream_cursor", cursor)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other threads and processes from changing this memory meanwhile; reentrant."""
        with self._lock:
            if self._is_locked:
                yield
                return
            self._make()
            handle = self.root.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                self._is_locked = True
                yield
            finally:
                self._is_locked = False
                os.close(handle)  # also unlocks

    def _newest(self) -> int:
        newest = (known[-1].cursor for file in self._files if (known := file.load()))
        return max((*newest, self._read_number(".cursor")), default=0)

    def _make(self) -> None:
        self.root.make(self.folder.parent)
        self.root.make(self.folder)
        if self.scope != OWNERS_MEMORY:
            with suppress(FileExistsError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                with os.fdopen(self.root.open(self.folder / ".scope", flags), "wb") as file:
                    file.write(self.scope.encode("utf-8", "replace"))

    def _read_bytes(self, path: PurePosixPath, limit: int) -> bytes:
        try:
            return self.root.read(path, limit)
        except (FileNotFoundError, NotADirectoryError):
            return b""

    def _read_number(self, name: str) -> int:
        text = self._read_bytes(self.folder / name, _MAX_CURSOR_BYTES).strip()
        return int(text) if text.isdigit() and len(text) < 19 else 0

    def _write_number(self, name: str, number: int) -> None:
        self._make()
        self.root.replace(self.folder / name, f"{number}\n".encode(), mode=0o600)


class Memories:
    """All memories of a workspace; ``ctx.shared(Memories)`` is the one of a plugin context."""

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._opened: dict[str, MemoryFiles] = {}

    def files(self, scope: str = OWNERS_MEMORY) -> MemoryFiles:
        """Return the files of a memory."""
        files = self._opened.get(scope)
        if files is None:
            while len(self._opened) >= _MAX_OPENED:  # with their histories; read again if needed
                self._opened.pop(next(iter(self._opened)), None)
            files = self._opened[scope] = MemoryFiles(self._ctx.workspace, scope, self._ctx.clock)
        return files

    def scopes(self) -> list[str]:
        """Return the names of the memories that exist, the owner's first. Blocks."""
        root = self.files().root
        found = []
        with suppress(FileNotFoundError, NotADirectoryError):
            for entry in root.scan(_SCOPES):
                with suppress(OSError):
                    name = root.read(_SCOPES / entry.name / ".scope", 2_000).decode(
                        errors="replace"
                    )
                    if folder_of(name) == entry.name:
                        found.append(name)
        return [OWNERS_MEMORY, *sorted(found)]


def folder_of(scope: str) -> str:
    """Return the folder name of a memory: readable, unique, and the same on every file system."""
    readable = re.sub(r"[^a-z0-9]+", "-", scope.lower()).strip("-")[:40]
    return (
        f"{readable or 'memory'}-{hashlib.sha256(scope.encode(errors='replace')).hexdigest()[:16]}"
    )


def _after(known: list[HistoryEntry], after: int) -> list[HistoryEntry]:
    return known[bisect_right(known, after, key=lambda entry: entry.cursor) :]


def is_template(text: str) -> bool:
    """Whether a ``MEMORY.md`` is empty or as it was copied in."""
    return text.strip() in {"", _template()}


@cache
def _template() -> str:
    return TEMPLATE.read_text("utf-8").strip()
