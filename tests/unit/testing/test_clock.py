from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from nanobot_core.testing import FakeClock


@pytest.mark.anyio
async def test_sleepers_wake_in_the_order_of_their_instants_and_see_them() -> None:
    clock = FakeClock()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, *delays: float) -> None:
        for delay_s in delays:
            await clock.sleep(delay_s)
            woken.append((name, clock.monotonic_s()))

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(sleeper("late", 3))
        group.create_task(sleeper("twice", 1, 1.5))
        group.create_task(sleeper("equal", 3))
        await clock.wait_for_sleepers(3)
        await clock.advance(2)
        assert woken == [("twice", 1)]
        await clock.advance(8)

    assert woken == [("twice", 1), ("twice", 2.5), ("late", 3), ("equal", 3)]
    assert clock.monotonic_s() == 10
    assert clock.now() - FakeClock().now() == timedelta(seconds=10)


@pytest.mark.anyio
async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = FakeClock()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(clock.sleep(5))
        await clock.wait_for_sleepers()
        task.cancel()

    assert clock.sleeper_count == 0
    await clock.advance(10)


@pytest.mark.anyio
async def test_no_delay_yields_once_without_the_clock_moving() -> None:
    await FakeClock().sleep(0)
    await FakeClock().sleep(-1)


@pytest.mark.anyio
async def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="time does not go back"):
        await FakeClock().advance(-1)


@pytest.mark.anyio
async def test_waiting_for_sleepers_is_bounded() -> None:
    with pytest.raises(TimeoutError):
        await FakeClock().wait_for_sleepers(1, limit_s=0.01)
