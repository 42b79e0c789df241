"""The way on which every request of LiteLLM goes: guarded, limited and observed.

LiteLLM reports a failed connection by classes of its own, turns a stream that was cut into a
complete answer, follows redirects and bounds no answer. So it sends nothing by itself here: each of
its requests passes through the exchange of the call that it belongs to.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import TypeVar

import httpx

from nanobot_core import AnswerTooLong, ProviderError, ProviderProtocolError
from nanobot_core.net import HTTPX_ERRORS, failure_of, unpacked_body
from nanobot_core.providers import (
    MAX_ANSWER_BYTES,
    MAX_EVENT_BYTES,
    MAX_STREAM_BYTES,
    Endpoint,
    EventParser,
    EventTooLargeError,
    FailureReader,
)

_T = TypeVar("_T")

_CONNECT_LIMIT_S = 10.0
_KEEPALIVE_S = 60.0
_DRAIN_LIMIT_S = 0.25
_ERROR_BODY_BYTES = 65_536
_EVENTS = "text/event-stream"
_MEDIA_TYPES = ("json", "event", "octet-stream", "text/plain")
"""Parts of the media types of answers; Bedrock's is ``application/vnd.amazon.eventstream``."""
_KEY_HEADERS = ("authorization", "api-key", "x-api-key", "x-goog-api-key")
_MIN_KEY_CHARS = 8
"""Shorter texts, such as ``None``, are no keys and occur in messages."""
_END_MARKS = ('"finishReason"', '"blockReason"')


class Connections:
    """The connections of one provider.

    Create it in a thread: it loads certificates.
    """

    def __init__(self, endpoint: Endpoint, failures: FailureReader) -> None:
        self.failures = failures
        self._proxy = endpoint.proxy
        self._timeouts = httpx.Timeout(
            endpoint.timeout_s, connect=min(_CONNECT_LIMIT_S, endpoint.timeout_s), pool=None
        ).as_dict()
        self._transport = httpx.AsyncHTTPTransport(
            verify=httpx.create_ssl_context(),
            proxy=None if endpoint.proxy is None else httpx.Proxy(endpoint.proxy),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=_KEEPALIVE_S),
            trust_env=False,
        )

    async def send(self, request: httpx.Request) -> httpx.Response:
        """Send `request` and return the response, whose body has not been read.

        Raises:
            ProviderError: there is no connection, or it broke.
        """
        # Answers are short texts; packing them costs more than it saves.
        request.headers["accept-encoding"] = "identity"
        request.headers["user-agent"] = "nanobot"
        request.extensions = {**request.extensions, "timeout": self._timeouts}
        try:
            return await self._transport.handle_async_request(request)
        except HTTPX_ERRORS as error:
            raise self.failures.from_httpx(error, str(request.url), self._proxy) from error

    async def aclose(self) -> None:
        """Close all connections. May be called again."""
        await self._transport.aclose()


class Exchange:
    """The requests of one model call.

    Attributes:
        failure: the first failure; LiteLLM's own error hides it.
        failures: turns what the service reports into errors, without the keys that were sent.
        is_answered: an answer has begun.
        is_finished: the service has said why its answer ends.
    """

    def __init__(self, connections: Connections) -> None:
        self.failure: ProviderError | None = None
        self.is_answered = False
        self.is_finished = False
        self._connections = connections
        self.failures = connections.failures
        self._provider = connections.failures.provider

    async def run(self, work: Awaitable[_T]) -> _T:
        """Await `work` of LiteLLM, whose requests belong to this exchange."""
        token = _CURRENT.set(self)
        try:
            return await work
        finally:
            _CURRENT.reset(token)

    async def send(self, request: httpx.Request) -> httpx.Response:
        """Send `request` and return the response after its head has arrived with a status of 2xx.

        Raises:
            ProviderError: also kept as `failure`.
        """
        if self.failure is not None:
            # LiteLLM sends some requests again; retries belong to the core.
            raise self.failure
        secrets = {*self.failures.secrets, *_keys_in(request)}
        longest_first = tuple(sorted(secrets, key=len, reverse=True))
        self.failures = replace(self.failures, secrets=longest_first)
        try:
            answer = await self._connections.send(request)
            media_type = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
            failure = await self._failure_in(answer, media_type)
            if failure is not None:
                raise failure
        except ProviderError as failure:
            self.failure = failure
            raise
        self.is_answered = True
        headers = answer.headers.copy()
        for name in ("content-encoding", "content-length"):
            headers.pop(name, None)
        body = _Body(self, answer, self._pieces(answer, media_type))
        return httpx.Response(answer.status_code, headers=headers, stream=body)

    async def _failure_in(self, answer: httpx.Response, media_type: str) -> ProviderError | None:
        """Return the failure that the head of `answer` shows; with one the answer is closed."""
        if not answer.is_success:
            beginning = await _read_beginning(answer)
            return self.failures.from_status(answer.status_code, dict(answer.headers), beginning)
        if media_type and not any(part in media_type for part in _MEDIA_TYPES):
            await answer.aclose()
            found = self.failures.clean(media_type)
            reason = f"expected JSON or events in its answer, found {found}"
            return ProviderProtocolError(self._provider, reason)
        return None

    async def _pieces(self, answer: httpx.Response, media_type: str) -> AsyncGenerator[bytes, None]:
        """Yield the unpacked body of `answer` within the limits."""
        limit_bytes = MAX_STREAM_BYTES if "event" in media_type else MAX_ANSWER_BYTES
        parser = EventParser(MAX_EVENT_BYTES) if media_type == _EVENTS else None
        received = 0
        try:
            async for piece in unpacked_body(answer, MAX_STREAM_BYTES):
                received += len(piece)
                if received > limit_bytes:
                    reason = f"its answer is longer than {limit_bytes:,} bytes"
                    raise AnswerTooLong(self._provider, reason)
                for event in parser.feed(piece) if parser else ():
                    self.is_finished |= _is_last(event.data)
                yield piece
        except EventTooLargeError as error:
            self.failure = AnswerTooLong(self._provider, str(error))
            raise self.failure from error
        except HTTPX_ERRORS as error:
            kind, reason = failure_of(error)
            self.failure = kind(self._provider, self.failures.clean(reason))
            raise self.failure from error
        except ProviderError as failure:
            self.failure = failure
            raise


