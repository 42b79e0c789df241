"""Extraction in a thread of its own, within a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from nanobot_core import ToolFailed

if TYPE_CHECKING:
    from nanobot_core import PluginContext

T = TypeVar("T")
_THREADS = 2


class Worker:
    """Two threads, so that pages that take long do not take those of the whole program.

    A thread cannot be stopped: work over its time goes on unseen until it ends, which the bounds
    of its input bring about, and further work waits for a free thread within its own time.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="nanobot-web")
        ctx.on_dispose(lambda: self._pool.shutdown(wait=False, cancel_futures=True))

    async def run(self, work: Callable[[], T], limit_s: float) -> T:
        """Return what `work` returns.

        Raises:
            ToolFailed: it did not end within `limit_s` seconds.

        Cancellation:
            Is passed on at once; `work` changes nothing, and its result is dropped.
        """
        try:
            async with asyncio.timeout(limit_s):
                return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except TimeoutError as error:
            raise ToolFailed(f"no text was made of it within {limit_s:g} seconds") from error
