"""Blocking work in a thread, which ends before a cancelled call does."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from nanobot_core import ToolFailed

T = TypeVar("T")


class Watch:
    """Ends work in a thread when its time is up or its call was cancelled.

    Args:
        limit_s: seconds from now on; ``None`` sets no limit.
    """

    def __init__(self, limit_s: float | None = None) -> None:
        self._limit_s = limit_s
        self._end = None if limit_s is None else time.monotonic() + limit_s
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Make the next `check` raise."""
        self._cancelled.set()

    def check(self) -> None:
        """Raise if the work should stop; called at least every few milliseconds.

        Raises:
            ToolFailed: the time is up, or the call was cancelled.
        """
        if self._cancelled.is_set():
            raise ToolFailed("the call was cancelled")
        if self._end is not None and time.monotonic() > self._end:
            raise ToolFailed(
                f"the search did not finish within {self._limit_s:g} seconds; "
                "search a smaller folder or use a simpler pattern"
            )


async def run_to_end(work: Callable[[Watch], T], limit_s: float | None = None) -> T:
    """Return what `work` returns in a thread.

    Args:
        work: checks its argument, if it can take long.
        limit_s: as for `Watch`.

    Cancellation:
        Propagates after the thread has ended, so that nothing is written afterwards.
    """
    watch = Watch(limit_s)
    run = contextvars.copy_context().run
    future = asyncio.get_running_loop().run_in_executor(None, run, work, watch)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        watch.cancel()
        await asyncio.wait({future})
        if not future.cancelled():
            future.exception()  # looked at, so that asyncio does not report it as lost
        raise
