"""Entry point: the channel, and the route for the calls of the Cloud API."""

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
        summary="WhatsApp: chats, files and buttons, over the Cloud API or a bridge",
        capabilities=("receives messages of people", "sends messages and files to people"),
        hosts=("graph.facebook.com", "lookaside.fbsbx.com"),
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (SettingsSection("channels.whatsapp", "nanobot_whatsapp.settings:WhatsAppSettings"),)


@on.contribute_channels
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    """Contribute the channel."""
    return (
        ChannelSpec(
            name="whatsapp",
            factory="nanobot_whatsapp.channel:build_channel",
            summary="a WhatsApp number, over the Cloud API or a bridge",
            secrets=("access_token", "app_secret", "verify_token", "bridge_token"),
        ),
    )


@on.contribute_routes
def contribute_routes(ctx: PluginContext) -> Iterable[Mount]:
    """Contribute the route that the Cloud API calls; in mode bridge it responds with 404."""
    # Open, because WhatsApp cannot send the gateway's token: the route checks signatures.
    return (Mount(path="/whatsapp", app="nanobot_whatsapp.webhook:build_app", access="open"),)
