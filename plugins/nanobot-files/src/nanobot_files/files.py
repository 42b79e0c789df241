"""State that the tools of one application share: settings, paths, and versions of files."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict

from nanobot_core import (
    Ask,
    JsonObject,
    ModelTool,
    PathGuard,
    Review,
    ToolContext,
    ToolError,
    ToolInputError,
)
from nanobot_files.settings import FilesSettings

if TYPE_CHECKING:
    from nanobot_core import PluginContext


Access = Literal["read", "write"]
_MAX_VERSIONS = 4_096


class Version(NamedTuple):
    """Identifies the content of a file without reading it."""

    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, facts: os.stat_result) -> Version:
        """Return the version that `facts` describe."""
        return cls(facts.st_ino, facts.st_size, facts.st_mtime_ns)


class FileVersions:
    """Remembers which version of a file each session saw last, up to a limit."""

    def __init__(self, limit: int = _MAX_VERSIONS) -> None:
        self._limit = limit
        self._seen: OrderedDict[tuple[str, Path], Version] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, session_key: str, path: Path, version: Version) -> None:
        """Note that the session knows this version."""
        with self._lock:
            self._seen[session_key, path] = version
            self._seen.move_to_end((session_key, path))
            while len(self._seen) > self._limit:
                self._seen.popitem(last=False)

    def is_stale(self, session_key: str, path: Path, version: Version) -> bool:
        """Whether the session saw the file, and another version of it."""
        with self._lock:
            return self._seen.get((session_key, path), version) != version


class Loaded(NamedTuple):
    """A file in memory: its content, version and permissions."""

    data: bytes
    version: Version
    mode: int


class Files:
    """State that the tools of one application share, ``ctx.shared(Files)``.

    Attributes:
        settings: the section ``tools.files``.
        versions: what the sessions have seen.
        writing: held while a file is read, changed and written back, so that two sessions cannot
            undo each other's changes.
        search_path: value of ``PATH``, or ``None``.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self.settings = ctx.settings(FilesSettings)
        self.versions = FileVersions()
        self.writing = threading.Lock()
        self.search_path = ctx.environment(("PATH",)).get("PATH")

    def guard(self, context: ToolContext) -> PathGuard:
        """Return what a call may use; the extra folders of the settings are for the owner."""
        if not context.is_owner:
            return context.files
        return context.files.extended(
            read_roots=self.settings.extra_read_roots, write_roots=self.settings.extra_write_roots
        )

    async def review(self, context: ToolContext, *targets: tuple[Access, str]) -> Review:
        """Judge a call by the paths that it names.

        Args:
            context: the circumstances of the call.
            targets: what it does to which path, as the model wrote it.

        Returns:
            A question for the owner if one of the paths needs approval. Mistakes and closed paths
            are left to the call itself, which reports them to the model.
        """
        return await asyncio.to_thread(self._review, context, targets)

    def _review(self, context: ToolContext, targets: Sequence[tuple[Access, str]]) -> Review:
        guard = self.guard(context)
        asked: list[tuple[Access, Path]] = []
        shown: list[str] = []
        for access, text in targets:
            try:
                path, needs_approval = guard.judge(access, text)
            except ToolError:
                shown.append(text)
                continue
            shown.append(guard.shown(path))
            if needs_approval:
                asked.append((access, path))
        if not asked:
            return Review(values={"path": shown})
        listed = ", ".join(f"{access} {path}" for access, path in asked)
        question = f"Allow the agent to {listed}?"
        paths = tuple(path for _, path in asked)
        return Review(decision=Ask(question, listed, paths), values={"path": shown})

    def load(self, guard: PathGuard, path: Path) -> Loaded:
        """Read a whole file before a change.

        Raises:
            ToolError: it cannot be read.
            ToolInputError: it is larger than the settings allow.
        """
        limit = self.settings.max_edit_bytes
        with guard.open_read(path) as file:
            facts = os.fstat(file.fileno())
            data = file.read(limit + 1)
        if len(data) > limit:
            raise ToolInputError(
                f"'{path}' has {max(facts.st_size, len(data)):,} bytes and files are edited up to "
                f"{limit:,}; change it with a command instead"
            )
        return Loaded(data, Version.of(facts), facts.st_mode)

    def save(self, guard: PathGuard, session_key: str, path: Path, data: bytes) -> None:
        """Write a whole file and note that the session knows it."""
        guard.write_atomic(path, data)
        self.note_saved(guard, session_key, path)

    def note_saved(self, guard: PathGuard, session_key: str, path: Path) -> None:
        """Note that the session knows the file as it is now."""
        with guard.open_read(path) as file:
            version = Version.of(os.fstat(file.fileno()))
        self.versions.remember(session_key, path, version)

    def stale_note(self, session_key: str, path: Path, version: Version) -> str:
        """Return a warning when the file is not the one that the session read, else nothing."""
        if not self.versions.is_stale(session_key, path, version):
            return ""
        return (
            "\nWarning: the file had changed since you last read it; read it again to see what "
            "else is different."
        )


class FileParams(BaseModel):
    """Base of the parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)


P = TypeVar("P", bound=FileParams)


class FileTool(ModelTool[P]):
    """Base of the tools: made from the plugin's context, sharing one `Files` per application."""

    for_guests = True

    def __init__(self, ctx: PluginContext) -> None:
        self._files = ctx.shared(Files)

    async def review(self, context: ToolContext, arguments: JsonObject) -> Review:
        """Ask the owner about paths outside the workspace."""
        return await self._files.review(context, *self.targets(arguments))

    def targets(self, arguments: JsonObject) -> list[tuple[Access, str]]:
        """Return what a call does to which path, as the model wrote it."""
        return [("read" if self.read_only else "write", str(arguments.get("path") or "."))]
