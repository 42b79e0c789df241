"""Faults that take the form of this protocol, and where requests go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest

from nanobot_core import (
    AuthenticationFailed,
    BadRequest,
    ChatRequest,
    Completed,
    ContextTooLong,
    LLMProvider,
    LLMResponse,
    Message,
    Overloaded,
    ProviderError,
    ProviderProtocolError,
    ProviderTimeout,
    RateLimited,
)
from nanobot_core.testing import AnthropicServer, FakeClock, Reply, anthropic_error

pytestmark = pytest.mark.anyio

Serving = Callable[..., AbstractAsyncContextManager[tuple[LLMProvider, AnthropicServer]]]
Build = Callable[..., LLMProvider]
REQUEST = ChatRequest(messages=(Message(role="user", content="hello"),), model="test")
EVENTS = "text/event-stream"
START = {"type": "message_start", "message": {"usage": {"input_tokens": 1}}}
OPEN = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "x"}}
END = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
STOP = {"type": "message_stop"}


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(20):
        yield


async def _stream(provider: LLMProvider) -> LLMResponse:
    async for event in provider.chat_stream(REQUEST):
        if isinstance(event, Completed):
            return event.response
    raise AssertionError("no answer")


def _events(*payloads: object) -> Reply:
    lines = b"".join(b"data: %b\n\n" % json.dumps(payload).encode() for payload in payloads)
    return Reply(body=lines, content_type=EVENTS)


def _error_event(kind: str, message: str = "m") -> dict[str, object]:
    return {"type": "error", "error": {"type": kind, "message": message}}


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        pytest.param(_events(START, STOP), ProviderProtocolError, id="nothing but the end"),
        pytest.param(_events(START, OPEN), ProviderProtocolError, id="no end"),
        pytest.param(_events(START, OPEN, STOP), ProviderProtocolError, id="no stop reason"),
        pytest.param(
            _events(START, OPEN, _error_event("overloaded_error")), Overloaded, id="overload"
        ),
        pytest.param(_events(START, _error_event("rate_limit_error")), RateLimited, id="limit"),
        pytest.param(_events(_error_event("api_error")), Overloaded, id="failure"),
        pytest.param(_events(_error_event("timeout_error")), ProviderTimeout, id="time limit"),
        pytest.param(
            Reply(body=b'event: error\ndata: {"type": "error"}\n\n', content_type=EVENTS),
            Overloaded,
            id="error without words",
        ),
        pytest.param(
            Reply(body=json.dumps(_error_event("authentication_error")).encode()),
            AuthenticationFailed,
            id="error as an answer",
        ),
    ],
)
async def test_a_failing_service_gives_a_typed_error(
    serving: Serving, reply: Reply, error: type[ProviderError]
) -> None:
    async with serving(reply) as (provider, _):
        with pytest.raises(ProviderError) as raised:
            await _stream(provider)
    assert type(raised.value) is error


@pytest.mark.parametrize(
    ("status", "kind", "message", "error"),
    [
        (400, "invalid_request_error", "max_tokens: too large", BadRequest),
        (400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", ContextTooLong),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 9 + 1 > 8",
            ContextTooLong,
        ),
        (400, "invalid_request_error", "Your credit balance is too low", AuthenticationFailed),
        (401, "authentication_error", "invalid x-api-key", AuthenticationFailed),
        (402, "billing_error", "unpaid", AuthenticationFailed),
        (403, "permission_error", "no", AuthenticationFailed),
        (404, "not_found_error", "model: claude-9", BadRequest),
        (413, "request_too_large", "Request exceeds the maximum size", ContextTooLong),
        (429, "rate_limit_error", "slow down", RateLimited),
        (500, "api_error", "oops", Overloaded),
        (504, "timeout_error", "late", Overloaded),
        (529, "overloaded_error", "Overloaded", Overloaded),
    ],
)
async def test_each_error_of_the_service_has_the_type_that_says_what_to_do(
    serving: Serving, status: int, kind: str, message: str, error: type[ProviderError]
) -> None:
    async with serving(anthropic_error(status, kind, message)) as (provider, _):
        with pytest.raises(ProviderError) as raised:
            await provider.chat(REQUEST)
    assert type(raised.value) is error
    assert kind in str(raised.value)


@pytest.mark.parametrize(
    ("headers", "retry_after_s", "retryable"),
    [
        ({"retry-after": "7"}, 7.0, True),
        ({"retry-after": "7", "anthropic-ratelimit-requests-reset": "+30"}, 7.0, True),
        ({"anthropic-ratelimit-requests-reset": "+30"}, 30.0, True),
        (
            {
                "anthropic-ratelimit-input-tokens-reset": "+90",
                "anthropic-ratelimit-requests-reset": "+30",
            },
            90.0,
            True,
        ),
        ({"anthropic-ratelimit-requests-reset": "soon"}, None, True),
        ({"x-should-retry": "false"}, None, False),
    ],
)
async def test_the_service_says_how_long_to_wait(
    serving: Serving, headers: dict[str, str], retry_after_s: float | None, retryable: bool
) -> None:
    now = FakeClock().now()
    dates = {
        name: now.fromtimestamp(now.timestamp() + float(value), now.tzinfo).isoformat()
        if value.startswith("+")
        else value
        for name, value in headers.items()
    }
    reply = replace(anthropic_error(429, "rate_limit_error", "slow down"), headers=dates)
    async with serving(reply) as (provider, _):
        with pytest.raises(RateLimited) as raised:
            await provider.chat(REQUEST)
    assert raised.value.retry_after_s == retry_after_s
    assert raised.value.retryable is retryable


@pytest.mark.parametrize(
    "reply",
    [
        _events(START, OPEN, END),
        _events(START, {"type": "ping"}, OPEN, END, STOP),
        _events(OPEN, {"type": "to_come"}, END, STOP),
        _events(START, OPEN, END, STOP, "no event"),
        Reply(
            body=json.dumps(
                {
                    "type": "message",
                    "content": [{"type": "text", "text": "x"}],
                    "stop_reason": "end_turn",
                }
            ).encode()
        ),
    ],
    ids=["no end mark", "ping", "unknown event", "after the end", "not streamed"],
)
async def test_an_answer_that_is_complete_in_its_own_way_is_taken(
    serving: Serving, reply: Reply
) -> None:
    async with serving(reply) as (provider, _):
        assert (await _stream(provider)).content == "x"


async def test_a_service_that_never_ends_the_stream_does_not_hold_the_answer(
    serving: Serving,
) -> None:
    body = _events(START, OPEN, END, STOP).body or b""
    reply = Reply(body=body + b": x", content_type=EVENTS, stop_after_bytes=len(body), stop="stall")
    async with serving(reply) as (provider, server):
        assert (await _stream(provider)).content == "x"
        await server.requests[0].disconnected.wait()


@pytest.mark.parametrize(
    "path", ["", "/", "/v1", "/v1/", "/v1/v1", "/v1/messages", "/gate/anthropic", "/gate/v1"]
)
async def test_any_base_url_leads_to_messages(build: Build, path: str) -> None:
    async with AnthropicServer() as server:
        provider = build(api_base=server.origin + path)
        assert (await provider.chat(REQUEST)).content == "hello"
        expected = "/gate/anthropic/v1/messages" if "anthropic" in path else "/v1/messages"
        assert server.requests[0].path.endswith(expected)
        assert server.requests[0].path.count("/v1") == 1
        await provider.aclose()


async def test_the_headers_are_those_of_the_service(serving: Serving) -> None:
    async with serving() as (provider, server):
        await provider.chat(REQUEST)
        headers = server.requests[0].headers
        assert (headers["x-api-key"], headers["anthropic-version"]) == ("sk-test", "2023-06-01")
        assert "authorization" not in headers
    async with serving(extra_headers={"Anthropic-Version": "2026-10-21"}) as (provider, server):
        await provider.chat(REQUEST)
        assert server.requests[0].headers["anthropic-version"] == "2026-10-21"
