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
        summary="Mochat: sessions and panels",
        capabilities=("receives messages of people", "sends messages to people"),
        hosts=("mochat.io",),
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (SettingsSection("channels.mochat", "nanobot_mochat.settings:MochatSettings"),)


@on.contribute_channels
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    """Contribute the channel. Its HTTP client is imported when it starts."""
    return (
        ChannelSpec(
            name="mochat",
            factory="nanobot_mochat.channel:build_channel",
            summary="an agent on Mochat, by long polling",
            secrets=("claw_token",),
        ),
    )
