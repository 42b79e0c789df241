"""Roster: which plugins are active, the generation that they make up, and how one leaves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from nanobot_core.config.environment import environment
from nanobot_core.hooks.account import FAILURES_TO_OPEN, Circuit
from nanobot_core.hooks.caller import GATES, Hooks
from nanobot_core.hooks.generation import Ledger, join_hooks
from nanobot_core.hooks.implementation import HookRuntime, Implementation
from nanobot_core.media import MediaStore
from nanobot_core.net.policy import NetworkPolicy
from nanobot_core.plugins.activation import Activation
from nanobot_core.plugins.active import ActivePlugin
from nanobot_core.plugins.context import HostFacts
from nanobot_core.plugins.gates import ClosedPlugin, closed_plugins
from nanobot_core.plugins.generation import Leases
from nanobot_core.plugins.health import (
    RELOAD,
    FailureLog,
    LoopBlock,
    LoopWatch,
    PluginReport,
    Reporter,
    code_place,
    condition_of,
    figures_of,
)
from nanobot_core.plugins.index import Condition
from nanobot_core.plugins.loader import CodeExchange, why_not_exchangeable
from nanobot_core.plugins.manifest import Declaration, brings_tools, holds, listens
from nanobot_core.plugins.tool_names import NameClash, ToolOffering
from nanobot_core.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from nanobot_core.clock import Clock
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.config.models import Settings
    from nanobot_core.contracts.plugin import StopCause
    from nanobot_core.contracts.service import GatewayAccess
    from nanobot_core.contracts.tool import LazyTool, Tool
    from nanobot_core.errors import PluginError
    from nanobot_core.plugins.catalogue import Catalogue
    from nanobot_core.plugins.index import InstalledPlugin
    from nanobot_core.tasks import Spawn

DRAIN_LIMIT_S = 60.0
"""Seconds that work in progress may go on with a plugin that leaves."""
QUEUE_LIMIT_S = 5.0
"""Seconds that a plugin that leaves has to hear what it was not told yet."""
WITHDRAW_LIMIT_S = 30.0
"""Seconds that the gateway has to stop what a plugin that leaves runs in it."""


Withdraw: TypeAlias = "Callable[[str], Awaitable[None]]"


async def nothing_runs(_plugin_id: str) -> None:
    """Stop nothing: a program that is no gateway runs nothing of a plugin."""


class Roster:
    """The active plugins of one application and what they offer.

    Args:
        catalogue: what is installed and may run.
        loaded: the configuration in force.
        spawn: starts tasks that the application owns.
        clock: source of time.
        environ: environment variables; ``None`` means those of the process.

    Attributes:
        hooks: the present call points.
        tools: the tools of active plugins and of the program itself.
        catalogue: what is installed and may run.
        on_withdraw: awaited with the id of a plugin that leaves, after the last work that uses it
            and before its ``stop``; the gateway stops its channels and services there. Not called
            when the whole host stops.
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
        self.tools: ToolRegistry = ToolRegistry(
            lambda name: self.catalogue.describe_missing_tool(name)  # noqa: PLW0108 - it changes
        )
        self.on_withdraw: Withdraw = nothing_runs
        self._failures = FailureLog(clock.monotonic_s, self._quarantine)
        self._runtime = HookRuntime(spawn=spawn, report=self._failures.report, clock=clock)
        self._environ = environ
        self._gateway: GatewayAccess | None = None
        self._activation = self._activation_for(loaded)
        self._offering = ToolOffering(self.tools, self._note_degraded)
        self._active: dict[str, ActivePlugin] = {}
        self._ledgers: dict[str, Ledger] = {}
        self._registered: set[str] = set()
        self._troubled: dict[str, Condition] = {}
        self._closed: dict[str, ClosedPlugin] = {}
        self._behind: set[str] = set()
        self._replaced: Counter[str] = Counter()
        self._tools_loaded = False
        self._copied_tools: tuple[object, ToolRegistry] = (None, self.tools)
        self._leases = Leases()
        self._order = asyncio.Lock()
        """Held by one change of the running host after another."""
        self._changing = asyncio.Lock()
        """Held while the set of active plugins is put together."""
        self._loading_tools = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()
        self.hooks: Hooks = Hooks(self._runtime)

    def lend_gateway(self, gateway: GatewayAccess) -> None:
        """Let plugins use the gateway that they run in; called before any is started."""
        self._gateway = gateway
        self._activation.facts.gateway = gateway

    @property
    def clashes(self) -> tuple[NameClash, ...]:
        """Tool names that several plugins claim."""
        return self._offering.clashes

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
        figures = {key: figures_of(ledger, key) for key, ledger in self._ledgers.items()}
        active = {key: condition_of(key, figures.get(key, ())) for key in self._active}
        effects = {key: closed.effect for key, closed in self._closed_plugins().items()}
        report = Reporter(active | self._troubled, figures, effects)
        return [
            *(report.of_installed(each) for _, each in sorted(self.catalogue.selections.items())),
            *map(report.of_registered, sorted(self._registered)),
            *map(report.of_missing, self.catalogue.missing),
        ]

    def replaced(self, plugin_id: str) -> int:
        """Return how often an instance of the plugin has left since the start."""
        return self._replaced[plugin_id]

    def active_labels(self) -> tuple[str, ...]:
        """Return the active plugins as ``id@version``."""
        return tuple(
            f"{item.id}@{item.registrant.version}" if item.registrant.version else item.id
            for item in self._active.values()
        )

    @property
    def _loaded(self) -> LoadedConfig:
        return self._activation.loaded

    def _activation_for(self, loaded: LoadedConfig) -> Activation:
        facts = HostFacts(
            runtime=self._runtime,
            home=loaded.home,
            workspace=loaded.workspace,
            restrict_to_workspace=loaded.settings.tools.restrict_to_workspace,
            protected_paths=loaded.protected_paths,
            media=MediaStore(loaded.home / "media"),
            network=NetworkPolicy(tuple(loaded.settings.tools.ssrf_whitelist)),
            environment=lambda names: environment(names, self._environ),
        )
        facts.gateway = self._gateway
        return Activation(
            loaded=loaded, facts=facts, publish=self._publish, opened=self._circuit_opened
        )

    def _commit(self, changes: Mapping[str, ActivePlugin | None]) -> None:
        """Make the next generation the present one; nothing is awaited in between.

        Args:
            changes: by id, the plugin that is active from now on, or ``None``; the tools of each
                were collected.
        """
        self._replaced.update(changes.keys() & self._active.keys())
        for plugin_id, active in changes.items():
            if active is None:
                self._active.pop(plugin_id, None)
            else:
                self._active[plugin_id] = active
                self._ledgers[plugin_id] = active.ledger
        ordered = self._in_order()
        self._note_closed(self._closed_plugins())
        self.hooks = self._joined(ordered)
        if self._tools_loaded:
            self._offering.offer(ordered, self._loaded.settings.tools.aliases)
        self._leases.number += 1

    def _in_order(self) -> list[ActivePlugin]:
        rank = {plugin.id: index for index, plugin in enumerate(self.catalogue.enabled())}
        return sorted(self._active.values(), key=lambda item: rank.get(item.id, len(rank)))

    def _joined(self, ordered: Sequence[ActivePlugin]) -> Hooks:
        built = join_hooks(
            [item.compiled for item in ordered],
            self._runtime,
            order=self._loaded.settings.plugins.order,
            queues=self.hooks.queues,
        )
        if any(item.manifest.when for item in ordered):
            settings = self._loaded.settings
            used = {
                name: [each for each in found if holds(each.options.when, settings)]
                for name, found in built.implementations.items()
            }
            built = Hooks(self._runtime, used, self.hooks.queues)
        closed: dict[str, list[Implementation]] = {}
        for plugin in self._closed.values():
            for hook, implementation in plugin.implementations():
                closed.setdefault(hook, []).append(implementation)
        return built.extended(closed) if closed else built

    def _closed_plugins(self) -> dict[str, ClosedPlugin]:
        """Return the plugins that refuse what they would judge, since they do not run."""
        return closed_plugins(self.catalogue, self._troubled, self._active, self._loaded.settings)

    def _note_closed(self, closed: dict[str, ClosedPlugin]) -> None:
        from loguru import logger

        for plugin_id, plugin in closed.items():
            if plugin_id not in self._closed:
                logger.bind(plugin=plugin_id).error("{}", plugin.sentence)
        self._closed = closed

    async def _take_in(self, fresh: Mapping[str, ActivePlugin]) -> None:
        """Make started plugins part of the host."""
        for plugin_id in fresh:
            self._troubled.pop(plugin_id, None)
        if self._tools_loaded:
            await self._offering.collect(fresh.values())
        self._commit(fresh)

    def _is_triggered(self, plugin: InstalledPlugin, settings: Settings) -> bool:
        """Whether a plugin that may run must run now, and not when something asks for it."""
        if plugin.manifest is None:
            return False
        return (
            plugin.id in settings.plugins.required
            or listens(plugin.manifest, settings)
            or (self._tools_loaded and brings_tools(plugin.manifest))
        )

    def _leave(
        self, plugins: Sequence[ActivePlugin], reason: StopCause, withdraw: Withdraw
    ) -> asyncio.Task[None]:
        """Stop plugins that are not in the present generation any more, in the given order.

        Returns:
            The task that does it. Whoever waits for it may be cancelled; it goes on.
        """
        names = ",".join(active.id for active in plugins)
        work = self._see_off(plugins, reason, withdraw, self._leases.number - 1)
        task = self._runtime.spawn(work, name=f"{reason}:{names}")
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return task

    async def _see_off(
        self,
        plugins: Sequence[ActivePlugin],
        reason: StopCause,
        withdraw: Withdraw,
        last_used: int,
    ) -> None:
        from loguru import logger

        if not await self._leases.released(last_used, DRAIN_LIMIT_S):
            ids = ", ".join(active.id for active in plugins)
            logger.warning("work still goes on that uses {}, which is stopped now", ids)
        for active in plugins:
            await self._tell_rest(active)
            try:
                async with asyncio.timeout(WITHDRAW_LIMIT_S):
                    await withdraw(active.id)
            except Exception as error:  # noqa: BLE001 - isolation point: it must be stopped anyway
                logger.opt(exception=error).warning(
                    "what plugin '{}' runs in the gateway did not stop", active.id
                )
            await active.stop(reason)

    async def _forget_code(self, packages: Collection[str]) -> None:
        """Forget the modules of a plugin that is not active, unless somebody else uses them."""
        others = frozenset[str]().union(*(each.source.packages for each in self._active.values()))
        if not await asyncio.to_thread(why_not_exchangeable, packages, others):
            await asyncio.to_thread(CodeExchange(packages).take_out)

    async def _tell_rest(self, active: ActivePlugin) -> None:
        """Wait until a plugin has heard of all that was queued for it: order is kept in a queue."""
        told = asyncio.Event()
        marker = Implementation(
            plugin=active.id,
            hook="stop",
            function=lambda _event: told.set(),
            circuit=Circuit(self._runtime.clock.monotonic_s),
        )
        self.hooks.queues.put(marker, None)
        try:
            async with asyncio.timeout(QUEUE_LIMIT_S):
                await told.wait()
        except TimeoutError:
            from loguru import logger

            logger.warning("plugin '{}' is stopped before it heard all", active.id)

    def _publish(self, active: ActivePlugin, tools: Sequence[Tool | LazyTool]) -> None:
        """Take the tools that a plugin publishes; those of its ``start`` come with the others."""
        if self._tools_loaded and self._active.get(active.id) is active:
            self._offering.publish(active, tools)
        else:
            self._offering.keep(active, tools)

    def _note_degraded(self, plugin_id: str, error: PluginError) -> None:
        self._troubled[plugin_id] = Condition("degraded", error.reason, error.remedy)

    def _forget_failure(self, plugin_id: str) -> None:
        """Forget that the last change of a plugin failed: it is as it should be."""
        if plugin_id in self._behind:
            self._behind.discard(plugin_id)
            self._troubled.pop(plugin_id, None)

    def _note_block(self, block: LoopBlock) -> None:
        if block.plugin not in self._active:
            return
        self._troubled[block.plugin] = Condition("degraded", block.reason, block.remedy)
        if not block.is_long or self._failures.count_block(block) % FAILURES_TO_OPEN:
            return
        ledger = self._ledgers[block.plugin]
        if (block.plugin, block.hook) not in ledger.accounts:
            # A tool or a task of its own has no circuit; the plugin's record counts all the same.
            self._circuit_opened(ledger, block.plugin)
            return
        account, circuit = ledger.accounts[block.plugin, block.hook]
        account.last_error = block.reason
        circuit.failures = max(circuit.failures, FAILURES_TO_OPEN)
        circuit.failed()

    def _circuit_opened(self, ledger: Ledger, plugin_id: str) -> None:
        # What still runs of a former instance says nothing about the one that took its place.
        if self._ledgers.get(plugin_id) is ledger:
            self._failures.circuit_opened(plugin_id)

    def _quarantine(self, plugin_id: str) -> None:
        """Leave a plugin out until its owner wants it back."""
        active = self._active.get(plugin_id)
        if active is None:
            return
        failed = [each for each in figures_of(active.ledger, plugin_id) if each.last_error]
        last = ", ".join(f"{each.hook}: {each.last_error}" for each in failed)
        reason = f"it failed again and again ({last})"
        remedy = f"fix it, then {RELOAD.format(plugin_id)}"
        if plugin_id in self._registered:
            remedy = "fix it, then register it again"
        gates = GATES & set(active.compiled)
        self._troubled[plugin_id] = Condition("quarantined", reason, remedy, gates)
        self._commit({plugin_id: None})
        # Within a turn that still uses it: unlike one that asks for a change, that turn counts.
        with self._leases.nobody():
            self._leave([active], "quarantine", self.on_withdraw)
