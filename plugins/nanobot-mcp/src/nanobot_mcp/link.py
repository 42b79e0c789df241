"""One open connection to a server, made with the SDK. The task that opens it must close it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import anyio.to_thread
from anyio.abc import ObjectReceiveStream
from mcp import Client, MCPError
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.message import SessionMessage
from mcp_types import (
    Implementation,
    JSONRPCResponse,
    LoggingMessageNotificationParams,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)

from nanobot_mcp.process import Command
from nanobot_mcp.stdio import Incoming, open_stdio
from nanobot_mcp.trouble import Trouble

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_mcp.connection import ConnectionPorts
    from nanobot_mcp.settings import ServerSettings

# The SDK logs a traceback for each failure, which the connection reports in one line. The HTTP
# library logs URLs, which may contain keys.
logging.getLogger("mcp.client").setLevel(logging.CRITICAL)
logging.getLogger("httpx2").setLevel(logging.WARNING)

_CHANGES = (
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)
Transport: TypeAlias = AbstractAsyncContextManager[Any]


class Link:
    """An open connection.

    Attributes:
        trouble: the problems so far.
        ended: set when the connection can no longer be used, or should be closed.
        changed: set when the server reports that its offers have changed.
    """

    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble
        self.ended: anyio.Event = anyio.Event()
        self.changed: anyio.Event = anyio.Event()
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The SDK's client, connected."""
        if self._client is None:
            msg = "the connection is not open yet"
            raise RuntimeError(msg)
        return self._client

    async def follow_changes(self) -> None:
        """Subscribe to changes (protocol 2026-07-28), and set `changed` at each one.

        Older servers send changes without a subscription. Returns if the server does not support
        subscriptions, or ends this one.
        """
        try:
            async with self.client.listen(
                tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
            ) as events:
                async for _ in events:
                    self.changed.set()
        except (ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError):
            return

    async def on_message(self, message: object) -> None:
        """Handle a notification of the server."""
        if isinstance(message, _CHANGES):
            self.changed.set()


@asynccontextmanager
async def open_link(
    server: ServerSettings, ports: ConnectionPorts, trouble: Trouble
) -> AsyncIterator[Link]:
    """Connect and perform the handshake. On exit, everything that was started has ended.

    Raises:
        Exception: any error of the SDK, often in nested groups.
    """
    link = Link(trouble)

    async def on_log(params: LoggingMessageNotificationParams) -> None:
        words = f"[{params.level}] {params.data}\n".encode("utf-8", "replace")
        await anyio.to_thread.run_sync(ports.log.write, words)

    client = Client(
        _watched(await _transport(server, ports, trouble), link),
        cache=None,
        message_handler=link.on_message,
        logging_callback=on_log,
        client_info=Implementation(name="nanobot", version=ports.ctx.version or "0"),
    )
    async with client:
        link._client = client  # noqa: SLF001 - the only place that opens one
        yield link


async def _transport(server: ServerSettings, ports: ConnectionPorts, trouble: Trouble) -> Transport:
    ctx, max_bytes = ports.ctx, ports.limits.max_message_bytes
    if server.transport == "stdio":
        command = ports.command or _server_command(ctx, server)
        if server.cwd is None:
            # A new installation creates the workspace with its first session.
            await anyio.to_thread.run_sync(
                partial(command.folder.mkdir, exist_ok=True, parents=True)
            )
        return open_stdio(command, ports.log, max_bytes, trouble)
    # Servers on this machine do not need the HTTP client, which costs time and memory.
    from nanobot_mcp.http import OriginGuard, open_http

    auth = await anyio.to_thread.run_sync(ports.make_auth)
    guard = OriginGuard(server.url or "", ctx.network, max_bytes, trouble)
    return open_http(server, guard, auth, max_bytes)


def _server_command(ctx: PluginContext, server: ServerSettings) -> Command:
    inherited = ctx.environment(("HOME", "LANG", "PATH", "TERM"))
    home = Path(server.env.get("HOME") or inherited.get("HOME") or "~")
    folder = _expanded(server.cwd, home) if server.cwd else str(ctx.workspace)
    words = [_expanded(server.command or "", home), *server.args]
    return Command(words, {**inherited, **server.env}, Path(ctx.workspace, folder))


def _expanded(path: str, home: Path) -> str:
    return str(home / path[2:]) if path.startswith("~/") else path


@asynccontextmanager
async def _watched(transport: Transport, link: Link) -> AsyncIterator[tuple[_WatchedStream, Any]]:
    """Open `transport`, with a stream of received messages that belongs to `link`."""
    async with transport as (received, outgoing):
        yield _WatchedStream(received, link), outgoing


class _WatchedStream(ObjectReceiveStream[Incoming]):
    """Messages from the server, corrected before the SDK reads them; their end ends the link."""

    def __init__(self, stream: ObjectReceiveStream[Incoming], link: Link) -> None:
        self._stream = stream
        self._link = link

    @property
    def last_context(self) -> Context | None:
        """Context of the sender, where the transport has one."""
        found: Context | None = getattr(self._stream, "last_context", None)
        return found

    async def receive(self) -> Incoming:
        try:
            item = await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._link.ended.set()
            raise
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            _correct_tools(item.message.result)
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()


def _correct_tools(result: dict[str, Any]) -> None:
    """Correct a list of tools so that the SDK accepts it.

    The SDK refuses the whole list if one input schema is not an object. It also checks results
    against output schemas: on the event loop, where a regular expression of the server can run
    forever, and it discards a readable answer that does not match.
    """
    tools = result.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            tool.pop("outputSchema", None)
            schema = tool.get("inputSchema")
            corrected = (
                {**schema, "type": "object"} if isinstance(schema, dict) else {"type": "object"}
            )
            if not isinstance(corrected.get("properties", {}), dict):
                del corrected["properties"]
            required = corrected.get("required", [])
            if not isinstance(required, list) or not all(isinstance(n, str) for n in required):
                del corrected["required"]
            tool["inputSchema"] = corrected
