"""PluginHost: the plugins of one application, started when something needs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from nanobot_core.config.environment import environment
from nanobot_core.contracts.context import Contributed
from nanobot_core.errors import ConfigError, PluginError, PluginRejected
from nanobot_core.hooks.caller import Hooks, declared_hooks
from nanobot_core.hooks.compilation import HookStats
from nanobot_core.hooks.implementation import HookRuntime
from nanobot_core.media import MediaStore
from nanobot_core.net.policy import NetworkPolicy
from nanobot_core.plugins.active import ActivePlugin, Starter, UndeclaredHook, judging_hooks
from nanobot_core.plugins.catalogue import Selection
from nanobot_core.plugins.change import PluginChanges
from nanobot_core.plugins.consent import ClosedPlugin, closed_plugins
from nanobot_core.plugins.context import HostContext, HostFacts
from nanobot_core.plugins.health import (
    RELOAD,
    Conditions,
    LoopBlock,
    LoopWatch,
    PluginReport,
    code_place,
    condition_of,
    figures_of,
    report_on,
)
from nanobot_core.plugins.index import Condition, InstalledPlugin
from nanobot_core.plugins.manifest import Declaration, brings_tools, listens
from nanobot_core.plugins.table import Generation, PluginTable, Withdraw, nothing_runs
from nanobot_core.plugins.tool_names import ToolOffering
from nanobot_core.text import nearest
from nanobot_core.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from nanobot_core.clock import Clock
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.config.models import Settings
    from nanobot_core.contracts.plugin import Health, StopCause
    from nanobot_core.contracts.service import GatewayAccess
    from nanobot_core.contracts.tool import LazyTool, Tool
    from nanobot_core.plugins.catalogue import Catalogue
    from nanobot_core.tasks import Spawn


class Activator:
    """Starts plugins for the configuration in force.

    Args:
        catalogue: what is installed and may run.
        starter: makes plugins active with the configuration in force.
        table: the active plugins.
        conditions: what is wrong with plugins.

    Attributes:
        changing: held while the set of active plugins is put together.
        registered: ids of plugins that the program registered.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        starter: Starter,
        table: PluginTable,
        conditions: Conditions,
    ) -> None:
        self.catalogue: Catalogue = catalogue
        self.starter: Starter = starter
        self.table = table
        self.conditions = conditions
        self.changing: asyncio.Lock = asyncio.Lock()
        self.registered: set[str] = set()
        self._closed: dict[str, ClosedPlugin] = {}

    @property
    def loaded(self) -> LoadedConfig:
        """The configuration in force."""
        return self.starter.loaded

    def adopt(self, catalogue: Catalogue, starter: Starter) -> None:
        """Use another configuration from now on."""
        self.catalogue = catalogue
        self.starter = starter

    def registered_active(self) -> list[ActivePlugin]:
        """Return the active plugins that the program registered, by id."""
        return [self.table.active[key] for key in sorted(self.registered & set(self.table.active))]

    async def activate(self, plugin_id: str) -> ActivePlugin:
        """Return the plugin, started; see `PluginHost.activate`."""
        if plugin_id not in self.table.active:
            async with self.changing:
                fresh: dict[str, ActivePlugin] = {}
                try:
                    await self.build(plugin_id, self.starter, self.catalogue, fresh)
                finally:
                    if fresh:
                        await self._take_in(fresh)
                    elif self.closed_plugins() != self._closed:
                        self.commit({})
        return self.table.active[plugin_id]

    async def try_activate(self, plugin_id: str) -> None:
        """Start one of many: a failure is logged, and the others continue."""
        from loguru import logger

        try:
            await self.activate(plugin_id)
        except (PluginError, ConfigError) as error:
            logger.bind(plugin=plugin_id).warning("plugin left out: {}", error)

    async def register(self, plugin: object, plugin_id: str) -> None:
        """Start a plugin that the program made; see `PluginHost.register`."""
        async with self.changing:
            if plugin_id in self.table.active or plugin_id in self.catalogue.selections:
                raise PluginRejected(
                    plugin_id, "another plugin has this id", "register it under another id"
                )
            active = await self.starter.of_object(plugin_id, plugin)
            self.registered.add(plugin_id)
            await self._take_in({plugin_id: active})

    async def offer_tools(self) -> None:
        """Put the tools of all active plugins into the registry, from now on."""
        async with self.changing:
            await self.table.offering.collect(list(self.table.active.values()))
            self.table.tools_loaded = True
            self.commit({})

    async def build(
        self,
        plugin_id: str,
        starter: Starter,
        catalogue: Catalogue,
        fresh: dict[str, ActivePlugin],
    ) -> None:
        """Start a plugin after those it requires, unless it is active; add all to `fresh`.

        Raises:
            PluginError: it may not run, or its code fails.
            ConfigError: its settings are wrong.
        """
        if plugin_id in fresh or plugin_id in self.table.active:
            return
        plugin = await self.runnable(plugin_id, catalogue)
        try:
            for needed in plugin.manifest.requires if plugin.manifest else ():
                await self.build(needed, starter, catalogue, fresh)
            fresh[plugin_id] = await starter.of_installed(plugin)
        except PluginError as error:
            judges = frozenset[str]()
            if isinstance(error, UndeclaredHook) and error.plugin == plugin_id:
                judges = error.judges
            condition = Condition("failed", _whose(error, plugin_id), error.remedy, judges)
            self.conditions.note(plugin_id, condition)
            raise
        except ConfigError as error:
            condition = Condition("settings-error", str(error), "correct its settings")
            self.conditions.note(plugin_id, condition)
            raise

    async def runnable(self, plugin_id: str, catalogue: Catalogue) -> InstalledPlugin:
        """Return a plugin that may run.

        Raises:
            PluginError: it is not installed, not enabled, or quarantined.
        """
        selection = catalogue.selections.get(plugin_id)
        if selection is not None and selection.enabled and selection.plugin.manifest is None:
            await asyncio.to_thread(catalogue.describe_all, self.loaded.home / "cache")
        plugin = catalogue.require(plugin_id)
        condition = self.conditions.by_id.get(plugin_id)
        if condition is not None and condition.state == "quarantined":
            raise PluginError(plugin_id, condition.reason, condition.remedy)
        return plugin

    def is_triggered(self, plugin: InstalledPlugin, settings: Settings) -> bool:
        """Whether a plugin that may run must run now, and not when something asks for it."""
        if plugin.manifest is None:
            return False
        return (
            plugin.id in settings.plugins.required
            or listens(plugin.manifest, settings)
            or (self.table.tools_loaded and brings_tools(plugin.manifest))
        )

    def commit(self, changes: Mapping[str, ActivePlugin | None]) -> None:
        """Make the next generation the current one; see `PluginTable.commit`."""
        from loguru import logger

        leaving = {plugin_id for plugin_id, active in changes.items() if active is None}
        closed = self.closed_plugins({*self.table.active, *changes} - leaving)
        for plugin_id, plugin in closed.items():
            if plugin_id not in self._closed:
                logger.bind(plugin=plugin_id).error("{}", plugin.sentence)
        self._closed = closed
        settings = self.loaded.settings
        self.table.commit(changes, self.catalogue, settings, tuple(closed.values()))

    def closed_plugins(self, active: Collection[str] | None = None) -> dict[str, ClosedPlugin]:
        """Return the plugins that refuse what they would judge, because they do not run.

        Args:
            active: ids of the plugins that run; ``None`` means those that run now.
        """
        running = self.table.active if active is None else active
        return closed_plugins(self.catalogue, self.conditions.by_id, running, self.loaded.settings)

    async def _take_in(self, fresh: Mapping[str, ActivePlugin]) -> None:
        """Make started plugins part of the host."""
        for plugin_id in fresh:
            self.conditions.started(plugin_id)
        if self.table.tools_loaded:
            await self.table.offering.collect(fresh.values())
        self.commit(fresh)


