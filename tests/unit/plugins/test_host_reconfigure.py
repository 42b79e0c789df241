"""A newly loaded configuration is put into force while the host runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from nanobot_core import PluginError, PluginNotFound
from nanobot_core.plugins.change import Reconfiguration
from tests.distributions import write_plugin
from tests.unit.plugins.conftest import MakeHost
from tests.unit.plugins.samples import (
    EAR,
    HEAD,
    NEEDS_EAR,
    PICKY,
    READY,
    listening,
    log_of,
    reconfigured,
    report,
    write_ear,
    write_picky,
    write_tool_plugin,
)

pytestmark = pytest.mark.anyio


async def test_without_a_difference_nothing_is_touched(
    site: Path, make_host: MakeHost, home: Path
) -> None:
    write_ear(site)
    host = make_host()
    await host.start()
    before = await host.context_for("ear")

    change = await reconfigured(host, home)

    assert change == Reconfiguration(unchanged=("ear",))
    assert await host.context_for("ear") is before
    assert log_of("ear") == ["start ear"]


async def test_what_is_enabled_counts_at_once_and_what_is_disabled_no_more(
    site: Path, make_host: MakeHost, home: Path
) -> None:
    write_ear(site)
    write_ear(site, "eye")
    host = make_host({"plugins.disabled": ["eye"]})
    await host.start()
    log = log_of("ear")

    change = await reconfigured(host, home, {"plugins.disabled": ["ear"]})
    await host.hooks.before_turn(READY)

    assert (change.enabled, change.disabled) == (("eye",), ("ear",))
    assert (change.started, change.stopped) == (("eye",), ("ear",))
    assert log == ["start ear", "stop disable"]
    assert log_of("eye") == ["start eye", "ready"]
    assert report(host, "ear").reason == "named under plugins.disabled"


async def test_a_plugin_with_tools_is_started_only_when_tools_are_loaded(
    site: Path, make_host: MakeHost, home: Path
) -> None:
    write_tool_plugin(site, "scales", "weigh")
    early, late = (
        make_host({"plugins.disabled": ["scales"]}),
        make_host({"plugins.disabled": ["scales"]}),
    )
    await early.load_tools()

    for host in (early, late):
        change = await reconfigured(host, home)
        assert change.enabled == ("scales",)

    assert early.tools.names() == ["weigh"]
    assert (report(early, "scales").state, report(late, "scales").state) == ("active", "enabled")


async def test_a_plugin_that_was_uninstalled_is_stopped(
    site: Path, make_host: MakeHost, home: Path
) -> None:
    write_ear(site)
    host = make_host()
    await host.start()
    log = log_of("ear")

    (site / "acme_ear-1.0.dist-info" / "entry_points.txt").write_text("")
    os.utime(site, (1, 1))
    change = await reconfigured(host, home)

    assert change.disabled == ("ear",)
    assert log[-1] == "stop disable"
    assert "acme_ear.plugin" not in sys.modules


async def test_a_channel_that_is_switched_on_starts_the_plugin_that_listens_to_it(
    site: Path, make_host: MakeHost, home: Path
) -> None:
    code = HEAD + "@on.before_turn(when='channel:radio')\ndef ready(event): log.append('ready')\n"
    write_plugin(
        site, "ear", code=code, manifest=listening("ear", when={"before_turn": "channel:radio"})
    )
    host = make_host()
    await host.start()
    assert host.table.labels() == ()

    await reconfigured(host, home, {"channels.radio": {"enabled": True}})
    await host.hooks.before_turn(READY)

    assert log_of("ear") == ["ready"]


async def test_other_settings_are_a_new_instance_unless_the_plugin_applies_them(
    site: Path, make_host: MakeHost, home: Path
) -> None:
    write_picky(site)
    host = make_host({"picky": {"sides": 4}})
    await host.start()
    before = await host.context_for("picky")

    change = await reconfigured(host, home, {"picky": {"sides": 8}})

    assert change.reloaded == ("picky",)
    assert await host.context_for("picky") is not before
    assert log_of("picky") == ["4", "8"]


APPLYING = (
    PICKY
    + """
@on.settings_changed
def changed(ctx, change):
    log.append((change.before, change.after, ctx.settings(Settings).sides))
    return Applied() if change.after.get("sides") != 99 else NeedsReload()
