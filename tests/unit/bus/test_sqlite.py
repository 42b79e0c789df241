"""The bus in a file beyond the contract: its file, a failing disk, another process, its cost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nanobot_core.bus.sqlite import SqliteBus
from nanobot_core.bus.transaction import Operation
from nanobot_core.contracts.bus import BusDepth
from nanobot_core.errors import BusError
from nanobot_core.testing.bus import inbound, outbound
from nanobot_core.testing.clock import FakeClock
from tests.unit.bus.conftest import execute, inbox, opened


async def test_nobody_else_may_read_the_file(path: Path) -> None:
    async with opened(path) as bus:
        await bus.publish_inbound(inbound("1"))
        files = [*path.parent.iterdir()]
        assert {file.name for file in files} >= {"bus.sqlite", "bus.sqlite-wal"}
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    path.chmod(0o644)
    async with opened(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_second_bus_on_the_file_is_refused_until_the_first_is_closed(path: Path) -> None:
    async with opened(path) as bus:
        with pytest.raises(BusError, match="in use by another process; stop the other") as caught:
            await SqliteBus.open(path)
        assert str(path) in str(caught.value)
        assert await bus.publish_inbound(inbound("1")) is True
    async with opened(path) as bus:
        assert await inbox(bus) == ["1"]


HOLDER = """
import asyncio, sys
from pathlib import Path
from nanobot_core.bus.sqlite import SqliteBus

async def main(path):
    bus = await SqliteBus.open(Path(path))
    lease = await bus.receive_inbound()
    print(lease.attempt, flush=True)
    await asyncio.sleep(60)