def _whose(error: PluginError, plugin_id: str) -> str:
    """Return the reason of a failure, which may be that of a required plugin."""
    if error.plugin == plugin_id:
        return error.reason
    return f"it requires plugin '{error.plugin}', which cannot run: {error.reason}"


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
        active: the active plugins and the generation that they make up.
        changes: replaces, enables and disables plugins while the program runs.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        loaded: LoadedConfig,
        *,
        spawn: Spawn,
        clock: Clock,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._environ = environ
        self._gateway: GatewayAccess | None = None
        self._stop_in_gateway: Withdraw = nothing_runs
        self._conditions = Conditions(clock.monotonic_s, self._quarantine)
        self._runtime = HookRuntime(spawn=spawn, report=self._conditions.report, clock=clock)
        self.tools: ToolRegistry = ToolRegistry(
            lambda name: self.catalogue.describe_missing_tool(name)  # noqa: PLW0108 - it changes
        )
        offering = ToolOffering(self.tools, self._conditions.note_degraded)
        self.active: PluginTable = PluginTable(self._runtime, offering)
        self._activator = Activator(catalogue, self._starter(loaded), self.active, self._conditions)
        self.changes: PluginChanges = PluginChanges(
            self._activator, self._starter, self._runtime.spawn, self._withdraw
        )
        self._loading_tools = asyncio.Lock()

    @property
    def catalogue(self) -> Catalogue:
        """What is installed and may run."""
        return self._activator.catalogue

    @property
    def hooks(self) -> Hooks:
        """The call points of the current generation."""
        return self.active.hooks

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
        self.active.leases.begin()
        loaded = self._activator.loaded
        # One that cannot be described must close its gates, also if the program made the catalogue.
        await asyncio.to_thread(self.catalogue.describe_all, loaded.home / "cache")
        self._warn_of_names()
        try:
            self.catalogue.refuse_missing()
            for plugin_id in loaded.settings.plugins.required:
                await self.activate(plugin_id)
            for plugin in self.catalogue.enabled():
                if plugin.manifest is not None and listens(plugin.manifest, loaded.settings):
                    await self._activator.try_activate(plugin.id)
        except (PluginError, ConfigError):
            await self.stop()
            raise
        async with self._activator.changing:
            await asyncio.to_thread(self.catalogue.remember, loaded.home)
            self._activator.commit({})

    async def activate(self, plugin_id: str) -> ActivePlugin:
        """Return the plugin; import and start it, after those it requires, if it is not active.

        Raises:
            PluginError: it is not installed, not enabled, quarantined, or its code fails.
            ConfigError: its settings are wrong.
        """
        return await self._activator.activate(plugin_id)

    async def register(self, plugin: object, plugin_id: str = "application") -> None:
        """Add a plugin that the program made, without any installation.

        Args:
            plugin: a module, or an object with hook implementations.
            plugin_id: its id.

        Raises:
            PluginRejected: what it implements breaks a rule, or the id is taken.
            PluginLoadFailed: its start failed.
        """
        await self._activator.register(plugin, plugin_id)

    async def load_tools(self) -> ToolRegistry:
        """Start the plugins that contribute tools, once, and return the registry."""
        if self.active.tools_loaded:
            return self.tools
        async with self._loading_tools:
            if not self.active.tools_loaded:
                for plugin in self.catalogue.enabled():
                    if plugin.manifest is not None and brings_tools(plugin.manifest):
                        await self._activator.try_activate(plugin.id)
                await self._activator.offer_tools()
        return self.tools

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Generation]:
        """Use the current generation inside, tools loaded: ``async with host.snapshot() as it``.

        A plugin that is replaced or disabled meanwhile is stopped after all work that uses a
        generation with it has ended, at most `DRAIN_LIMIT_S` seconds later.
        """
        await self.load_tools()
        with self.active.snapshot() as generation:
            yield generation

    async def context_for(self, plugin_id: str) -> HostContext:
        """Return the context of a plugin; starts it if it is not active, raises as `activate`."""
        return (await self.activate(plugin_id)).context

    async def check_health(self, plugin_id: str) -> Health:
        """Return the result of a plugin's health check; starts it and raises as `activate`."""
        return await (await self.activate(plugin_id)).check_health()

    async def stop(self, reason: StopCause = "shutdown") -> None:
        """Deliver queued events, then stop every plugin, the last started first.

        A change in progress is completed first, without waiting for work that uses plugins.
        """
        self.active.leases.end()
        await self.hooks.queues.drain(STOP_DRAIN_S)
        async with self.changes.order, self._activator.changing:
            await self.active.all_left()
            self.active.offering.clear()
            self.active.tools_loaded = False
            leaving = list(reversed(self.active.active.values()))
            self._activator.commit(dict.fromkeys(self.active.active))
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
            active = list(self.active.active.values())
            found = [(each.id, code_place(each.registrant)) for each in active]
            return {plugin_id: place for plugin_id, place in found if place}

        await LoopWatch(places, on_block).run()

    def declared(self, kind: str) -> Iterator[tuple[str, Declaration]]:
        """Yield (plugin id, contribution) of one kind, of enabled and of registered plugins."""
        for plugin, declaration in self.catalogue.declared(kind):
            yield plugin.id, declaration
        for active in self._activator.registered_active():
            for declaration in active.manifest.of_kind(kind):
                yield active.id, declaration

    def reports(self) -> list[PluginReport]:
        """Return the condition of every plugin, by id."""
        registered = self._activator.registered
        figures = {key: figures_of(ledger, key) for key, ledger in self.active.ledgers.items()}
        conditions = {
            key: condition_of(
                key,
                figures.get(key, ()),
                "registered by the program" if key in registered else "started",
            )
            for key in self.active.active
        } | self._conditions.by_id
        effects = {key: closed.effect for key, closed in self._activator.closed_plugins().items()}
        programs = (InstalledPlugin(id=key) for key in sorted(registered))
        selections = [
            *self.catalogue.selections.values(),
            *(Selection(each, False, "disabled", "withdrawn") for each in programs),
            *self.catalogue.missing,
        ]
        return [
            report_on(each, conditions.get(key), figures.get(key, ()), effects.get(key, ""))
            for each in selections
            for key in (each.plugin.id,)
        ]

    async def _contributed(self, hook: str) -> Sequence[Contributed[Any]]:
        """Return what plugins contribute by a hook of another plugin; starts them if needed.

        A plugin that fails is reported and left out.
        """
        from loguru import logger

        found: list[Contributed[Any]] = []
        for plugin_id in self._contributors(hook):
            try:
                values = await (await self.activate(plugin_id)).contribute_by(hook)
            except (PluginError, ConfigError) as error:
                logger.bind(plugin=plugin_id).warning("its '{}' is left out: {}", hook, error)
                continue
            found += [Contributed(plugin_id, value) for value in values]
        return found

    def _contributors(self, hook: str) -> list[str]:
        """Return the plugins that may run and implement `hook`, in calling order."""
        installed = [
            plugin.id
            for plugin in self.catalogue.enabled()
            if plugin.manifest is not None and hook in plugin.manifest.hooks
        ]
        registered = self._activator.registered_active()
        return installed + [each.id for each in registered if hook in each.manifest.hooks]

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
            environment=lambda names: environment(names, self._environ),
            gateway=lambda: self._gateway,
            contributed=self._contributed,
        )
        return Starter(
            loaded=loaded, facts=facts, publish=self._publish, opened=self._circuit_opened
        )

    async def _withdraw(self, plugin_id: str) -> None:
        await self._stop_in_gateway(plugin_id)

    def _publish(self, active: ActivePlugin, tools: Sequence[Tool | LazyTool]) -> None:
        """Take the tools that a plugin publishes; those of its ``start`` come with the others."""
        if self.active.tools_loaded and self.active.active.get(active.id) is active:
            self.active.offering.publish(active, tools)
        else:
            self.active.offering.keep(active, tools)

    def _note_block(self, block: LoopBlock) -> None:
        if block.plugin in self.active.active:
            self._conditions.note_block(block, self.active.ledgers[block.plugin])

    def _circuit_opened(self, ledger: HookStats, plugin_id: str) -> None:
        # Work that still runs in a previous instance says nothing about the current one.
        if self.active.ledgers.get(plugin_id) is ledger:
            self._conditions.circuit_opened(plugin_id)

    def _quarantine(self, plugin_id: str) -> None:
        """Stop a plugin until its owner wants it back."""
        active = self.active.active.get(plugin_id)
        if active is None:
            return
        failed = [each for each in figures_of(active.ledger, plugin_id) if each.last_error]
        last = ", ".join(f"{each.hook}: {each.last_error}" for each in failed)
        remedy = f"fix it, then {RELOAD.format(plugin_id)}"
        if plugin_id in self._activator.registered:
            remedy = "fix it, then register it again"
        reason, judges = f"it failed repeatedly ({last})", judging_hooks(active.compiled)
        self._conditions.note(plugin_id, Condition("quarantined", reason, remedy, judges))
        self._activator.commit({plugin_id: None})
        self.active.leave([active], "quarantine", self._withdraw)

    def _warn_of_names(self) -> None:
        """Log names in the configuration that do not exist; each may be a typing mistake."""
        from loguru import logger

        closed, plugins = self._activator.closed_plugins(), self._activator.loaded.settings.plugins
        for missing in self.catalogue.missing:
            plugin_id = missing.plugin.id
            if plugin_id not in closed and plugin_id not in plugins.required:
                logger.warning("plugin '{}' is not installed; {}", plugin_id, missing.remedy)
        for clash in self.catalogue.contested:
            logger.warning("{}: {}; {}", clash.claim, clash.outcome, clash.remedy)
        named = [("plugins.order", hook) for hook in plugins.order]
        named += [("plugins.limits", key.rpartition(".")[2]) for key in plugins.limits]
        for place, hook in named:
            if hook not in declared_hooks():
                close = " or ".join(f"'{name}'" for name in nearest(hook, declared_hooks()))
                hint = f"did you mean {close}?" if close else "see nanobot plugins hooks"
                logger.warning("{} names hook '{}', which does not exist; {}", place, hook, hint)
