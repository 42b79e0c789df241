"""A bus whose process is killed at any moment: what was accepted is there afterwards, once."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from nanobot_core.bus.sqlite import SqliteBus
from nanobot_core.testing.bus import finishes

CHATS = 5

CHILD = """
import asyncio, random, sys
from pathlib import Path
from nanobot_core.bus.sqlite import SqliteBus
from nanobot_core.errors import BusFull
from nanobot_core.messages import InboundMessage, OutboundMessage

def say(word, number):
    sys.stdout.write(f"{word} {number}\\n")
    sys.stdout.flush()

async def publish(bus, numbers, rng):
    for number in numbers:
        # Some large enough for many pages, so that the signal may fall into a write.
        content = f"{number} " + "x" * rng.choice([10, 10, 3000, 60_000])
        say("publishing", number)
        message = InboundMessage(
            channel="test", sender_id="s", chat_id=str(number % 5), content=content,
            dedupe_key=str(number),
        )
        while True:
            try:
                is_new = await bus.publish_inbound(message)
                break
            except BusFull:
                await asyncio.sleep(0.001)
        say("published" if is_new else "doubled", number)

async def answer(bus, rng):
    while True:
        lease = await bus.receive_inbound()
        number = lease.message.content.split()[0]
        if rng.random() < 0.2:
            await bus.release(lease)
            continue
        reply = OutboundMessage(
            channel="test", chat_id=lease.message.chat_id, content=number,
            idempotency_key=number,
        )
        say("answering", number)
        await bus.acknowledge(lease, replies=[reply])
        say("answered", number)

async def deliver(bus):
    while True:
        lease = await bus.receive_outbound("test")
        say("delivering", lease.message.content)
        await bus.acknowledge(lease)
        say("delivered", lease.message.content)

async def main(path, first):
    bus, rng = await SqliteBus.open(Path(path), max_waiting=200), random.Random(first)
    assert not bus.repaired
    async with asyncio.TaskGroup() as tasks:
        for start in range(3):
            tasks.create_task(publish(bus, range(first + start, first + 100_000, 3), rng))
        for _ in range(3):
            tasks.create_task(answer(bus, rng))
        tasks.create_task(deliver(bus))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


class Told:
    """What killed children said that they had begun and done."""

    def __init__(self) -> None:
        self.words: dict[str, Counter[int]] = {}

    def add(self, line: bytes) -> None:
        if line.endswith(b"\n"):
            word, number = line.decode("ascii").split()
            self.words.setdefault(word, Counter())[int(number)] += 1

    def numbers(self, word: str) -> set[int]:
        return set(self.words.get(word, ()))


async def work_until_killed(path: Path, first: int, rng: random.Random, told: Told) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(path), str(first), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(50):
            for _ in range(rng.randint(1, 200)):
                line = await process.stdout.readline()
                assert line
                told.add(line)
    finally:
        process.send_signal(signal.SIGKILL)
        rest = await process.stdout.read()
        await process.wait()
    for line in rest.splitlines(keepends=True):
        told.add(line)


async def stored(path: Path) -> tuple[list[int], list[int]]:
    """Return what is in the inbox, chat by chat, and what was in the outbox, now delivered."""
    bus = await SqliteBus.open(path, max_waiting=1_000_000)
    assert bus.repaired == ()
    inbox = []
    for chat in range(CHATS):
        while lease := await bus.take_inbound(f"test:{chat}"):
            inbox.append(int(lease.message.content.split()[0]))
    outbox = []
    while reply := await finishes(bus, bus.receive_outbound("test")):
        outbox.append(int(reply.message.content))
        await bus.acknowledge(reply)
    # Closed while the whole inbox is out, so that the next one finds all of it.
    await bus.aclose()
    return inbox, outbox


async def survive(path: Path, rounds: int) -> None:
    rng, told = random.Random(rounds), Told()
    for number in range(rounds):
        await work_until_killed(path, number * 1_000_000, rng, told)
        inbox, outbox = await stored(path)
        assert len(set(inbox)) == len(inbox)
        for chat in range(CHATS):
            of_publisher: dict[tuple[int, int], list[int]] = {}
            for one in (one for one in inbox if one % CHATS == chat):
                of_publisher.setdefault((one // 1_000_000, one % 1_000_000 % 3), []).append(one)
            assert all(numbers == sorted(numbers) for numbers in of_publisher.values())
        published, answering = told.numbers("published"), told.numbers("answering")
        # Nothing that was accepted is lost: it waits, its reply waits, or its reply was delivered.
        begun = told.numbers("delivering")
        assert published <= {*inbox, *answering}
        assert told.numbers("answered") <= {*outbox, *begun}
        assert {*inbox} <= told.numbers("publishing") - told.numbers("answered")
        assert published - {*inbox} <= {*outbox, *begun}
        # Nothing that is done comes back.
        assert len({*outbox}) == len(outbox)
        assert not told.numbers("delivered") & {*outbox}
        assert not {*inbox} & ({*outbox} | begun)
        for one in outbox:
            told.add(f"delivering {one}\n".encode())
            told.add(f"delivered {one}\n".encode())
    # Nothing is answered twice or delivered twice.
    assert set(told.words["answered"].values()) == {1}
    assert set(told.words["delivered"].values()) == {1}
    assert "doubled" not in told.words
    assert len(told.words["delivered"]) > rounds


@pytest.mark.anyio
async def test_a_killed_process_loses_and_doubles_nothing(tmp_path: Path) -> None:
    await survive(tmp_path / "bus.sqlite", 20)


@pytest.mark.anyio
@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_two_hundred_killed_processes_lose_and_double_nothing(tmp_path: Path) -> None:
    await survive(tmp_path / "bus.sqlite", 200)
