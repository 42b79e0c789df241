"""Remote servers with problems."""

from __future__ import annotations

import json
import resource
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from nanobot_core import ToolFailed, ToolInputError
from nanobot_core.testing import FakeClock

if TYPE_CHECKING:
    from conftest import Connect, Serve


def pack(megabytes: int) -> bytes:
    """Return zeros as a small gzip file, without holding them uncompressed."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    parts = [packer.compress(b" " * 1_000_000) for _ in range(megabytes)]
    return b"".join([*parts, packer.flush()])


PACKED = pack(100)


class Faulty(ThreadingHTTPServer):
    """Streamable HTTP in its simplest form (JSON answers, sessions), and faults on request.

    Attributes:
        fault: what happens to the next calls of tools.
        sessions: the sessions that it knows.
        seen: headers of all requests.
        calls: how many calls of tools were carried out.
        redirect: where all requests are sent to, or an empty text.
        get_status: the answer to GET, which asks for the stream of notifications.
        gets: how often it was asked for.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.fault: str = ""
        self.sessions: set[str] = set()
        self.seen: list[dict[str, str]] = []
        self.calls = 0
        self.redirect: str = ""
        self.get_status: int = 405
        self.gets = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"


class Handler(BaseHTTPRequestHandler):
    server: Faulty
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.server.gets += 1
        self.reply(self.server.get_status)

    def do_DELETE(self) -> None:
        self.reply(200)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append({key.lower(): value for key, value in self.headers.items()})
        message = json.loads(body)
        if self.server.redirect:
            self.reply(307, Location=self.server.redirect)
            return
        if self.server.fault == "530":
            self.reply(530)
            return
        method = message["method"]
        if method == "initialize":
            session = f"session-{len(self.server.sessions)}"
            self.server.sessions.add(session)
            self.result(
                message,
                {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "faulty", "version": "1"},
                },
                **{"Mcp-Session-Id": session},
            )
        elif "id" not in message:
            self.reply(202)
        elif method == "server/discover":
            self.reply(400)
        elif self.headers.get("Mcp-Session-Id") not in self.server.sessions:
            self.reply(404)
        elif method == "tools/list":
            schema = {"type": "object", "properties": {}}
            read = {"readOnlyHint": True}
            tools = [
                {"name": "do", "inputSchema": schema},
                {"name": "read", "inputSchema": schema, "annotations": read},
            ]
            self.result(message, {"tools": tools})
        else:
            self.call(message)

    def call(self, message: dict[str, Any]) -> None:
        self.server.calls += 1
        fault, self.server.fault = self.server.fault, ""
        if fault == "cut":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"jsonrpc"')
            self.close_connection = True
        elif fault == "close":
            self.close_connection = True
        elif fault == "huge":
            self.huge()
        elif fault == "packed":
            self.reply(200, PACKED, **{"Content-Encoding": "gzip"})
        elif fault == "refuse":
            error = {"code": -32602, "message": "not like this"}
            record = {"jsonrpc": "2.0", "id": message["id"], "error": error}
            self.reply(200, json.dumps(record).encode())
        elif fault == "page":
            self.reply(200, b"<html>out of order</html>", **{"Content-Type": "text/html"})
        else:
            self.result(message, {"content": [{"type": "text", "text": "done"}]})

    def huge(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        block = b"x" * 1_000_000
        try:
            for _ in range(1_000):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block))
        except OSError:
            self.close_connection = True

    def result(self, message: dict[str, Any], result: dict[str, Any], **headers: str) -> None:
        record = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        self.reply(200, json.dumps(record).encode(), **headers)

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def faulty() -> Iterator[Faulty]:
    server = Faulty()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.anyio
async def test_headers_of_the_owner_are_sent(connect: Connect, faulty: Faulty) -> None:
    server = {"url": faulty.url, "headers": {"Authorization": "Bearer mine"}}
    async with connect({"far": server}) as bench:
        assert await bench.text("mcp_far_do") == "done"

    assert {seen.get("authorization") for seen in faulty.seen} == {"Bearer mine"}


@pytest.mark.anyio
async def test_a_session_that_was_forgotten_is_begun_again_and_the_call_made_again(
    connect: Connect, faulty: Faulty
) -> None:
    async with connect({"far": {"url": faulty.url}}) as bench:
        assert await bench.text("mcp_far_do") == "done"
        faulty.sessions = {"another"}

        assert await bench.text("mcp_far_do") == "done"

    assert faulty.calls == 2


