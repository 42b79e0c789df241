"""The check of ``nanobot doctor``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nanobot_core import CheckResult
from nanobot_memory.batch import load_state
from nanobot_memory.files import Memories
from nanobot_memory.passages import estimate_tokens
from nanobot_memory.settings import MemorySettings

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_memory.files import MemoryFiles


async def check_memory(ctx: PluginContext) -> CheckResult:
    """Check that the owner's memory can be read, and that it fits into the prompt."""
    limit = ctx.settings(MemorySettings).file_tokens
    return await asyncio.to_thread(_check, ctx.shared(Memories).files(), limit)


def _check(files: MemoryFiles, limit: int) -> CheckResult:
    try:
        tokens = {name: estimate_tokens(files.read(name)) for name in files.names}
        waiting = len(files.all_entries(files.dream_cursor))
        asides = load_state(files).aside
    except OSError as error:
        return CheckResult(
            status="error",
            message=f"cannot read the memory in {files.root.path}: {error}",
            remedy="put a regular file that you can read in its place",
        )
    if too_long := [name for name, count in tokens.items() if count > limit]:
        return CheckResult(
            status="warning",
            message=f"{', '.join(too_long)}: longer than memory.file_tokens ({limit:,})",
            remedy="shorten it, or raise memory.file_tokens",
        )
    if asides:
        return CheckResult(
            status="warning",
            message=f"Dream has set aside {len(asides)} parts of the history: {asides[-1].reason}",
            remedy="read them again with /dream retry in a chat",
        )
    entries = "entry waits" if waiting == 1 else "entries wait"
    return CheckResult(status="ok", message=f"{waiting} history {entries} for Dream")
