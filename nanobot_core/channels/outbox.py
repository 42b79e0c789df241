"""Outbox: every durable message to a chat goes through here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from nanobot_core.errors import BusError, HookError, ToolFailed
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
        has_channel: whether a channel of a name is switched on.
        redact: takes secrets out of what people are to read.
    """

    def __init__(
        self,
        bus: Bus,
        hooks: Callable[[], Hooks],
        has_channel: Callable[[str], bool],
        redact: Callable[[str], str] = str,
    ) -> None:
        self._bus = bus
        self._hooks = hooks
        self._has_channel = has_channel
        self._redact = redact

    async def compose(self, message: OutboundMessage) -> OutboundMessage | None:
        """Return `message` as plugins leave it, or ``None`` when nothing of it is to be sent."""
        hooks = self._hooks()
        if hooks.rewrite_outbound:
            try:
                changed = await hooks.rewrite_outbound(MessageComposed(message=message))
            except HookError as error:
                from loguru import logger

                logger.error("a message to {} is withheld: {}", message.channel, error)
                return None
            # By its key a message is known again after a crash, whatever it says.
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

    async def publish_for_tool(self, message: OutboundMessage) -> None:
        """Store what a tool sends.

        Raises:
            ToolFailed: there is no such channel, or it could not be stored.
        """
        if not self._has_channel(message.channel):
            msg = f"there is no channel '{message.channel}', or it is switched off"
            raise ToolFailed(msg)
        try:
            await self.publish(message)
        except BusError as error:
            msg = f"the message could not be stored: {error}"
            raise ToolFailed(msg) from error
