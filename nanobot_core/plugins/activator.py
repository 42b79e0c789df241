"""PluginActivator: plugins are started when something needs them, and stopped at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from nanobot_core.contracts.context import Contributed
from nanobot_core.errors import ConfigError, PluginError, PluginNotFound, PluginRejected
from nanobot_core.hooks.caller import declared_hooks
from nanobot_core.plugins.activation import Activation, UndeclaredHook
from nanobot_core.plugins.active import ActivePlugin
from nanobot_core.plugins.context import HostContext
from nanobot_core.plugins.generation import Generation
from nanobot_core.plugins.index import Condition
from nanobot_core.plugins.manifest import brings_tools, listens
from nanobot_core.plugins.roster import Roster
from nanobot_core.text import nearest
from nanobot_core.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.contracts.plugin import Health, StopCause
    from nanobot_core.plugins.catalogue import Catalogue
    from nanobot_core.plugins.index import InstalledPlugin

STOP_DRAIN_S = 5.0
"""Seconds that queued events have to be told before plugins are stopped."""


class PluginActivator(Roster):
    """A roster that fills by itself. Arguments and attributes as those of `Roster`."""

    async def start(self) -> None:
        """Activate the plugins that implement hooks, since they must not miss events.

        Raises:
            PluginError: a plugin under ``plugins.required`` cannot run; nothing stays started.
            ConfigError: the settings of such a plugin are wrong; likewise.
        """
        self._leases.begin()
        await asyncio.to_thread(self.catalogue.examine_undescribed, self._loaded.home / "cache")
        self._warn_of_names()
        try:
            refuse_missing(self.catalogue)
            for plugin_id in self._loaded.settings.plugins.required:
                await self.activate(plugin_id)
            for plugin in self.catalogue.enabled():
                if plugin.manifest is not None and listens(plugin.manifest, self._loaded.settings):
                    await self._try_activate(plugin.id)
        except (PluginError, ConfigError):
            await self.stop()
            raise
        async with self._changing:
            await asyncio.to_thread(self.catalogue.remember, self._loaded.home)
            self._commit({})

    async def activate(self, plugin_id: str) -> ActivePlugin:
        """Return the plugin, imported and started if it is not yet, after those it requires.

        Raises:
            PluginError: it is not installed, not enabled, quarantined, or its code fails.
            ConfigError: its settings are wrong.
        """
        if plugin_id in self._active:
            return self._active[plugin_id]
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
            await self._take_in({plugin_id: active})

    async def load_tools(self) -> ToolRegistry:
        """Activate the plugins that contribute tools and return the registry. Once."""
        if self._tools_loaded:
            return self.tools
        async with self._loading_tools:
            if not self._tools_loaded:
                for plugin in self.catalogue.enabled():
                    if plugin.manifest is not None and brings_tools(plugin.manifest):
                        await self._try_activate(plugin.id)
                async with self._changing:
                    await self._offering.collect(list(self._active.values()))
                    self._tools_loaded = True
                    self._commit({})
        return self.tools

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Generation]:
        """Use the present generation inside, tools loaded: ``async with host.snapshot() as it``.

        A plugin that is replaced or disabled meanwhile is stopped only after all who use a
        generation with it have left, at most `DRAIN_LIMIT_S` seconds later.
        """
        await self.load_tools()
        with self._leases.hold() as number:
            tools, replaced = self._tools_as_they_are(), self._replaced.total()
            plugins = frozenset(self._active)

            def newest_tools() -> ToolRegistry:
                # Tools of a plugin that came or was replaced belong with hooks, such as those that
                # judge its calls, which this work does not use.
                if self._replaced.total() != replaced:
                    return tools
                newest = self._tools_as_they_are()
                known = plugins | {entry.plugin for entry in tools}
                names = [entry.definition.name for entry in newest if entry.plugin in known]
                return newest if len(names) == len(newest) else newest.narrowed(names)

            yield Generation(number, self.hooks, tools, newest_tools)

    def _tools_as_they_are(self) -> ToolRegistry:
        """Return a copy of the registry, the same one until a tool comes or goes."""
        definitions = self.tools.get_definitions()
        copied, copy = self._copied_tools
        if copied is not definitions:
            copy = self.tools.narrowed(self.tools.names())
            self._copied_tools = (definitions, copy)
        return copy

    async def contributed(self, hook: str) -> list[Contributed[Any]]:
        """Return what plugins give by a hook of another plugin, activating them if need be.

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
        own = sorted(self._registered & set(self._active))
        return installed + [each for each in own if hook in self._active[each].manifest.hooks]

    def _activation_for(self, loaded: LoadedConfig) -> Activation:
        made = super()._activation_for(loaded)
        made.facts.contributed = self.contributed
        return made

    async def context_for(self, plugin_id: str) -> HostContext:
        """Return the context of a plugin, activating it if need be; raises as `activate`."""
        return (await self.activate(plugin_id)).context

    async def check_health(self, plugin_id: str) -> Health:
        """Return how a plugin says it is, activating it if need be; raises as `activate`."""
        return await (await self.activate(plugin_id)).check_health()

    async def stop(self, reason: StopCause = "shutdown") -> None:
        """Let queued events be told, then stop every plugin, the last started first.

        A change that is under way is carried to its end first, without waiting for anyone.
        """
        self._leases.end()
        await self.hooks.queues.drain(STOP_DRAIN_S)
        async with self._order, self._changing:
            if self._leaving:
                await asyncio.wait(set(self._leaving))
            self._offering.clear()
            self._tools_loaded = False
            leaving = list(reversed(self._active.values()))
            self._commit(dict.fromkeys(self._active))
            for active in leaving:
                await active.stop(reason)

    async def _activate(self, plugin_id: str) -> ActivePlugin:
        fresh: dict[str, ActivePlugin] = {}
        try:
            await self._build(plugin_id, self._activation, self.catalogue, fresh)
        finally:
            if fresh:
                await self._take_in(fresh)
            elif self._closed_plugins() != self._closed:
                self._commit({})
        return self._active[plugin_id]

    async def _build(
        self,
        plugin_id: str,
        activation: Activation,
        catalogue: Catalogue,
        fresh: dict[str, ActivePlugin],
    ) -> None:
        """Start a plugin after those it requires, unless it is active; add all to `fresh`."""
        if plugin_id in fresh or plugin_id in self._active:
            return
        plugin = await self._runnable(plugin_id, catalogue)
        try:
            for needed in plugin.manifest.facts.requires if plugin.manifest else ():
                await self._build(needed, activation, catalogue, fresh)
            fresh[plugin_id] = await activation.of_installed(plugin)
        except PluginError as error:
            gates = frozenset[str]()
            if isinstance(error, UndeclaredHook) and error.plugin == plugin_id:
                gates = error.gates
            self._troubled[plugin_id] = Condition(
                "import-error", _whose(error, plugin_id), error.remedy, gates
            )
            raise
        except ConfigError as error:
            self._troubled[plugin_id] = Condition(
                "settings-error", str(error), "correct its settings"
            )
            raise

    async def _runnable(self, plugin_id: str, catalogue: Catalogue) -> InstalledPlugin:
        selection = catalogue.selections.get(plugin_id)
        if selection is not None and selection.enabled and selection.plugin.manifest is None:
            await asyncio.to_thread(catalogue.examine_undescribed, self._loaded.home / "cache")
            selection = catalogue.selections[plugin_id]
        if selection is None:
            raise PluginNotFound(plugin_id, "it is not installed", "see nanobot plugins list")
        if not selection.enabled:
            raise PluginError(plugin_id, selection.reason, selection.remedy)
        condition = self._troubled.get(plugin_id)
        if condition is not None and condition.state == "quarantined":
            raise PluginError(plugin_id, condition.reason, condition.remedy)
        return selection.plugin

    async def _try_activate(self, plugin_id: str) -> None:
        """Activate one of many: what fails is reported, and the rest goes on."""
        from loguru import logger

        try:
            await self.activate(plugin_id)
        except (PluginError, ConfigError) as error:
            logger.bind(plugin=plugin_id).warning("plugin left out: {}", error)

    def _forget_disabled(self) -> None:
        """Forget what was wrong with plugins that their owner has disabled or removed."""
        for plugin_id in [*self._troubled]:
            selection = self.catalogue.selections.get(plugin_id)
            is_wanted = selection.wanted if selection else plugin_id in self._registered
            if not is_wanted:
                self._forget_trouble(plugin_id)

    def _forget_trouble(self, plugin_id: str) -> None:
        self._troubled.pop(plugin_id, None)
        self._behind.discard(plugin_id)
        self._failures.forget(plugin_id)

    def _warn_of_names(self) -> None:
        """Tell what the configuration names and there is not; each may be a slip of the pen."""
        from loguru import logger

        closed, plugins = self._closed_plugins(), self._loaded.settings.plugins
        for missing in self.catalogue.missing:
            plugin_id = missing.plugin.id
            if plugin_id not in closed and plugin_id not in plugins.required:
                logger.warning("plugin '{}' is not installed; {}", plugin_id, missing.remedy)
        points = declared_hooks()
        for hook in plugins.order:
            if hook not in points:
                logger.warning("{}", _no_hook("plugins.order", hook, points))
        for key in plugins.limits:
            if (hook := key.rpartition(".")[2]) not in points:
                logger.warning("{}", _no_hook("plugins.limits", hook, points))


def refuse_missing(catalogue: Catalogue) -> None:
    """Raise `PluginNotFound` for a plugin that is required and not installed."""
    for missing in catalogue.missing:
        if missing.plugin.id in catalogue.settings.required:
            reason = "it is required and not installed"
            raise PluginNotFound(missing.plugin.id, reason, missing.remedy)


def _whose(error: PluginError, plugin_id: str) -> str:
    """Return the reason of a failure that may be that of a required plugin."""
    if error.plugin == plugin_id:
        return error.reason
    return f"it requires plugin '{error.plugin}', which cannot run: {error.reason}"


def _no_hook(place: str, hook: str, known: Mapping[str, object]) -> str:
    close = " or ".join(f"'{name}'" for name in nearest(hook, known))
    hint = f"did you mean {close}?" if close else "see nanobot explain hook"
    return f"{place} names hook '{hook}', which does not exist; {hint}"
