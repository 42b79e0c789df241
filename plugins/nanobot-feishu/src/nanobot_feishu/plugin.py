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
        summary="Feishu and Lark: private chats, groups, topics, files and buttons",
        capabilities=("receives messages of people", "sends messages and files to people"),
        hosts=("open.feishu.cn", "open.larksuite.com", "*.feishu.cn", "*.larksuite.com"),
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (SettingsSection("channels.feishu", "nanobot_feishu.settings:FeishuSettings"),)


@on.contribute_channels
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    """Contribute the channel. Its libraries are imported when it starts."""
    return (
        ChannelSpec(
            name="feishu",
            factory="nanobot_feishu.channel:build_channel",
            summary="a bot of Feishu or Lark, over a long connection",
            secrets=("app_secret",),
        ),
    )
