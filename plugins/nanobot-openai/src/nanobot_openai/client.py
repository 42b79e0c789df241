"""Sends requests over httpx and turns its errors into ours; only `transport.py` knows it too."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import httpx

from nanobot_core import (
    BadRequest,
    JsonObject,
    ProviderError,
    ProviderProtocolError,
    ProviderTimeout,
    Unreachable,
)
from nanobot_openai.endpoint import Endpoint
from nanobot_openai.failure import FailureReader
from nanobot_openai.transport import TransportStack

_CONNECT_LIMIT_S = 10.0
_KEEPALIVE_S = 60.0
"""Turns pause while tools run; a new TLS handshake for each iteration would cost more."""
_DRAIN_LIMIT_S = 0.25
_ERROR_BODY_BYTES = 65_536
_WHOLE_ANSWER_BYTES = 16_000_000
_STREAM_BYTES = 64_000_000

# From the special to the general; the first match counts. httpx.HTTPStatusError is never raised
# here and httpx.StreamError would mean that the client was closed during a call.
_FAILURES: tuple[tuple[type[Exception], type[ProviderError], str], ...] = (
    (httpx.TimeoutException, ProviderTimeout, "it did not answer within its time"),
    (httpx.ConnectError, Unreachable, "no connection could be made"),
    (httpx.ProxyError, Unreachable, "the proxy gave no connection"),
    (httpx.NetworkError, Unreachable, "the connection broke"),
    (httpx.RemoteProtocolError, Unreachable, "the connection ended early or speaks no HTTP"),
    (httpx.LocalProtocolError, BadRequest, "the request cannot be sent as HTTP"),
    (httpx.UnsupportedProtocol, BadRequest, "the address is not http or https; correct api_base"),
    (httpx.InvalidURL, BadRequest, "the address is not valid; correct api_base"),
    (httpx.StreamError, Unreachable, "the connection was closed during the call"),
    (httpx.HTTPError, ProviderProtocolError, "the answer cannot be read"),
    (httpx.CookieConflict, ProviderProtocolError, "the answer cannot be read"),
)


class Client:
    """Sends chat requests to one endpoint over connections that are kept.

    Made by `open_client`, because that takes tens of milliseconds of CPU.
    """

    def __init__(self, endpoint: Endpoint, failures: FailureReader) -> None:
        self._endpoint = endpoint
        self._failures = failures
        is_tls = endpoint.url.startswith("https:")
        # Loading the certificates takes 20 ms; without TLS any context will do.
        context = httpx.create_ssl_context() if is_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        proxy = httpx.Proxy(endpoint.proxy) if endpoint.proxy else None
        limits = httpx.Limits(max_connections=1, keepalive_expiry=_KEEPALIVE_S)

        def build_transport() -> httpx.AsyncHTTPTransport:
            return httpx.AsyncHTTPTransport(
                verify=context, proxy=proxy, limits=limits, trust_env=False
            )

        self._http = httpx.AsyncClient(
            transport=TransportStack(build_transport),
            # Answers are short texts; decompressing them costs more than it saves.
            headers={"accept-encoding": "identity", **endpoint.headers},
            timeout=httpx.Timeout(
                endpoint.timeout_s, connect=min(_CONNECT_LIMIT_S, endpoint.timeout_s), pool=None
            ),
            trust_env=False,
        )

    @asynccontextmanager
    async def post(self, body: JsonObject) -> AsyncIterator[Response]:
        """Send `body` and give the response once its head has come with a status of 200.

        Every failure of the connection is raised as ours, those within the block included.

        Raises:
            ProviderError: by what the caller should do.

        Cancellation:
            The connection is closed at once.
        """
        content = json.dumps(body, ensure_ascii=False).encode()
        headers = {"content-type": "application/json"}
        try:
            async with self._http.stream(
                "POST", self._endpoint.url, content=content, headers=headers
            ) as answer:
                response = Response(answer, self._failures.provider)
                if answer.status_code != httpx.codes.OK:
                    beginning = await response.read_beginning(_ERROR_BODY_BYTES)
                    raise self._failures.from_status(
                        answer.status_code, dict(answer.headers), beginning
                    )
                yield response
        except tuple(kind for kind, _, _ in _FAILURES) as error:
            raise self.failure_of(error) from error

    def failure_of(self, error: Exception) -> ProviderError:
        """Return our error for one of httpx."""
        ours, reason = next(
            (ours, reason) for theirs, ours, reason in _FAILURES if isinstance(error, theirs)
        )
        # Only here does the text tell the owner more than the class: refused, unknown name, TLS.
        detail = f": {error}" if isinstance(error, httpx.ConnectError) else ""
        return ours(
            self._failures.provider,
            self._failures.clean(f"{reason} ({type(error).__name__}{detail})"),
        )

    async def aclose(self) -> None:
        """Close all connections. May be called again."""
        await self._http.aclose()


def open_client(endpoint: Endpoint, failures: FailureReader) -> Client:
    """Return a client that is ready for its first request. Call it in a thread of its own."""
    client = Client(endpoint, failures)
    # Otherwise the first connection would import anyio's half of the event loop, on that loop.
    anyio.run(anyio.sleep, 0)
    return client


class Response:
    """A response whose body has not been read yet."""

    def __init__(self, answer: httpx.Response, provider: str) -> None:
        self._provider = provider
        self._bytes = answer.aiter_bytes()
        self._received_bytes = 0
        self.media_type = answer.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def read_piece(self) -> bytes:
        """Return the next bytes of the body as they come; nothing means its end.

        Raises:
            ProviderProtocolError: the body grows beyond what a stream may hold.
        """
        piece = await anext(self._bytes, b"")
        self._received_bytes += len(piece)
        self._check_size(self._received_bytes, _STREAM_BYTES)
        return piece

    async def read_json(self) -> object:
        """Return the body as JSON.

        Raises:
            ProviderProtocolError: it is too long, empty or no JSON.
        """
        body = bytearray()
        async for chunk in self._bytes:
            body += chunk
            self._check_size(len(body), _WHOLE_ANSWER_BYTES)
        try:
            parsed: object = json.loads(body)
        except (ValueError, RecursionError):
            reason = f"its answer of {len(body):,} bytes is no JSON"
            raise ProviderProtocolError(self._provider, reason) from None
        return parsed

    async def read_beginning(self, max_bytes: int) -> bytes:
        """Return at most `max_bytes` of the body, whatever follows."""
        body = bytearray()
        async for chunk in self._bytes:
            body += chunk
            if len(body) >= max_bytes:
                break
        return bytes(body[:max_bytes])

    async def drain(self) -> None:
        """Read what follows a complete answer, briefly, so that the connection can be kept."""
        with suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(_DRAIN_LIMIT_S):
                async for _ in self._bytes:
                    pass

    def _check_size(self, received: int, max_bytes: int) -> None:
        if received > max_bytes:
            reason = f"its answer is longer than {max_bytes:,} bytes and was cut"
            raise ProviderProtocolError(self._provider, reason)
