"""The active plugins: how one starts and leaves, the generation they make up, and who uses it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from nanobot_core.errors import ConfigError, PluginError
from nanobot_core.hooks.account import Circuit
from nanobot_core.hooks.caller import Hooks
from nanobot_core.hooks.compilation import HookStats, join_hooks
from nanobot_core.hooks.implementation import HookRuntime, Implementation
from nanobot_core.plugins.active import ActivePlugin, Starter
from nanobot_core.plugins.consent import ClosedPlugin, closed_plugins
from nanobot_core.plugins.declared import UndeclaredHook
from nanobot_core.plugins.health import Condition, Conditions
from nanobot_core.plugins.index import InstalledPlugin
from nanobot_core.plugins.manifest import holds
from nanobot_core.plugins.tool_names import ToolOffering
from nanobot_core.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from nanobot_core.config.models import Settings
    from nanobot_core.contracts.plugin import StopCause
    from nanobot_core.plugins.catalogue import Catalogue

DRAIN_LIMIT_S = 60.0
"""Seconds that work in progress may continue with a plugin that leaves."""
QUEUE_LIMIT_S = 5.0
"""Seconds that a plugin that leaves has to receive its queued events."""
WITHDRAW_LIMIT_S = 30.0
"""Seconds that the gateway has to stop the channels and services of a plugin that leaves."""

Withdraw: TypeAlias = "Callable[[str], Awaitable[None]]"
"""Stops what a plugin, given by id, runs in the gateway."""

_current: ContextVar[object | None] = ContextVar("nanobot_lease", default=None)
"""The lease that the current work holds."""


async def nothing_runs(_plugin_id: str) -> None:
    """Stop nothing: outside a gateway, plugins run no channels or services."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Generation:
    """A snapshot of hooks and tools that belong together. Later changes do not affect it.

    Attributes:
        number: counts the changes of the host.
        hooks: the call points.
        tools: a registry of its own, with the tools of that moment.
        newest_tools: returns a registry with the tools that the same plugins have published
            since; the plugins themselves must not have been replaced.
    """

    number: int
    hooks: Hooks
    tools: ToolRegistry
    newest_tools: Callable[[], ToolRegistry]


