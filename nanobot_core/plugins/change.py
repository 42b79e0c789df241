"""A change of the plugins while the program runs: its plan, its steps and its result."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nanobot_core.config.models import Settings
from nanobot_core.errors import PluginError
from nanobot_core.plugins.activation import Activation
from nanobot_core.plugins.active import CONTRIBUTION_LIMIT_S, ActivePlugin
from nanobot_core.plugins.index import InstalledPlugin
from nanobot_core.plugins.loader import CodeExchange, requirements_of, why_not_exchangeable

if TYPE_CHECKING:
    from nanobot_core.errors import NanobotError
    from nanobot_core.plugins.active import ActivePlugin
    from nanobot_core.plugins.catalogue import Catalogue


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfiguration:
    """A change, as it turned out. Ids are in calling order, those that went in reverse.

    Attributes:
        enabled: may run now and could not before; started if something triggers them now.
        disabled: may not run any more; stopped if they were active.
        reloaded: a new instance took the place of the former one, which is stopped.
        applied: took new settings as they are.
        unchanged: active as before, with the same context.
        failed: by id, why a plugin is not as the configuration wants it; one that was active goes
            on as it was, and the gates of one that was not are closed.
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
        """Plugins whose channels and services are to be started."""
        return (*self.enabled, *self.reloaded)


@dataclass(slots=True)
class Plan:
    """A change under way, before anything of it is visible.

    Attributes:
        activation: makes plugins for the configuration that will be in force.
        catalogue: what may run then.
        started: plugins that were not active, by id.
        exchanges: instances that are to replace others, by id.
        installed: descriptions that are newer than those of the catalogue.
        applied: ids of those that took new settings.
        unchanged: ids of those that have nothing to do with it.
        failed: by id, what went wrong.
    """

    activation: Activation
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
        """Go on without a new instance, which is returned; what it was to replace stays."""
        if plugin_id in self.started:
            return self.started.pop(plugin_id)
        exchange = self.exchanges.pop(plugin_id)
        exchange.undo()
        return exchange.fresh


RESTART = "restart nanobot to get its new code"


@dataclass(frozen=True, slots=True)
class Exchange:
    """A started instance and what it is to replace.

    Attributes:
        fresh: the new instance, started.
        former: the instance that was active, or ``None``.
        code: the former modules, where the code was exchanged too.
    """

    fresh: ActivePlugin
    former: ActivePlugin | None = None
    code: CodeExchange | None = None

    def settle(self) -> None:
        """Go on with the new instance."""
        if self.former is not None and self.code is not None:
            self.former.successor = self.fresh
            self.former.loading.release()

    def undo(self) -> None:
        """Go on with the former instance."""
        if self.former is not None and self.code is not None:
            self.code.put_back()
            self.fresh.successor = self.former
            self.former.loading.release()


async def renew(plugin: InstalledPlugin, former: ActivePlugin, activation: Activation) -> Exchange:
    """Return a new instance of the code that is loaded; raises as `Activation.of_installed`."""
    return Exchange(await _started(plugin, activation), former)


async def replace_code(
    plugin: InstalledPlugin,
    former: ActivePlugin,
    activation: Activation,
    others: Collection[ActivePlugin],
) -> Exchange:
    """Return an instance of the code that is on disk; if it fails, all is as it was.

    Until it is settled or undone, no code of the former one's tools is loaded.

    Args:
        plugin: as it is installed now.
        former: the instance that is active.
        activation: makes the new one.
        others: the other active plugins.

    Raises:
        RestartRequired: Python cannot exchange its code.
        PluginError: as `Activation.of_installed`.
        ConfigError: likewise.
    """
    await asyncio.to_thread(_refuse_hopeless, plugin, former, others)
    if not await asyncio.to_thread(former.loading.acquire, timeout=2 * CONTRIBUTION_LIMIT_S):
        raise PluginError(plugin.id, "one of its tools is being loaded", "try again")
    code = CodeExchange(former.source.packages)
    try:
        await asyncio.to_thread(code.take_out)
        return Exchange(await _started(plugin, activation), former, code)
    except BaseException:
        code.put_back()
        former.loading.release()
        raise


class RestartRequired(PluginError):
    """New code of a plugin takes effect when the process is started again."""

    def __init__(self, plugin: str, reason: str) -> None:
        super().__init__(plugin, f"its code cannot be exchanged: {reason}", RESTART)


def refuse_in_use(active: ActivePlugin, settings: Settings) -> None:
    """Refuse to take away what is opened once for the whole program.

    Raises:
        RestartRequired: the settings in force name a store, memory or queue of this plugin.
    """
    names: dict[str, set[str | None]] = {
        "stores": {settings.agents.defaults.session_store, settings.gateway.bus},
        "memory": {settings.memory.backend},
    }
    for kind, chosen in names.items():
        for item in active.manifest.of_kind(kind):
            if item.name in chosen:
                raise RestartRequired(active.id, f"its {kind} '{item.name}' is in use")


async def _started(plugin: InstalledPlugin, activation: Activation) -> ActivePlugin:
    active = await activation.of_installed(plugin)
    try:
        await active.collect_tools()
    except BaseException:
        await active.stop("reload")
        raise
    return active


def _refuse_hopeless(
    plugin: InstalledPlugin, former: ActivePlugin, others: Collection[ActivePlugin]
) -> None:
    if requirements_of(plugin) != former.source.requirements:
        raise RestartRequired(plugin.id, "it requires other packages than before")
    packages = frozenset[str]().union(*(other.source.packages for other in others))
    if reason := why_not_exchangeable(former.source.packages, packages):
        raise RestartRequired(plugin.id, reason)
