"""The provider before a service that fails, over real connections."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from nanobot_core import (
    AnswerTooLong,
    AuthenticationFailed,
    BadRequest,
    ChatRequest,
    Completed,
    ConfigError,
    ContextTooLong,
    LLMProvider,
    LLMResponse,
    Message,
    Overloaded,
    ProviderError,
    ProviderProtocolError,
    ProviderTimeout,
    RateLimited,
    Unreachable,
)
from nanobot_core.testing import (
    HTTP_FAULTS,
    AnthropicServer,
    GeminiServer,
    ModelServer,
    OpenAIServer,
    RecordedRequest,
    Reply,
    ScriptedCall,
)

pytestmark = pytest.mark.anyio

Serving = Callable[..., AbstractAsyncContextManager[tuple[LLMProvider, ModelServer]]]
Build = Callable[..., LLMProvider]
REQUEST = ChatRequest(messages=(Message(role="user", content="hello"),), model="test")
EVENTS = "text/event-stream"
BOMB = HTTP_FAULTS["100 MB of JSON in gzip"][0].body


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(20):
        yield


def _open_handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def _stream(provider: LLMProvider) -> LLMResponse:
    async for event in provider.chat_stream(REQUEST):
        if isinstance(event, Completed):
            return event.response
    raise AssertionError("no answer")


def _events(*payloads: object) -> Reply:
    lines = b"".join(b"data: %b\n\n" % json.dumps(payload).encode() for payload in payloads)
    return Reply(body=lines, content_type=EVENTS)


def _piece(part: dict[str, object], **fields: object) -> dict[str, object]:
    return {"candidates": [{"content": {"role": "model", "parts": [part]}, **fields}]}


CALL: dict[str, object] = {"functionCall": {"name": "look", "args": {}}}


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        pytest.param(Reply(body=b""), ProviderProtocolError, id="empty body"),
        pytest.param(Reply(body=b"", content_type=EVENTS), ProviderProtocolError, id="no event"),
        pytest.param(Reply(body=b"{]"), ProviderProtocolError, id="no JSON"),
        pytest.param(Reply(body=b"[]"), ProviderProtocolError, id="no object"),
        pytest.param(Reply(body=b"{}"), ProviderProtocolError, id="no candidate"),
        pytest.param(_events("text"), ProviderProtocolError, id="events that are no objects"),
        pytest.param(_events(_piece({"text": "x"})), ProviderProtocolError, id="no end"),
        pytest.param(_events(_piece(CALL)), ProviderProtocolError, id="a call and no end"),
        pytest.param(
            _events(_piece({"text": '"finishReason": "STOP"'})),
            ProviderProtocolError,
            id="an end only in the text",
        ),
        pytest.param(
            Reply(body=b"data: {]\n\n", content_type=EVENTS), ProviderProtocolError, id="bad event"
        ),
        pytest.param(
            Reply(body=b"x", content_type="image/png"), ProviderProtocolError, id="content type"
        ),
        pytest.param(
            Reply(body=b"x", headers={"content-encoding": "gzip"}),
            ProviderProtocolError,
            id="compressed badly",
        ),
        pytest.param(
            Reply(body=b"x" * 65_536, body_repeat=1_600), AnswerTooLong, id="100 MB of JSON"
        ),
        pytest.param(
            Reply(body=b"data: " + b"x" * 65_530, body_repeat=1_600, content_type=EVENTS),
            AnswerTooLong,
            id="100 MB in one event",
            marks=pytest.mark.long,
        ),
        pytest.param(
            Reply(body=b": " + b"x" * 65_533 + b"\n", body_repeat=1_600, content_type=EVENTS),
            AnswerTooLong,
            id="100 MB of nothing",
            marks=pytest.mark.long,
        ),
        pytest.param(
            Reply(status=500, body=b"x" * 65_536, body_repeat=1_600),
            Overloaded,
            id="100 MB of error",
            marks=pytest.mark.long,
        ),
        pytest.param(
            Reply(body=BOMB, headers={"content-encoding": "gzip"}),
            AnswerTooLong,
            id="100 MB of JSON in gzip",
            marks=pytest.mark.long,
        ),
        pytest.param(
            Reply(body=BOMB, headers={"content-encoding": "gzip"}, content_type=EVENTS),
            AnswerTooLong,
            id="100 MB of events in gzip",
        ),
        pytest.param(
            Reply(body=b"x", headers={"content-encoding": "br"}),
            ProviderProtocolError,
            id="packed in a way that was not asked for",
        ),
        pytest.param(
            Reply(calls=tuple(ScriptedCall(name=f"look{n}") for n in range(150))),
            AnswerTooLong,
            id="150 calls",
        ),
        pytest.param(
            Reply(calls=(ScriptedCall(name="look", arguments=json.dumps({"a": "x" * 2_000_000})),)),
            AnswerTooLong,
            id="2 MB of arguments",
        ),
        pytest.param(
            _events(_piece({"text": "x"}), {"error": {"code": 502, "message": "m"}}),
            Overloaded,
            id="error chunk",
        ),
        pytest.param(
            _events({"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED"}}),
            RateLimited,
            id="limit chunk",
        ),
        pytest.param(Reply(body=b'{"error": {"code": 400}}'), BadRequest, id="error as an answer"),
        pytest.param(Reply(text="x" * 999, stop_after_bytes=900), Unreachable, id="cut"),
        pytest.param(
            Reply(text="x" * 999, stop_after_bytes=900, stop="reset"), Unreachable, id="reset"
        ),
        pytest.param(
            Reply(status=307, body=b"", headers={"location": "/x"}), BadRequest, id="moved"
        ),
        pytest.param(Reply(status=403, body=b"{}"), AuthenticationFailed, id="403"),
        pytest.param(Reply(status=413, body=b"{}"), ContextTooLong, id="413"),
        pytest.param(Reply(status=529, body=b"{}"), Overloaded, id="529"),
    ],
)
async def test_a_failing_service_gives_a_typed_error_and_leaves_nothing_open(
    serving: Serving, reply: Reply, error: type[ProviderError]
) -> None:
    async with serving(reply) as (provider, server):
        await provider.warm_up()
        handles, tasks = _open_handles(), asyncio.all_tasks()
        with pytest.raises(ProviderError) as raised:
            await _stream(provider)
        await provider.aclose()
        await server.wait_for_connections(0)
        gc.collect()
        # asyncio closes generators that are no longer read in tasks of one step.
        if closing := asyncio.all_tasks() - tasks:
            await asyncio.wait(closing)
        assert _open_handles() <= handles
        assert len(server.requests) == 1
    assert type(raised.value) is error


@pytest.mark.parametrize("stop", ["close", "reset"])
@pytest.mark.parametrize("kind", [AnthropicServer, GeminiServer, OpenAIServer])
async def test_no_call_of_a_cut_stream_is_returned_wherever_it_is_cut(
    serving: Serving, kind: type[ModelServer], stop: Literal["close", "reset"]
) -> None:
    call = ScriptedCall(name="look", arguments='{"at": "the end of a rather long street"}')
    whole = Reply(text="I look.", calls=(call,), chunk_chars=8)
    # The stream without its last event, in any number of pieces.
    request = RecordedRequest(method="POST", path="/", headers={}, body={}, received_at_s=0)
    events = list(kind().render_events(whole, request))
    end = next(n for n, event in enumerate(events) if re.search(r'"(finish|stop_)\w*": ?"', event))
    length = len("\n\n".join(events[:end]))
    async with serving(whole, kind=kind) as (provider, server):
        assert (await _stream(provider)).tool_calls
        for cut in range(0, length, length // 8):
            server.extend(replace(whole, stop_after_bytes=cut, stop=stop))
            with pytest.raises(ProviderError):
                await _stream(provider)


@pytest.mark.parametrize("stop_after_bytes", [0, 600])
async def test_a_silent_service_is_left_after_the_time_limit(
    serving: Serving, stop_after_bytes: int
) -> None:
    reply = Reply(text="x" * 999, stop_after_bytes=stop_after_bytes, stop="stall")
    async with serving(reply, timeout_s=0.1) as (provider, server):
        with pytest.raises(ProviderTimeout):
            await _stream(provider)
        await server.requests[0].disconnected.wait()


async def test_a_complete_answer_is_kept_when_the_connection_does_not_end(serving: Serving) -> None:
    body = _events(_piece({"text": "whole"}, finishReason="STOP")).body or b""
    reply = Reply(body=body + b": x", content_type=EVENTS, stop_after_bytes=len(body), stop="stall")
    async with serving(reply, timeout_s=0.1) as (provider, _):
        assert (await _stream(provider)).content == "whole"


async def test_a_refused_connection_is_reported_with_the_host_and_a_remedy(build: Build) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        provider = build(
            api_base=f"http://localhost:{port}",
            api_key="sk-test",
            options={"custom_llm_provider": "gemini"},
        )
        with pytest.raises(Unreachable) as raised:
            await _stream(provider)
        await provider.aclose()
    assert raised.value.reason == (
        f"localhost:{port} refuses the connection; start the service there or set "
        "providers.litellm.api_base"
    )


async def test_an_unknown_host_is_named(build: Build) -> None:
    provider = build(
        api_base="https://service.invalid",
        api_key="sk-test",
        options={"custom_llm_provider": "gemini"},
    )
    with pytest.raises(Unreachable, match=r"the host 'service\.invalid' is not found"):
        await _stream(provider)
    await provider.aclose()


@pytest.mark.parametrize("kind", [GeminiServer, OpenAIServer])
async def test_requests_go_through_the_proxy(
    serving: Serving, build: Build, kind: type[ModelServer]
) -> None:
    async with serving(Reply(text="through"), kind=kind) as (_, server):
        options = {"custom_llm_provider": "gemini" if kind is GeminiServer else "openai"}
        provider = build(
            api_base="http://service.test/v1beta",
            api_key="sk-test",
            proxy=server.origin,
            options=options,
        )
        assert (await _stream(provider)).content == "through"
        assert server.requests[0].headers["host"] == "service.test"
        await provider.aclose()


@pytest.mark.parametrize("kind", [GeminiServer, OpenAIServer])
async def test_a_redirect_carries_the_key_to_no_other_host(
    serving: Serving, kind: type[ModelServer]
) -> None:
    async with kind() as other, serving(kind=kind) as (provider, server):
        for status in (301, 302, 307, 308):
            location = {"location": f"{other.origin}/v1beta/models/test:generateContent"}
            server.extend(Reply(status=status, body=b"", headers=location))
            with pytest.raises(BadRequest):
                await _stream(provider)
            server.extend(Reply(status=status, body=b"", headers=location))
            with pytest.raises(BadRequest):
                await provider.chat(REQUEST)
        assert not other.requests


@pytest.mark.parametrize("write_bytes", [1, 7, 64])
async def test_any_division_of_the_stream_gives_the_same_answer(
    serving: Serving, write_bytes: int
) -> None:
    call = ScriptedCall(name="look", arguments='{"at": "Köln 🦀"}')
    reply = Reply(text="Grüße 🦀", reasoning="hm", calls=(call,), write_bytes=write_bytes)
    async with serving(reply) as (provider, _):
        response = await _stream(provider)
    assert (response.content, response.reasoning) == ("Grüße 🦀", "hm")
    assert response.tool_calls[0].arguments == {"at": "Köln 🦀"}
    assert response.usage.total_tokens == 15


@pytest.mark.parametrize("kind", [GeminiServer, OpenAIServer])
async def test_one_connection_serves_call_after_call(
    serving: Serving, kind: type[ModelServer]
) -> None:
    async with serving(kind=kind) as (provider, server):
        for _ in range(3):
            await _stream(provider)
            await provider.chat(REQUEST)
        assert server.connections_seen == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=401, body=b'{"error": "Bearer sk-canary-1"}'),
        Reply(status=400, body=b'{"error": "you sent sk-canary-1 and hd-canary-2"}'),
        Reply(body=b"x", content_type="sk-canary-1"),
        _events({"error": {"code": 500, "message": "sk-canary-1", "status": "hd-canary-2"}}),
        Reply(body=b"sk-canary-1 is not JSON"),
        Reply(text="x", stop_after_bytes=0),
    ],
)
async def test_no_secret_is_in_an_error_its_traceback_or_the_output(
    serving: Serving, reply: Reply, capfd: pytest.CaptureFixture[str]
) -> None:
    section = {"api_key": "sk-canary-1", "extra_headers": {"X-Key": "hd-canary-2"}}
    async with serving(reply, reply, **section) as (provider, server):
        with pytest.raises(ProviderError) as raised:
            await _stream(provider)
        with pytest.raises(ProviderError) as raised_whole:
            await provider.chat(REQUEST)
        assert server.requests[0].headers["x-goog-api-key"] == "sk-canary-1"
        assert server.requests[0].headers["x-key"] == "hd-canary-2"
    for error in (raised.value, raised_whole.value):
        assert "canary" not in "".join(traceback.format_exception(error)) + repr(error)
    assert capfd.readouterr() == ("", "")


async def test_a_key_that_litellm_finds_by_itself_is_protected_as_well(
    serving: Serving, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "env-canary-3")
    reply = Reply(status=400, body=b'{"error": {"message": "you sent env-canary-3"}}')
    async with serving(reply, api_key=None) as (provider, server):
        with pytest.raises(BadRequest, match=r"you sent \[secret\]"):
            await _stream(provider)
    assert server.requests[0].headers["x-goog-api-key"] == "env-canary-3"
    with pytest.raises(ConfigError, match=r"providers\.litellm\.allow_http"):
        build(api_base="http://models.example.com/v1beta")
