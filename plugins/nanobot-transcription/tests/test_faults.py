"""Services that fail, over real connections."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from loguru import logger

from nanobot_core import (
    AuthenticationFailed,
    BadRequest,
    Overloaded,
    ProviderError,
    ProviderProtocolError,
    ProviderTimeout,
    RateLimited,
    Unreachable,
)
from nanobot_core.testing import HTTP_FAULTS, FakeClock

if TYPE_CHECKING:
    from conftest import InstantClock, Serving


Reply: TypeAlias = Mapping[str, Any]


def refused(status: int, message: str = "refused", code: str = "c", **headers: str) -> Reply:
    body = json.dumps({"error": {"message": message, "code": code}}).encode()
    return {"status": status, "body": body, "headers": headers}


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(20):
        yield


def _open_handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        pytest.param(refused(400), BadRequest, id="refused"),
        pytest.param(refused(401), AuthenticationFailed, id="key"),
        pytest.param(refused(402), AuthenticationFailed, id="credit"),
        pytest.param(refused(403), AuthenticationFailed, id="forbidden"),
        pytest.param(refused(404), BadRequest, id="no such address"),
        pytest.param(refused(408), ProviderTimeout, id="slow client"),
        pytest.param(refused(413), BadRequest, id="too large"),
        pytest.param(refused(415), BadRequest, id="format"),
        pytest.param(refused(429), RateLimited, id="rate"),
        pytest.param(refused(429, code="insufficient_quota"), AuthenticationFailed, id="quota"),
        pytest.param(refused(500), Overloaded, id="failure"),
        pytest.param({"status": 503, "body": b"<html>busy</html>"}, Overloaded, id="page"),
        pytest.param(
            {"status": 500, "body": b"x" * 65_536, "body_repeat": 1_600}, Overloaded, id="100 MB"
        ),
        pytest.param(
            {"status": 307, "headers": {"location": "/v2"}, "body": b""}, BadRequest, id="moved"
        ),
        pytest.param({"status": 204, "body": b""}, ProviderProtocolError, id="no content"),
        pytest.param({"body": b""}, ProviderProtocolError, id="empty"),
        pytest.param({"body": b"{]"}, ProviderProtocolError, id="no JSON"),
        pytest.param({"body": b"[" * 100_000}, ProviderProtocolError, id="deep"),
        pytest.param({"body": b"[]"}, ProviderProtocolError, id="no object"),
        pytest.param({"body": b"{}"}, ProviderProtocolError, id="no text"),
        pytest.param({"body": b'{"text": null}'}, ProviderProtocolError, id="null"),
        pytest.param({"body": b'{"text": ["x"]}'}, ProviderProtocolError, id="list"),
        pytest.param({"body": b'{"error": "bad audio"}'}, ProviderProtocolError, id="error in 200"),
        pytest.param({"body": b"\xff\xfe\x00"}, ProviderProtocolError, id="no UTF-8"),
        pytest.param(
            {"body": b"x", "headers": {"content-encoding": "gzip"}},
            ProviderProtocolError,
            id="compressed badly",
        ),
        pytest.param({"stop_after_bytes": 0}, Unreachable, id="no answer"),
        pytest.param({"stop_after_bytes": 90}, Unreachable, id="cut"),
        pytest.param({"stop_after_bytes": 0, "stop": "reset"}, Unreachable, id="reset"),
    ],
)
async def test_a_failing_service_gives_a_typed_error_and_leaves_nothing_open(
    serving: Serving, clock: InstantClock, reply: Reply, kind: type[ProviderError]
) -> None:
    handles, tasks = _open_handles(), len(asyncio.all_tasks())
    async with serving(reply, reply, reply, clock=clock) as desk:
        with pytest.raises(ProviderError) as raised:
            await desk.transcriber.transcribe(desk.recording)

        assert type(raised.value) is kind
        assert raised.value.provider == "custom"
        assert desk.service.attempts == (3 if kind.retryable else 1)
        assert clock.waits == ([1.0, 2.0] if kind.retryable else [])
        await desk.transcriber.aclose()
        await desk.service.wait_for_no_connections()
    gc.collect()
    assert _open_handles() <= handles
    assert len(asyncio.all_tasks()) <= tasks


async def test_a_service_that_refuses_the_size_before_it_has_read_all_is_understood(
    serving: Serving, clock: InstantClock, tmp_path: Path
) -> None:
    large = tmp_path / "large.ogg"
    large.write_bytes(b"OggS" + b"x" * 8_000_000)
    reply = {**refused(413), "unread": True}
    async with serving(reply, reply, reply, clock=clock) as desk:
        with pytest.raises(ProviderError) as raised:
            await desk.transcriber.transcribe(large)
    # Whether the answer or the broken connection comes first is the network's affair.
    assert isinstance(raised.value, BadRequest | Unreachable)


@pytest.mark.parametrize("failures", [1, 2])
async def test_a_service_that_recovers_is_asked_again(
    serving: Serving, clock: InstantClock, failures: int
) -> None:
    async with serving(*[refused(503)] * failures, clock=clock) as desk:
        assert await desk.transcriber.transcribe(desk.recording) == "hello there"
        assert clock.waits == [1.0, 2.0][:failures]
        assert len({upload.data for upload in desk.service.uploads}) == 1


async def test_the_wait_that_a_service_asks_for_is_kept(
    serving: Serving, clock: InstantClock
) -> None:
    replies = [
        refused(429, **{"retry-after": "7"}),
        refused(503, **{"retry-after": "Thu, 01 Jan 2026 00:00:27 GMT"}),
    ]
    async with serving(*replies, clock=clock) as desk:
        assert await desk.transcriber.transcribe(desk.recording) == "hello there"
    assert clock.waits == [7.0, 20.0]


@pytest.mark.parametrize("wait", ["3600", "60", "Fri, 02 Jan 2026 00:00:00 GMT"])
async def test_a_wait_beyond_the_time_limit_is_not_begun(
    serving: Serving, clock: InstantClock, wait: str
) -> None:
    async with serving(refused(429, **{"retry-after": wait}), clock=clock) as desk:
        with pytest.raises(RateLimited) as raised:
            await desk.transcriber.transcribe(desk.recording)
        assert desk.service.attempts == 1
    assert raised.value.retry_after_s is not None
    assert raised.value.retry_after_s >= 60
    assert clock.waits == []


@pytest.mark.parametrize("wait", ["soon", "nan", "-5", ""])
async def test_a_wait_that_is_not_a_time_is_passed_over(
    serving: Serving, clock: InstantClock, wait: str
) -> None:
    async with serving(refused(429, **{"retry-after": wait}), clock=clock) as desk:
        assert await desk.transcriber.transcribe(desk.recording) == "hello there"
    assert clock.waits == [1.0]


@pytest.mark.parametrize("stop_after_bytes", [0, 90])
async def test_a_silent_service_is_left_after_the_time_limit(
    serving: Serving, stop_after_bytes: int
) -> None:
    reply = {"stop_after_bytes": stop_after_bytes, "stop": "stall"}
    async with serving(reply, timeoutS=0.2) as desk:
        with pytest.raises(ProviderTimeout, match=r"0\.2 seconds \(transcription\.timeout_s\)"):
            await desk.transcriber.transcribe(desk.recording)
        await desk.service.wait_for_no_connections()


async def test_waiting_between_attempts_counts_into_the_time_limit(serving: Serving) -> None:
    async with serving(refused(503), clock=FakeClock(), timeoutS=1.01) as desk:
        with pytest.raises(ProviderTimeout):
            await desk.transcriber.transcribe(desk.recording)


async def test_cancelling_closes_the_connection(serving: Serving) -> None:
    reply = {"stop_after_bytes": 0, "stop": "stall"}
    async with serving(reply) as desk, asyncio.TaskGroup() as group:
        call = group.create_task(desk.transcriber.transcribe(desk.recording))
        await desk.service.wait_for_attempts(1)
        call.cancel()
        await desk.service.wait_for_no_connections()
        await asyncio.wait({call})
        assert call.cancelled()


async def test_a_service_that_is_not_there_is_unreachable(
    serving: Serving, clock: InstantClock
) -> None:
    async with serving() as gone:
        address = gone.service.url
    async with serving(apiBase=address, clock=clock) as desk:
        with pytest.raises(Unreachable, match="no connection"):
            await desk.transcriber.transcribe(desk.recording)
    assert clock.waits == [1.0, 2.0]


async def test_a_proxy_that_is_not_there_is_unreachable(
    serving: Serving, clock: InstantClock
) -> None:
    async with serving() as gone:
        proxy = f"http://user:hidden@127.0.0.1:{gone.service.port}"
    async with serving(proxy=proxy, clock=clock) as desk:
        with pytest.raises(Unreachable) as raised:
            await desk.transcriber.transcribe(desk.recording)
        assert desk.service.attempts == 0
    assert "hidden" not in str(raised.value)


async def test_what_speaks_no_http_is_reported(serving: Serving, clock: InstantClock) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ready\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with serving(apiBase=f"http://127.0.0.1:{port}", clock=clock) as desk:
            with pytest.raises(Unreachable):
                await desk.transcriber.transcribe(desk.recording)


@pytest.mark.parametrize("status", [400, 401, 404, 500])
async def test_neither_key_nor_recording_nor_text_gets_into_errors_and_logs(
    serving: Serving, clock: InstantClock, status: int
) -> None:
    lines: list[str] = []
    sink = logger.add(lines.append, level=0, format="{message} {extra} {exception}")
    reply = refused(status, "the key sk-canary in\x1b[31m " + "x" * 1_000)
    try:
        async with serving(*[reply] * (3 if status == 500 else 1), clock=clock) as desk:
            with pytest.raises(ProviderError) as raised:
                await desk.transcriber.transcribe(desk.recording)
            await desk.transcriber.transcribe(desk.recording)
    finally:
        logger.remove(sink)
    told = str(raised.value)
    assert "sk-canary" not in told
    assert "Ann" not in told
    assert "\x1b" not in told
    assert len(told) < 400
    assert not any("hello there" in line or "sk-canary" in line for line in lines)


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (401, "set transcription.api_key or TRANSCRIPTION_API_KEY"),
        (404, "transcription.api_base and transcription.model"),
        (413, "transcription.max_bytes"),
        (302, "transcription.api_base"),
    ],
)
async def test_errors_name_the_setting_that_helps(
    serving: Serving, status: int, remedy: str
) -> None:
    async with serving(refused(status)) as desk:
        with pytest.raises(ProviderError) as raised:
            await desk.transcriber.transcribe(desk.recording)
    assert remedy in str(raised.value)
    assert raised.value.status == status


async def test_an_endless_answer_is_cut_off(serving: Serving, clock: InstantClock) -> None:
    reply = {"body": b"x" * 65_536, "body_repeat": 200}
    async with serving(reply, reply, reply, clock=clock) as desk:
        with pytest.raises(ProviderProtocolError, match="longer than 4,000,000 bytes"):
            await desk.transcriber.transcribe(desk.recording)


@pytest.mark.parametrize("status", [200, 400])
async def test_an_answer_that_unpacks_to_much_stays_small_in_memory(
    serving: Serving, clock: InstantClock, status: int
) -> None:
    reply = {
        "status": status,
        "headers": {"content-encoding": "gzip"},
        "body": HTTP_FAULTS["100 MB of JSON in gzip"][0].body,
    }
    tracemalloc.start()
    try:
        async with serving(reply, reply, reply, clock=clock) as desk:
            with pytest.raises(ProviderError):
                await desk.transcriber.transcribe(desk.recording)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


async def test_what_the_service_says_about_a_format_reaches_the_owner(serving: Serving) -> None:
    async with serving(refused(400, "Unsupported file format amr")) as desk:
        with pytest.raises(BadRequest, match="Unsupported file format amr"):
            await desk.transcriber.transcribe(desk.recording)
