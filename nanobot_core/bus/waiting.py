"""Those who wait for a message: woken one for each message, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot_core.clock import Clock


class WaitingRoom:
    """Receivers that found nothing, by queue.

    Args:
        clock: measures delays.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: defaultdict[str, deque[asyncio.Future[None]]] = defaultdict(deque)
        self._wakes: Counter[str] = Counter()

    def wakes(self, queue: str) -> int:
        """Return how often `wake` was called for `queue`."""
        return self._wakes[queue]

    def wake(self, queue: str, count: int = 1) -> None:
        """Let the first `count` who wait for `queue` look again."""
        self._wakes[queue] += 1
        waiting = self._waiting.get(queue)
        while waiting and count > 0:
            woken = waiting.popleft()
            if not woken.done():
                woken.set_result(None)
                count -= 1
        if not waiting:
            self._waiting.pop(queue, None)

    async def wait(self, queue: str, wakes: int, limit_s: float | None) -> None:
        """Wait until woken, at most `limit_s` seconds.

        Args:
            queue: what to wait for.
            wakes: what `wakes` said before the caller looked; if it has changed since, what was
                seen is outdated and there is no wait.
            limit_s: ``None`` waits for ever.

        Cancellation:
            Whoever was woken and is cancelled before it could look wakes the next one.
        """
        if self._wakes[queue] != wakes:
            return
        woken = asyncio.get_running_loop().create_future()
        self._waiting[queue].append(woken)
        try:
            if limit_s is None:
                await woken
            else:
                await self._wait_limited(woken, limit_s)
        except asyncio.CancelledError:
            # Another one also takes over the wait for a delay to end.
            if limit_s is not None or (woken.done() and not woken.cancelled()):
                self.wake(queue)
            raise
        finally:
            woken.cancel()
            self._forget(queue, woken)

    async def _wait_limited(self, woken: asyncio.Future[None], limit_s: float) -> None:
        async def ring() -> None:
            await self._clock.sleep(limit_s)
            if not woken.done():
                woken.set_result(None)

        async with asyncio.TaskGroup() as tasks:
            timer = tasks.create_task(ring())
            await woken
            timer.cancel()

    def _forget(self, queue: str, woken: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(queue)
        if waiting is not None and woken in waiting:
            waiting.remove(woken)
            if not waiting:
                del self._waiting[queue]
