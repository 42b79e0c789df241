"""MailThread: runs the blocking calls of one connection in a thread of its own."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
_Calls: TypeAlias = "queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]"
_END_S = 1.0


class MailThread:
    """One call after the other. The thread begins with the first call and ends with `close`.

    It does not delay the end of the process, unlike those of the loop's executor, because
    connecting cannot be interrupted.

    Args:
        interrupt: makes the running call fail soon.
    """

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._calls: _Calls = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns.

        Cancellation:
            Interrupts the connection, which is not usable afterwards.
        """
        if self._thread is None:
            self._thread = threading.Thread(
                target=_run, args=(self._calls,), name="nanobot-email", daemon=True
            )
            self._thread.start()
        future: Future[T] = Future()
        self._calls.put((future, work))
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._interrupt()
            raise

    async def close(self) -> None:
        """End the thread after the calls that were given, and wait for it for a moment."""
        thread, self._thread = self._thread, None
        if thread is not None:
            # A thread that does not end in time must not share the calls with the next one.
            calls, self._calls = self._calls, queue.SimpleQueue()
            calls.put(None)
            await asyncio.to_thread(thread.join, _END_S)


def _run(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        future, work = call
        if not future.set_running_or_notify_cancel():
            continue
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - isolation point: raised where it is awaited
            future.set_exception(error)
        else:
            future.set_result(result)
