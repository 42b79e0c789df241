"""The channel: what Matrix can do, and how it is connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import ChannelCapabilities
from nanobot_core.chat import ChatChannel
from nanobot_matrix.settings import TEXT_BYTES

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_core.chat import ChatPlatform

_CAPABILITIES = ChannelCapabilities(
    max_message_chars=TEXT_BYTES,
    markdown="matrix",
    # Each edit is an event that the homeserver stores, and that counts for its rate limit.
    edit_interval_s=2.0,
    typing_interval_s=15.0,
    silence_limit_s=90.0,
    threads=True,
    media=("image", "audio", "video", "file"),
)


def build_channel(ctx: PluginContext) -> ChatChannel:
    """Return a channel that is not connected."""

    def connect() -> ChatPlatform:
        from nanobot_matrix.platform import open_platform

        return open_platform(ctx)

    return ChatChannel(ctx, "matrix", _CAPABILITIES, connect)
