"""PluginHost: the plugins of one application, started when something needs them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import chain
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from nanobot_core.config.environment import environment
from nanobot_core.config.secrets import mask_tree
from nanobot_core.errors import ConfigError, PluginError, PluginRejected
from nanobot_core.hooks.account import PluginCosts
from nanobot_core.hooks.caller import Hooks, declared_hooks
from nanobot_core.hooks.compilation import HookStats
from nanobot_core.hooks.implementation import HookRuntime
from nanobot_core.media import MediaStore
from nanobot_core.net.policy import NetworkPolicy
from nanobot_core.plugins.active import ActivePlugin, Starter
from nanobot_core.plugins.catalogue import Selection
from nanobot_core.plugins.change import PluginChanges
from nanobot_core.plugins.context import AgentOf, HostContext, HostFacts, no_agent
from nanobot_core.plugins.declared import judging_hooks
from nanobot_core.plugins.health import (
    RELOAD,
    Condition,
    Conditions,
    LoopBlock,
    LoopWatch,
    PluginReport,
    code_place,
    condition_of,
    figures_of,
    report_on,
)
from nanobot_core.plugins.index import InstalledPlugin
from nanobot_core.plugins.manifest import Declaration, brings_tools, listens
from nanobot_core.plugins.own_hooks import OwnHooks
from nanobot_core.plugins.table import Generation, PluginTable, Withdraw, nothing_runs
from nanobot_core.plugins.tool_names import ToolOffering
from nanobot_core.text import nearest
from nanobot_core.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nanobot_core.clock import Clock
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.contracts.plugin import StopCause
    from nanobot_core.contracts.service import GatewayAccess
    from nanobot_core.contracts.tool import LazyTool, Tool
    from nanobot_core.messages import JsonObject
    from nanobot_core.plugins.catalogue import Catalogue
    from nanobot_core.tasks import Spawn


STOP_DRAIN_S = 5.0
"""Seconds that queued events have to be delivered before plugins are stopped."""


class PluginHost:
    """The plugins of one application.

    Args:
        catalogue: what is installed and may run.
        loaded: the configuration in force.
        spawn: starts tasks that the application owns.
        clock: source of time.
        environ: environment variables; ``None`` means those of the process.

    Attributes:
        tools: the tools of active plugins and of the program itself.
        table: the active plugins and the generation that they make up.
        changes: replaces, enables and disables plugins while the program runs.
        own_hooks: hooks that plugins declare for each other.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        loaded: LoadedConfig,
        *,
        spawn: Spawn,
        clock: Clock,
        environ: Mapping[str, str] | None = None,
        agent: AgentOf = no_agent,
    ) -> None:
        self._environ = environ
        self._agent = agent
        self._gateway: GatewayAccess | None = None
        self._stop_in_gateway: Withdraw = nothing_runs
        self._conditions = Conditions(clock.monotonic_s, self._quarantine)
        self._runtime = HookRuntime(
            spawn=spawn, report=self._conditions.report, clock=clock, costs_of=self._costs_of
        )
        self.tools: ToolRegistry = ToolRegistry(
            lambda name: self.catalogue.describe_missing_tool(name)  # noqa: PLW0108 - it changes
        )
        offering = ToolOffering(self.tools, self._conditions.note_degraded)
        self.table: PluginTable = PluginTable(
            catalogue, self._starter(loaded), offering, self._conditions
        )
        self.changes: PluginChanges = PluginChanges(self.table, self._starter, self._withdraw)
        self.own_hooks: OwnHooks = OwnHooks(
            self.table, self.activate, self._conditions, self._runtime
        )
        self._loading_tools = asyncio.Lock()

    @property
    def catalogue(self) -> Catalogue:
        """What is installed and may run."""
        return self.table.catalogue

    @property
    def hooks(self) -> Hooks:
        """The call points of the current generation."""
        return self.table.hooks

    def attach_gateway(self, access: GatewayAccess | None, withdraw: Withdraw) -> None:
        """Let plugins use the gateway that they run in; call it before `start`.

        Args:
            access: what plugins may use of the gateway; ``None`` if nothing.
            withdraw: stops the channels and services of a plugin that leaves, after the last work
                that uses it and before its ``stop``. Not called when the whole host stops.
        """
        self._gateway, self._stop_in_gateway = access, withdraw

    async def start(self) -> None:
        """Start the plugins that implement hooks, since they must not miss events.

        Raises:
            PluginError: a plugin under ``plugins.required`` cannot run; nothing stays started.
            ConfigError: the settings of such a plugin are wrong; likewise.
        """
        self.table.leases.begin()
        loaded = self.table.starter.loaded
        # One that cannot be described must close its gates, also if the program made the catalogue.
        await asyncio.to_thread(self.catalogue.describe_all, loaded.home / "cache")
        self._warn_of_names()
        try:
            self.catalogue.refuse_missing()
            for plugin_id in loaded.settings.plugins.required:
                await self.activate(plugin_id)
            for plugin in self.catalogue.enabled():
                if listens(plugin.gives, loaded.settings):
                    await self._try_activate(plugin.id)
        except (PluginError, ConfigError):
            await self.stop()
            raise
        async with self.table.changing:
            await asyncio.to_thread(self.catalogue.remember, loaded.home)
            self.table.commit({})

    async def activate(self, plugin_id: str) -> ActivePlugin:
        """Return the plugin; import and start it, after those it requires, if it is not active.

        Raises:
            PluginError: it is not installed, not enabled, quarantined, or its code fails.
            ConfigError: its settings are wrong.
        """
        table = self.table
        if plugin_id not in table.active:
            async with table.changing:
                fresh: dict[str, ActivePlugin] = {}
                try:
                    await table.build(plugin_id, table.starter, table.catalogue, fresh)
                finally:
                    await table.take_in(fresh)
        return table.active[plugin_id]

    async def _try_activate(self, plugin_id: str) -> None:
        """Start one of many: a failure is logged, and the others continue."""
        from loguru import logger

        try:
            await self.activate(plugin_id)
        except (PluginError, ConfigError) as error:
            logger.bind(plugin=plugin_id).warning("plugin left out: {}", error)

    async def register(self, plugin: object, plugin_id: str = "application") -> None:
        """Add a plugin that the program made, without any installation.

        Args:
            plugin: a module, or an object with hook implementations.
            plugin_id: its id.

        Raises:
            PluginRejected: what it implements breaks a rule, or the id is taken.
            PluginLoadFailed: its start failed.
        """
        table = self.table
        async with table.changing:
            if plugin_id in table.active or plugin_id in self.catalogue.selections:
                raise PluginRejected(
                    plugin_id, "another plugin has this id", "register it under another id"
                )
            active = await table.starter.of_object(plugin_id, plugin)
            table.registered.add(plugin_id)
            await table.take_in({plugin_id: active})

    async def load_tools(self) -> ToolRegistry:
        """Start the plugins that contribute tools, once, and return the registry."""
        if self.table.tools_loaded:
            return self.tools
        async with self._loading_tools:
            if not self.table.tools_loaded:
                for plugin in self.catalogue.enabled():
                    if brings_tools(plugin.gives):
                        await self._try_activate(plugin.id)
                async with self.table.changing:
                    await self.table.offering.collect(list(self.table.active.values()))
                    self.table.tools_loaded = True
                    self.table.commit({})
        return self.tools

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Generation]:
        """Use the current generation inside, tools loaded: ``async with host.snapshot() as it``.

        A plugin that is replaced or disabled meanwhile is stopped after all work that uses a
        generation with it has ended, at most `DRAIN_LIMIT_S` seconds later.
        """
        await self.load_tools()
        with self.table.snapshot() as generation:
            yield generation

    async def context_for(self, plugin_id: str) -> HostContext:
        """Return the context of a plugin; starts it if it is not active, raises as `activate`."""
        return (await self.activate(plugin_id)).context

    async def stop(self, reason: StopCause = "shutdown") -> None:
        """Deliver queued events, then stop every plugin, the last started first.

        A change in progress is completed first, without waiting for work that uses plugins.
        """
        self.table.leases.end()
        await self.hooks.queues.drain(STOP_DRAIN_S)
        async with self.changes.order, self.table.changing:
            await self.table.all_left()
            self.table.offering.clear()
            self.table.tools_loaded = False
            leaving = list(reversed(self.table.active.values()))
            self.table.commit(dict.fromkeys(self.table.active))
            for active in leaving:
                await active.stop(reason)

    async def watch_loop(self) -> None:
        """Report plugins whose code blocks the event loop, for as long as this is awaited.

        For programs that run for long; a thread watches meanwhile.
        """
        loop = asyncio.get_running_loop()

        def on_block(block: LoopBlock) -> None:
            self._conditions.report_block(block)
            loop.call_soon_threadsafe(self._note_block, block)

        def places() -> dict[str, str]:
            active = list(self.table.active.values())
            found = [(each.id, code_place(each.registrant)) for each in active]
            return {plugin_id: place for plugin_id, place in found if place}

        await LoopWatch(places, on_block).run()

    def declared(self, kind: str) -> Iterator[tuple[str, Declaration]]:
        """Yield (plugin id, contribution) of one kind, of enabled and of registered plugins."""
        for plugin, declaration in self.catalogue.declared(kind):
            yield plugin.id, declaration
        for active in self.table.registered_active():
            for declaration in active.manifest.of_kind(kind):
                yield active.id, declaration

    def refusing(self, hook: str) -> tuple[str, ...]:
        """Return the ids of plugins because of which a gate refuses everything."""
        closed = self.table.closed_plugins().values()
        return tuple(plugin.id for plugin in closed if hook in dict(plugin.implementations()))

    def reports(self) -> list[PluginReport]:
        """Return the condition of every plugin, by id."""
        registered, stats = self.table.registered, self.table.hook_stats
        conditions = {
            key: condition_of(
                key,
                figures_of(stats[key], key),
                "registered by the program" if key in registered else "started",
            )
            for key in self.table.active
        } | self._conditions.by_id
        effects = {key: closed.effect for key, closed in self.table.closed_plugins().items()}
        programs = (InstalledPlugin(id=key) for key in sorted(registered))
        selections = [
            *self.catalogue.selections.values(),
            *(Selection(each, Condition("disabled", "withdrawn")) for each in programs),
            *self.catalogue.missing,
        ]
        tokens = Counter[str]()
        for entry in self.tools:
            tokens[entry.plugin] += len(json.dumps(entry.definition.to_schema())) // 4
        return [
            report_on(each, conditions.get(key), stats.get(key), effects.get(key, ""), tokens[key])
            for each in selections
            for key in (each.plugin.id,)
        ]

    def _starter(self, loaded: LoadedConfig) -> Starter:
        """Return what makes plugins active with a configuration."""
        facts = HostFacts(
            runtime=self._runtime,
            home=loaded.home,
            workspace=loaded.workspace,
            restrict_to_workspace=loaded.settings.tools.restrict_to_workspace,
            protected_paths=loaded.protected_paths,
            media=MediaStore(loaded.home / "media"),
            network=NetworkPolicy(tuple(loaded.settings.tools.ssrf_whitelist)),
            timezone=ZoneInfo(loaded.settings.agents.defaults.timezone),
            environment=lambda names: environment(names, self._environ),
            gateway=lambda: self._gateway,
            agent=self._agent,
            # These are created later.
            contributed=lambda hook: self.own_hooks.contributed(hook),  # noqa: PLW0108
            call=lambda *call: self.own_hooks.call(*call),  # noqa: PLW0108
            conceal=self._conceal,
            redact=self._redact,
        )
        return Starter(
            loaded=loaded, facts=facts, publish=self._publish, opened=self._circuit_opened
        )

    def _conceal(self, owner: str, secrets: Iterable[str]) -> None:
        self.table.starter.loaded.redactor.learn_current(owner, secrets)

    def _redact(self, content: JsonObject) -> JsonObject:
        return mask_tree(content, self.table.starter.loaded.redactor)

    async def _withdraw(self, plugin_id: str) -> None:
        await self._stop_in_gateway(plugin_id)

    def _publish(self, active: ActivePlugin, tools: Sequence[Tool | LazyTool]) -> None:
        """Take the tools that a plugin publishes; those of its ``start`` come with the others."""
        if self.table.tools_loaded and self.table.active.get(active.id) is active:
            self.table.offering.publish(active, tools)
        else:
            self.table.offering.keep(active, tools)

    def _costs_of(self, plugin_id: str) -> PluginCosts:
        """Return what a plugin has cost; of an unknown one, an account that nothing reads."""
        found = self.table.hook_stats.get(plugin_id)
        return found.costs if found else PluginCosts()

    def _note_block(self, block: LoopBlock) -> None:
        if block.plugin in self.table.active:
            self._conditions.note_block(block, self.table.hook_stats[block.plugin])

    def _circuit_opened(self, stats: HookStats, plugin_id: str) -> None:
        # Work that still runs in a previous instance says nothing about the current one.
        if self.table.hook_stats.get(plugin_id) is stats:
            self._conditions.circuit_opened(plugin_id)

    def _quarantine(self, plugin_id: str) -> None:
        """Stop a plugin until its owner wants it back."""
        active = self.table.active.get(plugin_id)
        if active is None:
            return
        failed = [each for each in figures_of(active.stats, plugin_id) if each.last_error]
        last = ", ".join(f"{each.hook}: {each.last_error}" for each in failed)
        remedy = f"fix it, then {RELOAD.format(plugin_id)}"
        if plugin_id in self.table.registered:
            remedy = "fix it, then register it again"
        reason, judges = f"it failed repeatedly ({last})", judging_hooks(active.compiled)
        self._conditions.note(plugin_id, Condition("quarantined", reason, remedy, judges))
        self.table.commit({plugin_id: None})
        self.table.leave([active], "quarantine", self._withdraw)

    def _warn_of_names(self) -> None:
        """Log plugins that are wanted and left out, and names that do not exist."""
        from loguru import logger

        closed, plugins = self.table.closed_plugins(), self.table.settings.plugins
        for missing in self.catalogue.missing:
            plugin_id = missing.plugin.id
            if plugin_id not in closed and plugin_id not in plugins.required:
                logger.warning(
                    "plugin '{}' is not installed; {}", plugin_id, missing.condition.remedy
                )
        for plugin_id, selection in self.catalogue.selections.items():
            why = selection.condition
            if selection.wanted and why.state == "unconfirmed" and plugin_id not in closed:
                bound = logger.bind(plugin=plugin_id)
                bound.warning("plugin left out: {}; {}", why.reason, why.remedy)
        for clash in self.catalogue.contested.values():
            logger.warning("{}: {}; {}", clash.claim, clash.outcome, clash.remedy)
        named = [("plugins.order", hook) for hook in plugins.order]
        named += [("plugins.limits", key.rpartition(".")[2]) for key in plugins.limits]
        named += [("plugins.failures", key.rpartition(".")[2]) for key in plugins.failures]
        of_plugins = (each.plugin.gives.hookspecs for each in self.catalogue.selections.values())
        known = {*declared_hooks(), *chain.from_iterable(of_plugins)}
        for place, hook in named:
            if hook not in known:
                close = " or ".join(f"'{name}'" for name in nearest(hook, known))
                hint = f"did you mean {close}?" if close else "see nanobot plugins hooks"
                logger.warning("{} names hook '{}', which does not exist; {}", place, hook, hint)
