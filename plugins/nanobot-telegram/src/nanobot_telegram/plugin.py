"""Entry point: the channel, and the route for its webhook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import ChannelSpec, Mount, PluginFacts, SettingsSection, on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nanobot_core import PluginContext


@on.describe_plugin
def describe_plugin() -> PluginFacts:
    """Declare what the plugin can access."""
    return PluginFacts(
        summary="Telegram: chats, groups, topics, files and buttons",
        capabilities=("receives messages of people", "sends messages and files to people"),
        hosts=("api.telegram.org",),
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (SettingsSection("channels.telegram", "nanobot_telegram.settings:TelegramSettings"),)


@on.contribute_channels
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    """Contribute the channel. Its SDK is imported when it starts."""
    return (
        ChannelSpec(
            name="telegram",
            factory="nanobot_telegram.channel:build_channel",
            summary="a Telegram bot, by long polling or webhook",
            secrets=("token", "proxy", "webhook.secret"),
        ),
    )


@on.contribute_routes
def contribute_routes(ctx: PluginContext) -> Iterable[Mount]:
    """Contribute the route that Telegram calls in webhook mode; otherwise it responds with 404."""
    # Open, because Telegram cannot send the gateway's token: the route checks its own secret.
    return (Mount(path="/telegram", app="nanobot_telegram.webhook:build_app", access="open"),)