_CURRENT: ContextVar[Exchange | None] = ContextVar("nanobot_litellm_exchange", default=None)


class _Switch(httpx.AsyncBaseTransport):
    """Gives each request to the exchange of the call that sends it."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        exchange = _CURRENT.get()
        if exchange is None:
            raise httpx.ConnectError("LiteLLM may send requests only within a model call")
        return await exchange.send(request)


class _Body(httpx.AsyncByteStream):
    def __init__(
        self, exchange: Exchange, answer: httpx.Response, pieces: AsyncGenerator[bytes, None]
    ) -> None:
        self._exchange = exchange
        self._answer = answer
        self._pieces = pieces

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def aclose(self) -> None:
        """Close the response, after the rest of a complete answer: its connection can be kept."""
        if self._exchange.is_finished:
            with suppress(TimeoutError, ProviderError):
                async with asyncio.timeout(_DRAIN_LIMIT_S):
                    async for _ in self._pieces:
                        pass
        await self._pieces.aclose()
        await self._answer.aclose()


class _Client(httpx.AsyncClient):
    """The client of all calls, which stays open: LiteLLM closes some clients that it shares."""

    async def aclose(self) -> None:
        """Do nothing: it has no connections of its own."""


def open_client() -> httpx.AsyncClient:
    """Return a client for LiteLLM, whose requests pass through the exchange of their call."""
    return _Client(transport=_Switch(), follow_redirects=False, trust_env=False)


def _keys_in(request: httpx.Request) -> Iterator[str]:
    """Yield the keys in `request`, which LiteLLM may have found by itself."""
    sent = [request.headers.get(name, "").removeprefix("Bearer ") for name in _KEY_HEADERS]
    for key in (*sent, request.url.params.get("key", "")):
        if len(key) >= _MIN_KEY_CHARS:
            yield key


async def _read_beginning(answer: httpx.Response) -> bytes:
    beginning = bytearray()
    try:
        async for piece in unpacked_body(answer, MAX_STREAM_BYTES):
            beginning += piece
            if len(beginning) >= _ERROR_BODY_BYTES:
                break
    except HTTPX_ERRORS:
        pass  # the status says enough
    finally:
        await answer.aclose()
    return bytes(beginning[:_ERROR_BODY_BYTES])


def _is_last(data: str) -> bool:
    """Return whether an event of Gemini says why its answer ends, or why there is none.

    LiteLLM does not tell: it puts a reason into each piece of the stream.
    """
    if not any(mark in data for mark in _END_MARKS):
        return False
    event: object = None
    with suppress(ValueError, RecursionError):
        event = json.loads(data)
    if not isinstance(event, dict):
        return False
    feedback, candidates = event.get("promptFeedback"), event.get("candidates")
    if isinstance(feedback, dict) and feedback.get("blockReason"):
        return True
    return isinstance(candidates, list) and any(
        isinstance(candidate, dict) and candidate.get("finishReason") for candidate in candidates
    )
