"""A plugin declares hooks of its own, and others give it something by them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from nanobot_core import (
    Contributed,
    ContributionHook,
    Every,
    PluginContext,
    PluginFacts,
    PluginRejected,
    SystemJob,
    declare_contribution,
    hookimpl,
    on,
)
from nanobot_core.hooks.compilation import Registrant
from nanobot_core.plugins.examine import describe
from nanobot_core.plugins.manifest import (
    manifest_from_index,
    manifest_to_json,
    parse_manifest,
)
from nanobot_core.testing import FakeClock, FakePluginContext
from tests.distributions import manifest_of, write_plugin
from tests.registrants import check_registrant
from tests.unit.plugins.conftest import MakeHost
from tests.unit.plugins.samples import HEAD, reconfigured, report

pytestmark = pytest.mark.anyio


@declare_contribution
def bakery_recipes(ctx: PluginContext) -> Iterable[str]:
    """Give recipes."""
    raise NotImplementedError


class Bakery:
    """Declares the hook."""

    def __init__(self, *points: object) -> None:
        self.points = points or (bakery_recipes,)

    @on.contribute_hookspecs
    def contribute_hookspecs(self) -> Iterable[ContributionHook[object]]:
        return self.points  # type: ignore[return-value]  # also what does not fit


class Cook:
    """Implements it, without the bakery being active or even there."""

    @bakery_recipes
    def bakery_recipes(self, ctx: PluginContext) -> Iterable[str]:
        return (f"{ctx.id}'s bread",)


class Thief:
    """Fails when asked."""

    @bakery_recipes
    def bakery_recipes(self, ctx: PluginContext) -> Iterable[str]:
        raise LookupError("no bread")


def test_the_manifest_names_own_hooks_and_those_of_others() -> None:
    bakery, cook = (
        describe(Registrant("bakery", "1", Bakery())),
        describe(Registrant("cook", "1", Cook())),
    )

    assert (bakery.hookspecs, bakery.hooks) == (("bakery_recipes",), {})
    assert (cook.hookspecs, cook.hooks) == ((), {"bakery_recipes": 1})
    for manifest in (bakery, cook):
        data = manifest_to_json(manifest)
        assert parse_manifest(json.dumps(data)) == manifest
        assert manifest_from_index(data) == manifest


def test_what_declares_none_has_none_in_its_file() -> None:
    assert "hookspecs" not in manifest_to_json(describe(Registrant("cook", "1", Cook())))


@declare_contribution
def other_name(ctx: PluginContext) -> Iterable[str]:
    """Has another plugin's name."""
    raise NotImplementedError


@declare_contribution
def bakery_silent(ctx: PluginContext) -> Iterable[str]:
    raise NotImplementedError


@pytest.mark.parametrize("point", [other_name, bakery_silent, on.before_turn, "text", Bakery])
def test_a_hook_that_is_none_of_its_own_is_refused(point: object) -> None:
    with pytest.raises(
        PluginRejected, match=r"contribute_hookspecs returned|no name beginning with"
    ):
        describe(Registrant("bakery", "1", Bakery(point)))


def test_a_wrong_signature_is_refused_as_for_our_hooks() -> None:
    class Wrong:
        @bakery_recipes  # type: ignore[arg-type]  # what the checker says, too
        def bakery_recipes(self, ctx: PluginContext, oven: int) -> Iterable[str]:
            return ()

    with pytest.raises(PluginRejected, match="oven"):
        check_registrant(Registrant("wrong", "1", Wrong()))


def test_an_async_or_doubled_implementation_is_refused() -> None:
    class Slow:
        @bakery_recipes
        async def bakery_recipes(self, ctx: PluginContext) -> Iterable[str]:
            return ()

    class Twice(Cook):
        @bakery_recipes
        def second(self, ctx: PluginContext) -> Iterable[str]:
            return ()

    with pytest.raises(PluginRejected, match="plain function"):
        check_registrant(Registrant("slow", "1", Slow()))
    with pytest.raises(PluginRejected, match="2 times"):
        check_registrant(Registrant("twice", "1", Twice()))


def test_a_name_alone_is_no_hook() -> None:
    """Who gives something to a plugin imports its declaration, and so depends on it."""

    class ByName:
        @hookimpl
        def bakery_recipes(self, ctx: PluginContext) -> Iterable[str]:
            return ()

    with pytest.raises(PluginRejected, match="does not exist"):
        check_registrant(Registrant("by-name", "1", ByName()))


async def test_the_plugin_gets_what_the_others_give(
    make_host: MakeHost, warnings: list[str]
) -> None:
    host = make_host()
    await host.register(Bakery(), "bakery")
    await host.register(Cook(), "cook")
    await host.register(Thief(), "thief")
    context = await host.context_for("bakery")

    assert await context.contributed(bakery_recipes) == [Contributed("cook", "cook's bread")]
    assert any("thief" in line and "no bread" in line for line in warnings)


async def test_a_plugin_gets_nothing_of_hooks_that_are_not_its_own(make_host: MakeHost) -> None:
    host = make_host()
    await host.register(Cook(), "cook")

    with pytest.raises(PluginRejected, match="which it does not declare"):
        await (await host.context_for("cook")).contributed(bakery_recipes)


class Runner:
    """Reads the jobs of plugins."""

    @on.describe_plugin
    def describe_plugin(self) -> PluginFacts:
        return PluginFacts(reads=("contribute_jobs",))


