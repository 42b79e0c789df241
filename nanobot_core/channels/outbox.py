"""Outbox: every durable message to a chat goes through here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from nanobot_core.errors import HookError
from nanobot_core.events import MessageComposed

if TYPE_CHECKING:
    from nanobot_core.contracts.bus import Bus
    from nanobot_core.hooks.caller import Hooks
    from nanobot_core.messages import OutboundMessage


class Outbox:
    """Takes messages to chats.

    Args:
        bus: where they are stored until they are delivered.
        hooks: the present call points.
        redact: removes secrets from a text.
    """

    def __init__(
        self,
        bus: Bus,
        hooks: Callable[[], Hooks],
        redact: Callable[[str], str] = str,
    ) -> None:
        self._bus = bus
        self._hooks = hooks
        self._redact = redact

    async def compose(self, message: OutboundMessage) -> OutboundMessage | None:
        """Return `message` as plugins change it, or ``None`` if there is nothing to send."""
        hooks = self._hooks()
        if hooks.rewrite_outbound:
            try:
                changed = await hooks.rewrite_outbound(MessageComposed(message=message))
            except HookError as error:
                from loguru import logger

                logger.error("a message to {} is withheld: {}", message.channel, error)
                return None
            # After a crash the key identifies the message, whatever its text.
            message = replace(changed, idempotency_key=message.idempotency_key)
        message = replace(message, content=self._redact(message.content))
        return message if message.content or message.media else None

    async def publish(self, message: OutboundMessage) -> None:
        """Store a message for delivery.

        Raises:
            BusError: it is not stored.
        """
        if composed := await self.compose(message):
            await self._bus.publish_outbound(composed)
