"""The queue's write-ahead log: damage in it is found, reported, and costs as little as it must.

SQLite reads its log up to the first bad page and drops the rest silently.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from nanobot_core.bus.sqlite import SqliteBus
from nanobot_core.bus.wal import loss_in, read_mark
from nanobot_core.testing.bus import inbound, outbound
from tests.unit.bus.conftest import opened

FRAME = 24 + 4096
Damage = Callable[[bytearray, random.Random], None]


def snapshot(path: Path, to: Path) -> Path:
    """Copy the files of an open queue as a killed process leaves them."""
    to.mkdir(parents=True)
    for file in path.parent.iterdir():
        if file.suffix != ".lock":
            shutil.copy2(file, to)
    return to / path.name


async def crashed(folder: Path, count: int = 60) -> Path:
    """Return a queue with `count` messages, all of them in its log only."""
    path = folder / "open" / "bus.sqlite"
    async with opened(path) as bus:
        for number in range(count):
            await bus.publish_inbound(inbound(f"{number} {'x' * 500}", str(number % 5)))
        return snapshot(path, folder / "crashed")


async def numbers_in(bus: SqliteBus) -> list[int]:
    found = []
    while (await bus.depth()).inbound:
        lease = await bus.receive_inbound()
        found.append(int(lease.message.content.split()[0]))
        await bus.acknowledge(lease)
    return found


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def mark_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-mark")


async def test_a_killed_process_leaves_all_messages_and_nothing_to_report(tmp_path: Path) -> None:
    path = await crashed(tmp_path)
    async with opened(path) as bus:
        assert bus.repaired == ()
        assert sorted(await numbers_in(bus)) == list(range(60))


async def test_after_a_clean_stop_the_log_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bus.sqlite"
    async with opened(path) as bus:
        await bus.publish_inbound(inbound("1 "))
    assert not log_of(path).exists()
    async with opened(path) as bus:
        assert bus.repaired == ()
        assert await numbers_in(bus) == [1]


async def test_a_bad_page_in_the_log_is_reported_and_later_messages_are_saved(
    tmp_path: Path,
) -> None:
    path = await crashed(tmp_path)
    data = bytearray(log_of(path).read_bytes())
    place = 32 + 20 * FRAME + 2000
    data[place] ^= 0xFF
    log_of(path).write_bytes(data)
    with contextlib.closing(sqlite3.connect(snapshot(path, tmp_path / "sqlite"))) as database:
        (left,) = database.execute("SELECT count(*) FROM message").fetchone()
        assert left < 10  # what SQLite alone makes of it, silently
    async with opened(path) as bus:
        (finding,) = bus.repaired
        kept = path.with_name("bus.sqlite.corrupt-1")
        assert "'bus.sqlite-wal' can be read only up to page" in finding
        assert str(kept) in finding
        assert log_of(kept).read_bytes() == data
        found = await numbers_in(bus)
        assert len(found) == len(set(found)) >= 58
    async with opened(path) as bus:
        assert bus.repaired == ()


def _damage_last_page(data: bytearray, _rng: random.Random) -> None:
    data[-1] ^= 1


def _damage_beginning(data: bytearray, _rng: random.Random) -> None:
    data[0:32] = bytes(32)


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _empty(data: bytearray, _rng: random.Random) -> None:
    data.clear()


def _overwrite(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    end = min(start + rng.choice([1, 24, 512, 3 * FRAME]), len(data))
    data[start:end] = rng.randbytes(end - start)


def _zero_sectors(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data) // 512) * 512
    data[start : start + 4096] = bytes(len(data[start : start + 4096]))


def _swap_pages(data: bytearray, rng: random.Random) -> None:
    one, other = (32 + rng.randrange((len(data) - 32) // FRAME) * FRAME for _ in range(2))
    first, second = data[one : one + FRAME], data[other : other + FRAME]
    data[one : one + FRAME], data[other : other + FRAME] = second, first


@pytest.mark.parametrize(
    "damage",
    [
        _damage_last_page,
        _damage_beginning,
        _empty,
        *[_cut, _overwrite, _zero_sectors, _swap_pages] * 3,
    ],
)
async def test_no_damage_in_the_log_loses_a_message_unreported(
    tmp_path: Path, damage: Damage, request: pytest.FixtureRequest
) -> None:
    path = await crashed(tmp_path)
    before = log_of(path).read_bytes()
    data = bytearray(before)
    damage(data, random.Random(request.node.name))
    log_of(path).write_bytes(data)
    async with opened(path) as bus:
        assert bool(bus.repaired) == (data != before)
        if bus.repaired:
            assert log_of(path.with_name("bus.sqlite.corrupt-1")).read_bytes() == data
        found = await numbers_in(bus)
        assert len(set(found)) == len(found)
        assert set(found) <= set(range(60))
        assert bus.repaired or len(found) == 60
        assert await bus.publish_inbound(inbound("60 ")) is True


async def test_a_log_that_is_gone_is_reported(tmp_path: Path) -> None:
    path = await crashed(tmp_path)
    log_of(path).unlink()
    async with opened(path) as bus:
        (finding,) = bus.repaired
        assert "'bus.sqlite-wal' is missing" in finding


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_log_beside_an_empty_file_is_salvaged_and_reported(
    tmp_path: Path, is_there: bool
) -> None:
    """Guards against SQLite, which removes a log beside an empty file."""
    path = await crashed(tmp_path)
    path.unlink()
    if is_there:
        path.touch()
    async with opened(path) as bus:
        (finding,) = bus.repaired
        assert "it is empty or missing, and its log is not" in finding
        assert path.with_name("bus.sqlite.corrupt-1").read_bytes() == b""
        assert await numbers_in(bus) == list(range(60))


async def test_a_letter_of_a_divided_burial_is_not_sent_again(tmp_path: Path) -> None:
    """Guards against one message in both tables after a half of a transaction was lost."""
    path = tmp_path / "open" / "bus.sqlite"
    async with opened(path) as bus:
        for number in range(20):
            await bus.publish_inbound(inbound(f"{number} {'x' * 500}", str(number % 5)))
        before = (path.parent / "bus.sqlite-wal").stat().st_size
        await bus.bury(await bus.receive_inbound(), "tried")
        after = (path.parent / "bus.sqlite-wal").stat().st_size
        crash = snapshot(path, tmp_path / "crashed")
    for place in range(before, after, FRAME):
        lost = snapshot(crash, tmp_path / str(place))
        data = bytearray(log_of(lost).read_bytes())
        data[place + 100] ^= 1
        log_of(lost).write_bytes(data)
        async with opened(lost) as bus:
            assert len(bus.repaired) == 1
            letters = [int(one.message.content.split()[0]) for one in await bus.dead_letters()]
            assert not set(letters) & set(await numbers_in(bus))


async def test_the_log_of_another_day_is_reported(tmp_path: Path) -> None:
    former = await crashed(tmp_path / "former", 10)
    path = await crashed(tmp_path / "latter")
    shutil.copy2(log_of(former), log_of(path))
    async with opened(path) as bus:
        (finding,) = bus.repaired
        assert "'bus.sqlite-wal' is older than the last write to it" in finding


async def test_damage_is_found_without_a_mark_where_whole_messages_follow_it(
    tmp_path: Path,
) -> None:
    path = await crashed(tmp_path)
    mark_of(path).unlink()
    data = bytearray(log_of(path).read_bytes())
    data[32 + 10 * FRAME + 100] ^= 1
    log_of(path).write_bytes(data)
    async with opened(path) as bus:
        assert len(bus.repaired) == 1
        assert len(await numbers_in(bus)) >= 58


async def test_a_transaction_that_was_never_finished_is_no_damage(tmp_path: Path) -> None:
    path = await crashed(tmp_path, 20)
    former = mark_of(path).read_bytes()
    later = snapshot(path, tmp_path / "later")
    async with opened(later) as bus:
        await bus.publish_inbound(inbound("20 " + "x" * 10_000))
        torn = snapshot(later, tmp_path / "torn")
    log_of(torn).write_bytes(log_of(torn).read_bytes()[:-1000])
    mark_of(torn).write_bytes(former)
    async with opened(torn) as bus:
        assert bus.repaired == ()
        assert len(await numbers_in(bus)) == 20


async def test_no_moment_of_a_crash_is_taken_for_damage(tmp_path: Path) -> None:
    """The log is begun again several times, and each state of the files is one a kill may leave."""
    path = tmp_path / "open" / "bus.sqlite"
    rng = random.Random(9)
    moments, begun = 0, set()
    async with opened(path) as bus:
        for step in range(24):
            contents = [f"{step} {'x' * rng.choice([10, 5_000, 300_000])}" for _ in range(3)]
            await asyncio.gather(*(bus.publish_inbound(inbound(text)) for text in contents))
            lease = await bus.receive_inbound()
            replies = [outbound("y" * rng.choice([10, 100_000]))]
            await bus.acknowledge(lease, replies=replies)
            mark = read_mark(mark_of(path))
            assert mark is not None
            moments += mark.frames > 0
            begun.add(mark.header)
            assert loss_in(log_of(path), mark) is None
    assert moments > 12
    assert len(begun) > 2


@pytest.mark.parametrize("step", ["copied", "repaired", "log removed"])
async def test_a_repair_that_was_cut_off_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = await crashed(tmp_path)
    data = bytearray(log_of(path).read_bytes())
    data[32 + 20 * FRAME + 2000] ^= 0xFF
    log_of(path).write_bytes(data)

    def fail(place: Path, target: Path) -> None:
        is_here = {
            "copied": place.suffix == ".new",
            "repaired": False,
            "log removed": place.suffix == ".repaired",
        }
        if is_here[step]:
            raise KeyboardInterrupt
        rename(place, target)
        if step == "repaired" and place.suffix == ".new":
            raise KeyboardInterrupt

    rename = Path.replace
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with contextlib.suppress(KeyboardInterrupt):
            from nanobot_core.bus.file import QueueFile

            file = QueueFile(path)
            file.open()
    async with opened(path) as bus:
        assert len(await numbers_in(bus)) >= 58
