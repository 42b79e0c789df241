"""Order of blocking work: one piece at a time for a key, none left half done."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_T = TypeVar("_T")


class KeyedLocks:
    """One lock for each key in use, first come first served; unused keys take no memory."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        """Hold the lock of `key` for the length of the block."""
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            _, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = lock, users - 1


async def finish_in_thread(work: Callable[[], _T]) -> _T:
    """Run `work` in a thread and return its result.

    Cancellation:
        Passed on after `work` has ended, because a thread cannot be stopped and the caller's lock
        must not be given up while it still writes.
    """
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with suppress(asyncio.CancelledError):  # a second one; the first is raised below
                await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # marks it as seen; the cancellation is what the caller hears
        raise
