"""HTTP and WebSocket on the loopback, for stand-ins of platforms that have both.

The WebSocket side needs websockets.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import field
from email.parser import BytesParser
from email.policy import HTTP
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from nanobot_core.messages import JsonObject
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection
    from websockets.http11 import Request, Response

_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class LocalRequest:
    """A request of the channel.

    Attributes:
        path: without the query.
        headers: names in lower case.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body as a JSON object; an empty one if it is not JSON."""
        try:
            body = json.loads(self.body)
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}

    def form(self) -> dict[str, tuple[str, bytes]]:
        """Return the fields of an uploaded form: name to file name and content."""
        head = f"Content-Type: {self.headers.get('content-type', '')}\r\n\r\n".encode()
        parsed = BytesParser(policy=HTTP).parsebytes(head + self.body)
        fields = {}
        for part in parsed.iter_parts():
            name = part.get_param("name", header="content-disposition")
            content = part.get_payload(decode=True)
            known = content if isinstance(content, bytes) else b""
            fields[str(name)] = (part.get_filename() or "", known)
        return fields


@dataclass(frozen=True, slots=True)
class LocalResponse:
    """An answer to the channel; `body` is JSON unless it is bytes."""

    body: JsonObject | bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Answer: TypeAlias = LocalResponse | Awaitable[LocalResponse | None] | None
"""What a stand-in answers; ``None`` breaks the connection instead."""


class Loopback:
    """A server for HTTP and one for WebSocket, on free ports; an async context manager.

    Args:
        answer: answers a request; it can hold it open until there is something to say.
        talk: serves a WebSocket connection until it returns; ``None`` to serve only HTTP.
        admit: returns the HTTP status with which a connection over WebSocket is refused, or
            ``None``, for its path and query.
    """

    def __init__(
        self,
        answer: Callable[[LocalRequest], Answer],
        talk: Callable[[ServerConnection], Awaitable[None]] | None = None,
        admit: Callable[[str, Mapping[str, str]], int | None] = lambda path, query: None,
    ) -> None:
        self._answer = answer
        self._talk = talk
        self._admit = admit
        self._stack = AsyncExitStack()
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}
        self._sockets: set[ServerConnection] = set()
        self.is_down: bool = False
        self.http_url: str = ""
        self.ws_url: str = ""

    def hang_up(self) -> None:
        """Break all connections, and refuse new ones until `come_back`."""
        self.is_down = True
        for writer, task in self._open.items():
            writer.transport.abort()
            if task is not None:
                task.cancel()
        self.break_sockets()

    def break_sockets(self) -> None:
        """Break all connections over WebSocket."""
        for connection in list(self._sockets):
            connection.transport.abort()

    def come_back(self) -> None:
        """Accept connections again."""
        self.is_down = False

    async def __aenter__(self) -> Self:
        """Start both servers."""
        server = await asyncio.start_server(self._serve_http, "127.0.0.1", 0)
        self._stack.push_async_callback(_close, server)
        self.http_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        if self._talk is not None:
            from websockets.asyncio.server import serve

            listening = await self._stack.enter_async_context(
                serve(
                    self._serve_socket,
                    "127.0.0.1",
                    0,
                    process_request=self._admit_socket,
                    ping_interval=None,
                    close_timeout=0.2,
                )
            )
            port = next(iter(listening.sockets)).getsockname()[1]
            self.ws_url = f"ws://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop both servers."""
        self.hang_up()
        await self._stack.aclose()

    async def _serve_http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = asyncio.current_task()
        try:
            async with asyncio.timeout(_LIMIT_S):
                request = await _read(reader)
            response = None if self.is_down else await self._answered(request)
            if response is not None and not self.is_down:
                writer.write(_written(response))
                await writer.drain()
            else:
                writer.transport.abort()
        except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
            writer.transport.abort()
        except asyncio.CancelledError:
            # By `hang_up`. asyncio of Python 3.11 logs an error if the task counts as cancelled.
            writer.transport.abort()
        finally:
            del self._open[writer]
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answered(self, request: LocalRequest) -> LocalResponse | None:
        answer = self._answer(request)
        return await answer if isinstance(answer, Awaitable) else answer

    def _admit_socket(self, connection: ServerConnection, request: Request) -> Response | None:
        if self.is_down:
            connection.transport.abort()
            return connection.respond(503, "")
        address = urlsplit(request.path)
        status = self._admit(address.path, dict(parse_qsl(address.query)))
        return None if status is None else connection.respond(status, "")

    async def _serve_socket(self, connection: ServerConnection) -> None:
        from websockets.exceptions import ConnectionClosed

        self._sockets.add(connection)
        try:
            with suppress(ConnectionClosed):
                await self._talk(connection) if self._talk else None
        finally:
            self._sockets.discard(connection)


async def _close(server: asyncio.Server) -> None:
    server.close()
    await server.wait_closed()


async def _read(reader: asyncio.StreamReader) -> LocalRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {}
    for line in head[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length") or 0))
    address = urlsplit(target)
    query = dict(parse_qsl(address.query, keep_blank_values=True))
    return LocalRequest(method, address.path, query, headers, body)


def _written(response: LocalResponse) -> bytes:
    body = response.body
    packed = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
    headers = {
        "Content-Type": kind,
        "Content-Length": str(len(packed)),
        "Connection": "close",
        **response.headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {response.status} Answer\r\n{lines}\r\n".encode() + packed
