"""Blocking work that goes to a thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from nanobot_core.threads import GatheredWork

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