asyncio.run(main(sys.argv[1]))
"""


async def test_a_process_that_dies_leaves_its_file_and_its_messages_to_the_next(path: Path) -> None:
    async with opened(path) as bus:
        await bus.publish_inbound(inbound("1"))
    for attempt in (1, 2):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HOLDER, str(path), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"%d\n" % attempt
            with pytest.raises(BusError, match="in use by another process"):
                await SqliteBus.open(path)
            process.send_signal(signal.SIGKILL)
            await process.wait()
    async with opened(path) as bus:
        assert (await bus.receive_inbound()).attempt == 3


async def test_a_file_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    async with opened(path) as bus:
        await bus.publish_inbound(inbound("1"))
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 2")
    with pytest.raises(BusError, match=r"has version 2 and .* knows 1; upgrade nanobot-core"):
        await SqliteBus.open(path)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 1")
    async with opened(path) as bus:
        assert await inbox(bus) == ["1"]


async def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for place in (tmp_path / "file" / "bus.sqlite", tmp_path / "folder"):
        with pytest.raises(BusError, match="check the disk") as caught:
            await SqliteBus.open(place)
        assert str(place) in str(caught.value)


async def test_after_closing_everything_is_refused(path: Path) -> None:
    async with opened(path) as bus:
        pass
    await bus.aclose()
    with pytest.raises(BusError, match="is closed"):
        await bus.publish_inbound(inbound("1"))


async def test_what_was_asked_for_before_closing_is_done(path: Path) -> None:
    async with opened(path) as bus, asyncio.TaskGroup() as tasks:
        publishing = [tasks.create_task(bus.publish_inbound(inbound(str(n)))) for n in range(50)]
        await asyncio.sleep(0)
        await bus.aclose()
        assert [await one for one in publishing] == [True] * 50
    async with opened(path) as bus:
        assert (await bus.depth()).inbound == 50


async def test_publishing_that_is_cancelled_stores_all_or_nothing(path: Path) -> None:
    async with opened(path) as bus:
        async with asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(bus.publish_inbound(inbound("1", key="1")))
            await asyncio.sleep(0)
            publishing.cancel()
        stored = (await bus.depth()).inbound
        assert await bus.publish_inbound(inbound("1", key="1")) is (stored == 0)
        assert await inbox(bus) == ["1"]


# --- a failing disk --------------------------------------------------------------------------


async def test_a_full_disk_refuses_messages_and_works_again_when_there_is_room(path: Path) -> None:
    async with opened(path) as bus:
        await bus.publish_inbound(inbound("first"))
        pages = await execute(bus, "PRAGMA page_count")
        await execute(bus, f"PRAGMA max_page_count = {pages}")
        with pytest.raises(BusError, match="make room on the disk"):
            await bus.publish_inbound(inbound("x" * 100_000, "b", key="k"))
        assert await bus.depth() == BusDepth(inbound=1, outbound=0, dead=0)
        lease = await bus.receive_inbound()
        with pytest.raises(BusError):
            await bus.acknowledge(lease, replies=[outbound("fits"), outbound("x" * 100_000)])
        assert await bus.depth() == BusDepth(inbound=1, outbound=0, dead=0)
        await bus.acknowledge(lease, replies=[outbound("fits")])
        await execute(bus, f"PRAGMA max_page_count = {1 << 30}")
        assert await bus.publish_inbound(inbound("x" * 100_000, "b", key="k")) is True
    async with opened(path) as bus:
        assert await bus.depth() == BusDepth(inbound=1, outbound=1, dead=0)


async def test_one_message_that_does_not_fit_fails_alone(path: Path) -> None:
    async with opened(path) as bus:
        pages = await execute(bus, "PRAGMA page_count")
        await execute(bus, f"PRAGMA max_page_count = {pages + 4}")
        contents = ["1", "2", "x" * 100_000, "4"]
        # Together in one transaction, because they are asked for in one pass of the loop.
        results = await asyncio.gather(
            *(bus.publish_inbound(inbound(content)) for content in contents),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [bool, bool, BusError, bool]
        assert await inbox(bus) == ["1", "2", "4"]


@contextlib.contextmanager
def log_replaced_by(device: str) -> Iterator[None]:
    """Let every open write-ahead log be `device` for the length of the block."""
    links = {int(link.name): link for link in Path("/proc/self/fd").iterdir()}
    logs = [
        number
        for number, link in links.items()
        if os.path.lexists(link) and str(link.readlink()).endswith("-wal")
    ]
    assert logs
    saved = [(number, os.dup(number)) for number in logs]
    replacement = os.open(device, os.O_RDWR)
    for number in logs:
        os.dup2(replacement, number)
    try:
        yield
    finally:
        for number, original in saved:
            os.dup2(original, number)
            os.close(original)
        os.close(replacement)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs the files of a process")
@pytest.mark.parametrize(
    "device",
    [
        pytest.param("/dev/full", id="no room"),  # writes fail with ENOSPC
        pytest.param("/dev/null", id="fsync fails"),  # writes pass, fdatasync fails with EINVAL
    ],
)
async def test_a_write_or_fsync_that_fails_is_told_and_the_next_one_works(
    path: Path, device: str
) -> None:
    async with opened(path) as bus:
        await bus.publish_inbound(inbound("1", key="1"))
        with log_replaced_by(device):
            for _ in range(2):
                with pytest.raises(BusError, match=r"nothing was stored"):
                    await bus.publish_inbound(inbound("2", key="2"))
        assert await bus.publish_inbound(inbound("2", key="2")) is True
        assert await bus.publish_inbound(inbound("1", key="1")) is False
        assert (await bus.depth()).inbound == 2
    async with opened(path) as bus:
        assert bus.repaired == ()
        assert await inbox(bus) == ["1", "2"]


FILLER = """
import asyncio, resource, sys
from pathlib import Path
from nanobot_core.bus.sqlite import SqliteBus
from nanobot_core.errors import BusError
from nanobot_core.testing.bus import inbound

async def main(path):
    bus = await SqliteBus.open(Path(path))
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
    number = failures = 0
    while failures < 20:
        try:
            await bus.publish_inbound(inbound(f"{number} " + "x" * 5000, key=str(number)))
        except BusError:
            failures += 1
        else:
            print(number, flush=True)
        number += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    await bus.publish_inbound(inbound("again"))
    print("again", flush=True)

