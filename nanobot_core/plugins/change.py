"""A change of the plugins while the program runs: its plan, its steps and its result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from nanobot_core.errors import ConfigError, HookError, NanobotError, PluginError, PluginNotFound
from nanobot_core.plugins.active import PROVIDERS, ActivePlugin
from nanobot_core.plugins.catalogue import Catalogue, described
from nanobot_core.plugins.health import Condition
from nanobot_core.plugins.index import InstalledPlugin, working_copy_build
from nanobot_core.plugins.loader import (
    Exchange,
    RestartRequired,
    forget_modules,
    packages_of,
    refuse_in_use,
    replace_code,
    start_beside,
    why_not_exchangeable,
)
from nanobot_core.plugins.manifest import brings_tools, listens
from nanobot_core.plugins.table import PluginTable, Withdraw, nothing_runs

if TYPE_CHECKING:
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.plugins.active import Starter
    from nanobot_core.plugins.health import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfiguration:
    """The result of a change. Ids are in calling order, those of plugins that left in reverse.

    Attributes:
        enabled: may run now and could not before; started if something triggers them now.
        disabled: may not run any more; stopped if they were active.
        reloaded: a new instance replaced the previous one, which is stopped.
        applied: took new settings as they are.
        unchanged: active as before, with the same context.
        failed: by id, why a plugin is not as the configuration wants it; one that was active
            continues unchanged, and the gates of one that was not are closed.
    """

    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    reloaded: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def stopped(self) -> tuple[str, ...]:
        """Plugins whose channels and services were withdrawn."""
        return (*self.disabled, *self.reloaded)

    @property
    def started(self) -> tuple[str, ...]:
        """Plugins whose channels and services must be started."""
        return (*self.enabled, *self.reloaded)


@dataclass(slots=True)
class Plan:
    """A change under way, before anything of it is visible.

    Attributes:
        starter: makes plugins for the configuration that will be in force.
        catalogue: what may run then.
        started: plugins that were not active, by id.
        exchanges: instances that are to replace others, by id.
        installed: descriptions that are newer than those of the catalogue.
        applied: ids of those that took new settings.
        unchanged: ids of those that the change does not affect.
        failed: by id, what went wrong.
    """

    starter: Starter
    catalogue: Catalogue
    started: dict[str, ActivePlugin] = field(default_factory=dict)
    exchanges: dict[str, Exchange] = field(default_factory=dict)
    installed: list[InstalledPlugin] = field(default_factory=list)
    applied: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    failed: dict[str, NanobotError] = field(default_factory=dict)

    @property
    def fresh(self) -> dict[str, ActivePlugin]:
        """All new instances by id, required ones first."""
        return self.started | {key: each.fresh for key, each in self.exchanges.items()}

    def drop(self, plugin_id: str) -> ActivePlugin:
        """Continue without a new instance, which is returned; what it was to replace stays."""
        if plugin_id in self.started:
            return self.started.pop(plugin_id)
        exchange = self.exchanges.pop(plugin_id)
        exchange.undo()
        return exchange.fresh


Change: TypeAlias = "Callable[[], Coroutine[None, None, Reconfiguration]]"


class PluginChanges:
    """Changes the plugins while the program runs.

    Changes are made one after another. Each is one new generation: work in progress finishes on
    the one that it began with, and a plugin that leaves is stopped when nothing uses it any more.
    A change that has begun is completed even if its caller is cancelled.

    Args:
        table: the active plugins, and the configuration in force.
        make_starter: returns what makes plugins active with a configuration.
        withdraw: stops what a plugin runs in the gateway.

    Attributes:
        order: held by one change after another.
    """

    def __init__(
        self,
        table: PluginTable,
        make_starter: Callable[[LoadedConfig], Starter],
        withdraw: Withdraw,
    ) -> None:
        self.order: asyncio.Lock = asyncio.Lock()
        self._table = table
        self._conditions = table.conditions
        self._spawn = table.starter.facts.runtime.spawn
        self._make_starter = make_starter
        self._withdraw = withdraw

    async def reconfigure(self, loaded: LoadedConfig, catalogue: Catalogue) -> Reconfiguration:
        """Apply a newly loaded configuration.

        Args:
            loaded: the configuration.
            catalogue: what is installed now, selected by that configuration. It also decides on
                plugins that were only disabled with `disable`.

        Returns:
            The result. A plugin that fails continues as it was and is named there.

        Raises:
            PluginError: a plugin under ``plugins.required`` may not run; nothing is changed.
        """
        return await self._one_by_one(partial(self._reconfigure, loaded, catalogue), "reconfigure")

    async def reload(self, plugin_id: str) -> Reconfiguration:
        """Replace a plugin by what is on disk now; lifts a quarantine.

        Raises:
            RestartRequired: Python cannot exchange its code.
            PluginError: the new code fails in a child process, at its start or in its health
                check. The previous instance continues.
            ConfigError: its settings do not fit the new code; likewise.
        """
        return await self._one_by_one(partial(self._reload, plugin_id), f"reload:{plugin_id}")

    async def enable(self, plugin_id: str) -> Reconfiguration:
        """Undo `disable` or a quarantine; the plugin starts if something triggers it.

        Raises:
            PluginError: the configuration leaves it out, or its code fails.
            ConfigError: its settings are wrong.
        """
        return await self._one_by_one(partial(self._enable, plugin_id), f"enable:{plugin_id}")

    async def disable(self, plugin_id: str, *, cascade: bool = False) -> Reconfiguration:
        """Stop a plugin until it is enabled or the configuration is loaded again.

        Args:
            plugin_id: its id.
            cascade: stop those that require it as well.

        Raises:
            PluginError: it is required by the configuration or by another plugin, or something
                that it contributes cannot be replaced while the program runs.
        """
        work = partial(self._disable, plugin_id, cascade)
        return await self._one_by_one(work, f"disable:{plugin_id}")

    async def _one_by_one(self, work: Change, name: str) -> Reconfiguration:
        with self._table.leases.given_back():
            return await asyncio.shield(self._spawn(self._in_turn(work), name=name))

    async def _in_turn(self, work: Change) -> Reconfiguration:
        async with self.order:
            if self._table.leases.is_over:
                msg = "the plugin host has stopped"
                raise RuntimeError(msg)
            return await work()

    @asynccontextmanager
    async def _undone_on_failure(self, plan: Plan) -> AsyncIterator[None]:
        """Stop the plugins that a plan has started if the change fails."""
        try:
            yield
        except BaseException:
            for plugin_id in list(plan.fresh):
                await plan.drop(plugin_id).stop("reload")
            raise

    async def _reconfigure(self, loaded: LoadedConfig, catalogue: Catalogue) -> Reconfiguration:
        await asyncio.to_thread(catalogue.describe_all, loaded.home / "cache")
        catalogue.refuse_missing()
        for plugin_id in loaded.settings.plugins.required:
            catalogue.require(plugin_id)
        async with self._table.changing:
            plan = Plan(self._make_starter(loaded), catalogue)
            could_run = {plugin.id for plugin in self._table.catalogue.enabled()}
            self._keep_broken(plan)
            gone = self._leavers(plan)
            async with self._undone_on_failure(plan):
                for plugin in catalogue.enabled():
                    if plugin.id in plan.failed:
                        continue
                    try:
                        await self._update(plugin, plan)
                    except (PluginError, ConfigError, HookError) as error:
                        # One of many: the others continue.
                        self._note_failure(plugin.id, error, plan)
            await self._settle(plan, gone)
        may_run = [plugin.id for plugin in catalogue.enabled()]
        await self._wait_for_former(plan, gone)
        may_not_run = sorted(could_run - {*may_run, *plan.failed})
        disabled = dict.fromkeys([*(each.id for each in gone), *may_not_run])
        out = {
            key: f"{each.condition.reason}; {each.condition.remedy}"
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

    def _keep_broken(self, plan: Plan) -> None:
        """Keep active plugins whose new version on disk cannot be used at all."""
        for plugin_id, active in self._table.active.items():
            selection = plan.catalogue.selections.get(plugin_id)
            if selection is None or active.source.installed is None:
                continue
            found = selection.condition
            if found.state in {"failed", "unconfirmed"} or selection.plugin.problem:
                error = PluginError(plugin_id, found.reason, found.remedy)
                self._note_failure(plugin_id, error, plan)

    def _leavers(self, plan: Plan) -> list[ActivePlugin]:
        """Return the active plugins that may not run any more, dependent ones first."""
        found = []
        for active in reversed(self._table.in_order()):
            selection = plan.catalogue.selections.get(active.id)
            is_enabled = selection is not None and selection.enabled
            if active.id in self._table.registered or is_enabled:
                continue
            try:
                refuse_in_use(active, self._table.settings)
            except PluginError as error:
                self._note_failure(active.id, error, plan)
            else:
                found.append(active)
        return found

    async def _update(self, plugin: InstalledPlugin, plan: Plan) -> None:
        """Start, replace or reconfigure a plugin that may run, if that is needed."""
        active = self._table.active.get(plugin.id)
        if active is None:
            if _is_triggered(plugin, plan.starter, self._table):
                await self._start_in(plugin.id, plan)
            return
        installed, build = active.source.installed, active.source.build
        if installed is None:
            return
        if build != working_copy_build(plugin) or _is_other_code(installed, plugin):
            await self._replace(plugin, active, plan)
            return
        sections = plan.starter.sections(active.manifest)
        changed = [path for path, section in sections.items() if section != active.sections[path]]
        if changed or plan.starter.terms(active.manifest) != active.terms:
            await self._change_settings(plugin, active, plan, changed)
            return
        plan.unchanged.append(plugin.id)
        self._conditions.is_current(plugin.id)

    def _note_failure(self, plugin_id: str, error: NanobotError, plan: Plan) -> None:
        from loguru import logger

        plan.failed[plugin_id] = error
        logger.bind(plugin=plugin_id).warning("plugin '{}' not changed: {}", plugin_id, error)
        active = self._table.active.get(plugin_id)
        if active is None:
            return
        state: State = "restart-required" if isinstance(error, RestartRequired) else "degraded"
        reason = f"it continues as it was: {error}"
        remedy = error.remedy if isinstance(error, PluginError) else "fix it"
        self._conditions.note(plugin_id, Condition(state, reason, remedy, is_stale=True))
        if active.source.installed is not None:
            plan.catalogue.put(active.source.installed)

    async def _start_in(self, plugin_id: str, plan: Plan) -> None:
        try:
            await self._table.build(plugin_id, plan.starter, plan.catalogue, plan.started)
        finally:
            if self._table.tools_loaded:
                await self._table.offering.collect(plan.started.values())

    async def _change_settings(
        self,
        plugin: InstalledPlugin,
        active: ActivePlugin,
        plan: Plan,
        changed: Sequence[str],
    ) -> None:
        starter, manifest = plan.starter, active.manifest
        values = await asyncio.to_thread(starter.values, manifest)
        is_offered = starter.terms(manifest) == active.terms and not any(
            path.startswith(PROVIDERS) for path in changed
        )
        if is_offered and await active.change_settings(values, starter.sections(manifest)):
            plan.applied.append(plugin.id)
            self._conditions.is_current(plugin.id)
            return
        refuse_in_use(active, self._table.settings)
        plan.exchanges[plugin.id] = Exchange(await start_beside(plugin, starter), active)

    async def _replace(self, plugin: InstalledPlugin, active: ActivePlugin, plan: Plan) -> None:
        """Start what is on disk beside the active plugin, after a child process has imported it."""
        loaded = self._table.starter.loaded
        refuse_in_use(active, loaded.settings)
        plugin = await asyncio.to_thread(described, plugin, loaded.home / "cache", again=True)
        if obstacle := plan.catalogue.consents.obstacle_of(plugin):
            raise PluginError(plugin.id, obstacle.reason, obstacle.remedy)
        for needed in plugin.gives.requires:
            await self._start_in(needed, plan)
        if plugin.isolation is not None:
            # The code is in another process, and a new instance means a new process.
            plan.exchanges[plugin.id] = Exchange(await start_beside(plugin, plan.starter), active)
        else:
            others = [each for each in self._table.active.values() if each is not active]
            exchange = await replace_code(plugin, active, plan.starter, others)
            plan.exchanges[plugin.id] = exchange
        plan.installed.append(plugin)

    async def _settle(self, plan: Plan, gone: Sequence[ActivePlugin]) -> None:
        """Make the plan the current generation; undo it for plugins whose health check fails."""
        table, catalogue = self._table, plan.catalogue
        table.adopt(catalogue, plan.starter)
        for plugin in plan.installed:
            catalogue.put(plugin)
        for plugin_id in plan.fresh:
            self._conditions.forget(plugin_id)
        self._forget_disabled()
        await asyncio.to_thread(catalogue.remember, table.starter.loaded.home)
        changes: dict[str, ActivePlugin | None] = {**plan.fresh}
        table.commit(changes | dict.fromkeys(each.id for each in gone))
        for plugin_id, active in plan.fresh.items():
            health = await active.check_health()
            if health.ok:
                continue
            former = plan.exchanges[plugin_id].former if plugin_id in plan.exchanges else None
            reason = f"its health check failed: {health.message}"
            if former is None:
                remedy = "see its documentation"
                self._conditions.note(plugin_id, Condition("failed", reason, remedy))
            table.commit({plugin_id: former})
            table.leave([plan.drop(plugin_id)], "reload", nothing_runs)
            self._note_failure(plugin_id, PluginError(plugin_id, reason), plan)
        for exchange in plan.exchanges.values():
            exchange.settle()

    def _forget_disabled(self) -> None:
        """Forget what was wrong with plugins that their owner has disabled or removed."""
        for plugin_id in [*self._conditions.by_id]:
            selection = self._table.catalogue.selections.get(plugin_id)
            wanted = selection.wanted if selection else plugin_id in self._table.registered
            if not wanted:
                self._conditions.forget(plugin_id)

    async def _wait_for_former(self, plan: Plan, gone: Sequence[ActivePlugin]) -> None:
        """Wait until what the plan replaced or withdrew is stopped."""
        former = [each.former for each in plan.exchanges.values()]
        tasks: set[asyncio.Task[None]] = set()
        if gone:
            tasks.add(self._table.leave(gone, "disable", self._withdraw))
        if former:
            tasks.add(self._table.leave(former, "reload", self._withdraw))
        if tasks:
            await asyncio.wait(tasks)
        for active in gone:
            self._table.registered.discard(active.id)
            await self._forget_code(active.source.packages)

    async def _forget_code(self, packages: Collection[str]) -> None:
        """Forget the modules of a plugin that is not active, unless another plugin uses them."""
        active = self._table.active.values()
        others = frozenset[str]().union(*(each.source.packages for each in active))
        if not await asyncio.to_thread(why_not_exchangeable, packages, others):
            await asyncio.to_thread(forget_modules, packages)

    async def _reload(self, plugin_id: str) -> Reconfiguration:
        table = self._table
        plugin = await self._on_disk(plugin_id)
        active = table.active.get(plugin_id)
        if active is None:
            cache = table.starter.loaded.home / "cache"
            plugin = await asyncio.to_thread(described, plugin, cache, again=True)
            await self._forget_code(packages_of(plugin))
            table.catalogue.put(plugin)
            return await self._enable(plugin_id)
        async with table.changing:
            plan = Plan(table.starter, table.catalogue)
            async with self._undone_on_failure(plan):
                try:
                    await self._replace(plugin, active, plan)
                except (PluginError, ConfigError) as error:
                    self._note_failure(plugin_id, error, plan)
                    raise
            await self._settle(plan, ())
        await self._wait_for_former(plan, ())
        _raise_failure(plan, plugin_id)
        return Reconfiguration(reloaded=tuple(plan.exchanges), enabled=tuple(plan.started))

    async def _on_disk(self, plugin_id: str) -> InstalledPlugin:
        if plugin_id in self._table.registered:
            raise PluginError(plugin_id, "it is a part of the program", "restart the program")
        catalogue = self._table.catalogue
        selection = catalogue.selections.get(plugin_id)
        if selection is None or selection.condition.state != "failed":
            catalogue.require(plugin_id)
        cache = self._table.starter.loaded.home / "cache"
        plugin = await asyncio.to_thread(catalogue.look_up, plugin_id, cache)
        if plugin is None:
            raise PluginNotFound(plugin_id, "it is no longer installed", "install it again")
        if plugin.problem:
            raise PluginError(plugin_id, plugin.problem, f"reinstall {plugin.distribution}")
        return plugin

    async def _enable(self, plugin_id: str) -> Reconfiguration:
        table = self._table
        if plugin_id in table.active:
            return Reconfiguration(unchanged=(plugin_id,))
        table.catalogue.switch((plugin_id,), on=True)
        self._conditions.forget(plugin_id)
        async with table.changing:
            plan = Plan(table.starter, table.catalogue)
            plugin = await table.runnable(plugin_id, table.catalogue)
            if _is_triggered(plugin, table.starter, table):
                async with self._undone_on_failure(plan):
                    await self._start_in(plugin_id, plan)
            await self._settle(plan, ())
        _raise_failure(plan, plugin_id)
        return Reconfiguration(enabled=tuple(dict.fromkeys([*plan.started, plugin_id])))

    async def _disable(self, plugin_id: str, cascade: bool) -> Reconfiguration:
        table = self._table
        selection = table.catalogue.selections.get(plugin_id)
        # One that is broken can be disabled: until then it refuses what it would judge.
        if plugin_id not in table.registered and not (selection and selection.wanted):
            table.catalogue.require(plugin_id)
        dependents = table.catalogue.dependents(plugin_id)
        if dependents and not cascade:
            needy = " and ".join(f"'{each}'" for each in dependents)
            raise PluginError(plugin_id, f"{needy} requires it", "disable that as well")
        leaving = (*reversed(dependents), plugin_id)
        for each in leaving:
            if each in table.settings.plugins.required:
                raise PluginError(each, "plugins.required names it", "remove it there")
        async with table.changing:
            gone = [table.active[each] for each in leaving if each in table.active]
            for active in gone:
                refuse_in_use(active, table.settings)
            table.catalogue.switch(leaving, on=False)
            for each in leaving:
                self._conditions.forget(each)
            plan = Plan(table.starter, table.catalogue)
            await self._settle(plan, gone)
        await self._wait_for_former(plan, gone)
        return Reconfiguration(disabled=leaving)


def _is_triggered(plugin: InstalledPlugin, starter: Starter, table: PluginTable) -> bool:
    """Whether a plugin that may run must run now, and not when something asks for it."""
    settings = starter.loaded.settings
    return (
        plugin.id in settings.plugins.required
        or listens(plugin.gives, settings)
        or (table.tools_loaded and brings_tools(plugin.gives))
    )


def _raise_failure(plan: Plan, plugin_id: str) -> None:
    if plugin_id in plan.failed:
        raise plan.failed[plugin_id]


def _is_other_code(before: InstalledPlugin, after: InstalledPlugin) -> bool:
    """Whether a plugin was upgraded, moved, or describes itself in other words."""
    return replace(before, summary="", direct=True, bundled=True) != replace(
        after, summary="", direct=True, bundled=True
    )
