"""Represents, in the agent's process, a plugin that runs in a separate process."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from nanobot_core import Health, JsonObject, Tool, ToolContext, ToolResult, on
from nanobot_mcp.connection import Connection, ConnectionPorts, ServerUnavailable
from nanobot_mcp.process import Command, ServerLog
from nanobot_mcp.settings import McpSettings, ServerSettings
from nanobot_mcp.tool import repeat_where_safe

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from nanobot_core import DeclaredTool, IsolatedPlugin, PluginContext, StopCause
    from nanobot_mcp.link import Link

CONNECT_S = 60.0
"""Seconds from the start of the process until the plugin's tools are known."""

LONGEST_CALL_S = 86_400.0
"""Limit for the host. The plugin's process knows the tool's own limit, which applies as well."""


class StandIn:
    """Offers a plugin's tools, and starts its process when one of them is first called."""

    def __init__(self, plugin: IsolatedPlugin) -> None:
        self._plugin = plugin

    @on.contribute_tools
    def contribute_tools(self, ctx: PluginContext) -> Iterable[Tool]:
        """Return the tools that the manifest declares, without starting the process."""
        process = ctx.shared(self._process)
        return [IsolatedTool(declared, process) for declared in self._plugin.tools]

    @on.check_health
    async def check_health(self, ctx: PluginContext) -> Health:
        """Start the process if it is not running, and report the result."""
        try:
            await ctx.shared(self._process).connection.link()
        except ServerUnavailable as error:
            return Health(ok=False, message=error.reason)
        return Health(ok=True, message=f"runs with {self._plugin.python}")

    @on.stop
    async def stop(self, ctx: PluginContext, reason: StopCause) -> None:
        """End the process and its descendants."""
        await ctx.shared(self._process).connection.close()

    def _process(self, ctx: PluginContext) -> PluginProcess:
        return PluginProcess(self._plugin, ctx)


class PluginProcess:
    """The process of one plugin.

    Attributes:
        connection: starts and ends the process.
        title: the name of the process in messages.
    """

    def __init__(self, plugin: IsolatedPlugin, ctx: PluginContext) -> None:
        self.title: str = f"the process of plugin '{plugin.id}'"
        words = [str(plugin.python), "-I", "-m", "nanobot_mcp.serve", plugin.id]
        server = ServerSettings(command=words[0], connect_timeout_s=CONNECT_S)
        limits = McpSettings()
        self._default_s = plugin.timeout_s
        self._limits: weakref.WeakKeyDictionary[Link, Mapping[str, float]] = (
            weakref.WeakKeyDictionary()
        )
        self.connection: Connection = Connection(
            plugin.id,
            server,
            ConnectionPorts(
                ctx,
                limits,
                ServerLog(ctx.data_dir / "process.log", limits.log_bytes),
                lambda: None,
                lambda _name, _offers, _notes: None,
                title=self.title,
                command=Command(
                    words,
                    plugin.variables,
                    ctx.workspace,
                    f"{json.dumps(plugin.setup)}\n".encode(),
                ),
            ),
        )

    async def limit_s(self, link: Link, tool: str) -> float:
        """Return the time limit of a call in seconds, which the plugin's process reports."""
        from nanobot_mcp.facts import TIMEOUT

        if link not in self._limits:
            listed = (await link.client.list_tools()).tools
            found = {each.name: (each.meta or {}).get(TIMEOUT) for each in listed}
            self._limits[link] = {
                name: float(value)
                for name, value in found.items()
                if isinstance(value, int | float)
            }
        return self._limits[link].get(tool, self._default_s)


class IsolatedTool(Tool):
    """Calls one tool in the plugin's process."""

    def __init__(self, declared: DeclaredTool, process: PluginProcess) -> None:
        self.name = declared.definition.name
        self.description = declared.definition.description
        self.parameters = declared.definition.parameters
        self.read_only = declared.read_only
        self.compactable = declared.compactable
        self.idempotent = declared.idempotent
        self.for_guests = declared.for_guests
        self.timeout_s = LONGEST_CALL_S
        self._process = process

    async def execute(self, context: ToolContext, arguments: JsonObject) -> ToolResult:
        """Run one call; repeat it only if that cannot have an effect twice.

        Raises:
            ToolError: as the tool raised it.
            ToolFailed: there is no answer; the text says whether the call may have had an effect.
        """
        from nanobot_mcp.exchange import call_tool
        from nanobot_mcp.facts import CALL, from_context, to_result

        meta: JsonObject = {CALL: from_context(context)}

        async def ask(link: Link) -> CallToolResult:
            limit_s = await self._process.limit_s(link, self.name)
            return await call_tool(link, self.name, arguments, limit_s, context.progress, meta=meta)

        answer = await repeat_where_safe(self._process.connection, self, ask)
        return to_result(answer)
