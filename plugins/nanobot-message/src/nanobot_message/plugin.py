"""Entry point: the hooks that the plugin implements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nanobot_core import LazyTool, PluginFacts, SettingsSection, on

if TYPE_CHECKING:
    from nanobot_core import PluginContext


@on.describe_plugin
def describe_plugin() -> PluginFacts:
    """Declare what the plugin reaches."""
    return PluginFacts(capabilities=("sends messages and files to chats",))


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (SettingsSection("tools.message", "nanobot_message.settings:MessageSettings"),)


@on.contribute_tools
def contribute_tools(ctx: PluginContext) -> Iterable[LazyTool]:
    """Contribute the tool; its code is imported at its first call."""
    return (LazyTool("message", "nanobot_message.message_tool:MessageTool"),)
