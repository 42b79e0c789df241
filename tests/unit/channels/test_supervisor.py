"""What runs for as long as the gateway, and what is said of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from nanobot_core import RunStatus
from nanobot_core.channels import supervisor as module
from nanobot_core.channels.supervisor import (
    LONGEST_DELAY_S,
    MAX_RESTARTS,
    PROBE_INTERVAL_S,
    REFUSED_PROBE_S,
    STABLE_S,
    Supervisor,
)
from nanobot_core.errors import ChannelError
from nanobot_core.tasks import TaskOwner
from nanobot_core.testing import FakeClock
from tests.unit.channels.conftest import until

pytestmark = pytest.mark.anyio

Life = Callable[["Bench"], Awaitable[None]]


class Bench:
    """A supervisor of something that lives as `life` says."""

    def __init__(self, life: Life) -> None:
        self.clock = FakeClock()
        self.owner = TaskOwner()
        self.life = life
        self.begun: list[float] = []
        self.failed: list[RunStatus] = []
        self.seen: list[str] = []
        self.supervisor = Supervisor(
            "test",
            "channel",
            "tester",
            self._attempt,
            spawn=self.owner.spawn,
            clock=self.clock,
            on_failed=self._on_failed,
        )

    async def _attempt(self) -> None:
        self.begun.append(self.clock.monotonic_s())
        await self.life(self)

    async def _on_failed(self, status: RunStatus) -> None:
        self.failed.append(status)

    async def advance(self, seconds: float, step_s: float = 1.0) -> None:
        """Move time on in steps; note the state after each."""
        await self.clock.advance(0)
        for _ in range(round(seconds / step_s)):
            await self.clock.advance(step_s)
            self.seen.append(self.supervisor.status.state)

    def delays(self) -> list[float]:
        return [later - sooner for sooner, later in zip(self.begun, self.begun[1:], strict=False)]


Make = Callable[[Life], Bench]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[Bench] = []

    def begin(life: Life) -> Bench:
        bench = Bench(life)
        made.append(bench)
        bench.supervisor.start()
        return bench

    yield begin
    for bench in made:
        await bench.owner.close()


async def dies(bench: Bench) -> None:
    raise ChannelError("no connection")


async def lives(bench: Bench) -> None:
    bench.supervisor.alive()
    await asyncio.Event().wait()


async def test_it_is_running_only_once_it_works(make: Make) -> None:
    async def connects(bench: Bench) -> None:
        await bench.clock.sleep(10)
        await lives(bench)

    bench = make(connects)
    assert bench.supervisor.status.state == "stopped"
    await bench.advance(9)
    assert set(bench.seen) == {"starting"}
    assert bench.supervisor.status.last_contact is None
    await bench.advance(1)
    status = bench.supervisor.status
    assert (status.state, status.restarts, status.last_error) == ("running", 0, None)
    assert status.last_contact == status.since == bench.clock.now()


async def test_what_ends_is_started_again_after_growing_delays(make: Make) -> None:
    bench = make(dies)
    await bench.advance(60)
    assert bench.delays()[:6] == [1, 2, 4, 8, LONGEST_DELAY_S, LONGEST_DELAY_S]
    assert set(bench.seen) == {"waiting"}
    status = bench.supervisor.status
    assert status.last_error == "no connection"
    assert status.restarts == len(bench.begun) - 1


async def test_refused_credentials_are_reported_at_once_and_hardly_tried_again(make: Make) -> None:
    async def is_refused(bench: Bench) -> None:
        if len(bench.begun) > 2:
            await lives(bench)
        raise ChannelError("correct the token", needs_owner=True)

    bench = make(is_refused)
    await bench.advance(60)
    assert [status.last_error for status in bench.failed] == ["correct the token"]
    assert (bench.begun, set(bench.seen)) == ([0], {"failed"})
    await bench.advance(2 * REFUSED_PROBE_S, step_s=60)
    assert bench.delays() == [REFUSED_PROBE_S, REFUSED_PROBE_S]
    assert len(bench.failed) == 1
    assert bench.supervisor.status.state == "running"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("a bug"), "RuntimeError: a bug"),
        (SystemExit(2), "SystemExit: 2"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
        (asyncio.CancelledError(), "it was cancelled"),
        (None, "it ended by itself"),
    ],
)
async def test_whatever_ends_it_it_is_started_again(
    make: Make, error: BaseException | None, told: str
) -> None:
    async def ends(bench: Bench) -> None:
        if len(bench.begun) == 1:
            if error is not None:
                raise error
            return
        await lives(bench)

    bench = make(ends)
    await bench.advance(2)
    status = bench.supervisor.status
    assert (status.state, status.restarts, status.last_error) == ("running", 1, told)


async def test_what_fails_thirty_times_in_ten_minutes_is_given_up_with_one_notice(
    make: Make,
) -> None:
    bench = make(dies)
    await bench.advance(600)
    assert bench.supervisor.status.state == "failed"
    assert len(bench.begun) <= MAX_RESTARTS + 1 + 600 / PROBE_INTERVAL_S
    (notice,) = bench.failed
    assert (notice.state, notice.last_error) == ("failed", "no connection")
    begun = len(bench.begun)
    bench.seen.clear()
    await bench.advance(3600, 10)
    assert len(bench.begun) - begun == 3600 / PROBE_INTERVAL_S, "it is tried on"
    assert set(bench.seen) == {"failed"}
    assert len(bench.failed) == 1


async def test_what_comes_back_after_hours_is_running_again(make: Make) -> None:
    async def mended(bench: Bench) -> None:
        if bench.clock.monotonic_s() < 7200:
            raise ChannelError("down")
        await lives(bench)

    bench = make(mended)
    await bench.advance(7200 + PROBE_INTERVAL_S, 10)
    assert bench.supervisor.status.state == "running"
    await bench.advance(600, 10)
    assert set(bench.seen[-60:]) == {"running"}


async def test_what_has_worked_for_a_minute_begins_with_short_delays_again(make: Make) -> None:
    async def breaks(bench: Bench) -> None:
        bench.supervisor.alive()
        if len(bench.begun) == 5:
            await bench.clock.sleep(STABLE_S)
        raise ChannelError("broken")

    bench = make(breaks)
    await bench.advance(200)
    delays = bench.delays()
    assert delays[:4] == [1, 2, 4, 8]
    assert delays[4:7] == [STABLE_S + 1, 2, 4]


async def test_what_breaks_slowly_for_months_is_still_started_again(make: Make) -> None:
    async def slowly(bench: Bench) -> None:
        await bench.clock.sleep(30)
        raise ChannelError("broken")

    bench = make(slowly)
    # More failures in a row than a float has powers of two.
    await bench.clock.advance(0)
    await bench.clock.advance(40 * 1_100)
    assert len(bench.begun) > 1_050
    assert bench.failed == []


@pytest.mark.parametrize("limit_s", [8.0, 90.0, 150.0])
async def test_a_silent_death_is_found_in_time(make: Make, limit_s: float) -> None:
    async def falls_silent(bench: Bench) -> None:
        bench.supervisor.silence_limit_s = limit_s
        if len(bench.begun) == 1:
            for _ in range(10):
                bench.supervisor.alive()
                await bench.clock.sleep(limit_s / 2)
            await asyncio.Event().wait()
        await lives(bench)

    bench = make(falls_silent)
    await bench.advance(9 * limit_s / 2)
    assert set(bench.seen) == {"running"}
    await bench.advance(180)
    assert len(bench.begun) >= 2
    assert bench.begun[1] - 9 * limit_s / 2 <= 180
    assert "waiting" in bench.seen
    assert bench.supervisor.status.last_error == (
        f"no answer from its platform for {limit_s:g} seconds"
    )


async def test_what_never_answers_is_never_called_running(make: Make) -> None:
    async def hangs(bench: Bench) -> None:
        bench.supervisor.silence_limit_s = 90.0
        await asyncio.Event().wait()

    bench = make(hangs)
    await bench.advance(3600, 5)
    assert "running" not in bench.seen
    assert len(bench.begun) > 30


async def test_silence_shows_before_it_is_acted_upon(make: Make) -> None:
    async def falls_silent(bench: Bench) -> None:
        bench.supervisor.silence_limit_s = 61.0
        await lives(bench)

    bench = make(falls_silent)
    await bench.advance(62)
    assert bench.seen[-1] == "waiting"
    assert len(bench.begun) == 1


async def test_what_is_lost_does_not_count_as_running_while_it_ends(make: Make) -> None:
    closed = asyncio.Event()

    async def closes_slowly(bench: Bench) -> None:
        bench.supervisor.alive()
        await bench.clock.sleep(5)
        bench.supervisor.lost()
        await closed.wait()

    bench = make(closes_slowly)
    await bench.advance(4)
    assert set(bench.seen) == {"running"}
    await bench.advance(1)
    assert bench.seen[-1] == "waiting"
    closed.set()


async def test_it_stops_and_starts_again(make: Make) -> None:
    bench = make(lives)
    await bench.advance(1)
    bench.supervisor.start()
    await bench.supervisor.stop()
    assert bench.supervisor.status.state == "stopped"
    await bench.supervisor.stop()
    await bench.advance(100)
    assert len(bench.begun) == 1
    bench.supervisor.start()
    await bench.advance(1)
    assert (len(bench.begun), bench.supervisor.status.state) == (2, "running")


async def test_what_ignores_its_end_does_not_hold_up_the_stop(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TURN_END_S", 0.02)
    gate = asyncio.Event()

    async def ignores(bench: Bench) -> None:
        bench.supervisor.alive()
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    bench = make(ignores)
    await until(lambda: bench.begun)
    async with asyncio.timeout(5):
        await bench.supervisor.stop()
    assert bench.supervisor.status.state == "stopped"
    gate.set()
