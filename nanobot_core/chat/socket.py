"""Receives from a platform over WebSocket: one connection after another, and when one is lost.

It needs websockets, which the core does not depend on: a plugin that uses it lists ``websockets``.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from nanobot_core.chat.failure import CallFailed, Cause

if TYPE_CHECKING:
    from nanobot_core.clock import Clock

_OPEN_LIMIT_S = 20.0
_SEND_LIMIT_S = 20.0
_CLOSE_LIMIT_S = 1.0
_PING_S = 20.0
_MAX_BYTES = 8 * 1024 * 1024
_QUEUED = 1_000
"""Frames of `Socket.send_soon` that wait; more mean that the platform no longer reads."""
_OLD_LIMIT_S = 10.0
"""How long an old connection is served after a new one is open."""
_SHORT_S = 60.0
"""A connection that lasts less counts as a failed attempt for the pauses."""
_LONGEST_PAUSE_S = 60.0

# The library's own records contain addresses, whose queries contain tickets.
_LOG = logging.getLogger("nanobot_core.chat.socket")
_LOG.setLevel(logging.CRITICAL)


class SocketClosed(CallFailed):
    """The platform closed the connection, or it broke.

    Attributes:
        code: close code of the platform (RFC 6455, 7.4), or ``None`` if the connection broke.
    """

    def __init__(self, service: str, code: int | None) -> None:
        self.code: int | None = code
        what = "broke" if code is None else f"was closed by the platform with code {code}"
        super().__init__(Cause.UNREACHABLE, f"the connection to {service} {what}")


class HandshakeRefused(CallFailed):
    """The platform did not open the connection.

    Attributes:
        status: HTTP status of its answer.
        headers: of its answer, names in lower case.
    """

    def __init__(self, service: str, status: int, headers: Mapping[str, str]) -> None:
        self.status: int = status
        self.headers: Mapping[str, str] = headers
        reason = f"{service} refused the connection with HTTP status {status}"
        super().__init__(Cause.UNREACHABLE, reason)


class Socket:
    """An open connection; `open_socket` makes it.

    Args:
        service: name of the platform, for failures.
        silence_s: most seconds between two frames of a working connection.
    """

    def __init__(self, connection: ClientConnection, service: str, silence_s: float) -> None:
        self._connection = connection
        self._service = service
        self._silence_s = silence_s
        self._queued: asyncio.Queue[str | bytes] = asyncio.Queue(_QUEUED)

    def expect_within(self, silence_s: float) -> None:
        """Change the most seconds between two frames, from the next `receive` on."""
        self._silence_s = silence_s

    async def receive(self) -> str | bytes:
        """Return the next frame. Pings of the protocol are no frames.

        Raises:
            SocketClosed: the connection is closed.
            CallFailed: nothing arrived in time; the connection is considered dead.
        """
        try:
            async with asyncio.timeout(self._silence_s):
                return await self._connection.recv()
        except TimeoutError as error:
            reason = f"{self._service} sent nothing for {self._silence_s:g} seconds"
            raise CallFailed(Cause.UNREACHABLE, reason) from error
        except ConnectionClosed as error:
            raise self._closed(error) from error

    async def send(self, frame: str | bytes) -> None:
        """Send a frame.

        Raises:
            CallFailed: the connection is closed, or the platform does not read.
        """
        try:
            async with asyncio.timeout(_SEND_LIMIT_S):
                await self._connection.send(frame)
        except TimeoutError as error:
            reason = f"{self._service} does not read what is sent"
            raise CallFailed(Cause.UNREACHABLE, reason) from error
        except ConnectionClosed as error:
            raise self._closed(error) from error

    def send_soon(self, frame: str | bytes) -> None:
        """Send a frame in the background, in order; only while `serve_sockets` serves the socket.

        Nothing happens if the connection is closed, or if the platform does not read.
        """
        with suppress(asyncio.QueueFull):
            self._queued.put_nowait(frame)

    async def aclose(self) -> None:
        """Close the connection. Can be called again."""
        await self._connection.close()

    async def _send_queued(self) -> None:
        while True:
            await self.send(await self._queued.get())

    @asynccontextmanager
    async def _sending(self) -> AsyncIterator[None]:
        """Send what `send_soon` queues during the block, and then close the connection."""
        try:
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(self._send_queued(), name=f"{self._service} frames")
                try:
                    yield
                finally:
                    sending.cancel()
        finally:
            await self.aclose()

    def _closed(self, error: ConnectionClosed) -> SocketClosed:
        return SocketClosed(self._service, error.rcvd.code if error.rcvd is not None else None)


class _Connect(connect):
    """Does not follow redirects: the address contains a ticket for its host."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def open_socket(
    url: str,
    *,
    service: str,
    silence_s: float,
    headers: Mapping[str, str] | None = None,
    ping_s: float | None = _PING_S,
) -> Socket:
    """Open a connection, within 20 seconds, without proxies of the environment.

    Args:
        url: ``wss``, or ``ws`` to the loopback.
        service: name of the platform, for failures.
        silence_s: most seconds between two frames of a working connection.
        headers: of the request.
        ping_s: seconds between pings of the protocol; ``None`` if the platform does not answer
            them.

    Raises:
        HandshakeRefused: the platform answered with another status.
        CallFailed: it cannot be reached, or the address is not a valid one.
    """
    if not _is_allowed(url):
        reason = f"{service} named an address for its socket that is not 'wss'"
        raise CallFailed(Cause.UNREACHABLE, reason)
    tls = await asyncio.to_thread(_tls) if url.startswith("wss:") else None
    try:
        connection = await _Connect(
            url,
            additional_headers=dict(headers or {}),
            user_agent_header="nanobot",
            proxy=None,
            open_timeout=_OPEN_LIMIT_S,
            close_timeout=_CLOSE_LIMIT_S,
            ping_interval=ping_s,
            ping_timeout=ping_s,
            max_size=_MAX_BYTES,
            logger=_LOG,
            ssl=tls,
        )
    except InvalidStatus as error:
        answer = error.response
        lowered = {name.lower(): value for name, value in answer.headers.raw_items()}
        raise HandshakeRefused(service, answer.status_code, lowered) from None
    except (OSError, TimeoutError, WebSocketException, ValueError) as error:
        # The text of these errors may contain the address, and so does their traceback.
        reason = f"{service} cannot be reached ({type(error).__name__})"
        raise CallFailed(Cause.UNREACHABLE, reason) from None
    return Socket(connection, service, silence_s)


