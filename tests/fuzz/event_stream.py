"""Answers of services over the wire: pieces do not matter, and what comes out can be stored."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final

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
from nanobot_core.agent.model_call import _check_size
from nanobot_core.providers import Endpoint, FailureReader
from nanobot_core.providers.client import ServiceResponse
from nanobot_core.sessions.records import encode_record
from nanobot_core.testing import FakeClock
from nanobot_openai.provider import OpenAIProvider
from tests.fuzz.choices import Choices

TOKENS: Final = (
    b"data: ", b"event: error\n", b"data: [DONE]\n\n", b"\r\n\r\n", b"\r\r", b"\xef\xbb\xbf",
    b": x",
    b'{"choices": [{"delta": {', b'"content": "', b'"reasoning_content": "', b'"tool_calls": [{',
    b'"index": 0', b'"id": "', b'"function": {"name": "', b'"arguments": "', b'"finish_reason": "',
    b'"usage": {', b'"prompt_tokens": ', b'"total_tokens": ', b'"cost": ', b"1e999", b"NaN",
    b'"error": {"code": ', b'"message": {', b'"reasoning_details": [{', b'"extra_content": {',
    b"\\ud83d", b"[[[[[[[[[[[[[[[[", b'{"a":{"a":{"a":{"a":', b"9" * 200, b'"thinking": [{',
)  # fmt: skip
_MAX_COUNT: Final = 1 << 63
_LOOP: Final = asyncio.new_event_loop()


def fuzz_one(data: bytes) -> None:
    """Let a service answer with any bytes, at once and in pieces."""
    choices = Choices(data)
    kind = ("text/event-stream", "application/json", "")[choices.byte() % 3]
    name = ("openai", "openrouter", "mistral", "deepseek")[choices.byte() % 4]
    size = 1 + choices.byte()
    body = choices.rest()
    whole = _outcome(name, kind, [body])
    assert whole == _outcome(name, kind, [body[i : i + size] for i in range(0, len(body), size)])


def seeds() -> Iterator[bytes]:
    """Yield answers in the forms of several services."""
    for stream in (
        (
            b'data: {"choices":[{"delta":{"role":"assistant","content":"Hel"}}]}\n\n'
            b'data: {"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}],'
            b'"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"cost":0.01}}\n\n'
            b"data: [DONE]\n\n"
        ),
        (
            b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":'
            b'{"name":"look","arguments":"{\\"a\\":"}}]}}]}\r\n\r\n'
            b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]'
            b'},"finish_reason":"tool_calls"}]}\r\n\r\ndata: [DONE]\r\n\r\n'
        ),
        (
            b': ping\n\ndata: {"choices":[{"delta":{"reasoning_content":"hm","reasoning_details":'
            b'[{"type":"reasoning.text","text":"h"},{"type":"reasoning.text","text":"m"}]}}]}\n\n'
            b'data: {"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"text":"x"}]},'
            b'{"type":"text","text":"y"}]},"finish_reason":"length"}]}\n\ndata: [DONE]\n\n'
        ),
        b'event: error\ndata: {"error":{"code":429,"message":"slow down"}}\n\n',
    ):
        yield b"\x00\x00\x07" + stream
        yield b"\x00\x01\x00" + stream
    yield (
        b'\x01\x00\x10{"choices":[{"message":{"content":"Hi","tool_calls":[{"id":"a","function":'
        b'{"name":"look","arguments":{"x":1}},"extra_content":{"sig":"s"}}]},'
        b'"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}'
    )


def _outcome(name: str, kind: str, pieces: Sequence[bytes]) -> LLMResponse | tuple[object, str]:
    """Return the answer, or the class and the text of the error."""
    outcome = _LOOP.run_until_complete(_call(name, kind, pieces))
    _LOOP.run_until_complete(asyncio.sleep(0))  # what was left unread is closed
    return outcome


async def _call(name: str, kind: str, pieces: Sequence[bytes]) -> LLMResponse | tuple[object, str]:
    provider = _provider(name, kind, pieces)
    text: list[str] = []
    reasoning: list[str] = []
    try:
        stream = provider.chat_stream(_request())
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
                    _check(provider, event.response)
                    return event.response
    except ProviderError as error:
        return type(error), str(error)
    raise AssertionError("the stream ended without an answer and without an error")


def _check(provider: OpenAIProvider, response: LLMResponse) -> None:
    """What is stored of an answer and sent back can be written as JSON."""
    _check_size(_Model(), response)  # type: ignore[arg-type]
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
    results = [Message(role="tool", content="x", tool_call_id=one.id) for one in message.tool_calls]
    provider.encode(_request(message, *results), stream=True).decode("utf-8")


class _Model:
    provider_name = "openai"


def _request(*messages: Message) -> ChatRequest:
    return ChatRequest(messages=(Message(role="user", content="hello"), *messages), model="m")


def _provider(name: str, kind: str, pieces: Sequence[bytes]) -> OpenAIProvider:
    failures = FailureReader(provider=name, key_hint="", secrets=("sk-1",), clock=FakeClock())
    endpoint = Endpoint(base="http://127.0.0.1/v1", headers={}, proxy=None, timeout_s=1, secrets=())
    spec = ProviderSpec(name=name, factory="nanobot_openai.provider:build_provider")
    provider = OpenAIProvider(spec, endpoint, failures)
    provider._client = _Client(kind, pieces)  # type: ignore[assignment]
    return provider


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
