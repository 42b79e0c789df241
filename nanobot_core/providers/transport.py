"""Direct HTTP/1.1 connections to one service, under httpx's interface.

httpx's own transport looks through all its connections and all waiting requests for each request,
and passes each read and write through two more layers. It takes a third of the CPU of a turn; at
100 requests in flight it took all of it. h11 does here, as there, what HTTP asks for.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import h11
import httpx
from aiohappyeyeballs import start_connection

_MAX_IDLE = 100
"""A burst of that many sessions keeps its connections; each takes some kilobytes."""
_HEAD_BYTES = 100 * 1024
_UNREAD_BYTES = 256 * 1024
_PARTS_AT_ONCE = 256
"""Bytes that have arrived are read without waiting; other tasks run in between."""
_ATTEMPT_DELAY_S = 0.25
"""Until a host's next address is tried beside the first one, RFC 8305 section 5."""


class DirectTransport(httpx.AsyncBaseTransport):
    """Gives each request in flight a connection of its own, and keeps it for the next one.

    Free connections are taken last in, first out: the one used last is the likeliest to be still
    open, and a quiet program keeps to a few. Limits of time are those of the request.

    Args:
        url: an address of the service; all requests go to its host and port.
        context: TLS settings, for ``https``.
        keepalive_s: seconds that a free connection is kept.
    """

    def __init__(self, url: httpx.URL, context: ssl.SSLContext | None, keepalive_s: float) -> None:
        self._host = url.raw_host.decode("ascii")
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._context = context if url.scheme == "https" else None
        self._keepalive_s = keepalive_s
        self._idle: list[_Connection] = []
        self._is_closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request`; its connection is free again when the response has been read and closed.

        Raises:
            httpx.TransportError: by what failed.

        Cancellation:
            The connection is closed at once.
        """
        limits: Mapping[str, float | None] = request.extensions.get("timeout", {})
        connection = self._take() or await self._connect(limits.get("connect"))
        try:
            with _http_errors():
                head = await connection.ask(request, limits.get("write"), limits.get("read"))
        except BaseException:
            connection.abort()
            raise
        return httpx.Response(
            head.status_code,
            headers=head.headers.raw_items(),
            stream=_Body(connection, limits.get("read"), self),
            extensions={"http_version": b"HTTP/" + head.http_version},
        )

    def release(self, connection: _Connection) -> None:
        """Take a connection back whose response is done with, whatever has been read of it."""
        if self._is_closed or len(self._idle) >= _MAX_IDLE or not connection.start_next():
            connection.abort()
        else:
            connection.free_since_s = time.monotonic()
            self._idle.append(connection)

    async def aclose(self) -> None:
        """Close the free connections; the others follow when their responses are closed."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.abort()
        await asyncio.sleep(0)  # the loop closes the sockets in its next round

    def _take(self) -> _Connection | None:
        """Return the free connection used last; those that can no longer be used are closed."""
        oldest_s = time.monotonic() - self._keepalive_s
        while self._idle:
            connection = self._idle.pop()
            if connection.free_since_s >= oldest_s and connection.is_quiet():
                return connection
            connection.abort()
        return None

    async def _connect(self, limit_s: float | None) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit_s):
                found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
                # asyncio's own race of addresses loses a socket when it is cancelled.
                connected = await start_connection(found, happy_eyeballs_delay=_ATTEMPT_DELAY_S)
                _, connection = await loop.create_connection(
                    _Connection,
                    sock=connected,
                    ssl=self._context,
                    server_hostname=self._host if self._context else None,
                )
        except TimeoutError as error:
            raise httpx.ConnectTimeout(f"no connection to {self._host} in time") from error
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        return connection


class _Body(httpx.AsyncByteStream):
    """The body of a response, and with its end the end of the use of a connection."""

    def __init__(
        self, connection: _Connection, limit_s: float | None, transport: DirectTransport
    ) -> None:
        self._connection = connection
        self._limit_s = limit_s
        self._transport = transport

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts = 0
        while part := await self._next():
            yield part
            parts += 1
            if parts % _PARTS_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def aclose(self) -> None:
        self._transport.release(self._connection)

    async def _next(self) -> bytes:
        with _http_errors():
            return await self._connection.read(self._limit_s)


class _Connection(asyncio.Protocol):
    """One connection, used by one request at a time.

    Attributes:
        free_since_s: when it was used last, by the monotonic clock.
    """

    def __init__(self) -> None:
        self.free_since_s: float = 0.0
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        self._received = bytearray()
        self._has_ended = False
        self._failure: Exception | None = None
        self._is_full = False
        self._waiter: asyncio.Future[None] | None = None

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > _UNREAD_BYTES:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._has_ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended = True
        self._failure = exc
        self._is_full = False
        self._wake()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._wake()

    # --- a request

    async def ask(
        self, request: httpx.Request, write_limit_s: float | None, read_limit_s: float | None
    ) -> h11.Response:
        """Send `request` and return the head of the answer."""
        method, target, headers = request.method, request.url.raw_path, request.headers.raw
        events = (
            h11.Request(method=method, target=target, headers=headers),
            h11.Data(data=await request.aread()),
            h11.EndOfMessage(),
        )
        self._transport.write(b"".join(self._http.send(event) or b"" for event in events))
        while self._is_full:
            try:
                await self._change(write_limit_s)
            except TimeoutError as error:
                raise httpx.WriteTimeout("the request was not taken in time") from error
        while not isinstance(event := await self._event(read_limit_s), h11.Response):
            pass
        return event

    async def read(self, limit_s: float | None) -> bytes:
        """Return the next part of the body; nothing means its end."""
        event = await self._event(limit_s)
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    def start_next(self) -> bool:
        """Get ready for another request; False unless the answer was read to its end."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return self.is_quiet()

    def is_quiet(self) -> bool:
        """Whether the service has neither closed the connection nor sent anything more."""
        return not (self._has_ended or self._received or self._http.trailing_data[0])

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    async def _event(self, limit_s: float | None) -> h11.Event:
        while not isinstance(event := self._http.next_event(), h11.Event):
            await self._receive(limit_s)
        return event

    async def _receive(self, limit_s: float | None) -> None:
        """Wait for bytes and pass them to the parser."""
        while not self._received and not self._has_ended:
            try:
                await self._change(limit_s)
            except TimeoutError as error:
                raise httpx.ReadTimeout("the service sent nothing in time") from error
        if self._received:
            self._http.receive_data(bytes(self._received))
            self._received.clear()
            self._transport.resume_reading()
        elif self._failure is not None:
            raise httpx.ReadError(str(self._failure)) from self._failure
        elif self._http.their_state is h11.SEND_RESPONSE:
            raise httpx.RemoteProtocolError("the service closed the connection without an answer")
        else:
            self._http.receive_data(b"")

    async def _change(self, limit_s: float | None) -> None:
        """Wait until the loop reports something.

        Raises:
            TimeoutError: it did not in time.
        """
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = None if limit_s is None else loop.call_later(limit_s, _give_up, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _give_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())


@contextmanager
def _http_errors() -> Iterator[None]:
    """Turn h11's exceptions into those of httpx."""
    try:
        yield
    except h11.LocalProtocolError as error:
        raise httpx.LocalProtocolError(str(error)) from error
    except h11.RemoteProtocolError as error:
        raise httpx.RemoteProtocolError(str(error)) from error
