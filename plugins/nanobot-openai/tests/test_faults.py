"""The provider before a service that fails, over real connections."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from nanobot_core import (
    ChatRequest,
    Completed,
    LLMProvider,
    LLMResponse,
    Message,
    Overloaded,
    ProviderError,
    ProviderProtocolError,
    ProviderSettings,
    Unreachable,
)
from nanobot_core.testing import FakePluginContext, HTTPFaultContract, OpenAIServer, Reply
from nanobot_openai.provider import build_provider
from nanobot_openai.vendors import VENDORS

pytestmark = pytest.mark.anyio

Serving = Callable[..., AbstractAsyncContextManager[tuple[LLMProvider, OpenAIServer]]]
Build = Callable[..., LLMProvider]
REQUEST = ChatRequest(messages=(Message(role="user", content="hello"),), model="test")
EVENTS = "text/event-stream"
CUSTOM = next(spec for spec in VENDORS if spec.name == "custom")


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(20):
        yield


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


class TestFaults(HTTPFaultContract):
    def make_server(self, *replies: Reply) -> OpenAIServer:
        return OpenAIServer(replies)

    def make_provider(self, folder: Path, **section: object) -> LLMProvider:
        ctx = FakePluginContext(folder)
        return build_provider(ctx, CUSTOM, ProviderSettings.model_validate(section))


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        pytest.param(_events(), ProviderProtocolError, id="nothing but the end"),
        pytest.param(_events(_delta("x"), end=b""), ProviderProtocolError, id="no end"),
        pytest.param(
            _events(_delta("x"), {"error": {"code": 502, "message": "m"}}),
            Overloaded,
            id="error chunk",
        ),
        pytest.param(_events(_delta("x", "error")), Overloaded, id="the service gave up"),
    ],
)
async def test_an_answer_that_fails_in_the_middle_is_an_error(
    serving: Serving, reply: Reply, error: type[ProviderError]
) -> None:
    async with serving(reply) as (provider, _):
        with pytest.raises(error):
            await _stream(provider)


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
