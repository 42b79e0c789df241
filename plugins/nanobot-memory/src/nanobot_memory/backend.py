"""FileMemory: the memory backend."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nanobot_core import Consolidated, MemoryBackend
from nanobot_memory.files import Memories
from nanobot_memory.passages import MAX_RECENT, history_block, memory_block
from nanobot_memory.settings import MemorySettings

if TYPE_CHECKING:
    from nanobot_core import ContextBlock, HistorySpan, MemoryScope, PluginContext
    from nanobot_memory.files import MemoryFiles


class FileMemory(MemoryBackend):
    """Keeps memories in files below the workspace, see `MemoryFiles`."""

    def __init__(self, ctx: PluginContext) -> None:
        self._settings = ctx.settings(MemorySettings)
        self._memories = ctx.shared(Memories)

    async def context(self, scope: MemoryScope) -> Sequence[ContextBlock]:
        """Return the passage of ``MEMORY.md``, and the history that Dream has not read."""
        return await asyncio.to_thread(self._read_context, self._memories.files(scope.name))

    async def consolidate(
        self, span: HistorySpan, token_budget: int, *, must: bool
    ) -> Consolidated:
        """Take up nothing."""
        return Consolidated()

    async def archive(self, span: HistorySpan) -> None:
        """Refuse, so that the messages stay in the session."""
        raise NotImplementedError

    def _read_context(self, files: MemoryFiles) -> list[ContextBlock]:
        entries = files.entries(files.dream_cursor)[-MAX_RECENT:]
        blocks = (memory_block(files, self._settings), history_block(entries, self._settings))
        return [block for block in blocks if block is not None]
