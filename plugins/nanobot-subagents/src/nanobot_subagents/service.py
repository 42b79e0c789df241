"""The service that continues runs after a restart, and ends those that take too long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nanobot_core import Service
from nanobot_subagents.runs import Runs

if TYPE_CHECKING:
    from nanobot_core import PluginContext


class SubagentService(Service):
    """Watches the runs. It sleeps while there are none.

    Args:
        ctx: the plugin's context.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._runs = ctx.shared(Runs)
        self._clock = ctx.clock

    async def run(self) -> None:
        """Continue the runs of the previous process, then watch."""
        await self._runs.recover()
        while True:
            self._runs.changed.clear()
            await self._wait(await self._runs.check())

    async def _wait(self, pause_s: float | None) -> None:
        """Wait until a run starts or ends, `pause_s` at most."""
        async with asyncio.TaskGroup() as group:
            news = group.create_task(self._runs.changed.wait())
            tasks: set[asyncio.Task[object]] = {news}
            if pause_s is not None:
                tasks.add(group.create_task(self._clock.sleep(pause_s)))
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
