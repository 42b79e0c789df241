"""Entry point: the channel, the trigger, and the route on which they receive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import ChannelSpec, Mount, PluginFacts, SettingsSection, on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nanobot_core import PluginContext, Trigger


@on.describe_plugin
def describe_plugin() -> PluginFacts:
    """Declare what the plugin needs and reaches."""
    return PluginFacts(
        requires=("http",),
        capabilities=(
            "receives messages and events of programs",
            "sends replies to an address of the owner",
        ),
        secret_files=("hooks.key",),
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (SettingsSection("channels.webhook", "nanobot_webhook.settings:WebhookSettings"),)


@on.contribute_channels
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    """Contribute the channel."""
    return (
        ChannelSpec(
            name="webhook",
            factory="nanobot_webhook.channel:WebhookChannel",
            summary="signed HTTP in, HTTP callback out",
            secrets=("secret", "callback_url"),
        ),
    )


@on.contribute_routes
def contribute_routes(ctx: PluginContext) -> Iterable[Mount]:
    """Contribute the route."""
    # Open, because the signature proves more than the gateway's secret: who, when and what.
    return (Mount(path="/webhook", app="nanobot_webhook.intake:build_app", access="open"),)


@on.contribute_triggers
def contribute_triggers(ctx: PluginContext) -> Iterable[Trigger]:
    """Contribute the trigger ``webhook``."""
    from nanobot_webhook.trigger import WebhookTrigger

    return (WebhookTrigger(ctx),)
