"""One connection to one server, by the SDK. Entered and left by the same task, always."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.to_thread
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

from nanobot_mcp.connection import Equipment, Launch
from nanobot_mcp.process import Command
from nanobot_mcp.stdio import Incoming, open_stdio
from nanobot_mcp.trouble import Trouble

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_mcp.settings import ServerSettings

# The SDK logs each failure with a traceback; the connection reports what matters, and the
# HTTP library logs URLs, which may hold keys.
logging.getLogger("mcp.client").setLevel(logging.CRITICAL)
logging.getLogger("httpx2").setLevel(logging.WARNING)

_CHANGES = (
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)


class Link:
    """A connection that is up.

    Attributes:
        trouble: the problems so far.
        ended: set when it can no longer be used, or should be left.
        changed: set when the server says that it offers something else now.
    """

    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble
        self.ended: anyio.Event = anyio.Event()
        self.changed: anyio.Event = anyio.Event()
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The SDK's client, entered."""
        if self._client is None:
            msg = "the connection is used before it is up"
            raise RuntimeError(msg)
        return self._client

    async def follow_changes(self) -> None:
        """Set `changed` when the server announces changes, as protocol 2026-07-28 does.

        Older servers announce them unasked. Returns if the server does not, or stops.
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
        """Take a notification of the server."""
        if isinstance(message, _CHANGES):
            self.changed.set()


@asynccontextmanager
async def open_link(
    server: ServerSettings, equipment: Equipment, trouble: Trouble
) -> AsyncIterator[Link]:
    """Connect and shake hands; on leaving, everything that was started has ended.

    Raises:
        Exception: anything of the SDK's, often inside nested groups.
    """
    link = Link(trouble)

    async def on_log(params: LoggingMessageNotificationParams) -> None:
        words = f"[{params.level}] {params.data}\n".encode("utf-8", "replace")
        await anyio.to_thread.run_sync(equipment.log.write, words)

    client = Client(
        _Watched(await _transport(server, equipment, trouble), link),
        cache=None,
        message_handler=link.on_message,
        logging_callback=on_log,
        client_info=Implementation(name="nanobot", version=equipment.ctx.version or "0"),
    )
    async with client:
        link._client = client  # noqa: SLF001 - nothing else makes one
        yield link


async def _transport(
    server: ServerSettings, equipment: Equipment, trouble: Trouble
) -> AbstractAsyncContextManager[Any]:
    ctx, max_bytes = equipment.ctx, equipment.limits.max_message_bytes
    if server.transport == "stdio":
        launch = equipment.launch or Launch(server_command(ctx, server), b"")
        if server.cwd is None:
            # A fresh installation has no workspace before its first session is stored.
            await anyio.to_thread.run_sync(
                partial(launch.command.folder.mkdir, exist_ok=True, parents=True)
            )
        return open_stdio(launch, equipment.log, max_bytes, trouble)
    # The HTTP client costs time and memory that servers on this machine do not need.
    from nanobot_mcp.http import OriginGuard, open_http

    auth = await anyio.to_thread.run_sync(equipment.make_auth)
    guard = OriginGuard(server.url or "", ctx.network, max_bytes, trouble)
    return open_http(server, guard, auth, max_bytes)


def server_command(ctx: PluginContext, server: ServerSettings) -> Command:
    """Return the program to start; it gets exactly this environment."""
    inherited = ctx.environment(("HOME", "LANG", "PATH", "TERM"))
    home = Path(server.env.get("HOME") or inherited.get("HOME") or "~")
    folder = _expanded(server.cwd, home) if server.cwd else str(ctx.workspace)
    words = [_expanded(server.command or "", home), *server.args]
    return Command(words, {**inherited, **server.env}, Path(ctx.workspace, folder))


def _expanded(path: str, home: Path) -> str:
    return str(home / path[2:]) if path.startswith("~/") else path


class _Watched(AbstractAsyncContextManager[Any]):
    """A transport that reports its end to a link, and shows it messages before the SDK."""

    def __init__(self, transport: AbstractAsyncContextManager[Any], link: Link) -> None:
        self._transport = transport
        self._link = link

    async def __aenter__(self) -> tuple[_WatchedStream, Any]:
        received, outgoing = await self._transport.__aenter__()
        return _WatchedStream(received, self._link), outgoing

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._transport.__aexit__(kind, error, traceback)


class _Received(Protocol):
    """The first stream of a transport."""

    async def receive(self) -> Incoming: ...
    async def aclose(self) -> None: ...
    async def __aenter__(self) -> object: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None: ...


class _WatchedStream:
    """The stream of messages from the server."""

    def __init__(self, stream: _Received, link: Link) -> None:
        self._stream = stream
        self._link = link

    @property
    def last_context(self) -> Context | None:
        """Context of the sender, where the transport has one."""
        found: Context | None = getattr(self._stream, "last_context", None)
        return found

    async def receive(self) -> SessionMessage | Exception:
        try:
            item = await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._link.ended.set()
            raise
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            _mend_tools(item.message.result)
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> _WatchedStream:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> _WatchedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *failure: Any) -> bool | None:
        return await self._stream.__aexit__(*failure)


def _mend_tools(result: dict[str, Any]) -> None:
    """Remove from a list of tools what the SDK would reject.

    It would refuse the whole list for one schema that is not an object. It would check results
    against output schemas on the event loop, where a regular expression of the server's choice can
    run without end, and would throw away a readable answer that differs from its schema.
    """
    tools = result.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            tool.pop("outputSchema", None)
            schema = tool.get("inputSchema")
            mended = (
                {**schema, "type": "object"} if isinstance(schema, dict) else {"type": "object"}
            )
            if not isinstance(mended.get("properties", {}), dict):
                del mended["properties"]
            required = mended.get("required", [])
            if not isinstance(required, list) or not all(isinstance(n, str) for n in required):
                del mended["required"]
            tool["inputSchema"] = mended
