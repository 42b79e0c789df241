"""A plugin is started when something needs it, after what it needs, and only if it may run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nanobot_core import (
    ConfigInvalid,
    PluginError,
    PluginLoadFailed,
    PluginNotFound,
)
from nanobot_core.messages import JsonObject
from nanobot_core.plugins.catalogue import PluginFilter
from tests.distributions import manifest_of, tool_declaration, write_plugin
from tests.unit.plugins.conftest import MakeHost
from tests.unit.plugins.samples import (
    EAR,
    HEAD,
    READY,
    listening,
    log_of,
    report,
    write_picky,
)

pytestmark = pytest.mark.anyio


@pytest.mark.promise(2)
async def test_plugins_that_only_contribute_wait_until_they_are_needed(
    site: Path, make_host: MakeHost
) -> None:
    declared = manifest_of("scales", declarations=[tool_declaration("weigh", factory="x:y")])
    code = HEAD + "@on.contribute_tools\ndef tools(ctx): return [LazyTool('weigh', 'x:y')]\n"
    write_plugin(site, "scales", code=code, manifest=declared)
    host = make_host()

    await host.start()
    assert report(host, "scales").state == "enabled"
    tools, again = await asyncio.gather(host.load_tools(), host.load_tools())

    assert tools is again
    assert tools.names() == ["weigh"]
    assert report(host, "scales").state == "active"


@pytest.mark.promise(2)
async def test_a_plugin_for_a_channel_waits_for_that_channel(
    site: Path, make_host: MakeHost
) -> None:
    code = HEAD + (
        "@on.before_turn(when='channel:radio')\ndef ready(event): log.append('ready')\n"
        "@on.start\ndef start(ctx): log.append('start')\n"
    )
    manifest = listening("ear", "start", when={"before_turn": "channel:radio"})
    write_plugin(site, "ear", code=code, manifest=manifest)
    off, on_air = make_host(), make_host({"channels.radio": {"enabled": True, "token": "x"}})

    await off.start()
    assert report(off, "ear").state == "enabled"
    await off.activate("ear")
    assert not off.hooks.before_turn
    await on_air.start()
    await on_air.hooks.before_turn(READY)

    assert log_of("ear") == ["start", "start", "ready"]


async def test_a_plugin_comes_after_those_that_it_requires(site: Path, make_host: MakeHost) -> None:
    file = repr(str(site / "order"))
    code = HEAD + (
        "@on.start\ndef start(ctx):\n"
        f"    with open({file}, 'a') as order: order.write(ctx.id + ' ')\n"
    )
    needs = manifest_of("needy", hooks={"start": 1}, facts={"requires": ["base"]})
    write_plugin(site, "needy", code=code, manifest=needs)
    write_plugin(site, "base", code=code, manifest=manifest_of("base", hooks={"start": 1}))

    await make_host().activate("needy")

    assert (site / "order").read_text() == "base needy "


async def test_a_plugin_whose_requirement_fails_is_out_for_that_reason(
    site: Path, make_host: MakeHost
) -> None:
    write_plugin(site, "needy", manifest=manifest_of("needy", facts={"requires": ["base"]}))
    write_plugin(site, "base", code="1 / 0", manifest=manifest_of("base"))
    host = make_host()

    with pytest.raises(PluginLoadFailed, match="division by zero"):
        await host.activate("needy")

    assert report(host, "needy").reason.startswith("it requires plugin 'base', which cannot run: ")
    assert report(host, "base").state == "failed"


@pytest.mark.promise(16)
@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"plugins.required": ["gone"]}, PluginNotFound, "required and not installed"),
        ({"plugins.required": ["broken"]}, PluginLoadFailed, "division by zero"),
        ({"plugins.required": ["ear"], "plugins.disabled": ["ear"]}, PluginError, "disabled"),
        ({"plugins.required": ["picky"], "picky": {"sides": "x"}}, ConfigInvalid, "picky.sides"),
    ],
)
async def test_a_required_plugin_that_cannot_run_ends_the_start_and_nothing_stays_started(
    site: Path,
    make_host: MakeHost,
    settings: JsonObject,
    error: type[Exception],
    message: str,
) -> None:
    write_plugin(site, "ear", code=EAR, manifest=listening("ear", "start", "stop"))
    write_plugin(site, "broken", code="1 / 0", manifest=manifest_of("broken"))
    write_picky(site)
    host = make_host(settings)
    if "ear" not in str(settings):
        await host.activate("ear")

    with pytest.raises(error, match=message):
        await host.start()

    assert host.table.labels() == ()


@pytest.mark.parametrize(
    ("plugin_id", "message"),
    [("nobody", "not installed"), ("out", "named under plugins.disabled")],
)
async def test_what_may_not_run_is_not_activated(
    site: Path, make_host: MakeHost, plugin_id: str, message: str
) -> None:
    write_plugin(site, "out", code="1 / 0", manifest=listening("out"))
    host = make_host({"plugins.disabled": ["out"]})

    await host.start()
    with pytest.raises(PluginError, match=message):
        await host.activate(plugin_id)

    assert report(host, "out").state == "disabled"


@pytest.mark.promise(37)
async def test_safe_leaves_out_local_files_and_strangers(site: Path, make_host: MakeHost) -> None:
    (site / "mine.py").write_text("1 / 0")
    write_plugin(site, "theirs", code="1 / 0", manifest=listening("theirs"))
    host = make_host(
        {"plugins.local": [str(site / "mine.py")]}, plugin_filter=PluginFilter(safe=True)
    )

    await host.start()

    assert {item.reason for item in host.reports()} == {"left out by --safe"}


async def test_a_local_file_runs(site: Path, make_host: MakeHost) -> None:
    (site / "mine.py").write_text(EAR)
    host = make_host({"plugins.local": [str(site / "mine.py")]})

    await host.start()

    assert (report(host, "mine").state, host.table.labels()) == ("active", ("mine",))


async def test_an_undescribed_plugin_is_examined_when_it_is_asked_for(
    site: Path, make_host: MakeHost
) -> None:
    write_plugin(site, "ear", code=EAR)
    write_plugin(site, "broken", code="1 / 0")
    host = make_host()

    await host.activate("ear")
    with pytest.raises(PluginError, match="division by zero"):
        await host.activate("broken")

    assert host.hooks.before_turn
