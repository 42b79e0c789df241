"""The channel: what mail can do, and how it connects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import ChannelCapabilities
from nanobot_core.chat import ChatChannel
from nanobot_email.memory import build_memory
from nanobot_email.settings import MAX_CHARS, EmailSettings

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_core.chat import ChatPlatform

_LONGEST_WAIT_S = 120.0
"""Beyond the wait for news: some commands, of 30 seconds each."""


def build_channel(ctx: PluginContext) -> ChatChannel:
    """Return the channel."""
    settings = ctx.settings(EmailSettings)
    memory = ctx.shared(build_memory)
    capabilities = ChannelCapabilities(
        max_message_chars=MAX_CHARS,
        markdown="email",
        silence_limit_s=settings.poll_interval_seconds + _LONGEST_WAIT_S,
        threads=True,
        media=("image", "audio", "video", "file"),
    )

    def connect() -> ChatPlatform:
        from nanobot_email.platform import EmailPlatform

        return EmailPlatform(ctx, settings, memory)

    return ChatChannel(ctx, "email", capabilities, connect)
