"""What a stranger, a web page or a slow peer can do to the server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import pytest
from loguru import logger
from pydantic import SecretStr
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from nanobot_core import AsgiApp, ConfigInvalid
from nanobot_core.testing import FakeClock, FakeGateway, FakePluginContext
from nanobot_http.caller import MAX_CLIENTS, ClientRates
from nanobot_http.connection import MAX_CONNECTIONS, BoundedConnection
from nanobot_http.gate import is_plain_path
from nanobot_http.listener import CannotListen, open_listener

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Serve, Served

    Load = Callable[[], Awaitable[AsgiApp]]
    Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_OPEN_SECRET = SecretStr("sixteen letters!")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
@pytest.mark.parametrize("secret", [None, SecretStr(""), SecretStr("short")])
async def test_an_open_address_without_a_good_secret_is_refused(
    host: str, secret: SecretStr | None
) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        await open_listener(host, 0, secret)
    assert raised.value.problems[0].path == "gateway.secret"


async def test_the_service_does_not_start_on_an_open_address_without_a_secret(
    tmp_path: Path,
) -> None:
    from nanobot_http.service import HttpService

    gateway = FakeGateway(("0.0.0.0", 0))
    async with FakePluginContext(tmp_path, plugin_id="http", gateway=gateway) as ctx:
        with pytest.raises(ConfigInvalid, match=r"gateway\.secret"):
            await HttpService(ctx).run()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.9.9.9"])
async def test_a_loopback_address_needs_no_secret(host: str) -> None:
    with await open_listener(host, 0, None) as listener:
        assert listener.getsockname()[1] > 0


async def test_an_open_address_with_a_good_secret_is_served(serve: Serve) -> None:
    async with serve(FakeGateway(("0.0.0.0", 0), _OPEN_SECRET)) as served:
        local = {"host": "127.0.0.1"}
        assert (await served.client.get("/health", headers=local)).is_success
        assert (await served.client.get("/metrics", headers=local)).status_code == 401


async def test_a_port_in_use_is_reported_plainly(serve: Serve) -> None:
    async with serve() as served:
        host, port = served.address
        with pytest.raises(CannotListen, match=rf"{host}:{port}: the address is in use") as raised:
            await open_listener(host, port, None)
        assert (raised.value.host, raised.value.port) == (host, port)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "203.0.113.7"])
async def test_an_address_that_is_not_ours_is_reported_plainly(host: str) -> None:
    with pytest.raises(CannotListen, match=host):
        await open_listener(host, 0, _OPEN_SECRET)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:18790", 200),
        ("localhost:1", 200),
        ("LOCALHOST", 200),
        ("[::1]:5", 200),
        ("bot.example.org", 200),
        ("a.dyn.example.org:443", 200),
        ("evil.example", 400),
        ("127.0.0.1.evil.example", 400),
        ("localhost.evil.example", 400),
        ("evil.example:18790", 400),
        ("dyn.example.org.evil.example", 400),
        ("192.168.1.5", 400),
        ("127.0.0.1@evil.example", 400),
        ("localhost, evil.example", 400),
        ("localhost:80:80", 400),
        ("[::1", 400),
    ],
)
async def test_requests_name_a_known_host(serve: Serve, host: str, status: int) -> None:
    async with serve(allowed_hosts=["bot.example.org", "*.dyn.example.org"]) as served:
        assert await served.answer_to(f"GET /health HTTP/1.1\nHost: {host}") == status


@pytest.mark.parametrize(
    "head",
    [
        "GET /health HTTP/1.0",
        "GET /health HTTP/1.1",
        "GET /health HTTP/1.1\nHost: localhost\nHost: localhost",
        "GET http://localhost/health HTTP/1.1\nHost: localhost",
        "OPTIONS * HTTP/1.1\nHost: localhost",
        "CONNECT evil.example:443 HTTP/1.1\nHost: localhost",
        "GET /health HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\nContent-Length: 3",
        "GET /health HTTP/1.1\nHost: localhost\nContent-Length: 3\nContent-Length: 4",
        "GET /health HTTP/1.1\nHost: localhost\nA : b",
        "nonsense",
    ],
)
async def test_a_malformed_head_gets_400(serve: Serve, head: str) -> None:
    async with serve() as served:
        assert await served.answer_to(head) == 400


async def test_a_head_without_end_is_not_read_to_its_end(serve: Serve) -> None:
    async with serve() as served:
        # The answer is lost where the connection is reset because of what was not read.
        with contextlib.suppress(ConnectionError):
            assert await served.answer_to("GET / HTTP/1.1\nX: " + "a" * 5_000_000) == 400
        assert (await served.client.get("/health")).is_success


@pytest.mark.parametrize(
    "path",
    [
        "/echo/../health",
        "/echo/./x",
        "/echo/%2e%2e/health",
        "/echo/%2E./health",
        "/..",
        "/echo//x",
        "//echo",
        "/echo/..%2fhealth",
        "/echo%2Fx",
        "/echo%5cx",
        "/echo/%00",
        "/echo/a%0d%0ab",
        "/echo/%7f",
        "/echo/%e2%80%ae",
    ],
)
async def test_a_path_that_can_be_read_in_two_ways_gets_400(
    serve: Serve, load_echo: Load, path: str
) -> None:
    async with serve() as served:
        served.gateway.mount("/echo", load_echo, access="open")
        assert await served.answer_to(f"GET {path} HTTP/1.1\nHost: HERE") == 400


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/echo/a%2Fb", 200),
        ("/echo/..%2fhealth", 400),
        ("/echo/%2fhealth", 400),
        ("/other%2Fx", 400),
    ],
)
async def test_an_encoded_slash_is_one_for_a_mount_that_wants_it(
    serve: Serve, load_echo: Load, path: str, status: int
) -> None:
    async with serve() as served:
        served.gateway.mount("/echo", load_echo, access="open", encoded_slash=True)
        assert await served.answer_to(f"GET {path} HTTP/1.1\nHost: HERE") == status


@pytest.mark.parametrize("path", ["/", "/a", "/a/", "/a b/ü", "/a..b/...", "/%2e", "/a:b@c;d=e"])
def test_a_plain_path_passes(path: str) -> None:
    assert is_plain_path(path, path.encode())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Origin: http://HERE", 200),
        ("Origin: https://HERE", 200),
        ("Origin: https://bot.example.org", 200),
        ("Sec-Fetch-Site: same-origin", 200),
        ("Sec-Fetch-Site: none", 200),
        ("Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate", 200),
        ("Origin: null", 403),
        ("Origin: https://evil.example", 403),
        ("Origin: http://127.0.0.1:1", 403),
        ("Origin: http://HERE.evil.example", 403),
        ("Origin: http://evil.example@HERE", 403),
        ("Origin: file://HERE", 403),
        ("Origin: http://[", 403),
        ("Origin: ", 403),
        ("Origin: https://bot.example.org.evil.example", 403),
        ("Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors", 403),
        ("Sec-Fetch-Site: same-site\nSec-Fetch-Mode: cors", 403),
        ("Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nOrigin: https://e.example", 403),
    ],
)
async def test_pages_of_other_sites_may_not_call(
    serve: Serve, load_echo: Load, headers: str, status: int
) -> None:
    async with serve(allowed_origins=["https://Bot.example.org"]) as served:
        served.gateway.mount("/echo", load_echo, access="open")
        head = f"POST /echo HTTP/1.1\nHost: HERE\nContent-Length: 0\n{headers}"
        assert await served.answer_to(head) == status


async def test_no_page_is_given_leave_by_cors(serve: Serve) -> None:
    async with serve(allowed_origins=["https://bot.example.org"]) as served:
        answer = await served.client.options(
            "/health",
            headers={"origin": "https://bot.example.org", "access-control-request-method": "GET"},
        )
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_body_that_is_too_large_gets_413(serve: Serve, load_echo: Load) -> None:
    async def pieces(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b"x" * 100

    async with serve(max_body_bytes=1000) as served:
        served.gateway.mount("/echo", load_echo, access="open")
        for content in (b"x" * 1001, pieces(11)):
            assert (await served.client.post("/echo", content=content)).status_code == 413
        for fits in (b"x" * 1000, pieces(10)):
            assert (await served.client.post("/echo", content=fits)).text == "/echo /echo 1000"


async def test_a_large_body_that_no_one_reads_gets_413_and_no_one_is_blamed(
    serve: Serve,
) -> None:
    lines: list[str] = []
    logger.add(lambda line: lines.append(str(line)), level="INFO", format="{message}")

    async def load() -> AsgiApp:
        # With a limit of its own, as a plugin may have, and without reading.
        return RequestBodyLimitMiddleware(PlainTextResponse("read nothing"), max_body_size=100)

    async with serve(max_body_bytes=1000) as served:
        served.gateway.mount("/deaf", load, access="open")
        for size in (101, 1001, 1_000_000):
            answer = await served.client.post("/deaf", content=b"x" * size)
            assert answer.status_code == 413
    assert not [line for line in lines if "plugin" in line]


async def test_a_body_that_does_not_come_ends_with_the_time_of_its_request(
    serve: Serve, load_echo: Load
) -> None:
    async with serve(request_timeout_s=0.3) as served:
        served.gateway.mount("/echo", load_echo, access="open")
        head = "POST /echo HTTP/1.1\nHost: HERE\nContent-Length: 10"
        assert await served.answer_to(head) == 503


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /health HTTP/1.1\r\nHost: loc",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea",
        b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc",
    ],
)
async def test_a_head_that_does_not_come_ends_with_its_connection(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(BoundedConnection, "head_limit_s", 0.3)
    # uvicorn's own limit of a pause between requests.
    pause_s = property(lambda _: 0.3, lambda *_: None)
    monkeypatch.setattr("uvicorn.Config.timeout_keep_alive", pause_s, raising=False)
    async with serve() as served:
        # `raw` returns when the server has closed the connection.
        answer = await served.raw(sent)
        assert answer.count(b"HTTP/1.1") == (1 if b"\r\n\r\n" in sent else 0)
        assert (await served.client.get("/health")).is_success


async def test_a_second_head_that_does_not_come_ends_with_its_connection(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedConnection, "head_limit_s", 0.3)
    async with serve() as served, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(*served.address)
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b'"alive"' in await reader.readuntil(b"}")
        # From the first byte on, uvicorn's own limit of a pause no longer counts.
        writer.write(b"GET /hea")
        assert await reader.read() == b""
        writer.close()


async def test_a_peer_that_does_not_read_loses_its_connection(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedConnection, "flush_limit_s", 0.3)
    ended = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await StreamingResponse(_endless())(scope, receive, send)
        finally:
            ended.set()

    async def load() -> AsgiApp:
        return app

    async with serve() as served:
        served.gateway.mount("/endless", load, access="open")
        _, writer = await asyncio.open_connection(*served.address, limit=1024)
        writer.write(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(10):
            await ended.wait()
        writer.transport.abort()
        assert (await served.client.get("/health")).is_success


async def _endless() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 65_536


async def _fill(served: Served, stack: contextlib.AsyncExitStack, sent: bytes) -> list[Opened]:
    """Open as many connections as there may be, each with something sent."""
    opened = []
    for _ in range(MAX_CONNECTIONS):
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # full after a few responses
        peer.setblocking(False)
        await asyncio.get_running_loop().sock_connect(peer, served.address)
        reader, writer = await asyncio.open_connection(sock=peer, limit=1024)
        stack.callback(writer.transport.abort)
        writer.write(sent)
        await writer.drain()
        opened.append((reader, writer))
    return opened


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /health HTTP/1.1\r\nHost: loc",
        b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nslow",
        b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["silent", "half a head", "half a body", "not reading"],
)
async def test_peers_that_hold_all_connections_keep_no_one_out(
    serve: Serve, load_echo: Load, sent: bytes
) -> None:
    """128 connections with a byte now and then closed the server to everybody else."""

    async def load_large() -> AsgiApp:
        async def large(scope: Scope, receive: Receive, send: Send) -> None:
            await StreamingResponse(_endless())(scope, receive, send)

        return large

    async with serve() as served, contextlib.AsyncExitStack() as stack, asyncio.timeout(30):
        served.gateway.mount("/echo", load_echo, access="open")
        served.gateway.mount("/large", load_large, access="open")
        opened = await _fill(served, stack, sent)
        for _ in range(3):
            assert await served.answer_to("GET /health HTTP/1.1\nHost: HERE") == 200
        # Those that waited longest have made room.
        with contextlib.suppress(ConnectionError):
            while await opened[0][0].read(65_536):
                pass
        assert opened[0][0].at_eof() or opened[0][0].exception()


async def test_a_connection_at_work_is_not_dropped_for_a_new_one(serve: Serve) -> None:
    working, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def load() -> AsgiApp:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            working.release()
            await go_on.wait()
            await PlainTextResponse("done")(scope, receive, send)

        return app

    async with serve() as served, contextlib.AsyncExitStack() as stack, asyncio.timeout(30):
        served.gateway.mount("/busy", load, access="open")
        head = b"GET /busy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        opened = await _fill(served, stack, head)
        for _ in opened:
            await working.acquire()
        with contextlib.suppress(ConnectionError):
            assert await served.raw(b"") == b""
        go_on.set()
        for reader, _ in opened:
            assert (await reader.read()).endswith(b"done")


@pytest.mark.parametrize(
    "head",
    [
        "X-Long: " + "a" * 40_000,
        "\n".join(f"X-{number}: b" for number in range(9_000)),
    ],
)
async def test_a_head_that_comes_at_once_is_bounded_too(serve: Serve, head: str) -> None:
    """h11 bounds what is incomplete, and a head of 200 KB that came in one piece was accepted."""
    async with serve() as served:
        statuses = {await served.answer_to(f"GET /health HTTP/1.1\nHost: HERE\n{head}")}
        assert statuses <= {400, 431}
        assert (await served.client.get("/health")).is_success


async def test_what_is_refused_uses_up_nothing_of_those_who_are_known(
    serve: Serve, load_proof: Load, load_echo: Load
) -> None:
    """A page in a browser of the same machine shut out the programs that sign."""
    async with serve(requests_per_minute=3) as served:
        served.gateway.mount("/signed", load_proof, access="open")
        served.gateway.mount("/echo", load_echo)
        get, good = served.client.get, {"x-signature": "good"}
        for refused in (
            {"origin": "https://evil.example"},
            {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        ):
            statuses = [(await get("/signed", headers=refused)).status_code for _ in range(3)]
            assert set(statuses) <= {403, 429}
        assert [(await get("/signed")).status_code for _ in range(4)] == [401, 401, 401, 429]
        assert (await get("/signed", headers={"x-signature": "bad"})).status_code == 429
        assert [(await get("/health")).status_code for _ in range(2)] == [429, 429]
        assert [(await get("/echo")).status_code for _ in range(2)] == [429, 429]

        assert [(await get("/signed", headers=good)).status_code for _ in range(3)] == [200] * 3
        assert [(await get("/echo", headers=served.token)).status_code for _ in range(3)] == (
            [200] * 3
        )

        refused_answer = await get("/signed", headers=good)
        assert (refused_answer.status_code, refused_answer.headers["retry-after"]) == (429, "20")
        assert (await get("/echo", headers=served.token)).status_code == 429
        await served.clock.advance(20)
        assert (await get("/signed", headers=good)).status_code == 200


async def test_who_signs_uses_up_nothing_of_anyone(serve: Serve, load_proof: Load) -> None:
    async with serve(requests_per_minute=2) as served:
        served.gateway.mount("/signed", load_proof, access="open")
        for status in (200, 200, 429):
            answer = await served.client.get("/signed", headers={"x-signature": "good"})
            assert answer.status_code == status
        assert [(await served.client.get("/health")).status_code for _ in range(3)] == (
            [200, 200, 429]
        )


async def test_the_answer_to_a_stranger_over_the_limit_says_nothing(
    serve: Serve, load_proof: Load
) -> None:
    async with serve(requests_per_minute=1) as served:
        served.gateway.mount("/signed", load_proof, access="open")
        first, second = [await served.client.get("/signed") for _ in range(2)]
        assert (first.status_code, first.text) == (401, "who are you?")
        assert (second.status_code, second.text) == (429, "")
        assert second.headers["retry-after"] == "60"


async def test_a_client_that_asks_too_often_gets_429_until_time_has_passed(serve: Serve) -> None:
    async with serve(requests_per_minute=3) as served:
        statuses = [(await served.client.get("/health")).status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        refused = await served.client.get("/health")
        assert refused.headers["retry-after"] == "20"
        await served.clock.advance(20)
        assert (await served.client.get("/health")).is_success


async def test_who_stands_behind_a_trusted_proxy_is_a_client_of_its_own(serve: Serve) -> None:
    async with serve(requests_per_minute=1, trusted_proxies=["127.0.0.1"]) as served:
        for client, status in (("203.0.113.1", 200), ("203.0.113.2", 200), ("203.0.113.1", 429)):
            answer = await served.client.get("/health", headers={"x-forwarded-for": client})
            assert answer.status_code == status


async def test_an_untrusted_proxy_header_names_no_client(serve: Serve) -> None:
    async with serve(requests_per_minute=1) as served:
        for client, status in (("203.0.113.1", 200), ("203.0.113.2", 429)):
            answer = await served.client.get("/health", headers={"x-forwarded-for": client})
            assert answer.status_code == status


def test_the_table_of_clients_is_bounded() -> None:
    rates = ClientRates(1, FakeClock())
    for number in range(MAX_CLIENTS + 100):
        client = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        assert rates.wait_s(client, "test") == 0
    assert len(rates) == MAX_CLIENTS


def test_addresses_of_one_ipv6_network_are_one_client() -> None:
    rates = ClientRates(1, FakeClock())
    assert rates.wait_s("2001:db8::1", "test") == 0
    assert rates.wait_s("2001:db8::2", "test") > 0
    assert rates.wait_s("2001:db8:0:1::2", "test") == 0
    assert rates.wait_s("fe80::1%eth0", "test") == 0


async def test_the_log_holds_neither_query_nor_secret(serve: Serve) -> None:
    lines: list[str] = []
    logger.add(lambda line: lines.append(str(line)), level=0, format="{message}")
    async with serve() as served:
        await served.client.get("/nothing?token=canary", headers=served.token)
        text = "\n".join(lines)
        assert "GET /nothing 404" in text
        assert "canary" not in text
        assert served.token["authorization"].removeprefix("Bearer ") not in text


async def test_websockets_are_not_spoken(serve: Serve, load_echo: Load) -> None:
    async with serve() as served:
        served.gateway.mount("/echo", load_echo)
        head = (
            "GET /echo HTTP/1.1\nHost: HERE\nUpgrade: websocket\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Version: 13"
        )
        assert await served.answer_to(head) == 401
