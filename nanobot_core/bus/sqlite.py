"""The bus that survives: an SQLite file, one thread that writes it, one fsync for many messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core.bus.file import QueueFile
from nanobot_core.bus.queues import DEFAULT_MAX_WAITING, LedgerBus
from nanobot_core.bus.writer import Writer
from nanobot_core.clock import SystemClock

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from nanobot_core.bus.transaction import Operation
    from nanobot_core.clock import Clock


class SqliteBus(LedgerBus):
    """A bus in a file. Made by `open`; for one event loop and one process.

    What `publish_inbound`, `publish_outbound`, `acknowledge`, `bury`, `revive` and `drop` have done
    is on the disk when they return. That a message was handed out or released survives the death
    of the process at any moment, and is lost, to no harm, when the machine loses its power.

    Attributes:
        repaired: what was found damaged when the file was opened, and what was done about it; empty
            as a rule. The owner should read it.
    """

    def __init__(self, path: Path, clock: Clock, max_waiting: int) -> None:
        super().__init__(clock, max_waiting)
        self._file = QueueFile(path)
        self._writer = Writer(self._file.open, self._file.unlock, self._wake_all, self._undo)

    @classmethod
    async def open(
        cls, path: Path, *, clock: Clock | None = None, max_waiting: int = DEFAULT_MAX_WAITING
    ) -> SqliteBus:
        """Open the queues in the file `path`, which is made if need be.

        Messages that were out when it was last open can be received again. A damaged file is kept
        beside the new one as ``….corrupt-1``; see `repaired`.

        Args:
            path: the file; its folder is made if need be.
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
        """What was found damaged when the file was opened, and what was done about it."""
        return self._file.repaired

    async def aclose(self) -> None:
        """Finish writing and let others open the file."""
        await self._writer.stop()

    async def _perform(self, operation: Operation) -> object:
        return await self._writer.ask(operation)

    def _wake_all(self, readied: Counter[str]) -> None:
        for queue, count in readied.items():
            self._room.wake(queue, count)

    def _undo(self, result: object) -> None:
        undoing = self._undoing(result)
        if undoing is not None:
            self._writer.ask_unheard(undoing)
