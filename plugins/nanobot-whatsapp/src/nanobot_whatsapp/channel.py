"""The channel: what WhatsApp can do in each mode, and how it is connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import ChannelCapabilities
from nanobot_core.chat import ChatChannel
from nanobot_whatsapp.settings import WhatsAppSettings
from nanobot_whatsapp.timing import TimeLimits

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_core.chat import ChatPlatform

_CLOUD = ChannelCapabilities(
    max_message_chars=4_000,
    markdown="whatsapp",
    # WhatsApp shows the indicator for 25 seconds.
    typing_interval_s=20.0,
    silence_limit_s=1_000.0,
    buttons=True,
    media=("image", "audio", "video", "file"),
)
_BRIDGE = ChannelCapabilities(
    max_message_chars=4_000,
    markdown="whatsapp",
    silence_limit_s=90.0,
    media=("image", "audio", "video", "file"),
)


def build_channel(ctx: PluginContext, limits: TimeLimits | None = None) -> ChatChannel:
    """Return a channel that is not connected."""
    uses_bridge = ctx.settings(WhatsAppSettings).uses_bridge

    def connect() -> ChatPlatform:
        if uses_bridge:
            from nanobot_whatsapp.bridge import open_bridge

            return open_bridge(ctx, limits or TimeLimits())
        from nanobot_whatsapp.cloud import open_cloud

        return open_cloud(ctx, limits or TimeLimits())

    return ChatChannel(ctx, "whatsapp", _BRIDGE if uses_bridge else _CLOUD, connect)
