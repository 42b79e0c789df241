"""The route ``/mcp`` of the gateway, and the service that owns its sessions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse

from nanobot_core import Service
from nanobot_mcp_server.settings import NOTHING_ALLOWED, McpServerSettings

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.types import Receive, Scope, Send

    from nanobot_core import AgentClient, AsgiApp, PluginContext

MAX_SESSIONS: Final = 64
START_LIMIT_S: Final = 10.0
"""Seconds that a request waits for the service, which may start after the HTTP server."""


class HttpFace(Service):
    """Serves the tools over streamable HTTP, for as long as its service runs.

    The SDK's session manager needs a task in which all its sessions run; the gateway has no
    lifespan of ASGI. The SDK takes 26 MB, so it is imported for the first request.

    Args:
        ctx: the plugin's context, in a gateway.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._manager: StreamableHTTPSessionManager | None = None
        self._is_wanted = asyncio.Event()
        self._has_begun = asyncio.Event()

    async def run(self) -> None:
        """Own the sessions until cancelled."""
        if self._settings().http and not self._settings().allow:
            self._ctx.logger.warning("{}", NOTHING_ALLOWED)  # noqa: PLE1205 - loguru
        await self._is_wanted.wait()
        manager = await asyncio.to_thread(self._make_manager)
        async with manager.run():
            self._manager = manager
            self._has_begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self._has_begun.clear()
                self._manager = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if not self._settings().http:
            text = "not enabled; set tools.serve_mcp.http to true"
            await PlainTextResponse(text, 404)(scope, receive, send)
            return
        self._is_wanted.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(START_LIMIT_S):
                await self._has_begun.wait()
        if self._manager is None:
            await PlainTextResponse("not running; try again", 503)(scope, receive, send)
        else:
            await self._manager.handle_request(scope, receive, send)

    def _make_manager(self) -> StreamableHTTPSessionManager:
        """Return a manager, which cannot run twice. Blocks: importing the SDK takes a second."""
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from nanobot_mcp_server.tools import ServedTools

        server = ServedTools(self._client, self._settings, "http").server(self._ctx.version)
        return StreamableHTTPSessionManager(server, max_sessions=MAX_SESSIONS)

    def _settings(self) -> McpServerSettings:
        return self._ctx.settings(McpServerSettings)

    def _client(self) -> AgentClient:
        if self._ctx.gateway is None:
            msg = "the route works in a gateway only"
            raise RuntimeError(msg)
        return self._ctx.gateway.client


def make_service(ctx: PluginContext) -> Service:
    """Return the service of the plugin."""
    return ctx.shared(HttpFace)


def build_app(ctx: PluginContext) -> AsgiApp:
    """Return the application of the route."""
    return ctx.shared(HttpFace)
