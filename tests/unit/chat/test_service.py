"""Calls to the HTTP API of a platform, against a server on the loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("httpx")
pytest.importorskip("markdown_it")

from nanobot_core.chat import AccessToken, CallFailed, Cause, PlatformApi
from nanobot_core.testing import FakeClock

pytestmark = pytest.mark.anyio
SECRET = "secret-token"
Form = dict[str, str | tuple[str, bytes, str]]
Respond = Callable[[str], bytes | None]


def answer(body: bytes | dict[str, Any], status: int = 200, **headers: str) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


@dataclass
class Server:
    """What was requested, and what is answered next; ``None`` breaks the connection."""

    respond: Respond
    url: str = ""
    requests: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = [line for line in head.lower().splitlines() if line.startswith("content-length:")]
        body = await reader.readexactly(int(length[0].split(":")[1])) if length else b""
        self.requests.append(head + body.decode())
        if (response := self.respond(head.split(" ")[1])) is not None:
            writer.write(response)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def served(respond: Respond) -> AsyncIterator[Server]:
    server = Server(respond)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server


def code_of(status: int, body: dict[str, Any]) -> CallFailed | None:
    code = body.get("code", 0)
    return CallFailed(Cause.CREDENTIALS, f"code {code}") if code else None


@asynccontextmanager
async def api_of(respond: Respond) -> AsyncIterator[tuple[Server, PlatformApi]]:
    async with served(respond) as server:
        headers = {"Authorization": SECRET}
        api = PlatformApi(server.url, service="Acme", failure=code_of, headers=headers)
        try:
            yield server, api
        finally:
            await api.aclose()


async def failed(respond: Respond, **options: Any) -> CallFailed:
    async with api_of(respond) as (_, api):
        with pytest.raises(CallFailed) as raised:
            await api.call("POST", "/x?key=hidden", json={}, **options)
    assert SECRET not in str(raised.value)
    assert "hidden" not in str(raised.value)
    return raised.value


async def test_a_call_sends_credentials_and_returns_the_object() -> None:
    async with api_of(lambda _: answer({"id": 7})) as (server, api):
        assert await api.call("POST", "/send", json={"text": "Grüße"}) == {"id": 7}
    (request,) = server.requests
    assert request.startswith("POST /send HTTP/1.1")
    assert f"authorization: {SECRET}" in request.lower()
    assert json.loads(request.partition("\r\n\r\n")[2]) == {"text": "Grüße"}


async def test_files_are_sent_as_a_form() -> None:
    async with api_of(lambda _: answer(b"", 204)) as (server, api):
        form: Form = {"type": "file", "file": ("a.txt", b"milk", "text/plain")}
        assert await api.call("POST", "/upload", form=form) == {}
        assert await api.call("POST", "/form", form={"a": "1"}) == {}
    assert 'filename="a.txt"' in server.requests[0]
    assert "multipart/form-data" in server.requests[0]
    assert server.requests[1].endswith("a=1")


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (301, Cause.UNREACHABLE),
        (400, Cause.REFUSED),
        (401, Cause.CREDENTIALS),
        (404, Cause.REFUSED),
        (408, Cause.UNREACHABLE),
        (429, Cause.BUSY),
        (500, Cause.UNREACHABLE),
        (503, Cause.UNREACHABLE),
    ],
)
async def test_a_status_is_a_failure_by_its_meaning(status: int, cause: Cause) -> None:
    error = await failed(lambda _: answer({}, status, Location="/y", Retry_After="7"))
    assert error.cause is cause
    assert error.retry_after_s == (7.0 if cause is Cause.BUSY else None)


async def test_a_failure_inside_a_good_status_is_one() -> None:
    error = await failed(lambda _: answer({"code": 40001}))
    assert (error.cause, error.reason) == (Cause.CREDENTIALS, "code 40001")


@pytest.mark.parametrize(
    "respond",
    [
        lambda _: None,
        lambda _: b"\x00\x01",
        lambda _: answer(b"<html>"),
        lambda _: answer(b"[1]"),
        lambda _: answer(b"[" * 100_000),
        lambda _: answer(b"{" + b" " * 9_000_000 + b"}"),
        lambda _: answer(b"{}", Content_Encoding="br"),
        lambda _: b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{}",
    ],
)
async def test_what_is_no_answer_may_have_taken_effect(respond: Respond) -> None:
    assert (await failed(respond)).cause is Cause.UNREACHABLE


async def test_a_silent_platform_is_given_up() -> None:
    ended = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        api = PlatformApi(url, service="Acme", failure=code_of)
        with pytest.raises(CallFailed, match=r"within 0.05 seconds") as raised:
            await api.call("GET", "/", limit_s=0.05)
        await api.aclose()
        ended.set()
    assert raised.value.cause is Cause.UNREACHABLE


async def fetched(api: PlatformApi, url: str, **options: Any) -> bytes:
    return b"".join([part async for part in api.download(url, **options)])


async def test_credentials_follow_redirects_only_to_known_hosts() -> None:
    async with served(lambda _: answer(b"picture")) as other:
        where = {"/file": f"{other.url}/bytes"}
        async with api_of(lambda path: answer(b"", 302, Location=where[path])) as (server, api):
            place = other.url.removeprefix("http://")
            assert await fetched(api, "/file", hosts=[place]) == b"picture"
            with pytest.raises(CallFailed) as raised:
                await fetched(api, "/file")
    assert raised.value.cause is Cause.REFUSED
    assert [SECRET in request for request in other.requests] == [True]
    assert all(SECRET in request for request in server.requests)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/x",
        "https://10.0.0.1/x",
        "https://127.0.0.1:1/x",
        "https://169.254.169.254/x",
        "file:///etc/passwd",
        "https://[::1",
        "nothing",
    ],
)
async def test_files_are_not_fetched_from_inside_the_network(url: str) -> None:
    async with api_of(lambda _: answer(b"")) as (_, api):
        with pytest.raises(CallFailed) as raised:
            await fetched(api, url)
    assert raised.value.cause is Cause.REFUSED


async def test_endless_redirects_of_a_file_end() -> None:
    async with api_of(lambda path: answer(b"", 302, Location=path)) as (server, api):
        with pytest.raises(CallFailed, match="too often"):
            await fetched(api, "/file")
    assert len(server.requests) == 4


async def test_a_token_is_fetched_once_and_again_before_it_expires() -> None:
    clock, tokens = FakeClock(), iter(["a", "b", "c"])
    fetches = 0

    async def fetch() -> tuple[str, float]:
        nonlocal fetches
        fetches += 1
        await asyncio.sleep(0)
        return next(tokens), 7_200.0

    token = AccessToken(fetch, clock)
    assert await asyncio.gather(*(token.get() for _ in range(5))) == ["a"] * 5
    await clock.advance(7_139)
    assert await token.get() == "a"
    await clock.advance(2)
    assert await token.get() == "b"
    assert fetches == 2


async def test_a_refused_token_is_renewed_once_for_all() -> None:
    tokens = iter(["a", "b", "c"])
    used: list[str] = []

    async def fetch() -> tuple[str, float]:
        return next(tokens), 7_200.0

    async def call(token: str) -> str:
        used.append(token)
        await asyncio.sleep(0)
        if token == "a":
            raise CallFailed(Cause.CREDENTIALS, "expired")
        return token

    token = AccessToken(fetch, FakeClock())
    assert list(await asyncio.gather(token.use(call), token.use(call))) == ["b", "b"]
    assert used == ["a", "a", "b", "b"]


async def test_what_a_new_token_does_not_help_is_a_failure() -> None:
    async def fetch() -> tuple[str, float]:
        return "a", 7_200.0

    async def call(token: str) -> None:
        raise CallFailed(Cause.CREDENTIALS, "revoked")

    with pytest.raises(CallFailed, match="revoked"):
        await AccessToken(fetch, FakeClock()).use(call)
