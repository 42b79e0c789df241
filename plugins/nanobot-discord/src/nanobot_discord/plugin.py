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
        summary="Discord: direct messages, channels, threads, files, buttons and slash commands",
        capabilities=("receives messages of people", "sends messages and files to people"),
        hosts=(
            "discord.com",
            "gateway.discord.gg",
            "*.discord.gg",
            "cdn.discordapp.com",
            "media.discordapp.net",
        ),
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (SettingsSection("channels.discord", "nanobot_discord.settings:DiscordSettings"),)


@on.contribute_channels
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    """Contribute the channel. Its SDK is imported when it starts."""
    return (
        ChannelSpec(
            name="discord",
            factory="nanobot_discord.channel:build_channel",
            summary="a Discord bot in direct messages, channels and threads",
            secrets=("token", "proxy", "proxy_password"),
        ),
    )
