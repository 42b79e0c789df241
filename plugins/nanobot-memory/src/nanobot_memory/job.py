"""The jobs of the plugin: Dream and the archive, each for every memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

from nanobot_core import Every, SystemJob
from nanobot_memory.batch import load_state
from nanobot_memory.dream import Dream, dream
from nanobot_memory.files import Memories
from nanobot_memory.settings import MemorySettings

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_memory.files import MemoryFiles

MAX_BATCHES = 10
"""Batches of a memory that one run of the job reads."""
_DAY_S = 86_400.0


def jobs_of(ctx: PluginContext) -> tuple[SystemJob, ...]:
    """Return the jobs as the settings say."""
    settings = ctx.settings(MemorySettings)
    every_s = settings.dream.every_hours * 3600
    has_limit = settings.history_days or settings.history_megabytes
    return (
        SystemJob(
            id="dream",
            summary="work new history into the memory files",
            schedule=Every(every_s) if every_s else None,
            run=partial(dream_all, ctx),
        ),
        SystemJob(
            id="memory-archive",
            summary="move old history to the archive",
            schedule=Every(_DAY_S) if has_limit else None,
            run=partial(archive_all, ctx),
        ),
    )


async def dream_all(ctx: PluginContext) -> str:
    """Dream in every memory with new history, and return a line.

    A batch that failed a short time ago is left for a later run. That it failed is in the line, and
    is no failure of the job: Dream itself counts attempts, and sets the batch aside.

    Raises:
        OSError: the memories cannot be listed.
    """
    reports: list[str] = []
    async for files in _memories(ctx):
        reports += await _dream_in(ctx, files)
    return " ".join(reports) or "No new history."


async def archive_all(ctx: PluginContext) -> str:
    """Move the old history of every memory to its archive, and return a line.

    Raises:
        OSError: the memories cannot be listed.
    """
    moved = 0
    async for files in _memories(ctx):
        moved += await Dream(ctx, files).compact()
    return f"Archived {moved} history {'entry' if moved == 1 else 'entries'}."


async def _memories(ctx: PluginContext) -> AsyncIterator[MemoryFiles]:
    memories = ctx.shared(Memories)
    for scope in await asyncio.to_thread(memories.scopes):
        yield memories.files(scope)


async def _dream_in(ctx: PluginContext, files: MemoryFiles) -> list[str]:
    """Read batch after batch while each moves Dream's cursor; return the reports."""
    reports: list[str] = []
    try:
        for _ in range(MAX_BATCHES):
            cursor = await asyncio.to_thread(_due_from, ctx, files)
            if cursor is None:
                break
            reports.append(f"{files.scope or 'owner'}: {await dream(ctx, files)}")
            if await asyncio.to_thread(_cursor, files) == cursor:
                break
    except OSError as error:
        reports.append(Dream(ctx, files).report_unusable(error))
    return reports


def _due_from(ctx: PluginContext, files: MemoryFiles) -> int | None:
    """Return Dream's cursor if new history can be read now; blocks."""
    cursor = files.dream_cursor
    is_time = ctx.clock.now().timestamp() >= load_state(files).next_at
    return cursor if is_time and files.all_entries(cursor) else None


def _cursor(files: MemoryFiles) -> int:
    return files.dream_cursor
