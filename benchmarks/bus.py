"""The durable queue: messages per second, compared with fsyncs of the same disk, and bytes."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.measure import Goal, Row, compare, interleave_async, single
from nanobot_core import InboundMessage, OutboundMessage
from nanobot_core.bus.sqlite import SqliteBus

ROUNDS = 7
SINGLE = 40
TOGETHER = 500
WORKERS = 50
CHATS = 100
BACKLOG = 100_000
FLOOR_BYTES = 4096
TEXT = "This is a message of a common length, as people write them in chats. " * 3

Figures = dict[str, float]
"""``rate`` in messages or fsyncs per second; ``written`` to files in KB each."""


def rows(scale: int) -> Iterator[Row]:
    """Measure an empty queue and one with many messages; the floor is a bare fsync."""
    # Not the folder for temporary files, which may be in memory.
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as folder:
        yield from asyncio.run(_measure(Path(folder), ROUNDS * scale))


async def _measure(folder: Path, rounds: int) -> list[Row]:
    bus = await SqliteBus.open(folder / "bus.sqlite", max_waiting=2 * BACKLOG)
    traffic = _Traffic(bus)
    try:
        with (folder / "floor").open("wb", buffering=0) as floor:
            sides = (
                partial(_figures, SINGLE, partial(_fsync, floor.fileno())),
                partial(traffic.publish, SINGLE, 1),
                partial(traffic.publish, TOGETHER, TOGETHER),
                partial(traffic.answer, SINGLE, 1),
                partial(traffic.answer, TOGETHER, WORKERS),
            )
            found = _rows("", await interleave_async(rounds, *sides))
            await traffic.fill(BACKLOG)
            return found + _rows(f", {BACKLOG:,} wait", await interleave_async(rounds, *sides))
    finally:
        await bus.aclose()


def _rows(state: str, found: tuple[list[Figures], ...]) -> list[Row]:
    floor, *ours = found
    accepted = Goal(2000, "value", at_least=True)
    a_fifth = Goal(0.2, at_least=True)
    titles = (
        ("publish one by one", a_fifth),
        (f"publish {TOGETHER} together", accepted),
        ("publish, answer, deliver one by one", None),
        (f"publish, answer, deliver, {WORKERS} workers", None),
    )
    rows = []
    for (title, goal), figures in zip(titles, ours, strict=True):
        rates = [one["rate"] for one in figures]
        rows.append(
            compare(f"{title}{state} / fsync", "/s", rates, [one["rate"] for one in floor], goal)
        )
        rows.append(single(f"{title}{state}, written", "KB", [one["written"] for one in figures]))
    return rows


class _Traffic:
    """Sends messages through one bus; no method changes the number of waiting messages."""

    def __init__(self, bus: SqliteBus) -> None:
        self._bus, self._number = bus, 0

    async def fill(self, count: int) -> None:
        for _ in range(count // TOGETHER):
            await asyncio.gather(*(self._publish() for _ in range(TOGETHER)))

    async def publish(self, count: int, together: int) -> Figures:
        async def work() -> None:
            for _ in range(count // together):
                await asyncio.gather(*(self._publish() for _ in range(together)))

        figures = await _figures(count, work)
        await self._drain(count, WORKERS)
        return figures

    async def answer(self, count: int, workers: int) -> Figures:
        async def work() -> None:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(workers):
                    tasks.create_task(self._live(count // workers))

        return await _figures(count, work)

    async def _live(self, count: int) -> None:
        for _ in range(count):
            await self._publish()
            await self._finish_one()

    async def _drain(self, count: int, workers: int) -> None:
        for start in range(0, count, workers):
            together = min(workers, count - start)
            await asyncio.gather(*(self._finish_one() for _ in range(together)))

    async def _publish(self) -> None:
        self._number += 1
        await self._bus.publish_inbound(
            InboundMessage(
                channel="bench",
                sender_id="12345|someone",
                chat_id=str(self._number % CHATS),
                content=TEXT,
                id=f"{self._number:032x}",
                dedupe_key=str(10**9 + self._number),
            )
        )

    async def _finish_one(self) -> None:
        lease = await self._bus.receive_inbound()
        reply = OutboundMessage(
            channel="bench",
            chat_id=lease.message.chat_id,
            content=TEXT,
            idempotency_key=f"{lease.message.id}:0",
        )
        await self._bus.acknowledge(lease, replies=[reply])
        await self._bus.acknowledge(await self._bus.receive_outbound("bench"))


async def _fsync(descriptor: int) -> None:
    for _ in range(SINGLE):
        os.write(descriptor, bytes(FLOOR_BYTES))
        os.fdatasync(descriptor)


async def _figures(count: int, work: Callable[[], Awaitable[None]]) -> Figures:
    written, started_s = _written_bytes(), time.perf_counter()
    await work()
    took_s = time.perf_counter() - started_s
    return {
        "rate": count / took_s,
        "written": (_written_bytes() - written) / count / 1e3,
    }


def _written_bytes() -> int:
    """Return bytes written to files so far; sockets are not included."""
    lines = Path("/proc/self/io").read_text("ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])
