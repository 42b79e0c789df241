"""The bus that keeps nothing: for runs that answer one message, and for tests."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING

from nanobot_core.bus.ledger import SCHEMA
from nanobot_core.bus.queues import DEFAULT_MAX_WAITING, LedgerBus
from nanobot_core.bus.transaction import Transactions
from nanobot_core.clock import SystemClock

if TYPE_CHECKING:
    from nanobot_core.bus.transaction import Operation
    from nanobot_core.clock import Clock


class MemoryBus(LedgerBus):
    """A bus in memory, gone with its process. For one event loop.

    Args:
        clock: stamps messages and measures delays; the machine's own by default.
        max_waiting: how many received messages may be stored and not done.
    """

    def __init__(self, clock: Clock | None = None, max_waiting: int = DEFAULT_MAX_WAITING) -> None:
        super().__init__(clock or SystemClock(), max_waiting)
        database = sqlite3.connect(":memory:", isolation_level=None)
        for statement in SCHEMA:
            database.execute(statement)
        self._transactions = Transactions(database, "in memory")

    async def aclose(self) -> None:
        """Forget everything."""
        self._transactions.close()

    async def _perform(self, operation: Operation) -> object:
        await asyncio.sleep(0)  # whoever works on it all the time lets others run
        ((result, failure),) = self._transactions.run([operation])
        for queue, count in self._transactions.take_readied().items():
            self._room.wake(queue, count)
        if failure is not None:
            raise failure
        return result
