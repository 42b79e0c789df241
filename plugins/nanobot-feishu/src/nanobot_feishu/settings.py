"""Settings of the Feishu channel."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr

from nanobot_core import ChannelSettings

_ADDRESSES = {"feishu": "https://open.feishu.cn", "lark": "https://open.larksuite.com"}


def _check_url(url: str) -> str:
    address = urlsplit(url)
    if url and (address.scheme not in {"http", "https"} or not address.hostname):
        msg = "not an http or https address"
        raise ValueError(msg)
    return url.rstrip("/")


class FeishuSettings(ChannelSettings):
    """Section ``channels.feishu``.

    Attributes:
        app_id: App ID of the app.
        app_secret: App Secret of the app.
        domain: ``feishu``, or ``lark`` for the international service.
        react_emoji: reaction to each admitted message; empty for none.
        reply_to_message: answers quote the message that they answer.
        topic_isolation: each topic of a group is a conversation of its own.
        api_base: address of the API, if it is not that of `domain`.
    """

    app_id: str = ""
    app_secret: SecretStr = SecretStr("")
    domain: Literal["feishu", "lark"] = "feishu"
    react_emoji: str = "THUMBSUP"
    reply_to_message: bool = False
    topic_isolation: bool = True
    api_base: Annotated[str, AfterValidator(_check_url)] = ""

    @property
    def address(self) -> str:
        """The address of the API."""
        return self.api_base or _ADDRESSES[self.domain]
