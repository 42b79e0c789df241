"""The channel: what Parley can do."""

from __future__ import annotations

from nanobot_core import ChannelCapabilities, PluginContext
from nanobot_core.chat import ChatChannel, ChatPlatform

_CAPABILITIES = ChannelCapabilities(
    max_message_chars=1_000,
    markdown="parley",
    edit_interval_s=1.0,
    silence_limit_s=60.0,
    buttons=True,
    media=("image", "audio", "video", "file"),
)


def build_channel(ctx: PluginContext) -> ChatChannel:
    """Return a channel that is not connected."""

    def connect() -> ChatPlatform:
        # Importing httpx takes long, so it waits until the channel starts.
        from nanobot_parley.platform import ParleyPlatform

        return ParleyPlatform(ctx)

    return ChatChannel(ctx, "parley", _CAPABILITIES, connect)
