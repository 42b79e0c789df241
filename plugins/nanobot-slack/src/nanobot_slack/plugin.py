"""Entry point: the channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import ChannelSpec, PluginFacts, SettingsSection, on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nanobot_core import PluginContext


@on.describe_plugin
def describe_plugin() -> PluginFacts:
    """Declare what the plugin can access."""
    return PluginFacts(
        summary="Slack: direct messages, channels, threads, files and buttons",
        capabilities=("receives messages of people", "sends messages and files to people"),
        hosts=("slack.com", "files.slack.com", "wss-primary.slack.com", "wss-backup.slack.com"),
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (SettingsSection("channels.slack", "nanobot_slack.settings:SlackSettings"),)


@on.contribute_channels
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    """Contribute the channel. Its SDK is imported when it connects."""
    return (
        ChannelSpec(
            name="slack",
            factory="nanobot_slack.channel:build_channel",
            summary="a Slack app, over Socket Mode",
            secrets=("bot_token", "app_token", "proxy"),
        ),
    )
