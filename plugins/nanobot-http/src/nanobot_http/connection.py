"""A connection with limits on how long a peer may hold it and how much it may send."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from nanobot_core import Mount

_TOO_LARGE = "the body is too large"


class BodyLimit:
    """Answers 413 to a body whose announced or actual size is too large.

    Starlette's middleware of this kind ends the application's answer with an exception of its own
    private class, which `PluginMounts` could not distinguish from an error of the plugin.

    Args:
        app: reads the body, if it wants to.
        max_bytes: limit of mounts without one of their own.
        mount_of: returns the mount that a path falls under, or ``None``.
    """

    def __init__(
        self, app: ASGIApp, max_bytes: int, mount_of: Callable[[str], Mount | None]
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._mount_of = mount_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        size, mount = 0, self._mount_of(scope["path"])
        own = mount.max_body_bytes if mount else None
        max_bytes = self._max_bytes if own is None else own

        async def counted_receive() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > max_bytes:
                raise HTTPException(413, _TOO_LARGE)
            return message

        # That the length is a number, and not a long one, has been checked by h11.
        if int(Headers(scope=scope).get("content-length", "0")) > max_bytes:
            await PlainTextResponse(_TOO_LARGE, 413)(scope, receive, send)
        else:
            await self._app(scope, counted_receive, send)


MAX_CONNECTIONS = 128
MAX_HEAD_BYTES = 32 * 1024
HEAD_LIMIT_S = 10.0
"""Seconds from the first byte of a request, or from connecting, to the end of its headers."""
FLUSH_LIMIT_S = 30.0
"""Seconds that a peer may leave a response unread."""


class _Limit:
    """A call after some seconds, unless it is cancelled."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, call: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._call = call
        self._timer: asyncio.TimerHandle | None = None

    @property
    def counts(self) -> bool:
        """Whether it runs."""
        return self._timer is not None

    def begin(self) -> None:
        """Start now; does nothing if it is running."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._call)

    def call_off(self) -> None:
        """Cancel it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class BoundedConnection(H11Protocol):
    """uvicorn's connection with the limits that it lacks.

    uvicorn bounds the size of headers and the pause between requests. It waits for the rest of a
    request's head, and for a peer that does not read, as long as the connection stays open. When
    there are too many connections, the one that has waited longest for its peer makes room: peers
    that open connections and send nothing do not exclude others.
    """

    head_limit_s = HEAD_LIMIT_S
    flush_limit_s = FLUSH_LIMIT_S

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head = _Limit(self.loop, self.head_limit_s, self._close)
        self._flush = _Limit(self.loop, self.flush_limit_s, self._abort)
        self._since_s = 0.0
        self._is_dropped = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection; if there are too many, close an idle one, or else this one."""
        super().connection_made(transport)
        # asyncio does this for sockets that name their protocol, and those of `create_server` do
        # not. Without it, the first piece of a stream waits for the peer to confirm the headers,
        # which takes 40 ms (RFC 896, section "The small-packet problem"; RFC 1122, 4.2.3.2).
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._since_s = self.loop.time()
        if len(self.connections) > MAX_CONNECTIONS:
            others = [one for one in self.connections if isinstance(one, BoundedConnection)]
            # This one waits too, and is the youngest.
            min((one for one in others if one.waits_for_peer), key=lambda one: one.since_s).drop()
        if not self._is_dropped:
            self._head.begin()

    @property
    def since_s(self) -> float:
        """Time of the loop at which the peer was asked for a request, or had sent a head."""
        return self._since_s

    @property
    def waits_for_peer(self) -> bool:
        """Whether the peer still has to send a head or a body, or to read a response."""
        if self._is_dropped:
            return False
        # uvicorn has no cycle before the first request.
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or self._flush.counts:
            return True
        return cycle.more_body and not cycle.response_started

    def drop(self) -> None:
        """Close the connection at once, to make room for another."""
        self._is_dropped = True
        self.transport.abort()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._since_s = self.loop.time()
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes; between requests, wait for the next head."""
        before: RequestResponseCycle | None = self.cycle
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not before:
            self._since_s = self.loop.time()
        if cycle is None or cycle.response_complete:
            self._head.begin()
        else:
            self._head.call_off()

    def pause_writing(self) -> None:
        """Pause the application, within a limit."""
        super().pause_writing()
        self._flush.begin()

    def resume_writing(self) -> None:
        """Resume the application."""
        super().resume_writing()
        self._flush.call_off()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, even if its peer has not read the last response."""
        super().timeout_keep_alive_handler()
        self._flush.begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the limits of a lost connection."""
        super().connection_lost(exc)
        self._head.call_off()
        self._flush.call_off()

    def _close(self) -> None:
        self.transport.close()
        self._flush.begin()

    def _abort(self) -> None:
        self.transport.abort()
