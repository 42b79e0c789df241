"""A damaged file is kept, reported and repaired, and what can be read goes on."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from nanobot_core.contracts.bus import BusDepth
from nanobot_core.testing.bus import inbound, outbound
from tests.unit.bus.conftest import execute, inbox, opened


async def fill(path: Path, count: int) -> None:
    async with opened(path) as bus:
        await asyncio.gather(
            *(
                bus.publish_inbound(inbound(f"{n} {'x' * 500}", str(n % 10), key=str(n)))
                for n in range(count)
            )
        )
        await bus.bury(await bus.receive_inbound(), "no")


@pytest.mark.parametrize(
    ("place", "value"), [(0, b"X"), (16, b"\x21"), (18, b"\x05"), (19, b"\x05"), (47, b"\x1e")]
)
async def test_a_damaged_header_is_repaired(path: Path, place: int, value: bytes) -> None:
    """Guards against SQLite, which calls such a file read-only or of another format."""
    await fill(path, 10)
    data = bytearray(path.read_bytes())
    data[place : place + 1] = value
    path.write_bytes(data)
    async with opened(path) as bus:
        assert len(bus.repaired) == 1
        assert len(await inbox(bus)) == 9


async def test_a_table_under_another_name_is_damage(path: Path) -> None:
    await fill(path, 10)
    path.write_bytes(
        path.read_bytes()
        .replace(b"TABLE dead", b"TABLE bead")
        .replace(b"tabledeaddead", b"tablebeadbead")
    )
    async with opened(path) as bus:
        assert len(bus.repaired) == 1
        assert await bus.publish_inbound(inbound("new")) is True


async def test_table_names_in_no_encoding_are_damage(path: Path) -> None:
    """Guards against Python, which cannot read SQLite's message that quotes them."""
    await fill(path, 10)
    data = bytearray(path.read_bytes())
    names, statement = data.index(b"tablemessagemessage"), data.index(b"CREATE TABLE message")
    data[names + 5 : names + 12] = data[statement : statement + 7] = b"\xff" * 7
    path.write_bytes(data)
    async with opened(path) as bus:
        (finding,) = bus.repaired
        assert "the names of its tables cannot be read" in finding
        assert await bus.publish_inbound(inbound("new")) is True


async def test_a_damaged_file_is_kept_and_what_can_be_read_goes_on(path: Path) -> None:
    await fill(path, 300)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 3 * 4096] = b"\xa5" * 3 * 4096
    path.write_bytes(data)
    async with opened(path) as bus:
        (finding,) = bus.repaired
        kept = path.with_name("bus.sqlite.corrupt-1")
        assert str(kept) in finding
        assert kept.read_bytes() == data
        depth = await bus.depth()
        assert f"{depth.inbound} waiting messages and {depth.dead} dead letters" in finding
        numbers = [int(content.split()[0]) for content in await inbox(bus)]
        assert len(set(numbers)) == len(numbers) == depth.inbound
        assert 250 < len(numbers) < 299
        for chat in range(10):
            mine = [number for number in numbers if number % 10 == chat]
            assert mine == sorted(mine)
        assert await bus.publish_inbound(inbound("new")) is True
    async with opened(path) as bus:
        assert bus.repaired == ()
        assert await inbox(bus) == ["new"]


@pytest.mark.parametrize("seed", range(12))
async def test_no_damage_keeps_the_bus_from_starting_or_goes_unreported(
    path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    await fill(path, 60)
    data = bytearray(path.read_bytes())
    start = rng.choice([0, rng.randrange(100), rng.randrange(len(data))])
    if rng.random() < 0.3:
        del data[max(start, 1) :]
    else:
        end = min(start + rng.choice([1, 20, 5000, len(data)]), len(data))
        data[start:end] = rng.randbytes(end - start)
    path.write_bytes(data)
    async with opened(path) as bus:
        depth = await bus.depth()
        contents = await inbox(bus)
        letters = await bus.dead_letters(1000)
        assert len(contents) + len(letters) == depth.inbound + depth.dead
        assert len(set(contents)) == len(contents)
        assert bus.repaired or depth == BusDepth(inbound=59, outbound=0, dead=1)
        if bus.repaired:
            assert path.with_name("bus.sqlite.corrupt-1").read_bytes() == data
        assert await bus.publish_inbound(inbound("new")) is True


async def test_a_damaged_file_is_kept_as_it_was_found_together_with_its_log(
    path: Path, tmp_path: Path
) -> None:
    await fill(path, 100)
    async with opened(path) as bus:
        await bus.publish_inbound(inbound("in the log"))
        for file in path.parent.iterdir():
            if file.suffix != ".lock":
                shutil.copy2(file, tmp_path)
    path = tmp_path / path.name
    data = bytearray(path.read_bytes())
    data[5 * 4096 : 6 * 4096] = b"\xa5" * 4096
    path.write_bytes(data)
    log = tmp_path / "bus.sqlite-wal"
    former = log.read_bytes()
    async with opened(path) as bus:
        assert len(bus.repaired) == 1
        assert (tmp_path / "bus.sqlite.corrupt-1").read_bytes() == data
        assert (tmp_path / "bus.sqlite.corrupt-1-wal").read_bytes() == former
        assert "in the log" in await inbox(bus)


async def test_a_file_that_has_lost_its_tables_is_not_taken_for_a_new_one(path: Path) -> None:
    await fill(path, 30)
    data = bytearray(path.read_bytes())
    data[103:105] = bytes(2)  # how many entries the first page has
    path.write_bytes(data)
    async with opened(path) as bus:
        assert len(bus.repaired) == 1
        assert path.with_name("bus.sqlite.corrupt-1").read_bytes() == data


async def test_a_letter_that_damage_puts_back_into_its_queue_stays_a_letter(path: Path) -> None:
    """Pages of different ages had it twice, and burying it again failed for ever."""
    async with opened(path) as bus:
        await bus.publish_inbound(inbound("given up"))
        await bus.publish_inbound(inbound("waits", "b"))
        await bus.bury(await bus.receive_inbound(), "no")
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(
            "INSERT INTO message SELECT number, queue, lane, urgent, 0, 0, attempts, stored_us,"
            " '{broken' FROM dead"
        )
        database.execute("PRAGMA user_version = 0")
        database.commit()
    async with opened(path) as bus:
        assert len(bus.repaired) == 1
        assert [letter.message.content for letter in await bus.dead_letters()] == ["given up"]
        assert await inbox(bus) == ["waits"]


async def test_a_message_that_cannot_be_read_becomes_a_dead_letter(path: Path) -> None:
    async with opened(path) as bus:
        for content in ("1", "2"):
            await bus.publish_inbound(inbound(content))
        await bus.publish_outbound(outbound("3"))
        await bus.publish_outbound(outbound("4"))
        await execute(bus, "UPDATE message SET payload = '{broken' WHERE number IN (1, 3)")
        assert (await bus.receive_inbound()).message.content == "2"
        assert (await bus.receive_outbound("test")).message.content == "4"
        letters = await bus.dead_letters()
        assert [letter.message.content for letter in letters] == ["{broken", "{broken"]
        assert letters[0].message.channel == "test"
        assert all("cannot be read" in letter.reason for letter in letters)
