"""PluginHost: activates plugins, and offers their hooks and tools as one generation at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_core.config.environment import environment
from nanobot_core.errors import ConfigError, PluginError, PluginNotFound, PluginRejected
from nanobot_core.hooks.caller import Hooks, declared_hooks
from nanobot_core.hooks.generation import Ledger, join_hooks
from nanobot_core.hooks.implementation import HookRuntime
from nanobot_core.hooks.kinds import Kind
from nanobot_core.plugins.activation import Activation
from nanobot_core.plugins.active import ActivePlugin
from nanobot_core.plugins.context import HostContext, HostFacts
from nanobot_core.plugins.index import InstalledPlugin
from nanobot_core.plugins.manifest import CHANNEL_CONDITION, Declaration, Manifest
from nanobot_core.plugins.names import NameClash
from nanobot_core.plugins.offering import ToolOffering
from nanobot_core.plugins.report import Condition, FailureLog, PluginReport, figures_of, report_on
from nanobot_core.plugins.watch import LoopBlock, LoopWatch, code_place
from nanobot_core.text import nearest
from nanobot_core.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from nanobot_core.clock import Clock
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.contracts.plugin import Health, StopCause
    from nanobot_core.contracts.tool import LazyTool, Tool
    from nanobot_core.hooks.implementation import Spawn
    from nanobot_core.plugins.catalogue import Catalogue

STOP_DRAIN_S = 5.0
"""Seconds that queued events have to be told before plugins are stopped."""


class PluginHost:
    """The plugins of one application.

    Args:
        catalogue: what is installed and may run.
        loaded: the configuration in force.
        spawn: starts tasks that the application owns.
        clock: source of time.
        environ: environment variables; ``None`` means those of the process.

    Attributes:
        hooks: the present generation.
        tools: the tools of active plugins and of the program itself.
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
        self.catalogue = catalogue
        self.tools: ToolRegistry = ToolRegistry(catalogue.describe_missing_tool)
        self._loaded = loaded
        self._settings = loaded.settings
        self._failures = FailureLog(clock.monotonic_s, self._quarantine)
        self._runtime = HookRuntime(spawn=spawn, report=self._failures.report, clock=clock)
        self._ledger = Ledger(clock.monotonic_s, self._failures.circuit_opened)
        facts = HostFacts(
            runtime=self._runtime,
            home=loaded.home,
            workspace=loaded.workspace,
            restrict_to_workspace=loaded.settings.tools.restrict_to_workspace,
            protected_paths=_secret_files(loaded),
            environment=lambda names: environment(names, environ),
        )
        self._activation = Activation(loaded, facts, self._ledger, self._publish)
        self._offering = ToolOffering(
            self.tools, loaded.settings.tools.aliases, self._note_degraded
        )
        self._active: dict[str, ActivePlugin] = {}
        self._registered: set[str] = set()
        self._troubled: dict[str, Condition] = {}
        self._changing = asyncio.Lock()
        self._loading_tools = asyncio.Lock()
        self._tools_loaded = False
        self.hooks: Hooks = Hooks(self._runtime)

    async def start(self) -> None:
        """Activate the plugins that implement hooks, since they must not miss events.

        Raises:
            PluginError: a plugin under ``plugins.required`` cannot run; nothing stays started.
            ConfigError: the settings of such a plugin are wrong; likewise.
        """
        await asyncio.to_thread(self.catalogue.examine_undescribed, self._loaded.home / "cache")
        self._warn_of_names()
        try:
            for missing in self.catalogue.missing:
                if missing.required:
                    reason = "it is required and not installed"
                    raise PluginNotFound(missing.id, reason, missing.remedy)
            for plugin_id in self._settings.plugins.required:
                await self.activate(plugin_id)
            for plugin in self.catalogue.enabled():
                if plugin.manifest is not None and self._listens(plugin.manifest):
                    await self._try_activate(plugin.id)
        except (PluginError, ConfigError):
            await self.stop()
            raise

    @property
    def clashes(self) -> tuple[NameClash, ...]:
        """Tool names that several plugins claim."""
        return self._offering.clashes

    async def activate(self, plugin_id: str) -> ActivePlugin:
        """Return the plugin, imported and started if it is not yet, after those it requires.

        Raises:
            PluginError: it is not installed, not enabled, quarantined, or its code fails.
            ConfigError: its settings are wrong.
        """
        async with self._changing:
            return await self._activate(plugin_id)

    async def register(self, plugin: object, plugin_id: str = "application") -> None:
        """Add a plugin that a program made, without any installation.

        Args:
            plugin: a module, or an object with hook implementations.
            plugin_id: its id.

        Raises:
            PluginRejected: what it implements breaks a rule, or the id is taken.
            PluginLoadFailed: its start failed.
        """
        async with self._changing:
            if plugin_id in self._active or plugin_id in self.catalogue.selections:
                raise PluginRejected(
                    plugin_id, "a plugin of this id is there already", "choose another"
                )
            active = await self._activation.of_object(plugin_id, plugin)
            self._registered.add(plugin_id)
            await self._take_in(active)

    async def load_tools(self) -> ToolRegistry:
        """Activate the plugins that contribute tools and return the registry. Once."""
        async with self._loading_tools:
            if not self._tools_loaded:
                for plugin in self.catalogue.enabled():
                    manifest = plugin.manifest
                    if manifest and (manifest.of_kind("tools") or manifest.facts.tool_names):
                        await self._try_activate(plugin.id)
                self._tools_loaded = True
                await self._offering.refresh(list(self._active.values()))
        return self.tools

    async def context_for(self, plugin_id: str) -> HostContext:
        """Return the context of a plugin, activating it if need be; raises as `activate`."""
        return (await self.activate(plugin_id)).context

    async def check_health(self, plugin_id: str) -> Health:
        """Return how a plugin says it is, activating it if need be; raises as `activate`."""
        return await (await self.activate(plugin_id)).check_health()

    async def watch_loop(self) -> None:
        """Name plugins whose code blocks the event loop, for as long as this is awaited.

        For programs that live long; a thread watches meanwhile.
        """
        loop = asyncio.get_running_loop()

        def on_block(block: LoopBlock) -> None:
            self._failures.report_block(block)
            loop.call_soon_threadsafe(self._note_block, block)

        def places() -> dict[str, str]:
            found = [(each.id, code_place(each.registrant)) for each in list(self._active.values())]
            return {plugin_id: place for plugin_id, place in found if place}

        await LoopWatch(places, on_block).run()

    def declared(self, kind: str) -> Iterator[tuple[str, Declaration]]:
        """Yield (plugin id, contribution) of one kind, of enabled plugins and the program's own."""
        for plugin, declaration in self.catalogue.declared(kind):
            yield plugin.id, declaration
        for plugin_id in sorted(self._registered & set(self._active)):
            for declaration in self._active[plugin_id].manifest.of_kind(kind):
                yield plugin_id, declaration

    def reports(self) -> list[PluginReport]:
        """Return the condition of every plugin, by id."""
        active: Condition = ("active", "started", "")
        registered: Condition = ("active", "registered by the program", "")
        conditions = dict.fromkeys(self._active, active) | self._troubled
        reports = [
            report_on(selection, conditions.get(plugin_id), figures_of(self._ledger, plugin_id))
            for plugin_id, selection in sorted(self.catalogue.selections.items())
        ]
        for plugin_id in sorted(self._registered):
            state, reason, remedy = self._troubled.get(plugin_id, registered)
            figures = figures_of(self._ledger, plugin_id)
            reports.append(
                PluginReport(id=plugin_id, state=state, reason=reason, remedy=remedy, hooks=figures)
            )
        return [*reports, *map(PluginReport.of_missing, self.catalogue.missing)]

    def active_labels(self) -> tuple[str, ...]:
        """Return the active plugins as ``id@version``."""
        return tuple(
            f"{item.id}@{item.registrant.version}" if item.registrant.version else item.id
            for item in self._active.values()
        )

    async def stop(self, reason: StopCause = "shutdown") -> None:
        """Let queued events be told, then stop every plugin, the last started first."""
        await self.hooks.queues.drain(STOP_DRAIN_S)
        while self._active:
            plugin_id, active = self._active.popitem()
            self._offering.withdraw(plugin_id)
            await active.stop(reason)
        self._tools_loaded = False
        self._commit()

    async def _activate(self, plugin_id: str) -> ActivePlugin:
        if plugin_id in self._active:
            return self._active[plugin_id]
        plugin = await self._installed(plugin_id)
        try:
            for needed in plugin.manifest.facts.requires if plugin.manifest else ():
                await self._activate(needed)
            active = await self._activation.of_installed(plugin)
        except PluginError as error:
            self._troubled[plugin_id] = ("import-error", _whose(error, plugin_id), error.remedy)
            raise
        except ConfigError as error:
            self._troubled[plugin_id] = ("settings-error", str(error), "mend its settings")
            raise
        await self._take_in(active)
        return active

    async def _installed(self, plugin_id: str) -> InstalledPlugin:
        selection = self.catalogue.selections.get(plugin_id)
        if selection is not None and selection.enabled and selection.plugin.manifest is None:
            cache = self._loaded.home / "cache"
            await asyncio.to_thread(self.catalogue.examine_undescribed, cache)
            selection = self.catalogue.selections[plugin_id]
        if selection is None:
            raise PluginNotFound(plugin_id, "it is not installed", "see nanobot plugins list")
        if not selection.enabled:
            raise PluginError(plugin_id, selection.reason, selection.remedy)
        state, reason, remedy = self._troubled.get(plugin_id, ("found", "", ""))
        if state == "quarantined":
            raise PluginError(plugin_id, reason, remedy)
        return selection.plugin

    async def _try_activate(self, plugin_id: str) -> None:
        """Activate one of many: what fails is reported, and the rest goes on."""
        from loguru import logger

        try:
            await self.activate(plugin_id)
        except (PluginError, ConfigError) as error:
            logger.bind(plugin=plugin_id).warning("plugin left out: {}", error)

    async def _take_in(self, active: ActivePlugin) -> None:
        """Make a started plugin part of the host."""
        self._troubled.pop(active.id, None)
        self._active[active.id] = active
        self._commit()
        if self._tools_loaded:
            await self._offering.refresh(list(self._active.values()))

    def _publish(self, active: ActivePlugin, tools: Sequence[Tool | LazyTool]) -> None:
        """Take the tools that a plugin publishes; those of its ``start`` come with the others."""
        if self._tools_loaded and self._active.get(active.id) is active:
            self._offering.publish(active, tools)
        else:
            self._offering.keep(active, tools)

    def _note_degraded(self, plugin_id: str, error: PluginError) -> None:
        self._troubled[plugin_id] = ("degraded", error.reason, error.remedy)

    def _note_block(self, block: LoopBlock) -> None:
        if block.plugin in self._active:
            self._troubled[block.plugin] = ("degraded", block.reason, block.remedy)

    def _warn_of_names(self) -> None:
        """Tell what the configuration names and there is not; each may be a slip of the pen."""
        from loguru import logger

        for missing in self.catalogue.missing:
            if not missing.required:
                logger.warning("plugin '{}' is not installed; {}", missing.id, missing.remedy)
        points = declared_hooks()
        for hook in self._settings.plugins.order:
            if hook not in points:
                logger.warning("{}", _no_hook("plugins.order", hook, points))
        for key in self._settings.plugins.limits:
            if (hook := key.rpartition(".")[2]) not in points:
                logger.warning("{}", _no_hook("plugins.limits", hook, points))

    def _listens(self, manifest: Manifest) -> bool:
        """Whether a plugin implements a hook of the agent's work, or must react to its start."""
        points = declared_hooks()
        quiet = {Kind.OWN, Kind.CONTRIBUTE}
        return any(
            name in points
            and points[name].kind not in quiet
            and self._holds(manifest.when.get(name, ""))
            for name in manifest.hooks
        )

    def _holds(self, condition: str) -> bool:
        """Whether the channel that a condition names is switched on; no condition always holds."""
        if not condition:
            return True
        section = self._settings.section(f"channels.{condition.removeprefix(CHANNEL_CONDITION)}")
        return section is not None and section.get("enabled", True) is True

    def _commit(self) -> None:
        """Build the next generation and make it the present one, by one assignment."""
        rank = {plugin.id: index for index, plugin in enumerate(self.catalogue.enabled())}
        ordered = sorted(self._active.values(), key=lambda item: rank.get(item.id, len(rank)))
        built = join_hooks(
            [item.compiled for item in ordered],
            self._runtime,
            order=self._settings.plugins.order,
            queues=self.hooks.queues,
        )
        if any(item.manifest.when for item in ordered):
            used = {
                name: [each for each in found if self._holds(each.options.when)]
                for name, found in built.implementations.items()
            }
            built = Hooks(self._runtime, used, self.hooks.queues)
        self.hooks = built

    def _quarantine(self, plugin_id: str) -> None:
        """Leave a plugin out for the rest of this process."""
        active = self._active.pop(plugin_id, None)
        if active is None:
            return
        failed = [each for each in figures_of(self._ledger, plugin_id) if each.last_error]
        last = ", ".join(f"{each.hook}: {each.last_error}" for each in failed)
        reason = f"its hooks failed again and again ({last})"
        self._troubled[plugin_id] = ("quarantined", reason, "mend it, then start nanobot again")
        self._offering.withdraw(plugin_id)
        self._commit()
        self._runtime.spawn(active.stop("quarantine"), name=f"quarantine:{plugin_id}")


def _secret_files(loaded: LoadedConfig) -> tuple[Path, ...]:
    """Return the configuration in force and what would be one after the next start."""
    usual = [loaded.home / name for name in ("config.yaml", "config.yml", "config.json", ".env")]
    return tuple(dict.fromkeys([loaded.path, *usual] if loaded.path else usual))


def _whose(error: PluginError, plugin_id: str) -> str:
    """Return the reason of a failure that may be that of a required plugin."""
    if error.plugin == plugin_id:
        return error.reason
    return f"it requires plugin '{error.plugin}', which cannot run: {error.reason}"


def _no_hook(place: str, hook: str, known: Mapping[str, object]) -> str:
    close = " or ".join(f"'{name}'" for name in nearest(hook, known))
    hint = f"did you mean {close}?" if close else "see nanobot explain hook"
    return f"{place} names hook '{hook}', which does not exist; {hint}"
