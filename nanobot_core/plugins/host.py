"""PluginHost: the plugins of one application, which may change while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from nanobot_core.errors import ConfigError, HookError, NanobotError, PluginError, PluginNotFound
from nanobot_core.plugins.activation import PROVIDERS
from nanobot_core.plugins.activator import PluginActivator, refuse_missing
from nanobot_core.plugins.active import ActivePlugin
from nanobot_core.plugins.change import Draft, Reconfiguration
from nanobot_core.plugins.code import packages_of
from nanobot_core.plugins.examine import examine_plugin
from nanobot_core.plugins.exchange import RestartRequired, refuse_in_use, renew, replace_code
from nanobot_core.plugins.isolated import describe_isolated
from nanobot_core.plugins.roster import nothing_runs

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.plugins.catalogue import Catalogue
    from nanobot_core.plugins.index import InstalledPlugin
    from nanobot_core.plugins.selection import State


Change: TypeAlias = "Callable[[], Coroutine[None, None, Reconfiguration]]"


class PluginHost(PluginActivator):
    """The plugins of one application. Arguments and attributes as those of `Roster`.

    Changes are made one after another. Each is one new generation: work in progress finishes on
    the one that it began with, and what left is stopped when nobody uses it any more. A change
    that has begun is carried to its end although its caller is cancelled.
    """

    async def reconfigure(self, loaded: LoadedConfig, catalogue: Catalogue) -> Reconfiguration:
        """Make the plugins what a newly loaded configuration says.

        Args:
            loaded: the configuration.
            catalogue: what is installed now, selected by that configuration. What was disabled
                with `disable` only counts as this configuration says.

        Returns:
            What became of it. A plugin that fails goes on as it was and is named there.

        Raises:
            PluginError: a plugin under ``plugins.required`` may not run; nothing is changed.
        """
        return await self._one_by_one(partial(self._reconfigure, loaded, catalogue), "reconfigure")

    async def reload(self, plugin_id: str) -> Reconfiguration:
        """Replace a plugin by what is on disk now; lifts a quarantine.

        Raises:
            RestartRequired: Python cannot exchange its code.
            PluginError: the new code fails in a child process, at its start or in its health
                check. The former instance goes on.
            ConfigError: its settings do not fit the new code; likewise.
        """
        return await self._one_by_one(partial(self._reload, plugin_id), f"reload:{plugin_id}")

    async def enable(self, plugin_id: str) -> Reconfiguration:
        """Take back what `disable` did, or a quarantine; it starts if something triggers it.

        Raises:
            PluginError: the configuration leaves it out, or its code fails.
            ConfigError: its settings are wrong.
        """
        return await self._one_by_one(partial(self._enable, plugin_id), f"enable:{plugin_id}")

    async def disable(self, plugin_id: str, *, cascade: bool = False) -> Reconfiguration:
        """Withdraw a plugin until it is enabled or the configuration is loaded again.

        Args:
            plugin_id: its id.
            cascade: withdraw those that require it as well.

        Raises:
            PluginError: it is required by the configuration or by another plugin, or holds what
                cannot change hands while the program runs.
        """
        return await self._one_by_one(
            partial(self._disable, plugin_id, cascade), f"disable:{plugin_id}"
        )

    async def _one_by_one(self, work: Change, name: str) -> Reconfiguration:
        return await asyncio.shield(self._runtime.spawn(self._in_turn(work), name=name))

    async def _in_turn(self, work: Change) -> Reconfiguration:
        async with self._order:
            if self._leases.is_over:
                msg = "the plugin host has stopped"
                raise RuntimeError(msg)
            return await work()

    @asynccontextmanager
    async def _drafting(self, draft: Draft) -> AsyncIterator[None]:
        """Stop what a draft has started if it comes to nothing."""
        try:
            yield
        except BaseException:
            for plugin_id in list(draft.fresh):
                await draft.drop(plugin_id).stop("reload")
            raise

    async def _reconfigure(self, loaded: LoadedConfig, catalogue: Catalogue) -> Reconfiguration:
        await asyncio.to_thread(catalogue.examine_undescribed, loaded.home / "cache")
        refuse_missing(catalogue)
        for plugin_id in loaded.settings.plugins.required:
            _refuse_disabled(catalogue, plugin_id)
        async with self._changing:
            draft = Draft(self._activation_for(loaded), catalogue)
            could_run = {plugin.id for plugin in self.catalogue.enabled()}
            self._keep_spoilt(draft)
            gone = self._leavers(draft)
            async with self._drafting(draft):
                for plugin in catalogue.enabled():
                    if (work := self._difference(plugin, draft)) is not None:
                        await self._attempt(plugin.id, work, draft)
            await self._settle(draft, gone)
        may_run = [plugin.id for plugin in catalogue.enabled()]
        await self._see_off_former(draft, gone)
        may_not_run = sorted(could_run - {*may_run, *draft.failed})
        disabled = dict.fromkeys([*(each.id for each in gone), *may_not_run])
        return Reconfiguration(
            enabled=tuple(key for key in may_run if key not in could_run | {*draft.failed}),
            disabled=tuple(disabled),
            reloaded=tuple(draft.exchanges),
            applied=tuple(draft.applied),
            unchanged=tuple(draft.unchanged),
            failed={key: str(error) for key, error in draft.failed.items()},
        )

    def _keep_spoilt(self, draft: Draft) -> None:
        """Go on with active plugins whose new version on disk cannot be used at all."""
        for plugin_id, active in self._active.items():
            selection = draft.catalogue.selections.get(plugin_id)
            if selection is None or active.source.installed is None:
                continue
            if selection.state == "import-error" or selection.plugin.problem:
                error = PluginError(plugin_id, selection.reason, selection.remedy)
                self._note_failure(plugin_id, error, draft)

    def _leavers(self, draft: Draft) -> list[ActivePlugin]:
        """Return the active plugins that may not run any more, dependent ones first."""
        found = []
        for active in reversed(self._in_order()):
            selection = draft.catalogue.selections.get(active.id)
            if active.id in self._registered or (selection is not None and selection.enabled):
                continue
            try:
                refuse_in_use(active, self._loaded.settings)
            except PluginError as error:
                self._note_failure(active.id, error, draft)
            else:
                found.append(active)
        return found

    def _difference(
        self, plugin: InstalledPlugin, draft: Draft
    ) -> Coroutine[None, None, None] | None:
        """Return what is to be done for a plugin that may run, or ``None``."""
        active = self._active.get(plugin.id)
        if plugin.id in draft.failed:
            return None
        if active is None:
            is_triggered = self._is_triggered(plugin, draft.activation.loaded.settings)
            return self._start_in(plugin.id, draft) if is_triggered else None
        if active.source.installed is None:
            return None
        if _is_other_code(active.source.installed, plugin):
            return self._replace(plugin, active, draft)
        sections = draft.activation.sections(active.manifest)
        changed = [path for path, section in sections.items() if section != active.sections[path]]
        if not changed and draft.activation.terms(active.manifest) == active.terms:
            draft.unchanged.append(plugin.id)
            self._forget_failure(plugin.id)
            return None
        return self._change_settings(plugin, active, draft, changed)

    async def _attempt(
        self, plugin_id: str, work: Coroutine[None, None, None], draft: Draft
    ) -> None:
        """Do `work` for one of many: what fails is noted, and the rest goes on."""
        try:
            await work
        except (PluginError, ConfigError, HookError) as error:
            self._note_failure(plugin_id, error, draft)

    def _note_failure(self, plugin_id: str, error: NanobotError, draft: Draft) -> None:
        from loguru import logger

        draft.failed[plugin_id] = error
        logger.bind(plugin=plugin_id).warning("plugin '{}' not changed: {}", plugin_id, error)
        active = self._active.get(plugin_id)
        if active is None:
            return
        self._behind.add(plugin_id)
        state: State = "restart-required" if isinstance(error, RestartRequired) else "degraded"
        reason = f"it goes on as it was: {error}"
        self._troubled[plugin_id] = (state, reason, getattr(error, "remedy", "mend it"))
        if active.source.installed is not None:
            draft.catalogue.put(active.source.installed)

    async def _start_in(self, plugin_id: str, draft: Draft) -> None:
        try:
            await self._build(plugin_id, draft.activation, draft.catalogue, draft.started)
        finally:
            if self._tools_loaded:
                await self._offering.collect(draft.started.values())

    async def _change_settings(
        self, plugin: InstalledPlugin, active: ActivePlugin, draft: Draft, changed: Sequence[str]
    ) -> None:
        activation, manifest = draft.activation, active.manifest
        values = await asyncio.to_thread(activation.values, manifest)
        is_offered = activation.terms(manifest) == active.terms and not any(
            path.startswith(PROVIDERS) for path in changed
        )
        if is_offered and await active.change_settings(values, activation.sections(manifest)):
            draft.applied.append(plugin.id)
            self._forget_failure(plugin.id)
            return
        refuse_in_use(active, self._loaded.settings)
        draft.exchanges[plugin.id] = await renew(plugin, active, activation)

    async def _replace(self, plugin: InstalledPlugin, active: ActivePlugin, draft: Draft) -> None:
        """Start what is on disk beside the active plugin, once a child process could do with it."""
        refuse_in_use(active, self._loaded.settings)
        plugin = await _described(plugin, self._loaded.home / "cache")
        for needed in plugin.manifest.facts.requires if plugin.manifest else ():
            await self._start_in(needed, draft)
        if plugin.isolation is not None:
            # The code is in another process, and a new instance means a new process.
            draft.exchanges[plugin.id] = await renew(plugin, active, draft.activation)
        else:
            others = [each for each in self._active.values() if each is not active]
            exchange = await replace_code(plugin, active, draft.activation, others)
            draft.exchanges[plugin.id] = exchange
        draft.installed.append(plugin)

    async def _settle(self, draft: Draft, gone: Sequence[ActivePlugin]) -> None:
        """Make the draft the present generation; what says that it is not well goes back."""
        self._activation = draft.activation
        self.catalogue: Catalogue = draft.catalogue
        for plugin in draft.installed:
            self.catalogue.put(plugin)
        for plugin_id in draft.fresh:
            self._troubled.pop(plugin_id, None)
            self._behind.discard(plugin_id)
            self._failures.forget(plugin_id)
        changes: dict[str, ActivePlugin | None] = {**draft.fresh}
        self._commit(changes | dict.fromkeys(each.id for each in gone))
        for plugin_id, active in draft.fresh.items():
            health = await active.check_health()
            if health.ok:
                continue
            former = draft.exchanges[plugin_id].former if plugin_id in draft.exchanges else None
            self._commit({plugin_id: former})
            self._leave([draft.drop(plugin_id)], "reload", nothing_runs)
            reason = f"it is not well: {health.message}"
            if former is None:
                self._troubled[plugin_id] = ("import-error", reason, "see its documentation")
            self._note_failure(plugin_id, PluginError(plugin_id, reason), draft)
        for exchange in draft.exchanges.values():
            exchange.settle()

    async def _see_off_former(self, draft: Draft, gone: Sequence[ActivePlugin]) -> None:
        """Wait until what the draft replaced or withdrew is stopped."""
        former = [each.former for each in draft.exchanges.values() if each.former is not None]
        tasks: set[asyncio.Task[None]] = set()
        if gone:
            tasks.add(self._leave(gone, "disable", self.on_withdraw))
        if former:
            tasks.add(self._leave(former, "reload", self.on_withdraw))
        if tasks:
            await asyncio.wait(tasks)
        for active in gone:
            self._registered.discard(active.id)
            await self._forget_code(active.source.packages)

    async def _reload(self, plugin_id: str) -> Reconfiguration:
        plugin = await self._on_disk(plugin_id)
        active = self._active.get(plugin_id)
        if active is None:
            described = await _described(plugin, self._loaded.home / "cache")
            await self._forget_code(packages_of(plugin))
            self.catalogue.put(described)
            return await self._enable(plugin_id)
        async with self._changing:
            draft = Draft(self._activation, self.catalogue)
            async with self._drafting(draft):
                try:
                    await self._replace(plugin, active, draft)
                except (PluginError, ConfigError) as error:
                    self._note_failure(plugin_id, error, draft)
                    raise
            await self._settle(draft, ())
        await self._see_off_former(draft, ())
        _raise_failure(draft, plugin_id)
        return Reconfiguration(reloaded=tuple(draft.exchanges), enabled=tuple(draft.started))

    async def _on_disk(self, plugin_id: str) -> InstalledPlugin:
        if plugin_id in self._registered:
            raise PluginError(plugin_id, "it is a part of the program", "start that again")
        selection = self.catalogue.selections.get(plugin_id)
        if selection is None or selection.state != "import-error":
            _refuse_disabled(self.catalogue, plugin_id)
        cache = self._loaded.home / "cache"
        plugin = await asyncio.to_thread(self.catalogue.look_up, plugin_id, cache)
        if plugin is None:
            raise PluginNotFound(plugin_id, "it is not installed any more", "install it")
        if plugin.problem:
            raise PluginError(plugin_id, plugin.problem, f"reinstall {plugin.distribution}")
        return plugin

    async def _enable(self, plugin_id: str) -> Reconfiguration:
        if plugin_id in self._active:
            return Reconfiguration(unchanged=(plugin_id,))
        self.catalogue.switch((plugin_id,), on=True)
        self._troubled.pop(plugin_id, None)
        self._failures.forget(plugin_id)
        async with self._changing:
            draft = Draft(self._activation, self.catalogue)
            plugin = await self._runnable(plugin_id, self.catalogue)
            if self._is_triggered(plugin, self._loaded.settings):
                async with self._drafting(draft):
                    await self._start_in(plugin_id, draft)
            await self._settle(draft, ())
        _raise_failure(draft, plugin_id)
        return Reconfiguration(enabled=tuple(dict.fromkeys([*draft.started, plugin_id])))

    async def _disable(self, plugin_id: str, cascade: bool) -> Reconfiguration:
        if plugin_id not in self._registered:
            _refuse_disabled(self.catalogue, plugin_id)
        dependents = self.catalogue.dependents(plugin_id)
        if dependents and not cascade:
            needy = " and ".join(f"'{each}'" for each in dependents)
            raise PluginError(plugin_id, f"{needy} cannot do without it", "disable that as well")
        leaving = (*reversed(dependents), plugin_id)
        for each in leaving:
            if each in self._loaded.settings.plugins.required:
                raise PluginError(each, "plugins.required names it", "take it out there")
        async with self._changing:
            gone = [self._active[each] for each in leaving if each in self._active]
            for active in gone:
                refuse_in_use(active, self._loaded.settings)
            self.catalogue.switch(leaving, on=False)
            draft = Draft(self._activation, self.catalogue)
            await self._settle(draft, gone)
        await self._see_off_former(draft, gone)
        return Reconfiguration(disabled=leaving)


async def _described(plugin: InstalledPlugin, cache_dir: Path) -> InstalledPlugin:
    """Return a plugin that a child process could import, with its manifest."""
    if plugin.isolation is not None:
        return await asyncio.to_thread(describe_isolated, plugin, cache_dir)
    found = await asyncio.to_thread(examine_plugin, plugin.id, plugin.file)
    return plugin if plugin.manifest is not None else replace(plugin, manifest=found)


def _refuse_disabled(catalogue: Catalogue, plugin_id: str) -> None:
    selection = catalogue.selections.get(plugin_id)
    if selection is None:
        raise PluginNotFound(plugin_id, "it is not installed", "see nanobot plugins list")
    if not selection.enabled:
        raise PluginError(plugin_id, selection.reason, selection.remedy)


def _raise_failure(draft: Draft, plugin_id: str) -> None:
    if plugin_id in draft.failed:
        raise draft.failed[plugin_id]


def _is_other_code(before: InstalledPlugin, after: InstalledPlugin) -> bool:
    """Whether a plugin was upgraded, moved, or describes itself in other words."""
    return replace(before, summary="", direct=True, bundled=True) != replace(
        after, summary="", direct=True, bundled=True
    )
