"""Plugins are enabled and disabled one by one, while work goes on that uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from nanobot_core import PluginError, TurnOutcome
from nanobot_core.messages import JsonValue
from tests.distributions import write_plugin
from tests.unit.plugins.conftest import MakeHost
from tests.unit.plugins.samples import (
    EAR,
    HEAD,
    NEEDS_EAR,
    READY,
    TURN,
    Marker,
    eventually,
    listening,
    log_of,
    reconfigured,
    report,
    write_ear,
    write_tool_plugin,
)

pytestmark = pytest.mark.anyio


async def test_what_was_started_for_one_that_then_fails_is_stopped(
    site: Path, make_host: MakeHost
) -> None:
    write_plugin(site, "needy", code="1 / 0", manifest=listening("needy", facts=NEEDS_EAR))
    write_ear(site)
    host = make_host({"plugins.disabled": ["needy"]})
    await host.start()
    log = log_of("ear")
    await host.changes.disable("ear")
    host.catalogue.settings.disabled.clear()

    host.catalogue.switch(("ear",), on=True)
    with pytest.raises(PluginError, match="division by zero"):
        await host.changes.enable("needy")

    assert log_of("ear") == ["start ear", "stop reload"]
    assert log == ["start ear", "stop disable"]
    assert host.table.labels() == ()


@pytest.mark.promise(20)
async def test_work_in_progress_keeps_its_generation_and_the_plugin_lives_as_long(
    site: Path, make_host: MakeHost
) -> None:
    write_ear(site)
    host = make_host()
    await host.start()
    log = log_of("ear")
    withdrawn: list[list[str]] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def on_withdraw(plugin_id: str) -> None:
        withdrawn.append([plugin_id, *log])

    async def work() -> None:
        async with host.snapshot() as generation:
            begun.set()
            await go_on.wait()
            await generation.hooks.before_turn(READY)

    host.attach_gateway(None, on_withdraw)
    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        await begun.wait()
        group.create_task(host.changes.disable("ear"))
        await eventually(lambda: not host.hooks.before_turn)
        for _ in range(20):  # The change has every opportunity to be hasty.
            await asyncio.sleep(0)
        go_on.set()

    assert withdrawn == [["ear", "start ear", "ready"]]
    assert log == ["start ear", "ready", "stop disable"]


async def test_a_plugin_is_stopped_although_its_part_of_the_gateway_does_not(
    site: Path, make_host: MakeHost, warnings: list[str]
) -> None:
    write_ear(site)
    host = make_host()
    await host.start()
    log = log_of("ear")

    async def on_withdraw(plugin_id: str) -> None:
        raise OSError("the channel hangs")

    host.attach_gateway(None, on_withdraw)
    await host.changes.disable("ear")

    assert log == ["start ear", "stop disable"]
    assert any(
        "the channels and services of plugin 'ear' did not stop" in told for told in warnings
    )


async def test_a_plugin_hears_what_was_queued_for_it_before_it_is_stopped(
    site: Path, make_host: MakeHost
) -> None:
    code = (
        EAR
        + """
@on.after_turn
async def after(event):
    await asyncio.sleep(0)
    log.append("heard")
