"""The tools that the model sees: offers of a server, or a tool that connects the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from nanobot_core import JsonObject, Tool, ToolContext, ToolFailed, ToolResult

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_mcp.connection import Connection
    from nanobot_mcp.link import Link
    from nanobot_mcp.offers import Offer
    from nanobot_mcp.result import Answer


T = TypeVar("T")
SLACK_S = 10.0
"""Seconds added to a call's limits, to notify the server and to answer."""


class McpTool(Tool):
    """Calls one tool of a server, reads one resource, or gets one prompt.

    Attributes:
        server: name of the server.
    """

    def __init__(
        self,
        name: str,
        offer: Offer,
        connection: Connection,
        ctx: PluginContext,
        max_image_bytes: int,
    ) -> None:
        self.name = name
        self.description = offer.description
        self.parameters = offer.parameters
        self.read_only = offer.read_only
        self.idempotent = offer.idempotent
        limits = connection.server
        # Time to connect, and to repeat a call whose connection ended.
        self.timeout_s = 2 * (limits.connect_timeout_s + limits.tool_timeout_s) + SLACK_S
        self.offer: Offer = offer
        self.server: str = connection.name
        self.source = connection.title
        self._connection = connection
        self._ctx = ctx
        self._max_image_bytes = max_image_bytes

    async def execute(self, context: ToolContext, arguments: JsonObject) -> ToolResult:
        """Run one call; repeat it only if that cannot have an effect twice.

        Raises:
            ToolInputError: the server refuses the arguments.
            ToolFailed: there is no valid answer; the text says whether the call may have had an
                effect.
        """
        from nanobot_mcp.exchange import request
        from nanobot_mcp.result import render_answer

        connection = self._connection
        limit_s = connection.server.tool_timeout_s

        async def ask(link: Link) -> Answer:
            return await request(link, self.offer, arguments, limit_s, context.progress)

        answer = await repeat_where_safe(connection, self, ask)
        return await render_answer(answer, self._ctx.media, self._max_image_bytes)


async def repeat_where_safe(
    connection: Connection, tool: Tool, ask: Callable[[Link], Awaitable[T]]
) -> T:
    """Return the result of `ask` with an open connection.

    If the connection is lost, ask once more, but only if that cannot have an effect twice.

    Raises:
        ToolInputError: the server refuses the arguments.
        ToolFailed: there is no valid answer; the text says whether the call may have had an effect.
    """
    from nanobot_mcp.exchange import CallCut, NoAnswer

    for is_last in (False, True):
        link = await connection.link()
        try:
            return await ask(link)
        except NoAnswer as error:
            limit = f"{error.limit_s:g} seconds"
            msg = f"{connection.title} did not answer within {limit} and was asked to stop"
            raise ToolFailed(_with_outcome(tool, msg)) from error
        except CallCut as cut:
            if not is_last and (cut.is_refused or tool.read_only or tool.idempotent):
                continue
            msg = f"{connection.title} was lost during the call: {cut.reason}"
            raise ToolFailed(msg if cut.is_refused else _with_outcome(tool, msg)) from cut
    raise AssertionError


def _with_outcome(tool: Tool, text: str) -> str:
    if tool.read_only:
        return text
    return f"{text}; it is unknown whether the call took effect, so check before you repeat it"


class ConnectTool(Tool):
    """Connects a server whose tools are unknown.

    Args:
        offered: returns the published tools of the server.
    """

    read_only = True

    def __init__(
        self, name: str, connection: Connection, offered: Callable[[], Sequence[Tool]]
    ) -> None:
        self.name = name
        self.description = (
            f"The tools of {connection.title} are not known yet. This call connects to it and "
            "makes them available. Use it when they may help."
        )
        self.parameters = {"type": "object", "properties": {}, "additionalProperties": False}
        self.timeout_s = connection.server.connect_timeout_s + SLACK_S
        self.source = connection.title
        self._connection = connection
        self._offered = offered

    async def execute(self, context: ToolContext, arguments: JsonObject) -> str:
        """Wait for the connection and return the names of the tools.

        Raises:
            ServerUnavailable: the server cannot be reached; the text has the reason.
        """
        await self._connection.link()
        title, names = self._connection.title, [tool.name for tool in self._offered()]
        if not names:
            return f"{title} is connected, but offers no tools that are enabled."
        return f"{title} is connected. Its tools can be called now: {', '.join(names)}"
