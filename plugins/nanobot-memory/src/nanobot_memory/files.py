"""MemoryFiles: the files of one memory, and where each memory keeps them."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from nanobot_core import OWNERS_MEMORY, Folder
from nanobot_memory.history import HistoryEntry, NewEntry, numbered, parse_lines

if TYPE_CHECKING:
    from nanobot_core import Clock, PluginContext

OWNERS_FILES: Final = ("SOUL.md", "USER.md", "MEMORY.md")
OTHERS_FILES: Final = ("MEMORY.md",)
TEMPLATE: Final = Path(__file__).parent / "templates" / "MEMORY.md"
MAX_FILE_BYTES: Final = 1_000_000
"""Bytes that are read of a memory file."""
MAX_HISTORY_BYTES: Final = 100_000_000
"""Bytes that are read of a history."""
_MAX_CURSOR_BYTES = 100
_SCOPES = PurePosixPath("memory/scopes")


class MemoryFiles:
    """The files of one memory, below the workspace. Blocks; use it in a thread.

    The owner's memory has ``SOUL.md`` and ``USER.md`` in the workspace, and ``MEMORY.md``,
    ``history.jsonl``, ``.cursor`` and ``.dream_cursor`` in ``memory``. Another one has the last
    four in ``memory/scopes/<name>-<hash>``. Links and anything else but regular files are refused.
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

    def path_of(self, name: str) -> PurePosixPath:
        """Return where a long-term file is, relative to the workspace.

        Args:
            name: one of `names`.
        """
        if name not in self.names:
            raise FileNotFoundError(errno.ENOENT, f"this memory has no file {name}")
        return self.folder / name if name == "MEMORY.md" else PurePosixPath(name)

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

        They are on disk when the call returns, and none is if it raises. A torn last line, which a
        kill may leave, stays and is not read.
        """
        if not entries:
            return []
        with self.locked():
            data = self._read_bytes(self._history, MAX_HISTORY_BYTES)
            first = self._last_cursor(data) + 1
            now = self._clock.now()
            kept = [numbered(new, first + number, now) for number, new in enumerate(entries)]
            torn = b"\n" if data and not data.endswith(b"\n") else b""
            self._append_bytes(torn + b"".join(entry.to_line() for entry in kept))
            self._write_number(".cursor", kept[-1].cursor)
        return kept

    def entries(self, after: int = 0, limit: int | None = None) -> list[HistoryEntry]:
        """Return the entries with greater numbers than `after`, oldest first.

        Args:
            after: a number, such as `dream_cursor`.
            limit: most entries to return.
        """
        found: list[HistoryEntry] = []
        for entry in parse_lines(self._read_bytes(self._history, MAX_HISTORY_BYTES)):
            if entry.cursor > after:
                found.append(entry)
                if limit is not None and len(found) >= limit:
                    break
        return found

    def remove(self, cursor: int) -> bool:
        """Remove an entry of the history; return whether it existed. Its number is not reused."""
        with self.locked():
            data = self._read_bytes(self._history, MAX_HISTORY_BYTES)
            lines = data.splitlines(keepends=True)
            kept = [
                line for line in lines if all(each.cursor != cursor for each in parse_lines(line))
            ]
            if len(kept) == len(lines):
                return False
            self._write_number(".cursor", self._last_cursor(data))
            self.root.replace(self._history, b"".join(kept))
        return True

    @property
    def history_stamp(self) -> tuple[int, int, int]:
        """Changes whenever the history does; zeros if it is missing."""
        try:
            facts = self.root.stat(self._history)
        except (FileNotFoundError, NotADirectoryError):
            return (0, 0, 0)
        return (facts.st_ino, facts.st_size, facts.st_mtime_ns)

    @property
    def dream_cursor(self) -> int:
        """Number of the newest entry that Dream has worked in or set aside; 0 at first."""
        return self._read_number(".dream_cursor")

    @dream_cursor.setter
    def dream_cursor(self, cursor: int) -> None:
        self._write_number(".dream_cursor", cursor)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other threads and processes from changing this memory's history meanwhile."""
        with self._lock:
            self._make()
            handle = self.root.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                yield
            finally:
                os.close(handle)  # also unlocks

    @property
    def _history(self) -> PurePosixPath:
        return self.folder / "history.jsonl"

    def _last_cursor(self, data: bytes) -> int:
        newest = max((entry.cursor for entry in parse_lines(data)), default=0)
        return max(newest, self._read_number(".cursor"))

    def _make(self) -> None:
        self.root.make(self.folder.parent)
        self.root.make(self.folder)
        if self.scope != OWNERS_MEMORY:
            with suppress(FileExistsError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                with os.fdopen(self.root.open(self.folder / ".scope", flags), "wb") as file:
                    file.write(self.scope.encode("utf-8", "replace"))

    def _append_bytes(self, data: bytes) -> None:
        handle = self.root.open(self._history, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with os.fdopen(handle, "ab", buffering=0) as file:
            size = file.tell()
            try:
                _write_all(file.fileno(), data)
                os.fsync(file.fileno())
            except OSError:
                file.truncate(size)  # a full disk leaves no half of a line
                raise

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
        """Return the files of a memory; the same object for the same name."""
        if scope not in self._opened:
            self._opened[scope] = MemoryFiles(self._ctx.workspace, scope, self._ctx.clock)
        return self._opened[scope]

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


def is_template(text: str) -> bool:
    """Whether a ``MEMORY.md`` is empty or as it was copied in."""
    return text.strip() in {"", TEMPLATE.read_text("utf-8").strip()}


def _write_all(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]
