"""Settings of the Telegram channel."""

from __future__ import annotations

import re
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from nanobot_core import ChannelSettings, PluginSettings

_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
_WEBHOOK_SECRET = re.compile(r"[A-Za-z0-9_-]{16,256}")
"""Values that ``setWebhook`` accepts as ``secret_token``, long enough not to be guessed."""


def _check_proxy(proxy: SecretStr | None) -> SecretStr | None:
    if proxy is None or not proxy.get_secret_value():
        return None
    address = urlsplit(proxy.get_secret_value())
    if address.scheme not in _PROXY_SCHEMES or not address.hostname:
        msg = f"not a proxy address such as 'socks5://host:1080' ({', '.join(_PROXY_SCHEMES)})"
        raise ValueError(msg)
    return proxy


def _check_url(url: str) -> str:
    address = urlsplit(url)
    if address.scheme not in {"http", "https"} or not address.hostname:
        msg = "not an http or https address"
        raise ValueError(msg)
    return url.rstrip("/")


class WebhookSettings(PluginSettings):
    """``channels.telegram.webhook``: Telegram calls the gateway, instead of being asked.

    Attributes:
        url: public https address that leads to ``/telegram`` of the gateway; empty is long polling.
        secret: what Telegram sends along with each call, 16 to 256 letters, digits, ``_`` or ``-``.
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
        token: what BotFather gave for the bot.
        api_base: address of the Bot API server.
        proxy: proxy for all requests, http or socks5; variables of the environment are not read.
        drop_pending_updates: messages that came while the gateway was down are thrown away.
        edited_messages: a message that its author edits comes in again.
        reply_to_message: answers quote the message that they answer.
        webhook: settings of webhook mode.
    """

    token: SecretStr = SecretStr("")
    api_base: Annotated[str, AfterValidator(_check_url)] = "https://api.telegram.org"
    proxy: Annotated[SecretStr | None, AfterValidator(_check_proxy)] = None
    drop_pending_updates: bool = False
    edited_messages: bool = False
    reply_to_message: bool = False
    webhook: WebhookSettings = Field(default_factory=WebhookSettings)
