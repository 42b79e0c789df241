"""Logging in with OAuth, against the SDK's own authorization server."""

from __future__ import annotations

import asyncio
import json
import stat
import threading
from collections.abc import Awaitable, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from nanobot_core import ToolFailed
from nanobot_mcp.login import log_in

Show = Callable[[str], Awaitable[None]]
if TYPE_CHECKING:
    from conftest import Bench, Connect, Serve


async def browse(address: str) -> None:
    """Do what a person's browser does: open the address and follow the redirects."""

    def get() -> bytes:
        with urlopen(address, timeout=10) as page:  # noqa: S310 - loopback
            content: bytes = page.read()
            return content

    assert b"received the login" in await asyncio.to_thread(get)


async def login(bench: Bench, show: Show = browse) -> str:
    hub = bench.hub
    async with asyncio.timeout(20):
        return await log_in("far", hub.servers["far"], hub.ports("far"), show)


def token_file(bench: Bench) -> Path:
    (file,) = (bench.context.data_dir / "oauth").iterdir()
    return file


@pytest.mark.anyio
async def test_after_a_login_the_server_can_be_used_and_is_after_a_restart(
    connect: Connect, serve: Serve
) -> None:
    server = {"url": serve("oauth")}
    async with connect({"far": server}) as bench:
        assert bench.names == []
        assert "nanobot mcp login" in bench.hub.connection("far").failure

        assert await login(bench) == ""
        connection = bench.hub.connection("far")
        await connection.link()
        assert await bench.text("mcp_far_steps") == "arrived"
        assert stat.S_IMODE(token_file(bench).stat().st_mode) == 0o600

    async with connect({"far": server}) as bench:
        assert await bench.text("mcp_far_steps") == "arrived"


@pytest.mark.anyio
async def test_a_token_that_has_run_out_is_renewed_without_a_person(
    connect: Connect, serve: Serve
) -> None:
    server = {"url": serve("oauth")}
    async with connect({"far": server}, begin=False) as bench:
        assert await login(bench) == ""
        file = token_file(bench)
        record = json.loads(file.read_text())
        former = record["tokens"]["access_token"]
        file.write_text(json.dumps({**record, "ends_at": 1}))

        await bench.begin()

        assert await bench.text("mcp_far_steps") == "arrived"
        assert json.loads(file.read_text())["tokens"]["access_token"] != former


@pytest.mark.anyio
async def test_tokens_that_cannot_be_renewed_ask_for_a_new_login(
    connect: Connect, serve: Serve
) -> None:
    server = {"url": serve("oauth")}
    async with connect({"far": server}, begin=False) as bench:
        assert await login(bench) == ""
        file = token_file(bench)
        record = json.loads(file.read_text())
        record["tokens"] |= {"access_token": "wrong", "refresh_token": "wrong"}
        file.write_text(json.dumps(record))

        with pytest.raises(ToolFailed, match="nanobot mcp login"):
            await bench.hub.connection("far").link()


@pytest.mark.anyio
async def test_a_login_that_is_refused_says_so(connect: Connect, serve: Serve) -> None:
    async def refuse(address: str) -> None:
        from urllib.parse import parse_qs, urlsplit

        query = parse_qs(urlsplit(address).query)
        target = f"{query['redirect_uri'][0]}?error=access_denied&state={query['state'][0]}"
        with await asyncio.to_thread(urlopen, target) as page:
            assert b"refused" in page.read()

    async with connect({"far": {"url": serve("oauth")}}, begin=False) as bench:
        assert "No authorization code" in await login(bench, refuse)


@pytest.mark.anyio
async def test_a_server_that_asks_for_no_login_can_be_used_at_once(
    connect: Connect, serve: Serve
) -> None:
    async def nobody(address: str) -> None:
        pytest.fail(f"a person was asked to open {address}")

    async with connect({"far": {"url": serve("http")}}, begin=False) as bench:
        assert await login(bench, nobody) == ""


class Metadata(BaseHTTPRequestHandler):
    """Asks for a login at an address that the owner never named."""

    asked: list[str]
    target: str

    def log_message(self, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        self._reply(401, {})

    def do_GET(self) -> None:
        type(self).asked.append(self.path)
        self._reply(
            200,
            {"resource": f"http://{self.headers['Host']}", "authorization_servers": [self.target]},
        )

    def _reply(self, status: int, record: dict[str, Any]) -> None:
        body = json.dumps(record).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/", "http://10.0.0.1/", "http://[fd00::1]/"]
)
async def test_a_login_leads_to_no_private_address_that_the_server_names(
    connect: Connect, target: str
) -> None:
    handler = type("Named", (Metadata,), {"asked": [], "target": target})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        async with connect({"far": {"url": url}}, begin=False) as bench:
            assert "out of reach" in await login(bench)
        assert handler.asked, "the metadata were asked for"  # type: ignore[attr-defined]  # made above
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
