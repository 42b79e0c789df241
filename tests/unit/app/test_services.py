"""Services: their order, their failures, their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from loguru import logger

from nanobot_core import PluginContext, Service, ServiceSpec, on
from nanobot_core.app.services import ServiceRunner
from nanobot_core.clock import Clock, SystemClock
from nanobot_core.contracts.service import RunStatus
from nanobot_core.testing import FakeClock
from tests.gateways import until
from tests.integration.conftest import started
from tests.scripted_provider import ScriptedPlugin

pytestmark = pytest.mark.anyio
told: list[str] = []
crashes: dict[str, int] = {}


class Recorded(Service):
    """Tells when it begins and ends; crashes as often as `crashes` says."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def run(self) -> None:
        told.append(f"{self._name} begins")
        if crashes.get(self._name, 0) > 0:
            crashes[self._name] -= 1
            raise RuntimeError("no nerves left")
        try:
            await asyncio.Event().wait()
        finally:
            told.append(f"{self._name} ends")


def __getattr__(name: str) -> object:
    """Factories: ``make_a`` makes service ``a``."""
    if name == "make_nothing":
        return lambda ctx: None
    if name == "make_error":

        def fail(ctx: PluginContext) -> Service:
            raise RuntimeError("cannot be made")

        return fail
    if name.startswith("make_"):
        return lambda ctx: Recorded(name.removeprefix("make_"))
    raise AttributeError(name)


class Services:
    """A plugin with services: name to what it needs."""

    def __init__(self, **needs: tuple[str, ...]) -> None:
        self._needs = needs

    @on.contribute_services
    def contribute_services(self, ctx: PluginContext) -> Iterable[ServiceSpec]:
        for name, needs in self._needs.items():
            yield ServiceSpec(name=name, factory=f"{__name__}:make_{name}", needs=needs)


@pytest.fixture(autouse=True)
def _forget() -> None:
    told.clear()
    crashes.clear()


@pytest.fixture
def log() -> Iterable[list[str]]:
    lines: list[str] = []
    sink = logger.add(lambda line: lines.append(str(line)), level="WARNING")
    yield lines
    logger.remove(sink)


@asynccontextmanager
async def serving(
    home: Path, *plugins: object, clock: Clock | None = None
) -> AsyncIterator[tuple[ServiceRunner, list[RunStatus]]]:
    failed: list[RunStatus] = []

    async def on_failed(status: RunStatus) -> None:
        failed.append(status)

    async with started(home, ScriptedPlugin(), *plugins) as bot:
        runner = ServiceRunner(
            bot.plugins, spawn=bot.spawn, clock=clock or SystemClock(), on_failed=on_failed
        )
        runner.start_missing()
        try:
            yield runner, failed
        finally:
            await runner.stop()


async def heard(*lines: str) -> None:
    await until(lambda: len(told) >= len(lines))
    assert told == list(lines)


async def test_what_is_needed_begins_first_and_ends_last(tmp_path: Path) -> None:
    services = Services(a=("b", "c"), b=("c",), c=())
    async with serving(tmp_path, services) as (runner, _):
        await heard("c begins", "b begins", "a begins")
        assert {status.state for status in runner.statuses()} == {"running"}
        await runner.stop()

        await heard("c begins", "b begins", "a begins", "a ends", "b ends", "c ends")
        assert runner.statuses() == []


async def test_a_service_waits_until_what_it_needs_is_there(tmp_path: Path) -> None:
    crashes["c"] = 1
    async with serving(tmp_path, Services(a=("error",), error=(), c=())) as (runner, _):
        await until(lambda: told.count("c begins") >= 2)
        states = {status.name: status.state for status in runner.statuses()}

        assert "a begins" not in told
        assert states["a"] == "starting"
        assert states["error"] != "running"


async def test_a_missing_need_and_a_circle_are_left_out_and_told(
    tmp_path: Path, log: list[str]
) -> None:
    services = Services(a=("nowhere",), b=("c",), c=("b",), d=("a",), e=())
    async with serving(tmp_path, services) as (runner, _):
        await heard("e begins")

        assert [status.name for status in runner.statuses()] == ["e"]
    text = "".join(log)
    assert "service a does not start: it needs nowhere" in text
    assert "service d does not start: it needs a" in text
    assert "services do not start, because they need each other" in text


async def test_two_plugins_with_one_service_name_run_neither(
    tmp_path: Path, log: list[str]
) -> None:
    async with serving(tmp_path, Services(a=(), b=()), Services(a=())) as (runner, _):
        await heard("b begins")

        assert [status.name for status in runner.statuses()] == ["b"]
    assert "several plugins provide service 'a'" in "".join(log)


async def test_a_crash_is_followed_by_a_new_start(tmp_path: Path) -> None:
    crashes["a"] = 1
    async with serving(tmp_path, Services(a=())) as (runner, _):
        await heard("a begins", "a begins")
        (status,) = runner.statuses()

        assert (status.state, status.restarts) == ("running", 1)
        assert status.last_error == "RuntimeError: no nerves left"


async def test_what_crashes_again_and_again_is_given_up_and_told_once(tmp_path: Path) -> None:
    clock = FakeClock()
    crashes["a"] = 1_000
    async with serving(tmp_path, Services(a=()), clock=clock) as (runner, failed):
        async with asyncio.timeout(20):
            while len(failed) < 1:
                await clock.advance(10)
                await asyncio.sleep(0.001)
        for _ in range(60):  # in steps, or what crashes at once would seem to have lived for long
            await clock.advance(10)
            await asyncio.sleep(0.001)

        assert [status.name for status in failed] == ["a"]
        (status,) = runner.statuses()
        assert status.state == "failed"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("nothing", "returned"), ("error", "RuntimeError: cannot be made")],
)
async def test_a_factory_that_makes_none_is_told_as_such(
    tmp_path: Path, name: str, reason: str
) -> None:
    async with serving(tmp_path, Services(**{name: ()})) as (runner, _):
        await until(lambda: runner.statuses()[0].last_error is not None)

        assert reason in str(runner.statuses()[0].last_error)


async def test_the_services_of_a_plugin_end_with_those_that_need_them(tmp_path: Path) -> None:
    first, second = Services(a=(), other=()), Services(b=("a",), c=("b",))
    async with serving(tmp_path, first, second) as (runner, _):
        await until(lambda: len(told) >= 4)
        (plugin,) = {status.plugin for status in runner.statuses() if status.name == "a"}
        told.clear()
        await runner.stop({plugin})
        ends = list(told)
        runner.start_missing()
        await until(lambda: len(told) >= 8)

        assert [one for one in ends if one != "other ends"] == ["c ends", "b ends", "a ends"]
        assert [one for one in told[4:] if one != "other begins"] == [
            "a begins",
            "b begins",
            "c begins",
        ]
