"""The channel."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nanobot_core import Channel, ChannelCapabilities, ChannelError, DeliveryError
from nanobot_webhook.callback import Callback
from nanobot_webhook.intake import Door
from nanobot_webhook.payload import CHANNEL
from nanobot_webhook.reply import build_deliveries
from nanobot_webhook.settings import WebhookSettings
from nanobot_webhook.signature import decode_key

if TYPE_CHECKING:
    from nanobot_core import Inbox, LoginPrompt, OutboundMessage, PluginContext


class WebhookChannel(Channel):
    """Takes what `nanobot_webhook.intake` receives while it runs, and posts replies."""

    name = CHANNEL

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._settings = ctx.settings(WebhookSettings)
        self._door = ctx.shared(Door)
        self._stopped = asyncio.Event()
        self._callback: Callback | None = None
        self.capabilities = ChannelCapabilities(
            max_message_chars=self._settings.max_piece_chars,
            markdown="markdown",
            buttons=True,
            media=("image", "audio", "video", "file"),
        )

    async def start(self, inbox: Inbox) -> None:
        """Take messages until cancelled or stopped.

        Raises:
            ChannelError: the secret or the address for replies is missing.
        """
        self._demand_settings()
        if self._stopped.is_set():
            return
        self._door.inbox = inbox
        # No platform has to confirm: messages can arrive from now on.
        inbox.alive()
        try:
            await self._stopped.wait()
        finally:
            self._door.close(inbox)

    async def stop(self) -> None:
        """Stop receiving and sending."""
        self._stopped.set()
        if self._callback is not None:
            await self._callback.aclose()

    async def send(self, message: OutboundMessage) -> None:
        """Post a reply, a long one in pieces; a piece that is sent again keeps its id.

        Raises:
            DeliveryError: a piece was not accepted; those before it were.
        """
        if self._stopped.is_set():
            raise DeliveryError(CHANNEL, "the channel has stopped", retryable=True)
        callback = self._open_callback()
        deliveries = await asyncio.to_thread(
            build_deliveries,
            message,
            self._ctx.clock.now(),
            max_chars=self._settings.max_piece_chars,
            max_file_bytes=self._settings.max_file_bytes,
        )
        for delivery in deliveries:
            await callback.post(delivery)

    async def login(self, prompt: LoginPrompt | None = None) -> str:
        """Check that the settings are complete; nothing is sent.

        Raises:
            ChannelError: the secret or the address for replies is missing.
        """
        url, _ = self._demand_settings()
        return f"webhook, replies go to {urlsplit(url).hostname}"

    def _open_callback(self) -> Callback:
        if self._callback is None:
            try:
                url, key = self._demand_settings()
            except ChannelError as error:
                raise DeliveryError(CHANNEL, str(error), retryable=True) from error
            self._callback = Callback(url, key, self._ctx.clock, self._settings.timeout_s)
        return self._callback

    def _demand_settings(self) -> tuple[str, bytes]:
        """Return the address for replies and the key."""
        secret, url = self._settings.secret, self._settings.callback_url
        if secret is None:
            msg = "channel 'webhook' has no secret; set channels.webhook.secret"
            raise ChannelError(msg)
        if url is None:
            msg = "channel 'webhook' has no address for replies; set channels.webhook.callback_url"
            raise ChannelError(msg)
        return url.get_secret_value(), decode_key(secret.get_secret_value())
