"""``python -m nanobot_mcp.serve``: one tool plugin as an MCP server on standard input and output.

`nanobot_mcp.isolated` starts it in the plugin's environment. The first line of input contains the
plugin's id and settings; MCP follows. What the plugin prints goes to standard error.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    INTERNAL_ERROR,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
)

from nanobot_core import NanobotError, ToolError, ToolFailed, ToolInputError, isolated_agent
from nanobot_mcp.facts import CALL, TIMEOUT, from_error, from_output, to_context

if TYPE_CHECKING:
    from nanobot_core import Nanobot, ToolOutput, ToolRegistry

ENDING_S = 10.0
"""Seconds that a cancelled call has to clean up."""


class PluginServer:
    """Offers the tools of one plugin.

    Args:
        bot: an agent with this plugin only.
    """

    def __init__(self, bot: Nanobot, plugin_id: str) -> None:
        self._bot = bot
        self._plugin_id = plugin_id
        self._tools: ToolRegistry = bot.tools
        self._failure = ""

    async def start(self) -> None:
        """Start the plugin. `list_tools` reports a failure."""
        try:
            await self._bot.plugins.activate(self._plugin_id)
            self._tools = await self._bot.plugins.load_tools()
        except NanobotError as error:
            self._failure = str(error)

    async def list_tools(
        self, _ctx: ServerRequestContext[Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        """Return the plugin's tools with their time limits.

        Raises:
            MCPError: the plugin failed to start; the message has the reason.
        """
        if self._failure:
            raise MCPError(INTERNAL_ERROR, self._failure)
        listed = []
        for entry in self._tools:
            tool = await entry.tool()
            definition = entry.definition
            listed.append(
                Tool(
                    name=definition.name,
                    description=definition.description,
                    input_schema=dict(definition.parameters),
                    meta={TIMEOUT: tool.timeout_s},
                )
            )
        return ListToolsResult(tools=listed)

    async def call_tool(
        self, ctx: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult:
        """Run one call.

        Cancellation:
            The tool is cancelled once, as in the agent's process, and has `ENDING_S` to end.
        """
        running = self._bot.spawn(self._run(ctx, params), name=f"call of {params.name}")
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            running.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({running}, timeout=ENDING_S)
            raise
        return running.result()

    async def _run(
        self, ctx: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult:
        try:
            return from_output(await self._execute(ctx, params))
        except ToolError as error:
            return from_error(error)
        except Exception as error:  # noqa: BLE001 - isolation point: a tool may raise anything
            # Standard error is the plugin's log.
            traceback.print_exc()
            return from_error(ToolFailed(f"{type(error).__name__}: {error}"))

    async def _execute(
        self, ctx: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> ToolOutput:
        facts = (ctx.meta or {}).get(CALL)
        if not isinstance(facts, dict):
            msg = "the call has no session"
            raise ToolFailed(msg)
        steps = iter(range(1, 1_000_000))

        async def report(text: str) -> None:
            await ctx.session.report_progress(next(steps), None, text)

        prepared = self._tools.prepare_call(params.name, params.arguments or {})
        if prepared.tool is None or prepared.error is not None:
            raise ToolInputError(prepared.error or "")
        tool = await prepared.tool.tool()
        return await tool.execute(to_context(facts, report), prepared.params)


async def serve(setup: Mapping[str, Any]) -> None:
    """Serve the plugin until standard input ends."""
    plugin_id = str(setup["plugin"])
    async with stdio_server() as (received, outgoing):
        bot = await asyncio.to_thread(isolated_agent, setup)
        plugin = PluginServer(bot, plugin_id)
        try:
            await plugin.start()
            server: Server[Any] = Server(
                f"nanobot-{plugin_id}",
                on_list_tools=plugin.list_tools,
                on_call_tool=plugin.call_tool,
            )
            await server.run(received, outgoing, server.create_initialization_options())
        finally:
            with anyio.CancelScope(shield=True):
                await bot.plugins.stop()


def main() -> None:
    """Read the setup and serve."""
    # Unbuffered, so that the server can read what follows the line.
    with open(0, "rb", buffering=0, closefd=False) as first:
        line = first.readline()
    if line:
        asyncio.run(serve(json.loads(line)))


if __name__ == "__main__":
    main()
