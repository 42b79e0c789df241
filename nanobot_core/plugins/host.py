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
from nanobot_core.plugins.change import (
    Plan,
    Reconfiguration,
    RestartRequired,
    refuse_in_use,
    renew,
    replace_code,
)
from nanobot_core.plugins.examine import examine_plugin
from nanobot_core.plugins.index import Condition
from nanobot_core.plugins.isolated import describe_isolated
from nanobot_core.plugins.loader import packages_of
from nanobot_core.plugins.roster import nothing_runs

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.plugins.catalogue import Catalogue
    from nanobot_core.plugins.index import InstalledPlugin, State


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
    async def _undone_on_failure(self, plan: Plan) -> AsyncIterator[None]:
        """Stop what a plan has started if it comes to nothing."""
        try:
            yield
        except BaseException:
            for plugin_id in list(plan.fresh):
                await plan.drop(plugin_id).stop("reload")
            raise

    async def _reconfigure(self, loaded: LoadedConfig, catalogue: Catalogue) -> Reconfiguration:
        await asyncio.to_thread(catalogue.examine_undescribed, loaded.home / "cache")
        refuse_missing(catalogue)
        for plugin_id in loaded.settings.plugins.required:
            _refuse_disabled(catalogue, plugin_id)
        async with self._changing:
            plan = Plan(self._activation_for(loaded), catalogue)
            could_run = {plugin.id for plugin in self.catalogue.enabled()}
            self._keep_spoilt(plan)
            gone = self._leavers(plan)
            async with self._undone_on_failure(plan):
                for plugin in catalogue.enabled():
                    if (work := self._difference(plugin, plan)) is not None:
                        await self._attempt(plugin.id, work, plan)
            await self._settle(plan, gone)
        may_run = [plugin.id for plugin in catalogue.enabled()]
        await self._see_off_former(plan, gone)
        may_not_run = sorted(could_run - {*may_run, *plan.failed})
        disabled = dict.fromkeys([*(each.id for each in gone), *may_not_run])
        out = {
            key: f"{each.reason}; {each.remedy}"
            for key, each in catalogue.selections.items()
            if each.wanted and not each.enabled
        }
        return Reconfiguration(
            enabled=tuple(key for key in may_run if key not in could_run | {*plan.failed}),
            disabled=tuple(disabled),
            reloaded=tuple(plan.exchanges),
            applied=tuple(plan.applied),
            unchanged=tuple(plan.unchanged),
            failed=out | {key: str(error) for key, error in plan.failed.items()},
        )

    def _keep_spoilt(self, plan: Plan) -> None:
        """Go on with active plugins whose new version on disk cannot be used at all."""
        for plugin_id, active in self._active.items():
            selection = plan.catalogue.selections.get(plugin_id)
            if selection is None or active.source.installed is None:
                continue
            if selection.state in {"import-error", "unconfirmed"} or selection.plugin.problem:
                error = PluginError(plugin_id, selection.reason, selection.remedy)
                self._note_failure(plugin_id, error, plan)

    def _leavers(self, plan: Plan) -> list[ActivePlugin]:
        """Return the active plugins that may not run any more, dependent ones first."""
        found = []
        for active in reversed(self._in_order()):
            selection = plan.catalogue.selections.get(active.id)
            if active.id in self._registered or (selection is not None and selection.enabled):
                continue
            try:
                refuse_in_use(active, self._loaded.settings)
            except PluginError as error:
                self._note_failure(active.id, error, plan)
            else:
                found.append(active)
        return found

    def _difference(
        self, plugin: InstalledPlugin, plan: Plan
    ) -> Coroutine[None, None, None] | None:
        """Return what is to be done for a plugin that may run, or ``None``."""
        active = self._active.get(plugin.id)
        if plugin.id in plan.failed:
            return None
        if active is None:
            is_triggered = self._is_triggered(plugin, plan.activation.loaded.settings)
            return self._start_in(plugin.id, plan) if is_triggered else None
        if active.source.installed is None:
            return None
        if _is_other_code(active.source.installed, plugin):
            return self._replace(plugin, active, plan)
        sections = plan.activation.sections(active.manifest)
        changed = [path for path, section in sections.items() if section != active.sections[path]]
        if not changed and plan.activation.terms(active.manifest) == active.terms:
            plan.unchanged.append(plugin.id)
            self._forget_failure(plugin.id)
            return None
        return self._change_settings(plugin, active, plan, changed)

    async def _attempt(self, plugin_id: str, work: Coroutine[None, None, None], plan: Plan) -> None:
        """Do `work` for one of many: what fails is noted, and the rest goes on."""
        try:
            await work
        except (PluginError, ConfigError, HookError) as error:
            self._note_failure(plugin_id, error, plan)

    def _note_failure(self, plugin_id: str, error: NanobotError, plan: Plan) -> None:
        from loguru import logger

        plan.failed[plugin_id] = error
        logger.bind(plugin=plugin_id).warning("plugin '{}' not changed: {}", plugin_id, error)
        active = self._active.get(plugin_id)
        if active is None:
            return
        self._behind.add(plugin_id)
        state: State = "restart-required" if isinstance(error, RestartRequired) else "degraded"
        reason = f"it goes on as it was: {error}"
        remedy = error.remedy if isinstance(error, PluginError) else "fix it"
        self._troubled[plugin_id] = Condition(state, reason, remedy)
        if active.source.installed is not None:
            plan.catalogue.put(active.source.installed)

    async def _start_in(self, plugin_id: str, plan: Plan) -> None:
        try:
            await self._build(plugin_id, plan.activation, plan.catalogue, plan.started)
        finally:
            if self._tools_loaded:
                await self._offering.collect(plan.started.values())

    async def _change_settings(
        self,
        plugin: InstalledPlugin,
        active: ActivePlugin,
        plan: Plan,
        changed: Sequence[str],
    ) -> None:
        activation, manifest = plan.activation, active.manifest
        values = await asyncio.to_thread(activation.values, manifest)
        is_offered = activation.terms(manifest) == active.terms and not any(
            path.startswith(PROVIDERS) for path in changed
        )
        if is_offered and await active.change_settings(values, activation.sections(manifest)):
            plan.applied.append(plugin.id)
            self._forget_failure(plugin.id)
            return
        refuse_in_use(active, self._loaded.settings)
        plan.exchanges[plugin.id] = await renew(plugin, active, activation)

    async def _replace(self, plugin: InstalledPlugin, active: ActivePlugin, plan: Plan) -> None:
        """Start what is on disk beside the active plugin, once a child process could do with it."""
        refuse_in_use(active, self._loaded.settings)
        plugin = await _described(plugin, self._loaded.home / "cache")
        if obstacle := plan.catalogue.consents.obstacle_of(plugin):
            raise PluginError(plugin.id, obstacle.reason, obstacle.remedy)
        for needed in plugin.manifest.facts.requires if plugin.manifest else ():
            await self._start_in(needed, plan)
        if plugin.isolation is not None:
            # The code is in another process, and a new instance means a new process.
            plan.exchanges[plugin.id] = await renew(plugin, active, plan.activation)
        else:
            others = [each for each in self._active.values() if each is not active]
            exchange = await replace_code(plugin, active, plan.activation, others)
            plan.exchanges[plugin.id] = exchange
        plan.installed.append(plugin)

    async def _settle(self, plan: Plan, gone: Sequence[ActivePlugin]) -> None:
        """Make the plan the present generation; what says that it is not well goes back."""
        self._activation = plan.activation
        self.catalogue: Catalogue = plan.catalogue
        for plugin in plan.installed:
            self.catalogue.put(plugin)
        for plugin_id in plan.fresh:
            self._forget_trouble(plugin_id)
        self._forget_disabled()
        await asyncio.to_thread(self.catalogue.remember, self._loaded.home)
        changes: dict[str, ActivePlugin | None] = {**plan.fresh}
        self._commit(changes | dict.fromkeys(each.id for each in gone))
        for plugin_id, active in plan.fresh.items():
            health = await active.check_health()
            if health.ok:
                continue
            former = plan.exchanges[plugin_id].former if plugin_id in plan.exchanges else None
            reason = f"it is not well: {health.message}"
            if former is None:
                remedy = "see its documentation"
                self._troubled[plugin_id] = Condition("import-error", reason, remedy)
            self._commit({plugin_id: former})
            self._leave([plan.drop(plugin_id)], "reload", nothing_runs)
            self._note_failure(plugin_id, PluginError(plugin_id, reason), plan)
        for exchange in plan.exchanges.values():
            exchange.settle()

    async def _see_off_former(self, plan: Plan, gone: Sequence[ActivePlugin]) -> None:
        """Wait until what the plan replaced or withdrew is stopped."""
        former = [each.former for each in plan.exchanges.values() if each.former is not None]
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
            plan = Plan(self._activation, self.catalogue)
            async with self._undone_on_failure(plan):
                try:
                    await self._replace(plugin, active, plan)
                except (PluginError, ConfigError) as error:
                    self._note_failure(plugin_id, error, plan)
                    raise
            await self._settle(plan, ())
        await self._see_off_former(plan, ())
        _raise_failure(plan, plugin_id)
        return Reconfiguration(reloaded=tuple(plan.exchanges), enabled=tuple(plan.started))

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
            plan = Plan(self._activation, self.catalogue)
            plugin = await self._runnable(plugin_id, self.catalogue)
            if self._is_triggered(plugin, self._loaded.settings):
                async with self._undone_on_failure(plan):
                    await self._start_in(plugin_id, plan)
            await self._settle(plan, ())
        _raise_failure(plan, plugin_id)
        return Reconfiguration(enabled=tuple(dict.fromkeys([*plan.started, plugin_id])))

    async def _disable(self, plugin_id: str, cascade: bool) -> Reconfiguration:
        selection = self.catalogue.selections.get(plugin_id)
        # One that is broken can be disabled: until then it refuses what it would judge.
        if plugin_id not in self._registered and not (selection and selection.wanted):
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
            for each in leaving:
                self._forget_trouble(each)
            plan = Plan(self._activation, self.catalogue)
            await self._settle(plan, gone)
        await self._see_off_former(plan, gone)
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


def _raise_failure(plan: Plan, plugin_id: str) -> None:
    if plugin_id in plan.failed:
        raise plan.failed[plugin_id]


def _is_other_code(before: InstalledPlugin, after: InstalledPlugin) -> bool:
    """Whether a plugin was upgraded, moved, or describes itself in other words."""
    return replace(before, summary="", direct=True, bundled=True) != replace(
        after, summary="", direct=True, bundled=True
    )