class Worker:
    """Contributes jobs."""

    def __init__(self, *jobs: object) -> None:
        self.jobs = jobs

    @on.contribute_jobs
    def contribute_jobs(self, ctx: PluginContext) -> Iterable[SystemJob]:
        return self.jobs  # type: ignore[return-value]  # also what is none


async def test_jobs_are_checked_and_a_name_belongs_to_the_first(
    make_host: MakeHost, warnings: list[str]
) -> None:
    async def run() -> str:
        return "done"

    first, second = (
        SystemJob(id="dream", summary=text, schedule=Every(60), run=run) for text in "ab"
    )
    host = make_host()
    for plugin_id, plugin in (
        ("runner", Runner()),
        ("memory", Worker(first)),
        ("rival", Worker(second)),
        ("wrong", Worker("a job")),
    ):
        await host.register(plugin, plugin_id)
    context = await host.context_for("runner")

    for _ in range(2):
        assert await context.contributed(on.contribute_jobs) == [Contributed("memory", first)]

    assert any("contribute_jobs returned str, return SystemJob" in line for line in warnings)
    assert (
        sum("its 'dream' is left out, because 'memory' has one" in line for line in warnings) == 1
    )
    assert report(host, "rival").state == "degraded"


FORGE = (
    HEAD
    + """
class Settings(PluginSettings):
    sides: int = 6
@on.contribute_settings
def settings(): return [SettingsSection("forge", "acme_forge.plugin:Settings")]
async def run(): return "done"
@on.contribute_jobs
def jobs(ctx): yield SystemJob(id="hammer", summary="", schedule=Every(60), run=run)
"""
)
APPLIES = """
@on.settings_changed
def changed(ctx, change): return Applied()
"""


@pytest.mark.parametrize("more", ["", APPLIES], ids=["new instance", "same instance"])
async def test_a_plugin_gives_the_same_objects_until_its_settings_change(
    make_host: MakeHost, site: Path, home: Path, more: str
) -> None:
    """Who waits on a contributed trigger started again with each question."""
    section = {"path": "forge", "model": "acme_forge.plugin:Settings", "schema": {}}
    hooks = {"contribute_jobs": 1} | ({"settings_changed": 1} if more else {})
    manifest = manifest_of("forge", hooks=hooks, settings=[section])
    write_plugin(site, "forge", code=FORGE + more, manifest=manifest)
    host = make_host({"forge": {"sides": 4}})
    await host.register(Runner(), "runner")
    context = await host.context_for("runner")

    async def asked() -> SystemJob:
        (found,) = await context.contributed(on.contribute_jobs)
        return found.value

    first, again = await asyncio.gather(asked(), asked())
    await reconfigured(host, home, {"forge": {"sides": 8}})
    other = await asked()

    assert first is again
    assert other is not first
    assert await asked() is other


async def test_installed_plugins_are_activated_when_they_are_asked(
    make_host: MakeHost, site: Path
) -> None:
    head = "from nanobot_core import *\n"
    write_plugin(
        site,
        "bakery",
        code=head
        + '''
@declare_contribution
def bakery_recipes(ctx):
    """Give recipes."""

@on.contribute_hookspecs
def contribute_hookspecs(): return (bakery_recipes,)
''',
        manifest=manifest_of("bakery", hookspecs=["bakery_recipes"]),
    )
    write_plugin(
        site,
        "cook",
        code=head
        + """
from acme_bakery.plugin import bakery_recipes as point

@point
def bakery_recipes(ctx): return ["rye"]
""",
        manifest=manifest_of("cook", hooks={"bakery_recipes": 1}),
    )
    host = make_host()
    await host.start()
    assert host.table.labels() == ()
    context = await host.context_for("bakery")

    found = await context.contributed(bakery_recipes)

    assert found == [Contributed("cook", "rye")]
    assert {label.partition("@")[0] for label in host.table.labels()} == {"bakery", "cook"}


async def test_one_that_never_gives_anything_is_left_out_and_does_not_add_up(
    make_host: MakeHost, clock: FakeClock
) -> None:
    release = threading.Event()

    class Slow:
        calls = 0

        @bakery_recipes
        def bakery_recipes(self, ctx: PluginContext) -> Iterable[str]:
            self.calls += 1
            release.wait(20)
            return ()

    slow = Slow()
    host = make_host()
    for plugin_id, plugin in (("bakery", Bakery()), ("cook", Cook()), ("slow", slow)):
        await host.register(plugin, plugin_id)
    slow.calls = 0  # it was described before it was started
    context = await host.context_for("bakery")
    try:
        for _ in range(5):
            asking = asyncio.get_running_loop().create_task(context.contributed(bakery_recipes))
            for _ in range(3):
                await clock.advance(30)
            assert await asking == [Contributed("cook", "cook's bread")]
    finally:
        release.set()

    assert slow.calls == 3
    found = report(host, "slow")
    assert (found.state, "no answer within 30 seconds" in found.reason) == ("degraded", True)


async def test_the_double_gives_what_the_test_gave(tmp_path: Path) -> None:
    given = [Contributed("cook", "rye")]
    context = FakePluginContext(tmp_path, contributions={"bakery_recipes": given})

    assert await context.contributed(bakery_recipes) == given
