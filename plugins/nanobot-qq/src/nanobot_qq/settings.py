"""Settings of the QQ channel."""

from __future__ import annotations

from typing import Literal

from pydantic import SecretStr

from nanobot_core import ChannelSettings
from nanobot_core.chat import ServiceUrl


class QQSettings(ChannelSettings):
    """Section ``channels.qq``.

    Attributes:
        app_id: AppID of the bot.
        secret: AppSecret of the bot.
        msg_format: ``markdown`` sends formatted text and buttons, for which the bot needs a
            permission; ``plain`` sends text.
        active_messages: send without a message to answer, if the bot has the permission;
            otherwise such messages wait until someone writes.
        api_base: address of the API.
        token_url: address that issues access tokens.
    """

    app_id: str = ""
    secret: SecretStr = SecretStr("")
    msg_format: Literal["plain", "markdown"] = "plain"
    active_messages: bool = False
    api_base: ServiceUrl = "https://api.sgroup.qq.com"
    token_url: ServiceUrl = "https://bots.qq.com/app/getAppAccessToken"  # noqa: S105 - an address
