"""One plugin contributes everything that a plugin can."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from nanobot_core import (
    ChannelSpec,
    Check,
    CliGroup,
    Every,
    IsolatorSpec,
    LazyTool,
    MemorySpec,
    Mount,
    Panel,
    PanelView,
    PluginContext,
    PluginFacts,
    ProviderSpec,
    ServiceSpec,
    SlashCommand,
    StoreSpec,
    SystemJob,
    Tool,
    ToolContext,
    TranscriberSpec,
    on,
    tool,
)
from nanobot_core.hooks.caller import declared_hooks
from nanobot_core.hooks.kinds import Kind
from nanobot_core.plugins.manifest import KINDS
from tests.unit.plugins.conftest import MakeHost

pytestmark = pytest.mark.anyio
FACTORY = "acme_all.parts:make"


@tool(name="shout")
async def shout(context: ToolContext, text: str) -> str:
    """Say it louder."""
    return text.upper()


async def run() -> str:
    return "done"


JOB = SystemJob(id="tidy", summary="Tidies.", schedule=Every(60), run=run)


async def show(view: str) -> PanelView:
    return PanelView(parts=())


PANEL = Panel(id="all", title="All", show=show)


class Everything:
    @on.describe_plugin
    def describe_plugin(self) -> PluginFacts:
        return PluginFacts(summary="All of it.", reads=("contribute_jobs", "contribute_panels"))

    @on.contribute_tools
    def contribute_tools(self, ctx: PluginContext) -> Iterable[Tool | LazyTool]:
        yield shout

    @on.contribute_channels
    def contribute_channels(self, ctx: PluginContext) -> Iterable[ChannelSpec]:
        yield ChannelSpec(name="pipe", factory=FACTORY)

    @on.contribute_providers
    def contribute_providers(self, ctx: PluginContext) -> Iterable[ProviderSpec]:
        yield ProviderSpec(name="oracle", factory=FACTORY)

    @on.contribute_memory
    def contribute_memory(self, ctx: PluginContext) -> Iterable[MemorySpec]:
        yield MemorySpec(name="notes", factory=FACTORY)

    @on.contribute_stores
    def contribute_stores(self, ctx: PluginContext) -> Iterable[StoreSpec]:
        yield StoreSpec(kind="sessions", name="tape", factory=FACTORY)

    @on.contribute_services
    def contribute_services(self, ctx: PluginContext) -> Iterable[ServiceSpec]:
        yield ServiceSpec(name="beat", factory=FACTORY)

    @on.contribute_commands
    def contribute_commands(self, ctx: PluginContext) -> Iterable[SlashCommand]:
        yield SlashCommand(name="all", summary="All.", handler=FACTORY)

    @on.contribute_cli
    def contribute_cli(self) -> Iterable[CliGroup]:
        yield CliGroup(name="all", summary="All.", app=FACTORY)

    @on.contribute_routes
    def contribute_routes(self, ctx: PluginContext) -> Iterable[Mount]:
        yield Mount(path="/all", app=FACTORY)

    @on.contribute_transcribers
    def contribute_transcribers(self, ctx: PluginContext) -> Iterable[TranscriberSpec]:
        yield TranscriberSpec(name="ear", factory=FACTORY)

    @on.contribute_checks
    def contribute_checks(self) -> Iterable[Check]:
        yield Check(name="all", run=FACTORY)

    @on.contribute_isolators
    def contribute_isolators(self) -> Iterable[IsolatorSpec]:
        yield IsolatorSpec(name="box", factory=FACTORY)

    @on.contribute_panels
    def contribute_panels(self, ctx: PluginContext) -> Iterable[Panel]:
        yield PANEL

    @on.contribute_jobs
    def contribute_jobs(self, ctx: PluginContext) -> Iterable[SystemJob]:
        yield JOB


@pytest.mark.promise(5)
async def test_one_plugin_contributes_every_kind_with_one_context(make_host: MakeHost) -> None:
    host = make_host()

    await host.register(Everything(), "all")

    found: dict[str, list[Any]] = {kind: list(host.declared(kind)) for kind in KINDS}
    assert {kind: [plugin for plugin, _ in each] for kind, each in found.items()} == {
        kind: ["all"] for kind in KINDS
    }
    context = await host.context_for("all")
    jobs = await context.contributed(on.contribute_jobs)
    assert [(each.plugin, each.value) for each in jobs] == [("all", JOB)]
    panels = await context.contributed(on.contribute_panels)
    assert [(each.plugin, each.value) for each in panels] == [("all", PANEL)]


@pytest.mark.promise(5)
def test_every_contribution_hook_is_tried_here() -> None:
    elsewhere = {"contribute_hookspecs", "contribute_settings", "contribute_triggers"}
    hooks = {
        name for name, point in declared_hooks().items() if point.kind is Kind.CONTRIBUTE
    } - elsewhere

    assert hooks == {name for name in vars(Everything) if not name.startswith("_")}