asyncio.run(main(sys.argv[1]))
"""


async def test_a_process_whose_files_may_not_grow_keeps_what_it_accepted(path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FILLER, str(path), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        output, _ = await process.communicate()
    assert process.returncode == 0
    accepted = output.decode().split()
    assert len(accepted) > 10
    async with opened(path) as bus:
        assert bus.repaired == ()
        assert [content.split()[0] for content in await inbox(bus)] == accepted


# --- cost ------------------------------------------------------------------------------------


async def test_what_is_asked_for_together_is_written_together(path: Path) -> None:
    async with opened(path) as bus:
        statements: list[str] = []
        await bus._writer.ask(
            Operation(lambda ledger: ledger._database.set_trace_callback(statements.append))
        )
        await asyncio.gather(*(bus.publish_inbound(inbound(str(n))) for n in range(500)))
        # The first may be written while the others are still being asked for.
        assert 1 <= statements.count("COMMIT") - 1 <= 3
        assert sum(one.startswith("INSERT INTO message") for one in statements) == 500


async def test_waiting_receivers_ask_for_nothing(path: Path) -> None:
    async with opened(path) as bus, asyncio.TaskGroup() as tasks:
        receivers = [tasks.create_task(bus.receive_inbound()) for _ in range(50)]
        await bus.depth()
        statements: list[str] = []
        await bus._writer.ask(
            Operation(lambda ledger: ledger._database.set_trace_callback(statements.append))
        )
        statements.clear()
        await bus.publish_outbound(outbound("1"))
        await bus.depth()
        assert not any("ORDER BY urgent DESC" in one for one in statements)
        for receiver in receivers:
            receiver.cancel()


async def steps_of(bus: SqliteBus, chat: str) -> int:
    """Count the steps of SQLite's machine for one message from its arrival to the end."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    await bus._writer.ask(Operation(lambda ledger: ledger._database.set_progress_handler(count, 1)))
    await bus.publish_inbound(inbound("new", chat, key=f"{chat} {steps}"))
    lease = await bus.receive_inbound()
    await bus.release(lease)
    lease = await bus.receive_inbound()
    more = await bus.take_inbound(lease.message.session_key)
    assert more is not None
    await bus.acknowledge(lease, replies=[outbound("reply", chat, key=chat)])
    await bus.bury(more, "no")
    (letter,) = await bus.dead_letters(1)
    await bus.revive(letter.id)
    reply = await bus.receive_outbound("test")
    await bus.release(reply, delay_s=1)
    await bus.depth()
    await bus.outbound_channels()
    await bus._writer.ask(Operation(lambda ledger: ledger._database.set_progress_handler(None, 1)))
    return steps


HUNDRED_THOUSAND_MORE = """
WITH RECURSIVE more(n) AS (SELECT 1000 UNION ALL SELECT n + 1 FROM more WHERE n < 100999)
INSERT INTO message
SELECT n, queue, lane, 0, 0, 0, 0, 0, payload FROM more JOIN message ON number = 4 + n % 3
"""


HUNDRED_THOUSAND_KEYS = """
INSERT INTO seen SELECT number, CAST(number AS BLOB), 1767225600000000 FROM message
WHERE number >= 1000
"""


async def test_the_cost_of_a_message_does_not_depend_on_how_many_wait(path: Path) -> None:
    async with opened(path) as bus:
        for number in range(30):
            await bus.publish_inbound(inbound(str(number), str(number % 3)))
        few = await steps_of(bus, "1")
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(HUNDRED_THOUSAND_MORE)
        database.execute(HUNDRED_THOUSAND_KEYS)
        database.commit()
    async with opened(path) as bus:
        assert (await bus.depth()).inbound > 100_000
        assert await steps_of(bus, "2") <= 1.1 * few


async def test_known_keys_are_forgotten_after_their_time(path: Path) -> None:
    clock = FakeClock()
    async with opened(path, clock) as bus:
        for day in range(30):
            for number in range(20):
                await bus.publish_outbound(outbound("x", key=f"{day} {number}"))
            await clock.advance(24 * 3600)
        kept = await execute(bus, "SELECT count(*) FROM seen")
        assert 7 * 20 <= kept <= 8 * 20
