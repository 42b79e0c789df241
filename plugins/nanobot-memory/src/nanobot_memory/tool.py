"""The tool ``search_memory``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from nanobot_core import ModelTool, ToolContext, ToolFailed, ToolOutput
from nanobot_memory.files import Memories
from nanobot_memory.passages import without_poison
from nanobot_memory.search import Index

if TYPE_CHECKING:
    from nanobot_core import MemoryEntry, PluginContext


class SearchParams(BaseModel):
    """Arguments."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(min_length=1, max_length=1_000, description="Words to look for.")
    limit: int = Field(default=8, ge=1, le=30, description="Most lines to return.")


class SearchMemoryTool(ModelTool[SearchParams]):
    """Searches what is remembered beyond the prompt."""

    name = "search_memory"
    description = (
        "Search summaries of earlier conversations and the memory files, best match first; a "
        "higher history number is newer. "
        "Use it when the answer may depend on something said before that you cannot see."
    )
    parameters_model = SearchParams
    read_only = True
    compactable = True
    for_guests = True

    def __init__(self, ctx: PluginContext) -> None:
        self._memories = ctx.shared(Memories)
        self._index = ctx.shared(Index)

    async def run(self, context: ToolContext, params: SearchParams) -> ToolOutput:
        """Search the memory that the call may read."""
        if context.memory is None:
            msg = "this conversation has no memory"
            raise ToolFailed(msg)
        files = self._memories.files(context.memory)
        found = await asyncio.to_thread(self._index.search, files, params.query, params.limit)
        if not found:
            return "Nothing is remembered that matches."
        return "\n\n".join(f"[{_source(each)}]\n{without_poison(each.text)}" for each in found)


def _source(entry: MemoryEntry) -> str:
    return f"{entry.id}, {entry.time:%Y-%m-%d %H:%M}" if entry.time else entry.place
