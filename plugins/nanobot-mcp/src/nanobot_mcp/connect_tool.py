"""What is offered of a server as long as its tools are not known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nanobot_core import JsonObject, Tool, ToolContext
from nanobot_mcp.tool import SLACK_S

if TYPE_CHECKING:
    from nanobot_mcp.connection import Connection


class ConnectTool(Tool):
    """Connects a server, which makes its tools known.

    Args:
        name: what the model calls.
        connection: the server.
        offered: gives the tools of the server that are published by now.
    """

    read_only = True

    def __init__(
        self, name: str, connection: Connection, offered: Callable[[], Sequence[Tool]]
    ) -> None:
        self.name = name
        self.description = (
            f"The tools of {connection.title} are not known yet. This call connects to it and "
            "makes them available. Use it when they may be of help."
        )
        self.parameters = {"type": "object", "properties": {}, "additionalProperties": False}
        self.timeout_s = connection.server.connect_timeout_s + SLACK_S
        self.source = connection.title
        self._connection = connection
        self._offered = offered

    async def execute(self, context: ToolContext, arguments: JsonObject) -> str:
        """Wait for the connection and name the tools that are there now.

        Raises:
            ServerUnavailable: the server cannot be connected; the text says why.
        """
        await self._connection.link()
        title, names = self._connection.title, [tool.name for tool in self._offered()]
        if not names:
            return f"{title} is connected, and none of its tools is offered."
        return f"{title} is connected. Its tools can be called now: {', '.join(names)}"
