"""Entry point: the settings and the channel."""

from __future__ import annotations

from collections.abc import Iterable

from nanobot_core import ChannelSpec, PluginContext, PluginFacts, SettingsSection, on


@on.describe_plugin
def describe_plugin() -> PluginFacts:
    """Declare what the plugin can access."""
    return PluginFacts(
        summary="Parley: chats, groups, files and buttons",
        capabilities=("receives messages of people", "sends messages and files to people"),
        hosts=("parley.example",),
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (SettingsSection("channels.parley", "nanobot_parley.settings:ParleySettings"),)


@on.contribute_channels
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    """Contribute the channel."""
    return (
        ChannelSpec(
            name="parley",
            factory="nanobot_parley.channel:build_channel",
            summary="a Parley bot",
            secrets=("token",),
        ),
    )
