"""A queue in a file."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nanobot_core.bus.ledger import Ledger
from nanobot_core.bus.sqlite import SqliteBus
from nanobot_core.bus.transaction import Operation
from nanobot_core.testing.clock import FakeClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "bus.sqlite"


@contextlib.asynccontextmanager
async def opened(path: Path, clock: FakeClock | None = None) -> AsyncIterator[SqliteBus]:
    bus = await SqliteBus.open(path, clock=clock or FakeClock(), max_waiting=1_000_000)
    try:
        async with asyncio.timeout(30):
            yield bus
    finally:
        await bus.aclose()


async def execute(bus: SqliteBus, statement: str) -> int:
    """Run a statement in the bus's own thread; return the one number of its answer, or 0."""

    def work(ledger: Ledger) -> object:
        row = ledger._database.execute(statement).fetchone()
        return row[0] if row else 0

    found = await bus._writer.ask(Operation(work))
    assert isinstance(found, int)
    return found


async def inbox(bus: SqliteBus) -> list[str]:
    contents = []
    while (await bus.depth()).inbound:
        lease = await bus.receive_inbound()
        contents.append(lease.message.content)
        await bus.acknowledge(lease)
    return contents
