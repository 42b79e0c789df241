"""The factory of the channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import ChannelCapabilities
from nanobot_core.chat import ChatChannel
from nanobot_slack.settings import SlackSettings, Timing

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_core.chat import ChatPlatform

_TYPING_S = 4.0
CAPABILITIES = ChannelCapabilities(
    max_message_chars=12_000,
    markdown="slack",
    # Slack allows about 50 edits per minute in a workspace.
    edit_interval_s=2.0,
    # A reaction is shown until it is removed; without this call for a while, it is removed.
    typing_interval_s=_TYPING_S,
    # The connection pings every ten seconds, and ends by itself after thirty without a frame.
    silence_limit_s=60.0,
    threads=True,
    buttons=True,
    media=("image", "audio", "video", "file"),
)


def build_channel(ctx: PluginContext, timing: Timing | None = None) -> ChatChannel:
    """Return a channel that is not connected."""

    def connect() -> ChatPlatform:
        from nanobot_slack.platform import SlackPlatform

        return SlackPlatform(
            ctx, ctx.settings(SlackSettings), timing or Timing(), typing_silence_s=3 * _TYPING_S
        )

    return ChatChannel(ctx, "slack", CAPABILITIES, connect)
