"""The channel: what DingTalk can do, and how it is connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import ChannelCapabilities
from nanobot_core.chat import ChatChannel

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_core.chat import ChatPlatform

_CAPABILITIES = ChannelCapabilities(
    max_message_chars=3_500,
    markdown="dingtalk",
    # DingTalk sends a frame every 20 to 30 seconds; the stream itself gives up after 60.
    silence_limit_s=120.0,
    media=("image", "file"),
)


def build_channel(ctx: PluginContext) -> ChatChannel:
    """Return a channel that is not connected."""

    def connect() -> ChatPlatform:
        # It imports httpx, websockets and the parser of Markdown.
        from nanobot_dingtalk.platform import open_platform

        return open_platform(ctx)

    return ChatChannel(ctx, "dingtalk", _CAPABILITIES, connect)
