"""FileMemory: the memory backend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from nanobot_core import (
    Consolidated,
    Forgotten,
    MemoryAbility,
    MemoryBackend,
    MemoryEntry,
    finish_in_thread,
)
from nanobot_memory.archive import Archive
from nanobot_memory.consolidator import Consolidator
from nanobot_memory.files import Memories
from nanobot_memory.history_file import NO_FILE
from nanobot_memory.notes import all_entries, forget_entry, remember_text
from nanobot_memory.original import import_history
from nanobot_memory.passages import MAX_RECENT, history_block, memory_block
from nanobot_memory.search import Index
from nanobot_memory.settings import MemorySettings

if TYPE_CHECKING:
    from nanobot_core import ContextBlock, HistorySpan, MemoryScope, PluginContext
    from nanobot_memory.files import MemoryFiles

_MAX_CACHED = 200


class FileMemory(MemoryBackend):
    """Keeps memories in files below the workspace, see `MemoryFiles`."""

    abilities: ClassVar[frozenset[MemoryAbility]] = frozenset(
        {"search", "remember", "forget", "entries"}
    )

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._settings = ctx.settings(MemorySettings)
        self._memories = ctx.shared(Memories)
        self._index = ctx.shared(Index)
        self._consolidator = Consolidator(ctx, self._settings)
        self._archive = Archive(ctx, self._memories, self._consolidator)
        self._recent: dict[str, tuple[object, ContextBlock | None]] = {}
        self._reported: set[str] = set()
        self._has_template = False

    async def context(self, scope: MemoryScope) -> Sequence[ContextBlock]:
        """Return the passage of ``MEMORY.md``, and the newest history that Dream has not read."""
        self._archive.resume()
        files = self._memories.files(scope.name)
        return await finish_in_thread(partial(self._read_context, files))

    async def consolidate(
        self, span: HistorySpan, token_budget: int, *, must: bool
    ) -> Consolidated:
        """Summarise the oldest turns into the history, towards half the budget."""
        files = self._memories.files(span.scope.name)
        if not await self._archive.settle(files, span):
            return Consolidated()
        return await self._consolidator.consolidate(files, span, token_budget, must=must)

    async def archive(self, span: HistorySpan) -> None:
        """Keep a span on disk; summaries follow in the background."""
        await self._archive.add(self._memories.files(span.scope.name), span)

    async def search(self, scope: MemoryScope, query: str, limit: int) -> Sequence[MemoryEntry]:
        """Return the entries and lines that match best."""
        files = self._memories.files(scope.name)
        return await asyncio.to_thread(self._index.search, files, query, limit)

    async def remember(self, scope: MemoryScope, text: str) -> MemoryEntry:
        """Add a line to ``MEMORY.md``."""
        return await finish_in_thread(
            partial(remember_text, self._memories.files(scope.name), text)
        )

    async def forget(self, scope: MemoryScope, entry_id: str) -> Forgotten:
        """Remove an entry of the history or a line of a file."""
        files = self._memories.files(scope.name)
        return await finish_in_thread(partial(forget_entry, files, self._index, entry_id))

    async def entries(self, scope: MemoryScope) -> Sequence[MemoryEntry]:
        """Return the history and the lines of the files."""
        return await asyncio.to_thread(all_entries, self._memories.files(scope.name))

    def _read_context(self, files: MemoryFiles) -> list[ContextBlock]:
        if not self._has_template:
            self._has_template = True
            self._tried(files, self._memories.files().add_template)
        readers = (
            lambda: memory_block(files, self._settings),
            lambda: self._read_recent(files),
        )
        blocks = [self._tried(files, reader) for reader in readers]
        return [block for block in blocks if block is not None]

    def _read_recent(self, files: MemoryFiles) -> ContextBlock | None:
        if files.history_stamp == NO_FILE and (count := import_history(files)):
            self._log.info("imported {} entries from HISTORY.md", count)
        waiting = self._archive.waiting(files)
        key = (files.history_stamp, files.dream_cursor, waiting)
        former, block = self._recent.get(files.scope, (None, None))
        if former != key:
            entries = files.entries(files.dream_cursor)[-MAX_RECENT:]
            block = history_block(entries, self._settings, waiting)
            if len(self._recent) >= _MAX_CACHED:
                self._recent.clear()
            self._recent[files.scope] = (key, block)
        return block

    def _tried(
        self, files: MemoryFiles, read: Callable[[], ContextBlock | None]
    ) -> ContextBlock | None:
        """Return a passage; one whose file cannot be read is left out and reported once."""
        try:
            return read()
        except OSError as error:
            if str(error) not in self._reported:
                self._reported.add(str(error))
                self._log.error(
                    "a file of the memory in {} cannot be read, and is left out: {}",
                    files.root.path / files.folder,
                    error,
                )
            return None
