"""Hooks that plugins declare for each other: who implements them, and how they are called."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from nanobot_core.contracts.context import Contributed
from nanobot_core.contracts.job import SystemJob, Trigger
from nanobot_core.errors import ConfigError, PluginError, PluginRejected
from nanobot_core.hooks.account import Circuit
from nanobot_core.hooks.caller import CALLERS, OwnCaller
from nanobot_core.hooks.compilation import in_order, of_hook
from nanobot_core.hooks.implementation import HookRuntime, Implementation
from nanobot_core.hooks.kinds import Kind
from nanobot_core.plugins.health import Conditions

if TYPE_CHECKING:
    from nanobot_core.hooks.markers import HookPoint
    from nanobot_core.plugins.active import ActivePlugin
    from nanobot_core.plugins.table import PluginTable

Activate = Callable[[str], Awaitable["ActivePlugin"]]


class OwnHooks:
    """Reads and calls the hooks that plugins declare.

    Args:
        table: the active plugins.
        activate: returns a plugin by id; starts it if it is not active.
        conditions: what is wrong with plugins.
        runtime: what calls need from the application.
    """

    def __init__(
        self,
        table: PluginTable,
        activate: Activate,
        conditions: Conditions,
        runtime: HookRuntime,
    ) -> None:
        self._table = table
        self._activate = activate
        self._conditions = conditions
        self._runtime = runtime

    async def contributed(self, point: HookPoint[..., Any]) -> Sequence[Contributed[Any]]:
        """Return what plugins contribute by a hook of another plugin; starts them if needed.

        A plugin that fails is reported and left out, and so is what has the name of something that
        another one contributes.
        """
        from loguru import logger

        found: dict[str, Contributed[Any]] = {}
        for plugin_id in self._implementers(point.name):
            try:
                values = await (await self._activate(plugin_id)).contribute_by(point)
            except (PluginError, ConfigError) as error:
                self._report_left_out(plugin_id, point, error)
                continue
            for number, value in enumerate(values):
                name = _name_of(value) or f"{plugin_id}/{number}"
                taken = found.setdefault(name, Contributed(plugin_id, value))
                if taken.value is not value and plugin_id not in self._conditions.by_id:
                    reason = f"its '{name}' is left out, because '{taken.plugin}' has one"
                    clash = PluginRejected(plugin_id, reason, "ask its author to rename it")
                    logger.warning("{}", clash)
                    self._conditions.note_degraded(plugin_id, clash)
        return list(found.values())

    async def call(self, owner: str, point: HookPoint[..., Any], event: object) -> Any:  # noqa: ANN401 - what the hook's type says
        """Call a hook that the active plugin `owner` declares; see `PluginContext.call`."""
        if owner not in self._table.active:
            raise PluginRejected(
                owner, f"it calls '{point.name}' before it is active", "call it after start"
            )
        caller = self._table.hooks.own.get(point.name)
        if caller is None or caller.point is not point:
            caller = await self._caller(point)
        with self._table.leases.joined():
            return await caller(event)

    async def _caller(self, point: HookPoint[..., Any]) -> OwnCaller:
        """Return the call point of the current generation, after starting who implements it."""
        refusing: list[Implementation] = []
        for plugin_id in list(self._implementers(point.name)):
            try:
                (await self._activate(plugin_id)).implementing(point)
            except (PluginError, ConfigError) as error:
                self._report_left_out(plugin_id, point, error)
                refusing.append(_refusing(plugin_id, point, str(error)))
        refusing += self._absent(point)
        found = [
            each
            for active in self._table.in_order()
            if all(active.id != out.plugin for out in refusing)
            for each in active.implementing(point)
        ]
        ordered = in_order(found, self._table.settings.plugins.order.get(point.name, ()))
        if point.kind is Kind.GATE:
            failures = self._table.settings.plugins.failures
            closed = [e for e in refusing if of_hook(failures, e.plugin, point.name) != "open"]
            ordered = [*closed, *ordered]
        # It ends with the generation, whose plugins it calls.
        hooks = self._table.hooks
        caller = hooks.watched(CALLERS[point.kind](point, ordered, self._runtime))
        hooks.own[point.name] = caller
        return caller

    def _implementers(self, hook: str) -> Iterator[str]:
        """Yield the plugins that may run and implement `hook`, in calling order."""
        for plugin in self._table.catalogue.enabled():
            if hook in plugin.gives.hooks:
                yield plugin.id
        for active in self._table.registered_active():
            if hook in active.manifest.hooks:
                yield active.id

    def _absent(self, point: HookPoint[..., Any]) -> Iterator[Implementation]:
        """Yield a refusal for each plugin that its owner wants and that cannot run."""
        catalogue = self._table.catalogue
        agreed = catalogue.consents.agreed
        for selection in (*catalogue.selections.values(), *catalogue.lost()):
            plugin, why = selection.plugin, selection.condition
            if not selection.wanted or selection.enabled:
                continue
            if point.name in plugin.gives.hooks or point.name in agreed.get(plugin.id, ()):
                yield _refusing(plugin.id, point, f"{why.reason}; {why.remedy}")

    def _report_left_out(
        self, plugin_id: str, point: HookPoint[..., Any], error: PluginError | ConfigError
    ) -> None:
        from loguru import logger

        logger.bind(plugin=plugin_id).warning("its '{}' is left out: {}", point.name, error)
        if isinstance(error, PluginRejected) and plugin_id in self._table.active:
            self._conditions.note_degraded(plugin_id, error)


def _refusing(plugin_id: str, point: HookPoint[..., Any], reason: str) -> Implementation:
    """Return an implementation of a gate for a plugin that does not run."""

    def refuse(_event: object) -> object:
        ways = f"{reason}; to do without it, run nanobot plugins disable {plugin_id}"
        sentence = f"plugin '{plugin_id}' implements '{point.name}' and does not run: {ways}"
        return point.refuse(plugin_id, sentence) if point.refuse else None

    return Implementation(
        plugin=plugin_id, hook=point.name, function=refuse, circuit=Circuit(lambda: math.inf)
    )


def _name_of(contribution: object) -> str:
    """Return what people call a job or a trigger, or an empty string."""
    if isinstance(contribution, SystemJob):
        return contribution.id
    return contribution.name if isinstance(contribution, Trigger) else ""