Serve: TypeAlias = Callable[[Socket, Callable[[], None]], Awaitable[None]]
"""Receives from a socket; see `serve_sockets`."""


async def serve_sockets(
    connect_socket: Callable[[], Awaitable[Socket]], serve: Serve, clock: Clock
) -> None:
    """Serve one connection after another, until one is lost.

    Args:
        connect_socket: opens the next connection.
        serve: receives from a connection. It calls its second argument when the platform announces
            the end of the connection: a new one is opened, and the old one is still served until
            the platform closes it, for at most ten seconds. It returns to ask for a new connection
            at once. After connections of less than a minute, pauses grow.

    Raises:
        CallFailed: `serve` or `connect_socket` raised it.
    """
    pause_s, old = 0.0, None
    async with asyncio.TaskGroup() as group:
        while True:
            socket = await connect_socket()
            began_s = clock.monotonic_s()
            if old is not None:
                group.create_task(_retire(old, clock), name="old socket ends")
            is_over = asyncio.Event()
            old = group.create_task(_serve(socket, serve, is_over), name="socket")
            await is_over.wait()
            is_short = clock.monotonic_s() - began_s < _SHORT_S
            await clock.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - jitter, no secret
            pause_s = min(max(1.0, 2 * pause_s), _LONGEST_PAUSE_S) if is_short else 0.0


async def _serve(socket: Socket, serve: Serve, is_over: asyncio.Event) -> None:
    try:
        async with socket._sending():  # noqa: SLF001 - a class of this module
            await serve(socket, is_over.set)
    except* CallFailed:
        if not is_over.is_set():
            raise
    is_over.set()


async def _retire(serving: asyncio.Task[None], clock: Clock) -> None:
    async with asyncio.TaskGroup() as group:
        limit = group.create_task(clock.sleep(_OLD_LIMIT_S))
        await asyncio.wait({serving, limit}, return_when=asyncio.FIRST_COMPLETED)
        limit.cancel()
    serving.cancel()


def _is_allowed(url: str) -> bool:
    try:
        address = urlsplit(url)
        if address.scheme == "wss":
            return bool(address.hostname)
        return address.scheme == "ws" and ip_address(address.hostname or "").is_loopback
    except ValueError:
        return False


@cache
def _tls() -> ssl.SSLContext:
    """Made once, because it reads the certificates from disk."""
    return ssl.create_default_context()
