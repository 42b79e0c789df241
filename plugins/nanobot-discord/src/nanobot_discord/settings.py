"""Settings of the Discord channel."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from nanobot_core import ChannelSettings
from nanobot_core.chat import HttpProxy, ServiceUrl

API_BASE = "https://discord.com/api/v10"
MESSAGE_CONTENT = 1 << 15
"""The intent without which only direct messages and mentions have text."""
_INTENTS = 1 << 0 | 1 << 9 | 1 << 12 | MESSAGE_CONTENT
"""Servers, their messages, direct messages, and the text of messages."""


class DiscordSettings(ChannelSettings):
    """Section ``channels.discord``.

    Attributes:
        token: the bot's token from the Discord developer portal.
        api_base: address of the API; the address of the event stream comes from there.
        proxy: http proxy for all connections. Environment variables are not used.
        proxy_username: for a proxy that requires it.
        proxy_password: likewise.
        intents: which events Discord sends, as the sum of its intents.
        allow_channels: ids of channels whose messages are read, with their threads; empty means
            all.
        allow_bots: ids of bots and webhooks whose messages are read.
        edited_messages: process a message again when its author edits it.
        reply_to_message: send an answer as a reply to the message that it answers.
        read_receipt_emoji: reaction to each admitted message, until it is answered; empty means
            none.
    """

    token: SecretStr = SecretStr("")
    api_base: ServiceUrl = API_BASE
    proxy: HttpProxy = None
    proxy_username: str | None = None
    proxy_password: SecretStr | None = None
    intents: Annotated[int, Field(ge=0)] = _INTENTS
    allow_channels: Annotated[list[str], Field(default_factory=list)]
    allow_bots: Annotated[list[str], Field(default_factory=list)]
    edited_messages: bool = False
    reply_to_message: bool = True
    read_receipt_emoji: str = ""
