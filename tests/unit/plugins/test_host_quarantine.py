"""A plugin that fails again and again is left out, and comes back when its owner says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nanobot_core import (
    PluginError,
    TurnStarted,
    on,
)
from nanobot_core.plugins.health import LoopBlock
from nanobot_core.testing import FakeClock
from tests.distributions import write_plugin
from tests.unit.plugins.conftest import MakeHost
from tests.unit.plugins.samples import (
    HEAD,
    READY,
    Marker,
    eventually,
    listening,
    report,
)

pytestmark = pytest.mark.anyio


class Failing:
    @on.before_turn
    def before_turn(self, event: TurnStarted) -> None:
        raise ValueError("again")

    @on.stop
    def stop(self, ctx: object, reason: str) -> None:
        self.stopped = reason


@pytest.mark.promise(12)
async def test_a_plugin_that_fails_again_and_again_is_quarantined_and_stays_out(
    make_host: MakeHost, clock: FakeClock, site: Path, warnings: list[str]
) -> None:
    plugin = Failing()
    host = make_host()
    await host.register(plugin, "failing")
    await host.register(Marker("."), "fine")

    for _ in range(3):
        for _ in range(3):
            if host.hooks.before_turn:
                await host.hooks.before_turn(READY)
        await clock.advance(601)
        if host.hooks.before_turn:
            await host.hooks.before_turn(READY)
    await asyncio.sleep(0)

    condition = report(host, "failing")
    assert (condition.state, bool(condition.remedy)) == ("quarantined", True)
    assert condition.reason == "it failed repeatedly (before_turn: ValueError: again)"
    assert host.table.labels() == ("fine",)
    assert sum("ValueError: again" in told for told in warnings) == 1
    await host.stop()
    assert plugin.stopped == "quarantine"


async def test_a_quarantined_plugin_is_not_activated_again(
    site: Path, make_host: MakeHost, clock: FakeClock
) -> None:
    code = HEAD + "@on.before_turn\ndef ready(event): raise ValueError\n"
    write_plugin(site, "failing", code=code, manifest=listening("failing"))
    host = make_host()
    await host.start()

    for _ in range(12):
        await host.hooks.before_turn(READY)
        await clock.advance(601)

    assert report(host, "failing").state == "quarantined"
    with pytest.raises(PluginError, match="repeatedly"):
        await host.context_for("failing")


@pytest.mark.promise(12)
@pytest.mark.parametrize("way", ["enable", "reload"])
async def test_a_quarantine_is_lifted_without_a_restart(
    site: Path, make_host: MakeHost, clock: FakeClock, way: str
) -> None:
    code = HEAD + "@on.before_turn\ndef ready(event): raise ValueError\n"
    package = write_plugin(site, "failing", code=code, manifest=listening("failing"))
    host = make_host()
    await host.start()
    for _ in range(12):
        await host.hooks.before_turn(READY)
        await clock.advance(601)
    assert report(host, "failing").state == "quarantined"

    (package / "plugin.py").write_text(HEAD + "@on.before_turn\ndef ready(event): log.append(1)\n")
    change_of = host.changes.reload if way == "reload" else host.changes.enable
    change = await change_of("failing")
    await host.hooks.before_turn(READY)

    assert change.enabled == ("failing",)
    found = report(host, "failing")
    assert (found.state, found.hooks[0].circuit, found.hooks[0].calls) == ("active", "closed", 1)
    assert bool(found.hooks[0].errors) == (way == "enable")


async def test_a_plugin_in_quarantine_is_stopped_when_nobody_uses_it_any_more(
    make_host: MakeHost, clock: FakeClock
) -> None:
    plugin = Failing()
    host = make_host()
    withdrawn: list[str] = []

    async def on_withdraw(plugin_id: str) -> None:
        withdrawn.append(plugin_id)

    host.attach_gateway(None, on_withdraw)
    await host.register(plugin, "failing")

    async with host.snapshot() as generation:
        for _ in range(12):
            await generation.hooks.before_turn(READY)
            await clock.advance(601)
        assert report(host, "failing").state == "quarantined"
        assert not host.hooks.before_turn
        assert not hasattr(plugin, "stopped")
    await eventually(lambda: hasattr(plugin, "stopped"))

    assert withdrawn == ["failing"]
    assert plugin.stopped == "quarantine"


class Idle:
    @on.before_turn
    def before_turn(self, event: TurnStarted) -> None: ...


@pytest.mark.promise(11, 35)
async def test_long_blocks_of_the_loop_count_like_failures(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell: list[Callable[[LoopBlock], None]] = []

    class Watch:
        def __init__(self, places: object, on_block: Callable[[LoopBlock], None]) -> None:
            tell.append(on_block)

        async def run(self) -> None: ...

    monkeypatch.setattr("nanobot_core.plugins.host.LoopWatch", Watch)
    host = make_host()
    await host.register(Idle(), "idle")
    await host.watch_loop()
    await host.hooks.before_turn(READY)
    short, long = LoopBlock("idle", "x.py:1", 0.4, "before_turn"), 1.1

    async def block(each: LoopBlock) -> str:
        tell[0](each)
        await asyncio.sleep(0)
        return report(host, "idle").hooks[0].circuit

    assert [await block(short) for _ in range(5)] == ["closed"] * 5
    assert [await block(replace(short, blocked_s=long)) for _ in range(3)] == [
        "closed",
        "closed",
        "open",
    ]
    assert "blocks the event loop for 1.1 s" in report(host, "idle").hooks[0].last_error
    await block(replace(short, blocked_s=long, is_over=True))
    await block(replace(short, blocked_s=long, hook="", is_over=True))
    assert report(host, "idle").hooks[0].blocked_s == long
    assert report(host, "idle").costs.blocked_s == 2 * long

    for _ in range(6):  # in a tool, which has no circuit: two openings more
        await block(replace(short, blocked_s=long, hook=""))
    assert report(host, "idle").state == "quarantined"
