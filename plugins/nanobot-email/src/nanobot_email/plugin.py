"""Entry point: the channel and its settings."""

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
        summary="Email: one mailbox, read by IMAP and answered by SMTP",
        capabilities=("reads a mailbox", "sends mail to people"),
        hosts=("the servers in imap_host and smtp_host",),
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (SettingsSection("channels.email", "nanobot_email.settings:EmailSettings"),)


@on.contribute_channels
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    """Contribute the channel. Its libraries are imported when it connects."""
    return (
        ChannelSpec(
            name="email",
            factory="nanobot_email.channel:build_channel",
            summary="a mailbox, by IMAP and SMTP",
            secrets=("imap_password", "smtp_password"),
        ),
    )
