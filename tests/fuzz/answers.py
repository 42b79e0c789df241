"""Answers of model services over the wire, for the targets that read them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final, TypeAlias

import httpx

from nanobot_core import (
    ChatRequest,
    Completed,
    LLMResponse,
    Message,
    ProviderError,
    ProviderSpec,
    ReasoningDelta,
    TextDelta,
)
from nanobot_core.agent.attempt import _check_size
from nanobot_core.providers import Endpoint, FailureReader, HTTPProvider
from nanobot_core.providers.client import ServiceResponse
from nanobot_core.sessions.records import encode_record
from nanobot_core.testing import FakeClock

Build: TypeAlias = Callable[[ProviderSpec, Endpoint, FailureReader], HTTPProvider]
Outcome: TypeAlias = "LLMResponse | tuple[object, str]"

KINDS: Final = ("text/event-stream", "application/json", "")
"""Media types of answers."""
_MAX_COUNT: Final = 1 << 63
_LOOP: Final = asyncio.new_event_loop()


class FuzzedService:
    """A provider before a service that answers with given bytes.

    Args:
        build: makes the provider.
        name: of the provider.
        model: of each request.
    """

    def __init__(self, build: Build, name: str, model: str = "m") -> None:
        self._name = name
        self._model = model
        failures = FailureReader(provider=name, key_hint="", secrets=("sk-1",), clock=FakeClock())
        endpoint = Endpoint(
            base="http://127.0.0.1/v1", headers={}, proxy=None, timeout_s=1, secrets=()
        )
        self._provider = build(ProviderSpec(name=name, factory="m:f"), endpoint, failures)

    def check(self, kind: str, body: bytes, piece_bytes: int) -> None:
        """Check that an answer is the same at once and in pieces, and can be stored."""
        pieces = [body[i : i + piece_bytes] for i in range(0, len(body), piece_bytes)]
        assert self._outcome(kind, [body]) == self._outcome(kind, pieces)

    def _outcome(self, kind: str, pieces: Sequence[bytes]) -> Outcome:
        """Return the answer, or the class and the text of the error."""
        self._provider._client = _Client(kind, pieces)  # type: ignore[assignment]
        outcome = _LOOP.run_until_complete(self._call())
        _LOOP.run_until_complete(asyncio.sleep(0))  # what was left unread is closed
        return outcome

    async def _call(self) -> Outcome:
        text: list[str] = []
        reasoning: list[str] = []
        try:
            stream = self._provider.chat_stream(self._request())
            assert isinstance(stream, AsyncGenerator)
            async with aclosing(stream) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        text.append(event.text)
                    elif isinstance(event, ReasoningDelta):
                        reasoning.append(event.text)
                    elif isinstance(event, Completed):
                        streamed = LLMResponse(
                            content="".join(text) or None, reasoning="".join(reasoning) or None
                        )
                        assert streamed.content == event.response.content
                        assert streamed.reasoning == event.response.reasoning
                        self._check_stored(event.response)
                        return event.response
        except ProviderError as error:
            return type(error), str(error)
        raise AssertionError("the stream ended without an answer and without an error")

    def _check_stored(self, response: LLMResponse) -> None:
        """What is stored of an answer and sent back can be written as JSON."""
        _check_size(self, response)  # type: ignore[arg-type]
        usage = response.usage
        counts = (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
        assert all(0 <= count < _MAX_COUNT for count in (*counts, usage.reasoning_tokens))
        assert usage.cost_usd is None or (math.isfinite(usage.cost_usd) and usage.cost_usd >= 0)
        message = Message(
            role="assistant",
            content=response.content or "",
            tool_calls=response.tool_calls,
            reasoning=response.reasoning,
            provider_blocks=response.provider_blocks,
        )
        encode_record(message)
        ids = [call.id for call in message.tool_calls]
        results = [Message(role="tool", content="x", tool_call_id=one) for one in ids]
        self._provider.encode(self._request(message, *results), stream=True).decode("utf-8")

    @property
    def provider_name(self) -> str:
        """Name of the provider, as `_check_size` reads it of a model."""
        return self._name

    def _request(self, *messages: Message) -> ChatRequest:
        first = Message(role="user", content="hello")
        return ChatRequest(messages=(first, *messages), model=self._model)


class _Client:
    """Answers each request with the same pieces."""

    def __init__(self, kind: str, pieces: Sequence[bytes]) -> None:
        self._kind, self._pieces = kind, pieces

    @asynccontextmanager
    async def post(
        self, _path: str, _body: bytes, _headers: Mapping[str, str]
    ) -> AsyncIterator[ServiceResponse]:
        headers = {"content-type": self._kind} if self._kind else {}
        answer = httpx.Response(200, headers=headers, stream=_Stream(self._pieces))
        response = ServiceResponse(answer, "openai")
        try:
            yield response
        finally:
            await response._bytes.aclose()


class _Stream(httpx.AsyncByteStream):
    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
