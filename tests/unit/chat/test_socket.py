"""Connections over WebSocket, against a server on the loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus

import pytest

pytest.importorskip("websockets")

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from nanobot_core import SystemClock
from nanobot_core.chat import (
    CallFailed,
    Cause,
    HandshakeRefused,
    Socket,
    SocketClosed,
    open_socket,
    serve_sockets,
)
from nanobot_core.testing import FakeClock

pytestmark = pytest.mark.anyio
LIMIT_S = 5.0


@dataclass
class Server:
    """Keeps its connections, and what arrives.

    Attributes:
        refusal: status and headers with which it refuses connections.
    """

    url: str = ""
    connections: list[ServerConnection] = field(default_factory=list)
    received: list[str | bytes] = field(default_factory=list)
    refusal: tuple[HTTPStatus, dict[str, str]] | None = None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def handle(self, connection: ServerConnection) -> None:
        self.connections.append(connection)
        await self._tell()
        with suppress(ConnectionClosed):
            while True:
                self.received.append(await connection.recv())
                await self._tell()

    def admit(self, connection: ServerConnection, request: Request) -> Response | None:
        if self.refusal is None:
            return None
        status, headers = self.refusal
        response = connection.respond(status, "")
        for name, value in headers.items():
            response.headers[name] = value
        return response

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S), self.changed:
            await self.changed.wait_for(condition)

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()


@asynccontextmanager
async def served() -> AsyncIterator[Server]:
    server = Server()
    async with serve(
        server.handle, "127.0.0.1", 0, process_request=server.admit, close_timeout=0.1
    ) as listening:
        host, port = next(iter(listening.sockets)).getsockname()
        server.url = f"ws://{host}:{port}/?ticket=canary"
        yield server


async def opened(server: Server, silence_s: float = LIMIT_S) -> Socket:
    return await open_socket(server.url, service="Acme", silence_s=silence_s)


async def test_frames_are_sent_and_received() -> None:
    async with served() as server:
        socket = await opened(server)
        await socket.send("hello")
        await server.until(lambda: server.received == ["hello"])
        await server.connections[0].send(b"\x00\xff")
        assert await socket.receive() == b"\x00\xff"
        await socket.aclose()
        await socket.aclose()


async def test_silence_and_closing_are_failures_that_say_what_happened() -> None:
    async with served() as server:
        socket = await opened(server, silence_s=0.01)
        with pytest.raises(CallFailed, match=r"Acme sent nothing for 0\.01 seconds"):
            await socket.receive()
        socket.expect_within(LIMIT_S)
        await server.connections[0].close(4009)
        with pytest.raises(SocketClosed) as closed:
            await socket.receive()
        assert (closed.value.code, closed.value.cause) == (4009, Cause.UNREACHABLE)
        with pytest.raises(SocketClosed):
            await socket.send("too late")

        broken = await opened(server)
        server.connections[1].transport.abort()
        with pytest.raises(SocketClosed, match="broke"):
            await broken.receive()


async def test_a_refused_handshake_keeps_its_headers_and_is_not_redirected() -> None:
    async with served() as server:
        server.refusal = (HTTPStatus.FORBIDDEN, {"Handshake-Msg": "too many"})
        with pytest.raises(HandshakeRefused) as refused:
            await opened(server)
        assert (refused.value.status, refused.value.headers["handshake-msg"]) == (403, "too many")

        server.refusal = (HTTPStatus.FOUND, {"Location": "ws://127.0.0.1:1/"})
        with pytest.raises(HandshakeRefused, match="302"):
            await opened(server)
        assert server.connections == []


@pytest.mark.parametrize(
    "url",
    ["ws://example.org/?t=canary", "http://127.0.0.1/", "wss://", "ws://[", "ws://127.0.0.1:1"],
)
async def test_other_addresses_are_not_opened(url: str) -> None:
    with pytest.raises(CallFailed) as failed:
        await open_socket(url, service="Acme", silence_s=1)
    assert failed.value.cause is Cause.UNREACHABLE
    assert "canary" not in str(failed.value)


async def test_a_new_connection_is_open_before_the_old_one_is_closed() -> None:
    inbox: list[str | bytes] = []

    async def receive(socket: Socket, renew: Callable[[], None]) -> None:
        while True:
            frame = await socket.receive()
            inbox.append(frame)
            socket.send_soon(f"got {frame!r}")
            if frame == "disconnect":
                renew()

    async with served() as server:
        clock = FakeClock()
        serving = serve_sockets(lambda: opened(server), receive, clock)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(serving)
            await server.until(lambda: len(server.connections) == 1)
            first = server.connections[0]
            await first.send("disconnect")
            await server.until(lambda: len(server.connections) == 2)
            await first.send("late")
            await server.until(lambda: "got 'late'" in server.received)
            await server.connections[1].send("new")
            await server.until(lambda: "got 'new'" in server.received)
            await first.close()
            assert inbox == ["disconnect", "late", "new"]
            task.cancel()
        assert first.state.name == "CLOSED"


async def test_a_lost_connection_ends_everything() -> None:
    async def receive(socket: Socket, renew: Callable[[], None]) -> None:
        await socket.receive()

    async with served() as server:

        async def connect() -> Socket:
            socket = await opened(server)
            server.connections[-1].transport.abort()
            return socket

        with pytest.raises(ExceptionGroup) as lost:
            await serve_sockets(connect, receive, SystemClock())
    assert lost.group_contains(SocketClosed, depth=None)


async def test_connections_that_end_soon_follow_each_other_more_slowly() -> None:
    paused: list[float] = []

    class Clock(SystemClock):
        async def sleep(self, delay_s: float) -> None:
            paused.append(delay_s)
            await asyncio.sleep(0)

    async def receive(socket: Socket, renew: Callable[[], None]) -> None:
        return

    async with served() as server:

        async def connect() -> Socket:
            if len(paused) >= 6:
                raise CallFailed(Cause.UNREACHABLE, "enough")
            return await opened(server)

        with pytest.raises(ExceptionGroup):
            await serve_sockets(connect, receive, Clock())
    long = [pause for pause in paused if pause != 10.0]
    assert long[0] == 0
    assert all(0.5 * 2**n <= pause <= 1.5 * 2**n for n, pause in enumerate(long[1:4]))
