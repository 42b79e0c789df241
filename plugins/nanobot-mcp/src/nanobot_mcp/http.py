"""HTTP to remote servers: limits where requests go, and the size of answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from nanobot_core.net import NetworkPolicy, resolve_checked
from nanobot_mcp.settings import ServerSettings
from nanobot_mcp.trouble import Trouble

_PORTS = {"http": 80, "https": 443}
_CONNECT_S = 30.0
_IDLE_S = 300.0
"""Seconds without a byte after which a streamed answer is abandoned."""

_SSE_IDLE_S = 3_600.0
"""The same for the stream of the SSE transport, which is idle between calls."""


class BodyRefused(httpx2.StreamError):
    """A body is refused. The SDK turns this type of error into an answer to its request."""


class OriginGuard(httpx2.AsyncBaseTransport):
    """Sends requests to the configured origin, and to other hosts only if the policy allows them.

    The configured address is the owner's choice and may be private. A server names other hosts,
    such as the authorization server of its login. So their addresses are checked, and the
    connection is made to a checked address.

    Args:
        max_bytes: size limit of a body. For event streams, the SDK limits each event.
        trouble: receives HTTP statuses.
    """

    def __init__(self, url: str, policy: NetworkPolicy, max_bytes: int, trouble: Trouble) -> None:
        self._origin = _origin(httpx2.URL(url))
        self._policy = policy
        self._max_bytes = max_bytes
        self._trouble = trouble
        self._network = httpx2.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request.

        Raises:
            TargetRefused: the policy does not allow the host.
            httpx2.TransportError: the request failed.
        """
        is_own = _origin(request.url) == self._origin
        if not is_own:
            await self._pin(request)
        # A small compressed body could fill the memory when it is decompressed.
        request.headers["Accept-Encoding"] = "identity"
        response = await self._network.handle_async_request(request)
        if is_own:
            self._note_status(request, response.status_code)
        self._bound(response)
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        await self._network.aclose()

    def _bound(self, response: httpx2.Response) -> None:
        kind = response.headers.get("content-type", "").lower()
        packing = response.headers.pop("content-encoding", "identity").lower()
        body = response.stream
        if isinstance(body, httpx2.AsyncByteStream):
            if packing != "identity":
                response.stream = _BoundedBody(
                    body, 0, f"compressed ({packing}), which is not supported"
                )
            elif not kind.startswith("text/event-stream"):
                reason = f"larger than tools.mcp.max_message_bytes allows ({self._max_bytes:,})"
                response.stream = _BoundedBody(body, self._max_bytes, reason)

    async def _pin(self, request: httpx2.Request) -> None:
        """Direct `request` to a checked address of its host; TLS still uses the name."""
        url = request.url
        port = url.port or _PORTS.get(url.scheme, 0)
        addresses = await resolve_checked(url.host, port, self._policy)
        request.url = url.copy_with(host=str(addresses[0]))
        request.extensions = {**request.extensions, "sni_hostname": url.host}

    def _note_status(self, request: httpx2.Request, status: int) -> None:
        if status in (401, 403) or (status >= 500 and request.method == "POST"):
            # The stream for notifications (GET) is optional, and servers refuse it in many ways.
            self._trouble.status = status
        elif status == 404 and "mcp-session-id" in request.headers:
            # Streamable HTTP, session management: the session has ended, start a new one.
            self._trouble.is_forgotten = True
        elif status < 400:
            self._trouble.status = None


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream, max_bytes: int, reason: str) -> None:
        self._body = body
        self._max_bytes = max_bytes
        self._reason = reason

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._body:
            size += len(part)
            if size > self._max_bytes:
                msg = f"the answer is {self._reason}"
                raise BodyRefused(msg)
            yield part

    async def aclose(self) -> None:
        await self._body.aclose()


def open_http(
    server: ServerSettings,
    guard: OriginGuard,
    auth: httpx2.Auth | None,
    max_bytes: int,
) -> AbstractAsyncContextManager[Any]:
    """Return the SDK's transport for a remote server, with a client that uses `guard`.

    The SDK follows redirects only within the origin, and sends headers only there.
    """
    url = server.url or ""
    if server.transport == "sse":

        def make(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            return _client(guard, headers or {}, timeout or httpx2.Timeout(_CONNECT_S), auth)

        return sse_client(
            url,
            headers=dict(server.headers),
            timeout=_CONNECT_S,
            sse_read_timeout=_SSE_IDLE_S,
            httpx_client_factory=make,
            auth=auth,
        )
    idle_s = max(_IDLE_S, server.tool_timeout_s + _CONNECT_S)
    timeout = httpx2.Timeout(_CONNECT_S, read=idle_s)
    return _streamable(url, _client(guard, server.headers, timeout, auth), max_bytes)


@asynccontextmanager
async def _streamable(url: str, client: httpx2.AsyncClient, max_bytes: int) -> AsyncIterator[Any]:
    """Open the SDK's transport together with its client, which the SDK does not close."""
    async with (
        client,
        streamable_http_client(url, http_client=client, max_sse_event_size=max_bytes) as streams,
    ):
        yield streams


def _client(
    guard: OriginGuard,
    headers: dict[str, str],
    timeout: httpx2.Timeout,
    auth: httpx2.Auth | None,
) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        transport=guard,
        headers=dict(headers),
        timeout=timeout,
        auth=auth,
        follow_redirects=False,
        trust_env=False,
    )


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or _PORTS.get(url.scheme)
