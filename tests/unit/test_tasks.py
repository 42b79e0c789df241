"""Tasks and threads that must end, and the table of how long each has."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from nanobot_core import tasks
from nanobot_core.hooks.implementation import CANCEL_GRACE_S
from nanobot_core.tasks import GatheredWork, TaskOwner

pytestmark = pytest.mark.anyio
LIMIT_S = 5.0


async def test_work_is_done_in_the_order_in_which_it_came_and_never_side_by_side() -> None:
    gathered, done = GatheredWork(), list[int]()
    alone = threading.Lock()

    def note(number: int) -> int:
        assert alone.acquire(blocking=False)
        done.append(number)
        alone.release()
        return -number

    async def ask(number: int) -> int:
        for _ in range(number % 7):
            await asyncio.sleep(0)
        return await gathered.finish(lambda: note(number))

    results = await asyncio.gather(*(ask(number) for number in range(100)))

    assert results == [-number for number in range(100)]
    assert done == sorted(done, key=lambda number: number % 7)


async def test_a_piece_that_fails_fails_alone() -> None:
    gathered = GatheredWork()

    def fail() -> None:
        raise OSError("no room")

    first, second, third = await asyncio.gather(
        gathered.finish(lambda: 1),
        gathered.finish(fail),
        gathered.finish(lambda: 3),
        return_exceptions=True,
    )

    assert (first, third) == (1, 3)
    assert isinstance(second, OSError)
    assert await gathered.finish(lambda: 4) == 4


async def test_a_batch_runs_in_one_block_which_succeeds_or_fails_as_a_whole() -> None:
    steps: list[str] = []
    reason: str = ""

    @contextmanager
    def block() -> Iterator[None]:
        steps.append("begin")
        if reason == "begin":
            raise OSError(reason)
        yield
        if reason == "end":
            raise OSError(reason)
        steps.append("end")

    def fail() -> None:
        raise ValueError("by itself")

    async def ask() -> list[object]:
        works: list[Callable[[], object]] = [lambda: steps.append("first"), fail, lambda: 3]
        asked = (gathered.finish(work) for work in works)
        return [*await asyncio.gather(*asked, return_exceptions=True)]

    gathered = GatheredWork(block)
    first, second, third = await ask()
    assert steps == ["begin", "first", "end"]
    assert (first, type(second), third) == (None, ValueError, 3)

    reason = "end"
    assert [*map(str, await ask())] == ["end", "by itself", "end"]
    reason = "begin"
    assert [*map(str, await ask())] == ["begin"] * 3
    reason = ""
    assert (await ask())[2] == 3


async def test_whoever_is_cancelled_goes_on_when_the_work_has_ended() -> None:
    gathered, gate, done = GatheredWork(), threading.Event(), list[str]()

    def wait() -> None:
        gate.wait(LIMIT_S)
        done.append("first")

    first = asyncio.create_task(gathered.finish(wait))
    second = asyncio.create_task(gathered.finish(lambda: done.append("second")))
    await asyncio.sleep(0)
    for _ in range(2):  # the second time while the first cancellation waits
        first.cancel()
        second.cancel()
        await asyncio.sleep(0)
    assert not any(task.done() for task in (first, second))
    gate.set()

    ended = await asyncio.gather(first, second, return_exceptions=True)

    assert done == ["first", "second"]
    assert all(isinstance(each, asyncio.CancelledError) for each in ended)


def test_each_thing_has_more_time_to_end_than_what_it_waits_for() -> None:
    a_person_waits_s = 5.0

    assert CANCEL_GRACE_S < tasks.WORK_END_S < tasks.CONNECTION_END_S < tasks.TURN_END_S
    assert a_person_waits_s > tasks.TURN_END_S
    # The delivery of a channel lets replies arrive, then cancels them.
    assert tasks.SENDING_END_S + tasks.WORK_END_S <= tasks.TASKS_END_S
    # A plugin hears its last events, stops, and gives back its tasks and closers.
    assert tasks.TASKS_END_S + tasks.PLUGIN_END_S + 2 * tasks.TASKS_END_S < tasks.PART_END_S
    # A channel that leaves: its delivery, then its connection.
    assert tasks.TASKS_END_S + tasks.TURN_END_S <= tasks.CLOSE_RESERVE_S


def test_a_gateway_whose_parts_are_all_slow_ends_before_it_is_killed() -> None:
    turns = requests = services = tasks.TURN_END_S
    channels = tasks.TASKS_END_S + tasks.TURN_END_S
    after_the_grace_time_s = turns + requests + channels + services + tasks.PLUGIN_END_S
    after_the_grace_time_s += tasks.LOG_END_S + tasks.EXIT_END_S - tasks.CLOSE_RESERVE_S

    assert after_the_grace_time_s <= tasks.KILL_RESERVE_S


async def test_a_task_that_ignores_its_cancellation_is_named_and_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "TASKS_END_S", 0.01)
    owner, never = TaskOwner(), asyncio.Event()

    async def stubborn() -> None:
        while True:
            try:
                await never.wait()
            except asyncio.CancelledError:
                continue

    task = owner.spawn(stubborn(), name="stubborn")
    await asyncio.sleep(0)

    assert await owner.close() == ["stubborn"]
    await asyncio.wait({task}, timeout=LIMIT_S)
    assert task.done()
    assert await owner.close() == []


STUBBORN_TOOL = """
import asyncio
from nanobot_core import tasks

tasks.TASKS_END_S = tasks.WORK_END_S = 0.01

async def stubborn():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

async def main():
    owner = tasks.TaskOwner()
    try:
        await tasks.run_bounded(owner.spawn, stubborn(), limit_s=0.01, name="tool")
    except tasks.StillRunning:
        print("overran")
    print(await owner.close())

asyncio.run(main())
"""


def test_a_tool_that_ignores_its_cancellation_does_not_keep_the_process() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STUBBORN_TOOL],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "overran\n['tool']\n", "")
