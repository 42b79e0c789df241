"""The durable bus: an SQLite file, one thread that writes it, one fsync for many messages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from nanobot_core.bus.file import QueueFile
from nanobot_core.bus.queues import DEFAULT_MAX_WAITING, LedgerBus
from nanobot_core.bus.transaction import Operation, undoing
from nanobot_core.clock import SystemClock
from nanobot_core.errors import BusError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from nanobot_core.clock import Clock
    from nanobot_core.tasks import Outcome

_MAX_BATCH: Final = 1000
"""Operations in one transaction at most: the first one waits for the last."""

Asked = tuple[Operation, "asyncio.Future[object]"]


class SqliteBus(LedgerBus):
    """A bus in a file. Made by `open`; for one event loop and one process.

    The effect of `publish_inbound`, `publish_outbound`, `acknowledge`, `bury`, `revive` and `drop`
    is on the disk when they return. That of handing out and releasing a message survives the end of
    the process at any moment; a power failure may undo it, which does no harm.

    Attributes:
        repaired: sentences on damage that was found when the file was opened, for the owner.
    """

    def __init__(self, path: Path, clock: Clock, max_waiting: int) -> None:
        super().__init__(clock, max_waiting)
        self._file = QueueFile(path)
        self._writer = Writer(self._file, self._wake)

    @classmethod
    async def open(
        cls, path: Path, *, clock: Clock | None = None, max_waiting: int = DEFAULT_MAX_WAITING
    ) -> SqliteBus:
        """Open the queues in the file `path`, and create it if it does not exist.

        Messages that were out when it was last open can be received again. A damaged file is kept
        beside the new one as ``….corrupt-1``; see `repaired`.

        Args:
            path: the file; missing folders are created.
            clock: stamps messages and measures delays; the machine's own by default.
            max_waiting: how many received messages may be stored and not done.

        Raises:
            BusError: another process has it open, a newer version wrote it, or the disk failed.
        """
        bus = cls(path, clock or SystemClock(), max_waiting)
        await bus._writer.start()
        return bus

    @property
    def repaired(self) -> tuple[str, ...]:
        """Sentences on damage that was found when the file was opened, and on the repair."""
        return self._file.repaired

    async def aclose(self) -> None:
        """Finish writing and let other processes open the file."""
        await self._writer.stop()

    async def _perform(self, operation: Operation) -> object:
        return await self._writer.ask(operation)


class Writer:
    """Runs operations in its own thread, many in one transaction. Opened by `start`.

    Args:
        file: opened and closed in the thread.
        wake: receives the queues in which a message has become ready.
    """

    def __init__(self, file: QueueFile, wake: Callable[[Iterable[str]], None]) -> None:
        self._file, self._wake = file, wake
        self._asked: list[Asked] = []
        """Requests of the present iteration of the loop."""
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
            # The result may have come at the moment of the cancellation; else see `_settle`.
            if not future.cancelled() and future.exception() is None:
                self._undo(future.result())
            raise

    async def stop(self) -> None:
        """Finish pending operations, then close the database.

        Raises:
            BusError: it could not be closed.
        """
        if not self._is_closed:
            self._is_closed = True
            self._hand_over()
            self._handed_over.put(None)
        await asyncio.shield(self._ended)

    def _undo(self, result: object) -> None:
        """Put back a message whose receiver was cancelled."""
        operation = undoing(result)
        if operation is not None and not self._is_closed:
            self._put(operation, self._loop.create_future())

    def _put(self, operation: Operation, future: asyncio.Future[object]) -> None:
        if self._is_closed:
            msg = "the message queue is closed and can no longer store or hand out messages"
            raise BusError(msg)
        if not self._asked:
            # Waking the thread costs more than many operations, so those of one iteration of the
            # loop go together.
            self._loop.call_soon(self._hand_over)
        self._asked.append((operation, future))

    def _hand_over(self) -> None:
        asked, self._asked = self._asked, []
        if asked:
            self._handed_over.put(asked)

    def _run(self) -> None:
        try:
            database = self._file.open()
        except Exception as error:  # noqa: BLE001 - isolation point: reported to the caller of `start`
            self._call(self._settle, [(self._opened, (None, error)), (self._ended, (None, None))])
            return
        self._call(self._settle, [(self._opened, (None, None))])
        while batch := self._next_batch():
            outcomes = database.run([operation for operation, _ in batch])
            futures = [future for _, future in batch]
            self._call(
                self._deliver, list(zip(futures, outcomes, strict=True)), database.take_readied()
            )
        failure = None
        try:
            database.close()
        except BusError as error:
            failure = error
        finally:
            self._file.unlock()
        self._call(self._settle, [(self._ended, (None, failure))])

    def _next_batch(self) -> list[Asked]:
        """Return the requests, after waiting for the first; empty at the end."""
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

    def _call(self, callback: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _deliver(
        self, results: list[tuple[asyncio.Future[object], Outcome]], readied: set[str]
    ) -> None:
        self._settle(results)
        self._wake(readied)

    def _settle(self, results: list[tuple[asyncio.Future[object], Outcome]]) -> None:
        for future, (result, failure) in results:
            if future.cancelled():
                self._undo(result)
            elif failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(result)
