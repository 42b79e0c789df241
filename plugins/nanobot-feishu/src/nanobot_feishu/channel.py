"""The channel: what Feishu can do, and how it is connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import ChannelCapabilities
from nanobot_core.chat import ChatChannel

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_core.chat import ChatPlatform

_CAPABILITIES = ChannelCapabilities(
    max_message_chars=6_000,
    markdown="feishu",
    # A card takes ten changes per second, and an app a thousand per minute.
    edit_interval_s=1.0,
    # Feishu answers pings, which it usually asks for every two minutes; the connection itself
    # gives up after two and a half of them.
    silence_limit_s=600.0,
    threads=True,
    buttons=True,
    media=("image", "audio", "video", "file"),
)


def build_channel(ctx: PluginContext) -> ChatChannel:
    """Return a channel that is not connected."""

    def connect() -> ChatPlatform:
        # It imports httpx, websockets and the parser of Markdown.
        from nanobot_feishu.platform import open_platform

        return open_platform(ctx)

    return ChatChannel(ctx, "feishu", _CAPABILITIES, connect)
