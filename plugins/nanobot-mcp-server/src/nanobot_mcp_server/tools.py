"""ServedTools: the tools of an agent as an MCP server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

from loguru import logger
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from nanobot_core import (
    AgentClient,
    NanobotError,
    OfferedTool,
    Requester,
    ToolOutcome,
    ToolRule,
    truncate_middle,
)
from nanobot_mcp_server.settings import McpServerSettings

CHANNEL: Final = "mcp"
MAX_CALLS: Final = 16
"""Calls that run or wait for an approval at once."""
PROGRESS_S: Final = 10.0
"""Seconds between two reports that a call is still running."""


class ServedTools:
    """Answers MCP requests with the tools that the owner lists.

    Calls have the policies, rules and time limits of a turn. The program that calls never answers a
    question about a call: the owner is asked in a chat, or the call is refused.

    Args:
        client: returns the agent.
        settings: returns the settings that apply now.
        place: how programs reach it, ``stdio`` or ``http``.
    """

    def __init__(
        self,
        client: Callable[[], AgentClient],
        settings: Callable[[], McpServerSettings],
        place: str,
    ) -> None:
        self._client = client
        self._settings = settings
        self._place = place
        self._calls = 0

    def server(self, version: str) -> Server[Any]:
        """Return a server of the SDK."""
        return Server(
            "nanobot", version=version, on_list_tools=self.list_tools, on_call_tool=self.call_tool
        )

    async def list_tools(
        self, _ctx: ServerRequestContext[Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        """Return the tools.

        Raises:
            MCPError: they are not known.
        """
        try:
            return ListToolsResult(tools=[_described(each) for each in await self._offered()])
        except Exception as error:
            raise _reported(error) from error

    async def call_tool(
        self, ctx: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult:
        """Run a call; a refusal or failure of the tool is a result.

        Raises:
            MCPError: the tool is not served, or too many calls are running.

        Cancellation:
            The call is ended.
        """
        if self._calls >= MAX_CALLS:
            raise MCPError(INTERNAL_ERROR, f"more than {MAX_CALLS} calls at once; try again later")
        self._calls += 1
        try:
            # One that is hidden and one that does not exist look the same.
            if params.name not in {each.definition.name for each in await self._offered()}:
                raise MCPError(INVALID_PARAMS, "there is no such tool")
            outcome = await self._outcome(ctx, params)
        except Exception as error:
            raise _reported(error) from error
        finally:
            self._calls -= 1
        text = truncate_middle(outcome.text, self._settings().max_result_chars)
        return CallToolResult(
            content=[TextContent(type="text", text=text)], is_error=outcome.is_error
        )

    async def _outcome(
        self, ctx: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> ToolOutcome:
        """Run a call and report that it is running."""
        call = self._client().call_tool(self._requester(), params.name, params.arguments or {})
        try:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(call)
                reports = 0
                while not (await asyncio.wait({task}, timeout=PROGRESS_S))[0]:
                    reports += 1
                    await ctx.session.report_progress(reports, None, "the call is running")
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        return task.result()

    async def _offered(self) -> list[OfferedTool]:
        return list(await self._client().tools(self._requester()))

    def _requester(self) -> Requester:
        settings = self._settings()
        return Requester(
            channel=CHANNEL,
            chat_id=self._place,
            sender_id="program",
            session_key=f"{CHANNEL}:{self._place}",
            authority="machine" if settings.rights == "owner" else "guest",
            tools=(ToolRule(allow=settings.allow),),
        )


def _described(offered: OfferedTool) -> Tool:
    definition = offered.definition
    return Tool(
        name=definition.name,
        description=definition.description,
        input_schema=dict(definition.parameters),
        annotations=ToolAnnotations(read_only_hint=offered.read_only),
    )


def _reported(error: Exception) -> MCPError:
    """Return the error for the program, without details of an unexpected one."""
    if isinstance(error, MCPError):
        return error
    if isinstance(error, NanobotError):
        return MCPError(INTERNAL_ERROR, str(error))
    number = uuid4().hex[:8]
    logger.opt(exception=error).error("a request of an MCP client failed ({})", number)
    return MCPError(INTERNAL_ERROR, f"nanobot failed; its log has the details under {number}")
