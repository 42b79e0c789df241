"""Queues for hooks that are told of something later."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from nanobot_core.errors import HookError
from nanobot_core.hooks.implementation import HookRuntime, Implementation, invoke

QUEUE_LIMIT = 1_000
"""Events that wait for one plugin; older ones are dropped and counted."""


class DetachedQueues:
    """One bounded queue and one worker for each plugin; order is kept within a plugin."""

    def __init__(self, runtime: HookRuntime) -> None:
        self._runtime = runtime
        self._waiting: dict[str, deque[tuple[Implementation, Any]]] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}

    def put(self, implementation: Implementation, event: object) -> None:
        """Queue a call; the oldest one is dropped when the plugin is too slow."""
        plugin = implementation.plugin
        queue = self._waiting.setdefault(plugin, deque())
        if len(queue) >= QUEUE_LIMIT:
            dropped, _ = queue.popleft()
            dropped.account.dropped += 1
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

    async def _work(self, queue: deque[tuple[Implementation, Any]]) -> None:
        while queue:
            implementation, event = queue.popleft()
            try:
                await invoke(implementation, self._runtime, event)
            except HookError as error:
                self._runtime.report(error)
