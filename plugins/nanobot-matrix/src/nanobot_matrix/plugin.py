"""Entry point: the channel, and the check of its encryption."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import ChannelSpec, Check, PluginFacts, SettingsSection, on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nanobot_core import PluginContext


@on.describe_plugin
def describe_plugin() -> PluginFacts:
    """Declare what the plugin can access."""
    return PluginFacts(
        summary="Matrix: rooms, threads and direct chats",
        capabilities=("receives messages of people", "sends messages to people"),
        hosts=("matrix.org",),
        secret_files=("session.json", "keys-*.db"),
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (SettingsSection("channels.matrix", "nanobot_matrix.settings:MatrixSettings"),)


@on.contribute_channels
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    """Contribute the channel. Its HTTP client is imported when it starts."""
    return (
        ChannelSpec(
            name="matrix",
            factory="nanobot_matrix.channel:build_channel",
            summary="an account on a Matrix homeserver, by sync",
            secrets=("access_token", "password"),
        ),
    )


@on.contribute_checks
def contribute_checks() -> Iterable[Check]:
    """Contribute the check of encrypted rooms."""
    return (Check(name="encrypted rooms", run="nanobot_matrix.check:check_encryption"),)