"""
    )
    manifest = listening("ear", "start", "stop", "after_turn")
    write_plugin(site, "ear", code=code, manifest=manifest)
    host = make_host()
    await host.start()
    log = log_of("ear")

    for _ in range(5):
        host.hooks.after_turn(TurnOutcome(turn=TURN, reply=None))
    await host.changes.disable("ear")

    assert log == ["start ear", *["heard"] * 5, "stop disable"]


async def test_work_may_change_plugins_without_waiting_for_itself(
    site: Path, make_host: MakeHost
) -> None:
    write_ear(site)
    host = make_host()
    await host.start()
    log = log_of("ear")

    async with host.snapshot():
        await host.changes.disable("ear")

    assert log == ["start ear", "stop disable"]


async def test_work_that_does_not_end_is_waited_for_within_a_limit(
    site: Path, make_host: MakeHost, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setattr("nanobot_core.plugins.table.DRAIN_LIMIT_S", 0.01)
    write_ear(site)
    host = make_host()
    await host.start()
    log, forever = log_of("ear"), asyncio.Event()

    async def work() -> None:
        async with host.snapshot():
            await forever.wait()

    working = asyncio.get_running_loop().create_task(work())
    await asyncio.sleep(0)
    await host.changes.disable("ear")
    working.cancel()

    assert log[-1] == "stop disable"
    assert any("stopping ear although work in progress still uses it" in told for told in warnings)


@pytest.mark.promise(30)
async def test_a_plugin_that_others_require_goes_only_together_with_them(
    site: Path, make_host: MakeHost
) -> None:
    code = HEAD + "@on.before_turn\ndef ready(event): ...\n"
    needs = listening("needy", facts={"requires": ["base"]})
    write_plugin(site, "needy", code=code, manifest=needs)
    write_plugin(site, "base", code=code, manifest=listening("base"))
    host = make_host()
    await host.start()

    with pytest.raises(PluginError, match="'needy' requires it"):
        await host.changes.disable("base")
    change = await host.changes.disable("base", cascade=True)
    assert host.table.labels() == ()
    with pytest.raises(PluginError, match="requires plugin 'base'"):
        await host.changes.enable("needy")
    await host.changes.enable("base")
    again = await host.changes.enable("needy")

    assert change.disabled == ("needy", "base")
    assert again.enabled == ("needy",)
    assert host.table.labels() == ("base@1.0", "needy@1.0")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"plugins.required": ["ear"]}, "required"), ({"plugins.disabled": ["ear"]}, "disabled")],
)
async def test_what_the_configuration_decides_is_not_decided_here(
    site: Path, make_host: MakeHost, settings: Mapping[str, JsonValue], reason: str
) -> None:
    write_ear(site)
    host = make_host(settings)
    await host.start()

    with pytest.raises(PluginError, match=reason):
        await (host.changes.disable("ear") if reason == "required" else host.changes.enable("ear"))


async def test_what_the_program_registered_can_be_withdrawn_and_not_reloaded(
    make_host: MakeHost,
) -> None:
    host = make_host()
    await host.register(Marker("!"), "marker")

    with pytest.raises(PluginError, match="part of the program"):
        await host.changes.reload("marker")
    await host.changes.disable("marker")

    assert host.reports() == []
    await host.register(Marker("?"), "marker")


async def test_a_plugin_that_joins_a_conflict_does_not_take_the_name(
    site: Path, make_host: MakeHost, home: Path, warnings: list[str]
) -> None:
    for plugin_id in ("a", "b"):
        write_tool_plugin(site, plugin_id, "weigh")
    host, next_start = make_host({"plugins.disabled": ["a"]}), make_host()
    await host.load_tools()

    await reconfigured(host, home)

    assert host.tools.names() == ["a__weigh", "weigh"]
    assert host.table.offering.clashes[0].plugins == ("a", "b")
    assert any("tools.aliases.weigh: a/weigh" in told for told in warnings)
    assert (await next_start.load_tools()).names() == ["a__weigh", "b__weigh"]


async def test_changes_are_made_one_after_another(site: Path, make_host: MakeHost) -> None:
    write_ear(site)
    host = make_host()
    await host.start()
    log = log_of("ear")

    await asyncio.gather(
        host.changes.disable("ear"), host.changes.enable("ear"), host.changes.disable("ear")
    )

    assert log == ["start ear", "stop disable"]
    assert report(host, "ear").reason == "disabled while the program runs"


async def test_a_change_is_carried_to_its_end_although_its_caller_is_cancelled(
    site: Path, make_host: MakeHost
) -> None:
    write_ear(site)
    host = make_host()
    await host.start()
    log = log_of("ear")

    async def impatient() -> None:
        await host.changes.disable("ear")

    asking = asyncio.get_running_loop().create_task(impatient())
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait({asking})
    await eventually(lambda: len(log) == 2)

    assert log == ["start ear", "stop disable"]


async def test_a_host_that_has_stopped_changes_nothing(site: Path, make_host: MakeHost) -> None:
    write_ear(site)
    host = make_host()
    await host.start()
    await host.stop()

    with pytest.raises(RuntimeError, match="has stopped"):
        await host.changes.enable("ear")


@pytest.mark.promise(20)
async def test_two_commands_that_change_plugins_do_not_wait_for_each_other(
    site: Path, make_host: MakeHost, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setattr("nanobot_core.plugins.table.DRAIN_LIMIT_S", 5.0)
    write_ear(site)
    write_ear(site, "other")
    host = make_host()
    await host.start()
    both = asyncio.Barrier(2)

    async def command(plugin_id: str) -> None:
        async with host.snapshot():
            await both.wait()
            await host.changes.disable(plugin_id)

    async with asyncio.timeout(4.0), asyncio.TaskGroup() as group:
        group.create_task(command("ear"))
        group.create_task(command("other"))

    assert host.table.labels() == ()
    assert not [each for each in warnings if "work in progress" in each]
