"""Settings of the DingTalk channel."""

from __future__ import annotations

from pydantic import PositiveFloat, SecretStr

from nanobot_core import ChannelSettings
from nanobot_core.chat import ServiceUrl


class DingTalkSettings(ChannelSettings):
    """Section ``channels.dingtalk``.

    Attributes:
        client_id: Client ID (AppKey) of the app.
        client_secret: Client Secret (AppSecret) of the app.
        group_user_isolation: each person of a group has a conversation of their own.
        api_base: address of the API.
        media_base: address of the older API, which takes files and replies.
        silence_s: seconds without any frame after which the connection counts as dead.
    """

    client_id: str = ""
    client_secret: SecretStr = SecretStr("")
    group_user_isolation: bool = False
    api_base: ServiceUrl = "https://api.dingtalk.com"
    media_base: ServiceUrl = "https://oapi.dingtalk.com"
    silence_s: PositiveFloat = 60.0
