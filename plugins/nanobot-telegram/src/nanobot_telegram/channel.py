"""The channel: what Telegram can do, and how it is connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import ChannelCapabilities
from nanobot_core.chat import ChatChannel
from nanobot_telegram.call import CHANNEL, TimeLimits

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_core.chat import ChatPlatform

_CAPABILITIES = ChannelCapabilities(
    max_message_chars=4_000,
    markdown="telegram",
    # Telegram allows a bot about one message or edit per second in a chat.
    edit_interval_s=1.5,
    # Telegram shows the indicator for five seconds.
    typing_interval_s=4.0,
    silence_limit_s=90.0,
    threads=True,
    buttons=True,
    media=("image", "audio", "video", "file"),
)


def build_channel(ctx: PluginContext, limits: TimeLimits | None = None) -> ChatChannel:
    """Return a channel that is not connected."""

    def connect() -> ChatPlatform:
        # Importing the SDK takes a quarter of a second.
        from nanobot_telegram.platform import open_platform

        return open_platform(ctx, limits or TimeLimits())

    return ChatChannel(ctx, CHANNEL, _CAPABILITIES, connect)