class Leases:
    """Which work still uses which generation.

    Attributes:
        number: that of the current generation.
        is_over: the host stops, so nothing waits for a generation any longer.
    """

    def __init__(self) -> None:
        self.number: int = 0
        self.is_over: bool = False
        self._held: dict[object, int] = {}
        self._released = asyncio.Event()
        self._given_back: set[object | None] = set()

    @contextmanager
    def hold(self) -> Iterator[int]:
        """Use the current generation inside; yield its number."""
        number, lease = self.number, object()
        self._held[lease] = number
        token = _current.set(lease)
        try:
            yield number
        finally:
            _current.reset(token)
            del self._held[lease]
            self._wake()

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Use the generation that the current work uses inside, else the current one."""
        if _current.get() in self._held:
            yield
        else:
            with self.hold():
                yield

    @contextmanager
    def given_back(self) -> Iterator[None]:
        """Do not count the caller's own work inside: it waits for a change of the plugins.

        Otherwise a command that reloads a plugin would wait for itself, and two such commands for
        each other.
        """
        lease = _current.get()
        self._given_back.add(lease)
        self._wake()
        try:
            yield
        finally:
            self._given_back.discard(lease)

    async def released(self, number: int, limit_s: float) -> bool:
        """Wait until nothing uses generation `number` or an older one.

        Older ones count, because work that began long ago may have asked for a plugin since.

        Returns:
            False if that takes longer than `limit_s` seconds.
        """
        try:
            async with asyncio.timeout(limit_s):
                while not self.is_over and self._is_held(number):
                    await self._released.wait()
        except TimeoutError:
            return False
        return True

    def _is_held(self, number: int) -> bool:
        counted = (held for lease, held in self._held.items() if lease not in self._given_back)
        return any(held <= number for held in counted)

    def begin(self) -> None:
        """Let changes wait for work in progress: the host starts."""
        self.is_over = False

    def end(self) -> None:
        """End all waiting: the host stops."""
        self.is_over = True
        self._wake()

    def _wake(self) -> None:
        self._released.set()
        self._released = asyncio.Event()


class PluginTable:
    """The active plugins by id, with their hooks and tools.

    Args:
        catalogue: what is installed and may run.
        starter: makes plugins active with the configuration in force.
        offering: puts the tools of active plugins into the registry.
        conditions: what is wrong with plugins.

    Attributes:
        catalogue: what is installed and may run.
        starter: makes plugins active with the configuration in force.
        active: the active plugins by id.
        registered: ids of plugins that the program registered.
        hook_stats: accounts and circuits by plugin id, also of plugins that have left.
        hooks: the call points of the current generation.
        offering: puts the tools of active plugins into the registry.
        tools_loaded: whether the plugins that contribute tools have been started.
        leases: which work uses which generation.
        changing: held while the set of active plugins is put together.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        starter: Starter,
        offering: ToolOffering,
        conditions: Conditions,
    ) -> None:
        self.catalogue: Catalogue = catalogue
        self.starter: Starter = starter
        self.active: dict[str, ActivePlugin] = {}
        self.registered: set[str] = set()
        self.hook_stats: dict[str, HookStats] = {}
        self.offering = offering
        self.conditions = conditions
        self.tools_loaded: bool = False
        self.leases: Leases = Leases()
        self.changing: asyncio.Lock = asyncio.Lock()
        self._runtime: HookRuntime = starter.facts.runtime
        self.hooks: Hooks = Hooks(self._runtime)
        self._closed: dict[str, ClosedPlugin] = {}
        self._replaced: Counter[str] = Counter()
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.starter.loaded.settings

    def adopt(self, catalogue: Catalogue, starter: Starter) -> None:
        """Use another configuration from now on."""
        self.catalogue = catalogue
        self.starter = starter

    def replaced(self, plugin_id: str) -> int:
        """Return how often an instance of the plugin has left since the start."""
        return self._replaced[plugin_id]

    def labels(self) -> tuple[str, ...]:
        """Return the active plugins as ``id@version``."""
        return tuple(
            f"{item.id}@{item.registrant.version}" if item.registrant.version else item.id
            for item in self.active.values()
        )

    def in_order(self) -> list[ActivePlugin]:
        """Return the active plugins in calling order."""
        rank = {plugin.id: index for index, plugin in enumerate(self.catalogue.enabled())}
        return sorted(self.active.values(), key=lambda item: rank.get(item.id, len(rank)))

    def registered_active(self) -> list[ActivePlugin]:
        """Return the active plugins that the program registered, by id."""
        return [self.active[key] for key in sorted(self.registered & set(self.active))]

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
        if plugin_id in fresh or plugin_id in self.active:
            return
        plugin = await self.runnable(plugin_id, catalogue)
        try:
            for needed in plugin.gives.requires:
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
            await asyncio.to_thread(catalogue.describe_all, self.starter.loaded.home / "cache")
        plugin = catalogue.require(plugin_id)
        condition = self.conditions.by_id.get(plugin_id)
        if condition is not None and condition.state == "quarantined":
            raise PluginError(plugin_id, condition.reason, condition.remedy)
        return plugin

    async def take_in(self, fresh: Mapping[str, ActivePlugin]) -> None:
        """Make started plugins part of the host, and close the gates of those that failed."""
        for plugin_id in fresh:
            self.conditions.by_id.pop(plugin_id, None)
        if self.tools_loaded:
            await self.offering.collect(fresh.values())
        if fresh or self.closed_plugins() != self._closed:
            self.commit(fresh)

    def commit(self, changes: Mapping[str, ActivePlugin | None]) -> None:
        """Make the next generation the current one; nothing is awaited in between.

        Args:
            changes: by id, the plugin that is active from now on, or ``None`` for one that
                leaves. Their tools were collected.
        """
        from loguru import logger

        self._replaced.update(changes.keys() & self.active.keys())
        for plugin_id, active in changes.items():
            if active is None:
                self.active.pop(plugin_id, None)
            else:
                self.active[plugin_id] = active
                self.hook_stats[plugin_id] = active.stats
        closed = self.closed_plugins()
        for plugin_id, plugin in closed.items():
            if plugin_id not in self._closed:
                logger.bind(plugin=plugin_id).error("{}", plugin.sentence)
        self._closed = closed
        ordered = self.in_order()
        self.hooks = self._joined(ordered)
        if self.tools_loaded:
            self.offering.offer(ordered, self.settings.tools.aliases)
        self.leases.number += 1

    def closed_plugins(self) -> dict[str, ClosedPlugin]:
        """Return by id the plugins that refuse what they would judge, because they do not run."""
        return closed_plugins(self.catalogue, self.conditions.by_id, self.active, self.settings)

    def _joined(self, ordered: Sequence[ActivePlugin]) -> Hooks:
        settings = self.settings
        built = join_hooks(
            [item.compiled for item in ordered],
            self._runtime,
            order=settings.plugins.order,
            queues=self.hooks.queues,
        )
        if any(item.manifest.when for item in ordered):
            used = {
                name: [each for each in found if holds(each.options.when, settings)]
                for name, found in built.implementations.items()
            }
            built = Hooks(self._runtime, used, self.hooks.queues)
        refusing: dict[str, list[Implementation]] = {}
        for plugin in self._closed.values():
            for hook, implementation in plugin.implementations():
                refusing.setdefault(hook, []).append(implementation)
        return built.extended(refusing) if refusing else built

    @contextmanager
    def snapshot(self) -> Iterator[Generation]:
        """Use the current generation inside; a plugin that leaves meanwhile is stopped later."""
        with self.leases.hold() as number:
            tools, replaced = self._copy_tools(), self._replaced.total()
            plugins = frozenset(self.active)

            def newest_tools() -> ToolRegistry:
                # Tools of a plugin that came or was replaced belong with hooks, such as those that
                # judge its calls, which this work does not use.
                if self._replaced.total() != replaced or (newest := self._copy_tools()) is tools:
                    return tools
                known = plugins | {entry.plugin for entry in tools}
                names = [entry.definition.name for entry in newest if entry.plugin in known]
                return newest if len(names) == len(newest) else newest.narrowed(names)

            yield Generation(number, self.hooks, tools, newest_tools)

    def _copy_tools(self) -> ToolRegistry:
        """Return a copy of the registry, the same one until a tool comes or goes."""
        registry = self.offering.registry
        return registry.narrowed(registry.names())

    def leave(
        self, plugins: Sequence[ActivePlugin], reason: StopCause, withdraw: Withdraw
    ) -> asyncio.Task[None]:
        """Stop plugins that the current generation no longer contains, in the given order.

        Args:
            plugins: those that leave.
            reason: passed to their ``stop``.
            withdraw: stops what they run in the gateway.

        Returns:
            The task that does it. It continues if the caller is cancelled.
        """
        names = ",".join(active.id for active in plugins)
        work = self._stop_after_use(plugins, reason, withdraw, self.leases.number - 1)
        task = self._runtime.spawn(work, name=f"{reason}:{names}")
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return task

    async def all_left(self) -> None:
        """Wait until every plugin that leaves is stopped."""
        if self._leaving:
            await asyncio.wait(set(self._leaving))

    async def _stop_after_use(
        self,
        plugins: Sequence[ActivePlugin],
        reason: StopCause,
        withdraw: Withdraw,
        last_used: int,
    ) -> None:
        from loguru import logger

        if not await self.leases.released(last_used, DRAIN_LIMIT_S):
            ids = ", ".join(active.id for active in plugins)
            logger.warning("stopping {} although work in progress still uses it", ids)
        for active in plugins:
            await self._deliver_queued(active)
            try:
                async with asyncio.timeout(WITHDRAW_LIMIT_S):
                    await withdraw(active.id)
            except Exception as error:  # noqa: BLE001 - isolation point: it must be stopped anyway
                logger.opt(exception=error).warning(
                    "the channels and services of plugin '{}' did not stop", active.id
                )
            await active.stop(reason)

    async def _deliver_queued(self, active: ActivePlugin) -> None:
        """Wait until a plugin has received its queued events; a queue keeps their order."""
        delivered = asyncio.Event()
        marker = Implementation(
            plugin=active.id,
            hook="stop",
            function=lambda _event: delivered.set(),
            circuit=Circuit(self._runtime.clock.monotonic_s),
        )
        self.hooks.queues.put(marker, None)
        try:
            async with asyncio.timeout(QUEUE_LIMIT_S):
                await delivered.wait()
        except TimeoutError:
            from loguru import logger

            logger.warning("plugin '{}' is stopped before it received all its events", active.id)


def _whose(error: PluginError, plugin_id: str) -> str:
    """Return the reason of a failure, which may be that of a required plugin."""
    if error.plugin == plugin_id:
        return error.reason
    return f"it requires plugin '{error.plugin}', which cannot run: {error.reason}"
