"""A clock whose time only a test moves."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta

_START = datetime(2026, 1, 1, tzinfo=UTC)
_PASSES = 20
"""Passes of the event loop for woken tasks before time moves on."""


class FakeClock:
    """A `Clock` whose time moves only by `advance`.

    Args:
        start: the first instant, aware.
    """

    def __init__(self, start: datetime = _START) -> None:
        self._start = start
        self._elapsed_s = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._changed = asyncio.Event()

    def now(self) -> datetime:
        """Return the current instant, aware."""
        return self._start + timedelta(seconds=self._elapsed_s)

    def monotonic_s(self) -> float:
        """Return the seconds that this clock was advanced by."""
        return self._elapsed_s

    @property
    def sleeper_count(self) -> int:
        """How many tasks wait in `sleep`."""
        return len(self._sleepers)

    async def sleep(self, delay_s: float) -> None:
        """Wait until the clock was advanced by `delay_s`; zero or less yields once."""
        if delay_s <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        sleeper = (self._elapsed_s + delay_s, next(self._order), woken)
        heapq.heappush(self._sleepers, sleeper)
        self._changed.set()
        try:
            await woken
        finally:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
                heapq.heapify(self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Move time on and wake the tasks that are due.

        Sleepers wake in the order of their instants, equal ones in the order in which they began;
        each sees its own instant and may sleep again before the next one wakes.

        Args:
            seconds: how far, zero or more.
        """
        if seconds < 0:
            msg = f"time does not go back: advance needs zero or more seconds, found {seconds}"
            raise ValueError(msg)
        end_s = self._elapsed_s + seconds
        while self._sleepers and self._sleepers[0][0] <= end_s:
            self._elapsed_s, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
            await _let_others_run()
        self._elapsed_s = end_s
        await _let_others_run()

    async def wait_for_sleepers(self, count: int = 1, limit_s: float = 5.0) -> None:
        """Wait until at least `count` tasks sleep, so that `advance` finds them.

        Args:
            count: how many.
            limit_s: real seconds to wait at most.

        Raises:
            TimeoutError: fewer tasks sleep after `limit_s`.
        """
        async with asyncio.timeout(limit_s):
            while len(self._sleepers) < count:
                self._changed.clear()
                await self._changed.wait()


async def _let_others_run() -> None:
    for _ in range(_PASSES):
        await asyncio.sleep(0)
