"""Answers to ``/dream``, ``/dream-log`` and ``/dream-restore``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nanobot_core import OWNERS_MEMORY
from nanobot_memory.dream import dream
from nanobot_memory.files import Memories
from nanobot_memory.versions import restore, show_log

if TYPE_CHECKING:
    from nanobot_core import CommandCall, PluginContext
    from nanobot_memory.files import MemoryFiles


async def answer_dream(ctx: PluginContext, call: CommandCall) -> str:
    """Dream now; ``/dream retry`` reads the batches that were set aside."""
    word = call.text.strip().lower()
    if word not in {"", "retry"}:
        return f"`/dream {word}` is unknown; use `/dream` or `/dream retry`."
    return await dream(ctx, _files(ctx, call), retry=word == "retry")


async def answer_log(ctx: PluginContext, call: CommandCall) -> str:
    """Show the changes, or the one that is named."""
    return await asyncio.to_thread(show_log, _files(ctx, call), call.text.strip())


async def answer_restore(ctx: PluginContext, call: CommandCall) -> str:
    """Revert a change."""
    now = ctx.clock.now()
    return await asyncio.to_thread(restore, _files(ctx, call), call.text.strip(), now)


def _files(ctx: PluginContext, call: CommandCall) -> MemoryFiles:
    return ctx.shared(Memories).files(call.turn.memory or OWNERS_MEMORY)
