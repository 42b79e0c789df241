"""Dream: works new history into the memory files, by a timer or on request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nanobot_core import Service

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_memory.files import MemoryFiles


class DreamService(Service):
    """Dreams in a gateway every ``memory.dream.every_hours``, each memory by itself."""

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx

    async def run(self) -> None:
        """Work until cancelled."""
        await asyncio.get_running_loop().create_future()


async def dream(ctx: PluginContext, files: MemoryFiles) -> str:
    """Work the new history of one memory into its files.

    Returns:
        A report for people, in Markdown.
    """
    return "Dream is not available yet."
