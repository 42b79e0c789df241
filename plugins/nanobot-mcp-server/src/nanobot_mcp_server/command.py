"""``nanobot serve-mcp``."""

from __future__ import annotations

import asyncio

import typer
from mcp.server.stdio import stdio_server

from nanobot_core import CommandLine, ConfigError
from nanobot_mcp_server.settings import NOTHING_ALLOWED, McpServerSettings
from nanobot_mcp_server.tools import ServedTools

INTERRUPTED_CODE = 130


def serve_mcp(ctx: typer.Context) -> None:
    """Serve the tools under tools.serve_mcp.allow, as an MCP server on standard input and output.

    Another agent starts this command. It uses the agent of the running gateway, or else one of its
    own, and ends when that agent closes standard input.

    Example: nanobot serve-mcp
    """
    try:
        asyncio.run(_serve(ctx.obj))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED_CODE) from None
    except BaseExceptionGroup as errors:
        # The SDK serves in a group of tasks, whose errors come in groups.
        raise _first(errors) from errors


async def _serve(line: CommandLine) -> None:
    async with line() as ctx:
        settings, version = ctx.settings(McpServerSettings), ctx.version
    if not settings.allow:
        raise ConfigError(NOTHING_ALLOWED)
    # Before the agent starts, so that no program that it starts can write to the other agent.
    async with stdio_server() as (received, outgoing), line.client() as client:
        server = ServedTools(lambda: client, lambda: settings, "stdio").server(version)
        await server.run(received, outgoing, server.create_initialization_options())


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
