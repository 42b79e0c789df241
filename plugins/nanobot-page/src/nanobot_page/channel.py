"""The channel behind the page."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING

from nanobot_core import Channel, ChannelCapabilities, DeliveryError, SessionError
from nanobot_page.access import Logins
from nanobot_page.live import Live
from nanobot_page.notices import MAX_CHARS
from nanobot_page.settings import CHANNEL

if TYPE_CHECKING:
    from nanobot_core import Inbox, OutboundMessage, PluginContext


class Door:
    """Open while the channel receives; get it with ``ctx.shared(Door)``.

    Attributes:
        inbox: where messages go; ``None`` while the channel does not run.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self.inbox: Inbox | None = None


class WebChannel(Channel):
    """Takes what the page sends while it runs, and shows replies."""

    name = CHANNEL
    capabilities = ChannelCapabilities(
        max_message_chars=MAX_CHARS,
        markdown="markdown",
        buttons=True,
        media=("image", "audio", "video", "file"),
    )

    def __init__(self, ctx: PluginContext) -> None:
        self._door = ctx.shared(Door)
        self._live = ctx.shared(Live)
        self._logins = ctx.shared(Logins)
        self._stopped = asyncio.Event()

    async def start(self, inbox: Inbox) -> None:
        """Take messages until cancelled or stopped."""
        if self._stopped.is_set():
            return
        self._door.inbox = inbox
        inbox.alive()
        try:
            await self._stopped.wait()
        finally:
            if self._door.inbox is inbox:
                self._door.inbox = None

    async def stop(self) -> None:
        """Stop receiving and sending, and end the streams, so that the server can stop."""
        self._stopped.set()
        self._logins.end_streams()

    async def send(self, message: OutboundMessage) -> None:
        """Show a reply.

        Raises:
            DeliveryError: the channel has stopped, or the reply cannot be stored.
        """
        if self._stopped.is_set():
            raise DeliveryError(CHANNEL, "the channel has stopped", retryable=True)
        try:
            await self._live.show(message)
        except (sqlite3.Error, SessionError, OSError) as error:
            raise DeliveryError(CHANNEL, f"it cannot be kept: {error}", retryable=True) from error