"""
)


async def test_a_plugin_may_apply_other_settings_by_itself(
    site: Path, make_host: MakeHost, home: Path
) -> None:
    section = {"path": "picky", "model": "acme_picky.plugin:Settings", "schema": {}}
    manifest = listening("picky", "start", "settings_changed", settings=[section])
    write_plugin(site, "picky", code=APPLYING, manifest=manifest)
    host = make_host({"picky": {"sides": 4}})
    await host.start()
    before = await host.context_for("picky")

    applied = await reconfigured(host, home, {"picky": {"sides": 8}})
    assert await host.context_for("picky") is before
    reloaded = await reconfigured(host, home, {"picky": {"sides": 99}})

    assert (applied.applied, reloaded.reloaded) == (("picky",), ("picky",))
    assert log_of("picky") == [
        "4",
        ({"sides": 4}, {"sides": 8}, 8),
        ({"sides": 8}, {"sides": 99}, 99),
        "99",
    ]


async def test_bad_settings_of_one_plugin_leave_it_as_it_was_until_they_are_mended(
    site: Path, make_host: MakeHost, home: Path
) -> None:
    write_picky(site)
    write_ear(site)
    host = make_host({"picky": {"sides": 4}})
    await host.start()
    before = await host.context_for("picky")

    change = await reconfigured(host, home, {"picky": {"sides": "many"}})
    found = report(host, "picky")
    mended = await reconfigured(host, home, {"picky": {"sides": 4}})

    assert "picky.sides" in change.failed["picky"]
    assert (found.state, "picky.sides" in found.reason) == ("degraded", True)
    assert change.unchanged == ("ear",)
    assert mended.unchanged == ("ear", "picky")
    assert report(host, "picky").state == "active"
    assert await host.context_for("picky") is before


async def test_what_the_core_tells_every_plugin_makes_new_instances_of_all(
    site: Path, make_host: MakeHost, home: Path
) -> None:
    write_ear(site)
    host = make_host()
    await host.start()

    change = await reconfigured(host, home, {"tools.restrict_to_workspace": True})

    assert change.reloaded == ("ear",)
    assert (await host.context_for("ear")).restrict_to_workspace
    assert log_of("ear") == ["start ear", "start ear", "stop reload"]


async def test_a_required_plugin_that_may_not_run_changes_nothing(
    site: Path, make_host: MakeHost, home: Path
) -> None:
    write_ear(site)
    host = make_host()
    await host.start()
    hooks = host.hooks

    with pytest.raises(PluginNotFound, match="'gone'"):
        await reconfigured(host, home, {"plugins.required": ["gone"], "plugins.disabled": ["ear"]})
    with pytest.raises(PluginError, match=r"plugins\.disabled"):
        await reconfigured(host, home, {"plugins.required": ["ear"], "plugins.disabled": ["ear"]})

    assert host.hooks is hooks
    assert log_of("ear") == ["start ear"]


async def test_an_upgrade_is_taken_up_by_a_new_configuration(
    site: Path, make_host: MakeHost, home: Path
) -> None:
    package = write_ear(site)
    host = make_host()
    await host.start()
    log = log_of("ear")

    (site / "acme_ear-1.0.dist-info").rename(site / "acme_ear-2.0.dist-info")
    metadata = site / "acme_ear-2.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1.0", "Version: 2.0"))
    (package / "plugin.py").write_text(EAR.replace('log.append("ready")', 'log.append("new")'))
    change = await reconfigured(host, home)
    await host.hooks.before_turn(READY)

    assert change.reloaded == ("ear",)
    assert host.table.labels() == ("ear@2.0",)
    assert log == ["start ear", "stop reload"]
    assert log_of("ear") == ["start ear", "new"]


async def test_a_version_that_cannot_be_used_leaves_the_former_one_and_those_that_need_it(
    site: Path, make_host: MakeHost, home: Path
) -> None:
    package = write_ear(site)
    write_plugin(
        site, "needy", code=EAR, manifest=listening("needy", "start", "stop", facts=NEEDS_EAR)
    )
    host = make_host()
    await host.start()

    (package / "nanobot-plugin.json").write_text("{")
    os.utime(site, (1, 1))
    change = await reconfigured(host, home)

    assert "its manifest cannot be used" in change.failed["ear"]
    assert (change.disabled, change.unchanged) == ((), ("needy",))
    assert report(host, "ear").state == "degraded"
    assert log_of("ear") == ["start ear"]


async def test_changed_code_of_a_working_copy_is_taken_up(
    site: Path, home: Path, make_host: MakeHost
) -> None:
    package = write_ear(site)
    (site / "acme_ear-1.0.dist-info" / "direct_url.json").write_text(
        '{"dir_info": {"editable": true}, "url": "file:///x"}'
    )
    host = make_host()
    await host.start()
    same = await reconfigured(host, home)

    (package / "plugin.py").write_text(f"{EAR}\nCHANGED = True\n")
    change = await reconfigured(host, home)

    assert (same.unchanged, same.reloaded) == (("ear",), ())
    assert (change.unchanged, change.reloaded) == ((), ("ear",))