@pytest.mark.anyio
async def test_530_is_reported_and_the_tools_are_back_when_it_is_over(
    connect: Connect, faulty: Faulty
) -> None:
    clock = FakeClock()
    async with connect({"far": {"url": faulty.url}}, clock=clock) as bench:
        faulty.fault = "530"
        for name in ("do", "read"):
            with pytest.raises(ToolFailed, match="HTTP 530"):
                await bench.call(f"mcp_far_{name}")
        assert bench.names == ["mcp_far_do", "mcp_far_read"]

        faulty.fault = ""
        await clock.wait_for_sleepers()
        await clock.advance(60)
        await bench.until(lambda: bench.hub.connection("far").state == "connected")
        assert await bench.text("mcp_far_do") == "done"


@pytest.mark.anyio
@pytest.mark.parametrize("fault", ["cut", "close"])
async def test_a_connection_that_ends_in_a_call_leaves_its_outcome_open(
    connect: Connect, faulty: Faulty, fault: str
) -> None:
    async with connect({"far": {"url": faulty.url}}) as bench:
        faulty.fault = fault
        with pytest.raises(ToolFailed, match=r"lost during the call.*unknown"):
            await bench.call("mcp_far_do")
        assert faulty.calls == 1

        faulty.fault = fault
        assert await bench.text("mcp_far_read") == "done"
        assert faulty.calls == 3


@pytest.mark.anyio
@pytest.mark.parametrize("fault", ["huge", "packed"])
async def test_an_answer_that_is_too_large_is_not_held(
    connect: Connect, faulty: Faulty, fault: str
) -> None:
    async with connect({"far": {"url": faulty.url}}, max_message_bytes=1_000_000) as bench:
        await bench.text("mcp_far_do")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        faulty.fault = fault
        with pytest.raises(ToolFailed, match=r"max_message_bytes|is compressed"):
            await bench.call("mcp_far_do")

        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000
        assert await bench.text("mcp_far_do") == "done"


@pytest.mark.anyio
async def test_a_page_instead_of_an_answer_is_reported(connect: Connect, faulty: Faulty) -> None:
    async with connect({"far": {"url": faulty.url}}) as bench:
        faulty.fault = "page"
        with pytest.raises(ToolFailed, match="text/html"):
            await bench.call("mcp_far_do")
        assert await bench.text("mcp_far_do") == "done"


@pytest.mark.anyio
async def test_a_server_without_stream_of_notifications_is_not_taken_for_broken(
    connect: Connect, faulty: Faulty
) -> None:
    faulty.get_status = 501
    async with connect({"far": {"url": faulty.url}}) as bench:
        await bench.until(lambda: faulty.gets > 0)
        faulty.fault = "refuse"
        with pytest.raises(ToolInputError, match="not like this"):
            await bench.call("mcp_far_do")
        assert len(faulty.sessions) == 1


@pytest.mark.anyio
async def test_a_redirect_to_another_origin_is_not_followed(
    connect: Connect, faulty: Faulty
) -> None:
    other = Faulty()
    thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        faulty.redirect = other.url
        server = {"url": faulty.url, "headers": {"Authorization": "Bearer mine"}}
        async with connect({"far": server}) as bench:
            assert bench.names == []
            assert "not followed" in bench.hub.connection("far").failure
        assert other.seen == []
    finally:
        other.shutdown()
        thread.join()
        other.server_close()


@pytest.mark.anyio
async def test_a_server_that_does_not_listen_is_reported(connect: Connect) -> None:
    async with connect({"far": {"url": "http://127.0.0.1:9/mcp"}}) as bench:
        assert bench.names == []
        assert bench.hub.connection("far").failure


@pytest.mark.anyio
async def test_an_idle_connection_that_the_server_ended_is_made_again(
    connect: Connect, serve: Serve
) -> None:
    async with connect({"far": {"url": serve("sse")}}, clock=FakeClock()) as bench:
        link = bench.hub.connection("far")._link
        assert link is not None
        # What a proxy does to a silent stream: the client's end sees it closed.
        await link.client.session._dispatcher._read_stream.aclose()  # type: ignore[attr-defined]  # the SDK's
        await bench.until(link.ended.is_set)
        assert await bench.text("mcp_far_steps") == "arrived"
