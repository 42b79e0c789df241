"""The channel: what Discord can do, and how it is connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import ChannelCapabilities
from nanobot_core.chat import ChatChannel
from nanobot_discord.settings import DiscordSettings

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_discord.platform import DiscordPlatform

NAME = "discord"
CAPABILITIES = ChannelCapabilities(
    max_message_chars=2_000,
    markdown="discord",
    # Discord allows a bot about five edits in five seconds in a channel.
    edit_interval_s=1.5,
    # Discord shows the indicator for ten seconds.
    typing_interval_s=8.0,
    # Discord answers a heartbeat every 41 seconds; this allows for two that are lost.
    silence_limit_s=100.0,
    threads=True,
    buttons=True,
    media=("image", "audio", "video", "file"),
)


def build_channel(ctx: PluginContext) -> ChatChannel:
    """Return a channel that is not connected."""

    def connect() -> DiscordPlatform:
        # Importing the SDK takes half a second; `ChatChannel` calls this in a thread.
        from nanobot_discord.platform import open_platform

        return open_platform(ctx, ctx.settings(DiscordSettings))

    return ChatChannel(ctx, NAME, CAPABILITIES, connect)
