"""Settings of the Telegram channel."""

from __future__ import annotations

import re
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from nanobot_core import ChannelSettings, PluginSettings
from nanobot_core.chat import ServiceUrl

_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
_WEBHOOK_SECRET = re.compile(r"[A-Za-z0-9_-]{16,256}")
"""Values that ``setWebhook`` accepts as ``secret_token``, and that are hard to guess."""


def _check_proxy(proxy: SecretStr | None) -> SecretStr | None:
    if proxy is None or not proxy.get_secret_value():
        return None
    address = urlsplit(proxy.get_secret_value())
    if address.scheme not in _PROXY_SCHEMES or not address.hostname:
        msg = f"not a proxy address such as 'socks5://host:1080' ({', '.join(_PROXY_SCHEMES)})"
        raise ValueError(msg)
    return proxy


class WebhookSettings(PluginSettings):
    """Section ``channels.telegram.webhook``: Telegram calls the gateway instead of being polled.

    Attributes:
        url: public https address of the gateway's ``/telegram``; if empty, long polling is used.
        secret: sent by Telegram with each call; 16 to 256 letters, digits, ``_`` or ``-``.
    """

    url: str = ""
    secret: SecretStr = SecretStr("")

    @model_validator(mode="after")
    def _check_pair(self) -> Self:
        if not self.url:
            return self
        if not self.url.startswith("https://"):
            msg = "url: not an https address; Telegram calls no other"
            raise ValueError(msg)
        if _WEBHOOK_SECRET.fullmatch(self.secret.get_secret_value()) is None:
            msg = "secret: 16 to 256 letters, digits, '_' or '-' are needed with a url"
            raise ValueError(msg)
        return self


class TelegramSettings(ChannelSettings):
    """Section ``channels.telegram``.

    Attributes:
        token: the bot's token from BotFather.
        api_base: address of the Bot API server.
        proxy: http or socks5 proxy for all requests. Environment variables are not used.
        drop_pending_updates: drop messages that arrived while the gateway was down.
        edited_messages: process a message again when its author edits it.
        reply_to_message: quote the message in the reply.
        webhook: settings of webhook mode.
    """

    token: SecretStr = SecretStr("")
    api_base: ServiceUrl = "https://api.telegram.org"
    proxy: Annotated[SecretStr | None, AfterValidator(_check_proxy)] = None
    drop_pending_updates: bool = False
    edited_messages: bool = False
    reply_to_message: bool = False
    webhook: WebhookSettings = Field(default_factory=WebhookSettings)
