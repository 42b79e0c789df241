"""Sends requests over httpx and turns its errors into ours."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress

import httpx

from nanobot_core.errors import AnswerTooLong, ProviderProtocolError
from nanobot_core.net import HTTPX_ERRORS, unpacked_body
from nanobot_core.providers.answer import MAX_ANSWER_BYTES, MAX_STREAM_BYTES, parse_payload
from nanobot_core.providers.endpoint import Endpoint
from nanobot_core.providers.failure import FailureReader
from nanobot_core.providers.transport import DirectTransport

_CONNECT_LIMIT_S = 10.0
_KEEPALIVE_S = 60.0
"""Turns pause while tools run; a new TLS handshake for each iteration would cost more."""
_DRAIN_LIMIT_S = 0.25
_ERROR_BODY_BYTES = 65_536
_HEADERS = {
    "accept": "*/*",
    # Answers are short texts; decompressing them costs more than it saves.
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": "nanobot",
}


class ServiceClient:
    """Sends requests to one endpoint over connections that are kept.

    Create it in a thread, in an empty context: it takes tens of milliseconds of CPU.
    """

    def __init__(self, endpoint: Endpoint, failures: FailureReader) -> None:
        self._failures = failures
        self._endpoint = endpoint
        self._urls: dict[str, httpx.URL] = {}
        self._headers = httpx.Headers({**_HEADERS, **endpoint.headers})
        self._limits = httpx.Timeout(
            endpoint.timeout_s, connect=min(_CONNECT_LIMIT_S, endpoint.timeout_s), pool=None
        ).as_dict()
        self._transport = _transport(httpx.URL(endpoint.base), endpoint.proxy)

    def post(
        self, path: str, body: bytes, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[ServiceResponse]:
        """Send `body`, JSON, to `path` of the endpoint; see `get`."""
        return self._sent("POST", path, body, headers)

    def get(
        self, path: str, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[ServiceResponse]:
        """Give the response of `path` after its head has arrived with a status of 200.

        Every failure of the connection is raised as ours, those within the block included.

        Args:
            path: below the endpoint's base URL, with a leading slash.
            headers: in addition to the endpoint's.

        Raises:
            ProviderError: its class says what the caller should do.

        Cancellation:
            The connection is closed at once.
        """
        return self._sent("GET", path, None, headers)

    @asynccontextmanager
    async def _sent(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> AsyncIterator[ServiceResponse]:
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = httpx.URL(self._endpoint.url(path))
        request = httpx.Request(
            method,
            url,
            headers=httpx.Headers({**self._headers, **headers}) if headers else self._headers,
            content=body,
            extensions={"timeout": self._limits},
        )
        try:
            # Cookies, redirects and log-ins, which a client adds, have no place here.
            async with aclosing(await self._transport.handle_async_request(request)) as answer:
                response = ServiceResponse(answer, self._failures.provider)
                if answer.status_code != httpx.codes.OK:
                    beginning = await response.read_beginning(_ERROR_BODY_BYTES)
                    raise self._failures.from_status(
                        answer.status_code, dict(answer.headers), beginning
                    )
                yield response
        except HTTPX_ERRORS as error:
            base, proxy = self._endpoint.base, self._endpoint.proxy
            raise self._failures.from_httpx(error, base, proxy) from error

    async def aclose(self) -> None:
        """Close all connections. May be called again."""
        await self._transport.aclose()


def _transport(url: httpx.URL, proxy: str | None) -> httpx.AsyncBaseTransport:
    # Loading the certificates takes 20 ms; without TLS any context will do.
    is_tls = url.scheme == "https"
    context = httpx.create_ssl_context() if is_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if proxy is None:
        return DirectTransport(url, context, _KEEPALIVE_S)
    import anyio

    # Otherwise the first connection would import anyio's half of the event loop, on that loop.
    anyio.run(anyio.sleep, 0)
    limits = httpx.Limits(max_connections=None, keepalive_expiry=_KEEPALIVE_S)
    return httpx.AsyncHTTPTransport(
        verify=context, proxy=httpx.Proxy(proxy), limits=limits, trust_env=False
    )


class ServiceResponse:
    """A response whose body has not been read yet."""

    def __init__(self, answer: httpx.Response, provider: str) -> None:
        self._provider = provider
        # Not asked for, but some proxies pack what they pass on.
        self._bytes = unpacked_body(answer, MAX_STREAM_BYTES)
        self._received_bytes = 0
        self.media_type: str = (
            answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        )

    async def read_piece(self) -> bytes:
        """Return the next bytes of the body as they come; nothing means its end.

        Raises:
            AnswerTooLong: the body grows beyond what a stream may hold.
        """
        piece = await anext(self._bytes, b"")
        self._received_bytes += len(piece)
        self._check_size(self._received_bytes, MAX_STREAM_BYTES)
        return piece

    async def read_json(self) -> object:
        """Return the body as JSON.

        Raises:
            AnswerTooLong: it is longer than an answer may be.
            ProviderProtocolError: it is empty or no JSON.
        """
        body = bytearray()
        async for chunk in self._bytes:
            body += chunk
            self._check_size(len(body), MAX_ANSWER_BYTES)
        try:
            parsed = parse_payload(body)
        except (ValueError, RecursionError):
            reason = f"its answer of {len(body):,} bytes is not JSON"
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
            reason = f"its answer is longer than {max_bytes:,} bytes"
            raise AnswerTooLong(self._provider, reason)
