"""Entry point: the hooks that the plugin implements. The SDK is imported with a connection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nanobot_core import CliGroup, Health, IsolatorSpec, PluginFacts, SettingsSection, on

if TYPE_CHECKING:
    from nanobot_core import PluginContext, StopCause, Tool


@on.describe_plugin
def describe_plugin() -> PluginFacts:
    """Declare a pattern for tool names, which are known only after a server has listed them."""
    return PluginFacts(
        tool_names=("mcp_*",),
        capabilities=(
            "starts the programs named under tools.mcp_servers and mcpServers",
            "talks to the MCP servers named there",
        ),
        secret_files=("oauth/*",),
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings sections: ours, and the block that other programs use."""
    return (
        SettingsSection(
            "tools.mcp",
            "nanobot_mcp.settings:McpSettings",
            environment=("HOME", "LANG", "PATH", "TERM"),
        ),
        SettingsSection("tools.mcp_servers", "nanobot_mcp.settings:OwnServers"),
        SettingsSection("mcp_servers", "nanobot_mcp.settings:CopiedServers"),
    )


@on.contribute_cli
def contribute_cli() -> Iterable[CliGroup]:
    """Contribute ``nanobot mcp``."""
    return (
        CliGroup(
            name="mcp",
            summary="List, try and log in to MCP servers.",
            app="nanobot_mcp.commands:app",
        ),
    )


@on.contribute_isolators
def contribute_isolators() -> Iterable[IsolatorSpec]:
    """Run the plugins of ``plugins.isolate``."""
    return (IsolatorSpec(name="mcp", factory="nanobot_mcp.isolated:StandIn"),)


@on.start
async def start(ctx: PluginContext) -> None:
    """Offer the tools known from earlier connections, without connecting a server."""
    from nanobot_mcp.hub import Hub

    await ctx.shared(Hub).prepare()


@on.contribute_tools
def contribute_tools(ctx: PluginContext) -> Iterable[Tool]:
    """Start to connect new servers. The hub publishes tools, so there are none to return."""
    from nanobot_mcp.hub import Hub

    ctx.shared(Hub).begin()
    return ()


@on.check_health
async def check_health(ctx: PluginContext) -> Health:
    """Report which servers are connected."""
    from nanobot_mcp.hub import Hub

    return ctx.shared(Hub).health()


@on.stop
async def stop(ctx: PluginContext, reason: StopCause) -> None:
    """Close all connections and end their processes."""
    from nanobot_mcp.hub import Hub

    await ctx.shared(Hub).close()
