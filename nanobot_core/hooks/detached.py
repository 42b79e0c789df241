"""Queues of detached hooks, which run later."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

from nanobot_core.errors import HookError
from nanobot_core.hooks.implementation import HookRuntime, Implementation, invoke

QUEUE_LIMIT = 1_000
"""Queued events of one plugin; older ones are dropped and counted."""
SETTLE_LIMIT_S = 4.0
"""Seconds that `DetachedQueues.settle` waits at most."""
_Entry = tuple[Implementation, Any] | asyncio.Future[None]


class DetachedQueues:
    """One bounded queue and one worker for each plugin; order is kept within a plugin."""

    def __init__(self, runtime: HookRuntime) -> None:
        self._runtime = runtime
        self._waiting: dict[str, deque[_Entry]] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}

    def put(self, implementation: Implementation, event: object) -> None:
        """Queue a call; the oldest one is dropped when the plugin is too slow."""
        plugin = implementation.plugin
        queue = self._waiting.setdefault(plugin, deque())
        if len(queue) >= QUEUE_LIMIT:
            dropped = queue.popleft()
            if isinstance(dropped, asyncio.Future):
                _mark_done(dropped)
            else:
                dropped[0].account.dropped += 1
        queue.append((implementation, event))
        worker = self._workers.get(plugin)
        if worker is None or worker.done():
            self._workers[plugin] = self._runtime.spawn(self._work(queue), name=f"hooks:{plugin}")

    async def drain(self, limit_s: float) -> bool:
        """Wait until all queues are empty; False when that takes longer than `limit_s` seconds."""
        workers = [worker for worker in self._workers.values() if not worker.done()]
        if not workers:
            return True
        _, pending = await asyncio.wait(workers, timeout=limit_s)
        return not pending

    async def settle(self, plugins: Iterable[str]) -> None:
        """Wait until `plugins` have handled the events queued so far, up to `SETTLE_LIMIT_S`."""
        marks: list[asyncio.Future[None]] = []
        for plugin in set(plugins):
            worker = self._workers.get(plugin)
            if worker is not None and not worker.done():
                marks.append(asyncio.get_running_loop().create_future())
                self._waiting[plugin].append(marks[-1])
        if marks:
            await asyncio.wait(marks, timeout=SETTLE_LIMIT_S)

    async def _work(self, queue: deque[_Entry]) -> None:
        while queue:
            entry = queue.popleft()
            if isinstance(entry, asyncio.Future):
                _mark_done(entry)
                continue
            implementation, event = entry
            try:
                await invoke(implementation, self._runtime, event)
            except HookError as error:
                self._runtime.report(error)


def _mark_done(mark: asyncio.Future[None]) -> None:
    if not mark.done():
        mark.set_result(None)
