"""Channels that fail in every way beside others that work: found, cured, told, and alone in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.reliability.test_outage import Station, station

pytestmark = pytest.mark.anyio

Fault = Callable[[Station], Awaitable[None]]


async def raises(at: Station) -> None:
    raise RuntimeError("a bug")


async def leaves(at: Station) -> None:
    raise SystemExit(1)


async def interrupts(at: Station) -> None:
    raise KeyboardInterrupt


async def cancels(at: Station) -> None:
    raise asyncio.CancelledError


async def is_silent(at: Station) -> None:
    await asyncio.Event().wait()


async def dies_late(at: Station) -> None:
    await at.clock.sleep(40)
    raise OSError("the connection was reset")


@pytest.mark.parametrize("fault", [raises, leaves, interrupts, cancels, is_silent, dies_late])
async def test_a_channel_that_fails_is_never_called_running_and_comes_back(
    tmp_path: Path, fault: Fault
) -> None:
    async with station(tmp_path) as at:
        is_broken = True

        async def polling() -> None:
            if is_broken:
                await fault(at)

        at.one.polling = polling
        broke_s = at.clock.monotonic_s()
        await at.advance(180)
        late = [state for moment, state in at.seen["one"] if moment - broke_s > 105]
        assert late
        assert "running" not in late
        assert at.status().last_error
        assert at.one.lives >= 2
        is_broken = False
        await at.advance(180)
        assert at.status().state == "running"
        assert (at.two.lives, at.is_always("two", "running")) == (1, True)
        await at.reply("are you there?", "a")
        await at.advance(5)
        assert [message.content for _, message in at.one.sent] == ["are you there?"]


async def test_restarts_are_bounded_in_any_ten_minutes(tmp_path: Path) -> None:
    async with station(tmp_path) as at:

        async def polling() -> None:
            raise RuntimeError("a bug")

        at.one.polling = polling
        starts: list[tuple[float, int]] = []
        for _ in range(360):
            await at.advance(5)
            starts.append((at.clock.monotonic_s(), at.one.lives))
        for moment, lives in starts:
            former = [count for then, count in starts if then <= moment - 600]
            if former:
                assert lives - former[-1] <= 31
        assert len(at.failed) == 1


async def test_a_channel_that_does_not_stop_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nanobot_core.channels.manager.CONNECTION_END_S", 0.05)
    monkeypatch.setattr("nanobot_core.channels.supervisor.TURN_END_S", 0.1)
    gate = asyncio.Event()
    async with station(tmp_path) as at:
        channel = at.channels.running("one")
        assert channel is not None

        async def hang() -> None:
            while not gate.is_set():
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    continue

        monkeypatch.setattr(channel, "stop", hang)
        async with asyncio.timeout(5):
            await at.channels.stop()
        gate.set()
