"""The provider before a service that fails, over real connections."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import socket
import traceback
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from nanobot_core import (
    AnswerTooLong,
    BadRequest,
    ChatRequest,
    Completed,
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
from nanobot_core.testing import OpenAIServer, Reply, ScriptedCall

pytestmark = pytest.mark.anyio

Serving = Callable[..., AbstractAsyncContextManager[tuple[LLMProvider, OpenAIServer]]]
Build = Callable[..., LLMProvider]
REQUEST = ChatRequest(messages=(Message(role="user", content="hello"),), model="test")
EVENTS = "text/event-stream"
BOMB = gzip.compress(b": " + b"x" * 100_000_000, 9)


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


def _events(*payloads: object, end: bytes = b"data: [DONE]\n\n") -> Reply:
    lines = b"".join(b"data: %b\n\n" % json.dumps(payload).encode() for payload in payloads)
    return Reply(body=lines + end, content_type=EVENTS)


def _delta(text: str, finish: str | None = None) -> dict[str, object]:
    return {"choices": [{"delta": {"content": text}, "finish_reason": finish}]}


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        pytest.param(Reply(body=b""), ProviderProtocolError, id="empty body"),
        pytest.param(Reply(body=b"", content_type=EVENTS), ProviderProtocolError, id="no event"),
        pytest.param(Reply(body=b"{]"), ProviderProtocolError, id="no JSON"),
        pytest.param(Reply(body=b"[]"), ProviderProtocolError, id="no object"),
        pytest.param(Reply(body=b"{}"), ProviderProtocolError, id="no choice"),
        pytest.param(_events("text"), ProviderProtocolError, id="events that are no chunks"),
        pytest.param(_events(), ProviderProtocolError, id="nothing but the end"),
        pytest.param(_events(_delta("x"), end=b""), ProviderProtocolError, id="no end"),
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
        ),
        pytest.param(
            Reply(body=b": " + b"x" * 65_533 + b"\n", body_repeat=1_600, content_type=EVENTS),
            AnswerTooLong,
            id="100 MB of nothing",
        ),
        pytest.param(
            Reply(status=500, body=b"x" * 65_536, body_repeat=1_600),
            Overloaded,
            id="100 MB of error",
        ),
        pytest.param(
            Reply(body=BOMB, headers={"content-encoding": "gzip"}),
            AnswerTooLong,
            id="100 MB of JSON in gzip",
        ),
        pytest.param(
            Reply(body=BOMB, headers={"content-encoding": "gzip"}, content_type=EVENTS),
            AnswerTooLong,
            id="100 MB of events in gzip",
        ),
        pytest.param(
            Reply(status=500, body=BOMB, headers={"content-encoding": "gzip"}),
            Overloaded,
            id="100 MB of error in gzip",
        ),
        pytest.param(
            Reply(body=b"x", headers={"content-encoding": "br"}),
            ProviderProtocolError,
            id="packed in a way that was not asked for",
        ),
        pytest.param(
            Reply(calls=tuple(ScriptedCall(name="look", id=f"c{n}") for n in range(3_000))),
            AnswerTooLong,
            id="3,000 calls",
        ),
        pytest.param(
            Reply(
                calls=(ScriptedCall(name="look", arguments="x" * 10_000_000),), chunk_chars=9_999
            ),
            AnswerTooLong,
            id="10 MB of arguments",
        ),
        pytest.param(
            _events(_delta("x"), {"error": {"code": 502, "message": "m"}}),
            Overloaded,
            id="error chunk",
        ),
        pytest.param(
            Reply(body=b'event: error\ndata: {"code": 429}\n\n', content_type=EVENTS),
            RateLimited,
            id="error event",
        ),
        pytest.param(Reply(body=b'{"error": {"code": 400}}'), BadRequest, id="error as an answer"),
        pytest.param(_events(_delta("x", "error")), Overloaded, id="the service gave up"),
        pytest.param(Reply(text="x" * 999, stop_after_bytes=900), Unreachable, id="cut"),
        pytest.param(
            Reply(text="x" * 999, stop_after_bytes=900, stop="reset"), Unreachable, id="reset"
        ),
        pytest.param(
            Reply(status=307, body=b"", headers={"location": "/x"}), BadRequest, id="moved"
        ),
    ],
)
async def test_a_failing_service_gives_a_typed_error_and_leaves_nothing_open(
    serving: Serving, reply: Reply, error: type[ProviderError]
) -> None:
    async with serving(reply) as (provider, server):
        handles, tasks = _open_handles(), len(asyncio.all_tasks())
        with pytest.raises(ProviderError) as raised:
            await _stream(provider)
        await provider.aclose()
        await server.wait_for_connections(0)
        gc.collect()
        assert _open_handles() <= handles
        assert len(asyncio.all_tasks()) <= tasks
    assert type(raised.value) is error


@pytest.mark.parametrize("stop_after_bytes", [0, 600])
async def test_a_silent_service_is_left_after_the_time_limit(
    serving: Serving, stop_after_bytes: int
) -> None:
    reply = Reply(text="x" * 999, stop_after_bytes=stop_after_bytes, stop="stall")
    async with serving(reply, timeout_s=0.1) as (provider, server):
        with pytest.raises(ProviderTimeout):
            await _stream(provider)
        await server.requests[0].disconnected.wait()


async def test_the_longest_call_follows_the_limit_on_silence(build: Build) -> None:
    assert build(api_base="http://127.0.0.1:9", timeout_s=30).longest_call_s == 300


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "x-gzip"])
async def test_an_answer_that_a_proxy_has_packed_is_read(serving: Serving, encoding: str) -> None:
    body = json.dumps({"choices": [{"message": {"content": "whole"}}]}).encode()
    packed = zlib.compress(body) if encoding == "deflate" else gzip.compress(body)
    stream = gzip.compress(_events(_delta("whole", "stop")).body or b"")
    headers = {"content-encoding": encoding}
    async with serving(Reply(body=packed, headers=headers)) as (provider, server):
        assert (await provider.chat(REQUEST)).content == "whole"
        assert server.requests[0].headers["accept-encoding"] == "identity"
    events = Reply(
        body=stream, headers={"content-encoding": "gzip"}, content_type=EVENTS, write_bytes=3
    )
    async with serving(events) as (provider, _):
        assert (await _stream(provider)).content == "whole"


async def test_failed_tls_is_reported_as_unreachable(build: Build) -> None:
    async def answer_plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"no TLS here\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer_plainly, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        provider = build(api_base=f"https://127.0.0.1:{port}")
        with pytest.raises(Unreachable, match="SSL"):
            await _stream(provider)
        await provider.aclose()


async def test_a_refused_connection_is_reported_with_the_host_and_a_remedy(build: Build) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        provider = build(api_base=f"http://localhost:{port}/v1")
        with pytest.raises(Unreachable) as raised:
            await _stream(provider)
        await provider.aclose()
    assert raised.value.reason == (
        f"localhost:{port} refuses the connection; start the service there or set "
        "providers.custom.api_base"
    )


async def test_a_proxy_that_is_not_running_is_named(build: Build) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        proxy = f"http://127.0.0.1:{port}"
        provider = build(api_base="https://service.invalid/v1", proxy=proxy)
        with pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port} .*providers\.custom\.proxy"):
            await _stream(provider)
        await provider.aclose()


async def test_an_unknown_host_is_named(build: Build) -> None:
    provider = build(api_base="http://service.invalid/v1")
    with pytest.raises(Unreachable, match=r"the host 'service\.invalid' is not found"):
        await _stream(provider)
    await provider.aclose()


async def test_a_proxy_that_refuses_is_reported_as_unreachable(
    serving: Serving, build: Build
) -> None:
    async with serving() as (_, server):
        provider = build(api_base="https://service.invalid/v1", proxy=server.origin)
        with pytest.raises(Unreachable, match="proxy"):
            await _stream(provider)
        await provider.aclose()


async def test_requests_go_through_the_proxy(serving: Serving, build: Build) -> None:
    async with serving(Reply(text="through")) as (_, server):
        provider = build(api_base="http://service.invalid/v1", proxy=server.origin)
        assert (await _stream(provider)).content == "through"
        assert server.requests[0].headers["host"] == "service.invalid"
        await provider.aclose()


@pytest.mark.parametrize(
    "reply",
    [
        _events(_delta("whole", "stop"), end=b""),
        _events(_delta("whole")),
        Reply(
            body=json.dumps({"choices": [{"message": {"content": "whole"}}]}).encode(),
        ),
        Reply(
            body=b'data: {"choices": [{"delta": {"content": "whole"}}]}\n\ndata: [DONE]\n\n',
            content_type="",
        ),
    ],
    ids=["no mark of the end", "no finish reason", "not streamed", "no content type"],
)
async def test_an_answer_that_is_complete_in_its_own_way_is_taken(
    serving: Serving, reply: Reply
) -> None:
    async with serving(reply) as (provider, _):
        assert (await _stream(provider)).content == "whole"


@pytest.mark.parametrize("write_bytes", [1, 2, 7, 64])
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


async def test_a_service_that_never_ends_the_stream_does_not_hold_the_answer(
    serving: Serving,
) -> None:
    body = _events(_delta("whole", "stop")).body or b""
    reply = Reply(body=body + b": x", content_type=EVENTS, stop_after_bytes=len(body), stop="stall")
    async with serving(reply) as (provider, server):
        assert (await _stream(provider)).content == "whole"
        await server.requests[0].disconnected.wait()


async def test_an_answer_without_usage_counts_nothing(serving: Serving) -> None:
    async with serving(Reply(text="x", usage=None)) as (provider, _):
        assert (await _stream(provider)).usage.total_tokens == 0


async def test_one_connection_serves_call_after_call(serving: Serving) -> None:
    async with serving() as (provider, server):
        for _ in range(3):
            await _stream(provider)
            await provider.chat(REQUEST)
        assert server.connections_seen == 1


async def test_connections_beyond_those_worth_keeping_are_closed(serving: Serving) -> None:
    gate = asyncio.Event()
    async with serving(*[Reply(text="x", gate=gate)] * 110) as (provider, server):
        async with asyncio.TaskGroup() as group:
            for _ in range(110):
                group.create_task(_stream(provider))
            await server.wait_for_requests(110)
            gate.set()
        await server.wait_for_connections(100)
        assert server.connections_seen == 110
        assert server.connections_open == 100


async def test_closing_during_a_call_leaves_no_connection(serving: Serving) -> None:
    gate = asyncio.Event()
    async with serving(Reply(text="x", gate=gate)) as (provider, server):
        async with asyncio.TaskGroup() as group:
            call = group.create_task(_stream(provider))
            await server.wait_for_requests(1)
            await provider.aclose()
            gate.set()
        assert call.result().content == "x"
        await server.wait_for_connections(0)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=401, body=b'{"error": "Bearer sk-canary-1"}'),
        Reply(status=400, body=b'{"error": "you sent sk-canary-1 and hd-canary-2"}'),
        Reply(body=b"x", content_type="sk-canary-1"),
        Reply(body=b'{"error": {"message": "hd-canary-2", "code": "sk-canary-1"}}'),
        Reply(text="x", stop_after_bytes=0),
    ],
)
async def test_no_secret_stands_in_an_error_or_its_traceback(
    serving: Serving, reply: Reply
) -> None:
    section = {"api_key": "sk-canary-1", "extra_headers": {"X-Key": "hd-canary-2"}}
    async with serving(reply, **section) as (provider, server):
        with pytest.raises(ProviderError) as raised:
            await _stream(provider)
        assert server.requests[0].headers["authorization"] == "Bearer sk-canary-1"
        assert server.requests[0].headers["x-key"] == "hd-canary-2"
    text = "".join(traceback.format_exception(raised.value)) + repr(raised.value)
    assert "canary" not in text
