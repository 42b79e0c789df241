"""Settings of the channel."""

from __future__ import annotations

from pydantic import SecretStr

from nanobot_core import ChannelSettings


class ParleySettings(ChannelSettings):
    """Section ``channels.parley``.

    Attributes:
        token: access token of the bot, from "Bots" in the settings of Parley.
        api_base: address of the server.
        edited_messages: process a message again when its author edits it.
    """

    token: SecretStr = SecretStr("")
    api_base: str = "https://parley.example"
    edited_messages: bool = False
