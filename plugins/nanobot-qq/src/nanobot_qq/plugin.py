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
        summary="QQ: private chats, groups and files",
        capabilities=("receives messages of people", "sends messages and files to people"),
        hosts=("bots.qq.com", "api.sgroup.qq.com", "*.qq.com", "*.qpic.cn"),
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (SettingsSection("channels.qq", "nanobot_qq.settings:QQSettings"),)


@on.contribute_channels
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    """Contribute the channel. Its libraries are imported when it starts."""
    return (
        ChannelSpec(
            name="qq",
            factory="nanobot_qq.channel:build_channel",
            summary="a QQ bot",
            secrets=("secret",),
        ),
    )
