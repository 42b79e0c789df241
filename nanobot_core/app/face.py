"""GatewayFace: the gateway as its plugins see it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from nanobot_core._version import __version__
from nanobot_core.channels.access import fault_of, with_names
from nanobot_core.contracts.service import GatewayStatus, Mount, Route
from nanobot_core.errors import BusError
from nanobot_core.ids import new_id
from nanobot_core.plugins.health import QUIET_STATES
from nanobot_core.plugins.loader import make_object

if TYPE_CHECKING:
    from datetime import datetime

    from pydantic import SecretStr

    from nanobot_core.app.application import Nanobot
    from nanobot_core.app.services import ServiceRunner
    from nanobot_core.channels.manager import ChannelManager
    from nanobot_core.contracts.bus import Bus
    from nanobot_core.contracts.service import AsgiApp
    from nanobot_core.messages import InboundMessage
    from nanobot_core.turns.dispatcher import Dispatcher


class GatewayFace:
    """What the gateway tells of itself and takes from plugins; see `GatewayAccess`.

    Attributes:
        ready: everything is started and messages are admitted.
        dispatcher: knows how many turns are under way; ``None`` before it is there.

    Args:
        bot: the agent.
        bus: the message queue.
        channels: the channels.
        services: the services.
        started_at: when the gateway was started.
    """

    def __init__(
        self,
        bot: Nanobot,
        bus: Bus,
        channels: ChannelManager,
        services: ServiceRunner,
        started_at: datetime,
    ) -> None:
        self.ready: bool = False
        self.dispatcher: Dispatcher | None = None
        self._bot = bot
        self._bus = bus
        self._channels = channels
        self._services = services
        self._started_at = started_at

    @property
    def address(self) -> tuple[str, int]:
        """Host and port for the HTTP server."""
        gateway = self._bot.loaded.settings.gateway
        return gateway.host, gateway.port

    @property
    def secret(self) -> SecretStr | None:
        """What callers of the HTTP server must know."""
        return self._bot.loaded.settings.gateway.secret

    def commands(self) -> Mapping[str, str]:
        """Return every slash command with its summary."""
        return self._bot.commands.names()

    async def status(self) -> GatewayStatus:
        """Return how the gateway is."""
        return GatewayStatus(
            version=__version__,
            pid=os.getpid(),
            started_at=self._started_at,
            ready=self.ready,
            running=(*self._channels.statuses(), *self._services.statuses()),
            depth=await self._bus.depth(),
            turns=self.dispatcher.turns if self.dispatcher else 0,
            plugins_in_trouble=tuple(
                (report.id, f"{report.state}: {report.reason}")
                for report in self._bot.plugins.reports()
                if report.state not in QUIET_STATES
            ),
        )

    def routes(self) -> Sequence[Route]:
        """Return what plugins mount, longest paths first."""
        found = [
            Route(
                plugin=plugin,
                mount=(mount := Mount(**declaration.detail)),
                load=partial(self._load, plugin, mount),
                instance=self._bot.plugins.active.replaced(plugin),
            )
            for plugin, declaration in self._bot.plugins.declared("routes")
        ]
        return sorted(found, key=lambda route: (-len(route.mount.path), route.mount.path))

    async def publish(self, message: InboundMessage) -> bool:
        """Store a message that comes from no channel."""
        if fault := fault_of(message):
            msg = f"a message for '{message.channel}' is not stored: {fault}"
            raise BusError(msg)
        message = replace(with_names(message), id=message.id or new_id())
        return await self._bus.publish_inbound(message)

    async def _load(self, plugin: str, mount: Mount) -> AsgiApp:
        context = await self._bot.plugins.context_for(plugin)
        return cast("AsgiApp", await make_object(plugin, mount.app, object, context))
