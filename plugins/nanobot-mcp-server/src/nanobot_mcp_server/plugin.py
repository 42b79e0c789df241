"""Entry point: the command, and the service and route of the gateway."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nanobot_core import CliGroup, Mount, PluginFacts, ServiceSpec, SettingsSection, on

if TYPE_CHECKING:
    from nanobot_core import PluginContext


@on.describe_plugin
def describe_plugin() -> PluginFacts:
    """Declare what the plugin reaches."""
    return PluginFacts(
        capabilities=("lets other programs call the tools that the owner lists",),
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (SettingsSection("tools.serve_mcp", "nanobot_mcp_server.settings:McpServerSettings"),)


@on.contribute_cli
def contribute_cli() -> Iterable[CliGroup]:
    """Contribute ``nanobot serve-mcp``."""
    return (
        CliGroup(
            name="serve-mcp",
            summary="Serve tools to other agents, as an MCP server.",
            app="nanobot_mcp_server.command:serve_mcp",
        ),
    )


@on.contribute_services
def contribute_services(ctx: PluginContext) -> Iterable[ServiceSpec]:
    """Contribute the service that owns the sessions of the route."""
    return (ServiceSpec(name="mcp-server", factory="nanobot_mcp_server.http:make_service"),)


@on.contribute_routes
def contribute_routes(ctx: PluginContext) -> Iterable[Mount]:
    """Contribute the route, which answers 404 unless the settings enable it."""
    return (Mount(path="/mcp", app="nanobot_mcp_server.http:build_app", access="token"),)
