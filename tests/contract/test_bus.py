"""Both kinds of bus keep the promises of the contract."""

from __future__ import annotations

from pathlib import Path

from nanobot_core.bus.queues import MemoryBus
from nanobot_core.bus.sqlite import SqliteBus
from nanobot_core.clock import Clock
from nanobot_core.contracts.bus import Bus
from nanobot_core.testing.bus import BusContract, DurableBusContract


class TestMemoryBus(BusContract):
    async def open_bus(self, folder: Path, clock: Clock, max_waiting: int) -> Bus:
        return MemoryBus(clock, max_waiting)


class TestSqliteBus(DurableBusContract):
    async def open_bus(self, folder: Path, clock: Clock, max_waiting: int) -> Bus:
        return await SqliteBus.open(folder / "bus.sqlite", clock=clock, max_waiting=max_waiting)
