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
        summary="DingTalk: private chats, groups and files of an organisation",
        capabilities=("receives messages of people", "sends messages and files to people"),
        hosts=("api.dingtalk.com", "oapi.dingtalk.com", "*.dingtalk.com"),
        secret_files=("reply-routes.json",),
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (SettingsSection("channels.dingtalk", "nanobot_dingtalk.settings:DingTalkSettings"),)


@on.contribute_channels
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    """Contribute the channel. Its libraries are imported when it starts."""
    return (
        ChannelSpec(
            name="dingtalk",
            factory="nanobot_dingtalk.channel:build_channel",
            summary="a DingTalk robot in Stream mode",
            secrets=("client_secret",),
        ),
    )
