"""Work of strangers, waited for in bounded time even where it ignores its cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from nanobot_core.hooks.implementation import Spawn

T = TypeVar("T")
ENDING_S = 3.0
"""Seconds that cancelled work has to end, so that ``/stop`` answers within five."""


class StillRunning(TimeoutError):
    """The work overran its limit and ignores its cancellation."""


async def run_bounded(
    spawn: Spawn, work: Coroutine[Any, Any, T], *, limit_s: float, name: str
) -> T:
    """Return what `work` returns.

    It runs in a task of its own: a task that waits for a coroutine directly cannot go on when the
    coroutine swallows the cancellation. What does not end is left to the owner of tasks.

    Args:
        spawn: starts tasks that the application owns.
        work: must let no ``SystemExit`` or ``KeyboardInterrupt`` out, which end the event loop.
        limit_s: seconds it may take.
        name: name of the task.

    Raises:
        TimeoutError: it took longer; it has ended, unless this is `StillRunning`.
        Exception: what `work` raised.

    Cancellation:
        Passed to `work`, which has `ENDING_S` to end, and then on.
    """
    task = spawn(work, name=name)
    done: set[asyncio.Task[T]] = set()
    try:
        done, _ = await asyncio.wait({task}, timeout=limit_s)
    finally:
        if not done:
            task.cancel()
            await asyncio.wait({task}, timeout=ENDING_S)
    if not done:
        raise TimeoutError if task.done() else StillRunning
    return task.result()
