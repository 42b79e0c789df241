"""What became of a change of the plugins while the program runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot_core.errors import NanobotError
    from nanobot_core.plugins.activation import Activation
    from nanobot_core.plugins.active import ActivePlugin
    from nanobot_core.plugins.catalogue import Catalogue
    from nanobot_core.plugins.exchange import Exchange
    from nanobot_core.plugins.index import InstalledPlugin


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
