"""The one thread that writes: what is asked for while it writes goes into its next transaction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from nanobot_core.bus.transaction import Operation, Transactions
from nanobot_core.errors import BusError

if TYPE_CHECKING:
    from collections import Counter

    from nanobot_core.tasks import Outcome

_MAX_BATCH: Final = 1000
"""Operations after which a transaction takes no more: the first one would wait for the last."""

Asked = tuple[Operation, "asyncio.Future[object]"]


class Writer:
    """Runs operations in a thread of its own, many in one transaction. Made by `start`.

    Args:
        open_database: opens what is written to, in the thread.
        on_closed: called after it was closed, in the thread.
        on_readied: told how many messages can be handed out, by queue.
        on_abandoned: told the result of an operation whose caller was cancelled.
    """

    def __init__(
        self,
        open_database: Callable[[], Transactions],
        on_closed: Callable[[], None],
        on_readied: Callable[[Counter[str]], None],
        on_abandoned: Callable[[object], None],
    ) -> None:
        self._open_database, self._on_closed = open_database, on_closed
        self._on_readied, self._on_abandoned = on_readied, on_abandoned
        self._asked: list[Asked] = []
        """What was asked for in this round of the loop."""
        self._handed_over: SimpleQueue[list[Asked] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[object] = self._loop.create_future()
        self._ended: asyncio.Future[object] = self._loop.create_future()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="nanobot-bus", daemon=True)

    async def start(self) -> None:
        """Open the database.

        Raises:
            BusError: it cannot be used.

        Cancellation:
            Passed on after the database was opened and closed again.
        """
        self._thread.start()
        try:
            await asyncio.shield(self._opened)
        except asyncio.CancelledError:
            await self.stop()
            raise
        except BaseException:
            self._is_closed = True
            raise

    async def ask(self, operation: Operation) -> object:
        """Do `operation` and return its result.

        Raises:
            BusError: nothing has changed.
        """
        future: asyncio.Future[object] = self._loop.create_future()
        self._put(operation, future)
        try:
            return await future
        except asyncio.CancelledError:
            # The result may have come in the moment of the cancellation; else see `_settle`.
            if not future.cancelled() and future.exception() is None:
                self._on_abandoned(future.result())
            raise

    def ask_unheard(self, operation: Operation) -> None:
        """Do `operation` some time; nobody waits for it. Nothing happens after `stop`."""
        if not self._is_closed:
            self._put(operation, self._loop.create_future())

    async def stop(self) -> None:
        """Finish what was asked for, then close the database.

        Raises:
            BusError: it could not be closed.
        """
        if not self._is_closed:
            self._is_closed = True
            self._hand_over()
            self._handed_over.put(None)
        await asyncio.shield(self._ended)

    def _put(self, operation: Operation, future: asyncio.Future[object]) -> None:
        if self._is_closed:
            msg = "the message queue is closed; nothing can be stored or handed out any more"
            raise BusError(msg)
        if not self._asked:
            # Waking the thread costs the loop more than many operations do, so that those of one
            # round go together.
            self._loop.call_soon(self._hand_over)
        self._asked.append((operation, future))

    def _hand_over(self) -> None:
        asked, self._asked = self._asked, []
        if asked:
            self._handed_over.put(asked)

    def _run(self) -> None:
        try:
            database = self._open_database()
        except Exception as error:  # noqa: BLE001 - isolation point: whoever opens hears of it
            self._tell(self._settle, [(self._opened, (None, error)), (self._ended, (None, None))])
            return
        self._tell(self._settle, [(self._opened, (None, None))])
        while batch := self._next_batch():
            outcomes = database.run([operation for operation, _ in batch])
            futures = [future for _, future in batch]
            self._tell(
                self._deliver, list(zip(futures, outcomes, strict=True)), database.take_readied()
            )
        failure = None
        try:
            database.close()
        except BusError as error:
            failure = error
        finally:
            self._on_closed()
        self._tell(self._settle, [(self._ended, (None, failure))])

    def _next_batch(self) -> list[Asked]:
        """Return what is asked for, waiting for the first; empty at the end."""
        batch: list[Asked] = []
        with suppress(Empty):
            while len(batch) < _MAX_BATCH:
                asked = self._handed_over.get(block=not batch)
                if asked is None:
                    if batch:
                        self._handed_over.put(None)
                    break
                batch += asked
        return batch

    def _tell(self, listener: Callable[..., None], *what: object) -> None:
        with suppress(RuntimeError):  # the event loop is gone, and with it all who listened
            self._loop.call_soon_threadsafe(listener, *what)

    def _deliver(
        self, results: list[tuple[asyncio.Future[object], Outcome]], readied: Counter[str]
    ) -> None:
        self._settle(results)
        self._on_readied(readied)

    def _settle(self, results: list[tuple[asyncio.Future[object], Outcome]]) -> None:
        for future, (result, failure) in results:
            if future.cancelled():
                self._on_abandoned(result)
            elif failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(result)
