"""The listener takes one redirect of a browser, the right one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from nanobot_core.net import RedirectListener, redirect_listener

pytestmark = pytest.mark.anyio
LIMIT_S = 5.0


@pytest.fixture
async def listener() -> AsyncIterator[RedirectListener]:
    async with redirect_listener("/done", state="s3cret") as listening:
        yield listening


async def get(listener: RedirectListener, request: bytes) -> bytes:
    """Return the status line of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    try:
        writer.write(request)
        writer.write_eof()
        async with asyncio.timeout(LIMIT_S):
            return (await reader.read()).partition(b"\r\n")[0]
    finally:
        writer.close()


async def test_the_query_of_the_first_right_redirect_is_taken(listener: RedirectListener) -> None:
    for target, status in (
        (b"/done?code=a&state=s3cret", b"200 OK"),
        (b"/done?code=b&state=s3cret", b"400 Bad Request"),
        (b"/done?error=denied&state=s3cret", b"400 Bad Request"),
    ):
        assert status in await get(listener, b"GET " + target + b" HTTP/1.1\r\n\r\n")

    assert await listener.query() == {"code": "a", "state": "s3cret"}


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /done?code=a&state=wrong HTTP/1.1\r\n\r\n",
        b"GET /done?code=a HTTP/1.1\r\n\r\n",
        b"GET /done?state=s3cret HTTP/1.1\r\n\r\n",
        b"GET /other?code=a&state=s3cret HTTP/1.1\r\n\r\n",
        b"POST /done?code=a&state=s3cret HTTP/1.1\r\n\r\n",
        b"GET http://[x/done?code=a&state=s3cret HTTP/1.1\r\n\r\n",
        b"GET\r\n\r\n",
        b"\xff\x00\r\n",
        b"",
        b"GET /" + b"x" * 20_000,
    ],
)
async def test_anything_else_is_refused(listener: RedirectListener, request_: bytes) -> None:
    answer = await get(listener, request_)

    assert answer in (b"HTTP/1.1 400 Bad Request", b"HTTP/1.1 404 Not Found", b"")
    assert listener.offer("http://localhost/done?code=a&state=s3cret") == "", "none was taken"


async def test_the_ports_are_tried_in_order() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with redirect_listener(ports=(port, 0)) as listening:
            assert listening.port != port
        with pytest.raises(OSError, match=f"no port is free for the login .tried {port} on"):
            async with redirect_listener(ports=(port,)):
                pass
