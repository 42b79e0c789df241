"""The channel: what Mochat can do, and how it is connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import ChannelCapabilities
from nanobot_core.chat import ChatChannel
from nanobot_mochat.settings import TEXT_CHARS

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_core.chat import ChatPlatform

_CAPABILITIES = ChannelCapabilities(max_message_chars=TEXT_CHARS, silence_limit_s=150.0)


def build_channel(ctx: PluginContext) -> ChatChannel:
    """Return a channel that is not connected."""

    def connect() -> ChatPlatform:
        from nanobot_mochat.platform import open_platform

        return open_platform(ctx)

    return ChatChannel(ctx, "mochat", _CAPABILITIES, connect)
