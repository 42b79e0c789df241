"""fetch against real servers, also hostile ones."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import tracemalloc
import zlib

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from nanobot_core import ToolInputError
from nanobot_core.net import FetchFailed, FetchLimits, fetch, guarded_client
from tests.unit.net.conftest import LOOPBACK, Serve, answer

SMALL = FetchLimits(max_bytes=1_000, total_s=10)


async def test_an_answer_comes_with_status_headers_and_final_url(serve: Serve) -> None:
    url = await serve(
        {
            "/": [answer(b"", "Location: /a?b=c", status="301 Moved")],
            "/a?b=c": [answer(b"gone", "X-A: 1", "x-a: 2", status="404 Not Found")],
        }
    )
    async with guarded_client(LOOPBACK) as client:
        response = await fetch(client, url)

    assert (response.status, response.content, response.truncated) == (404, b"gone", False)
    assert response.final_url == f"{url}/a?b=c"
    assert response.headers["x-a"] == "1, 2"


async def test_a_request_with_a_body_can_be_sent(serve: Serve) -> None:
    seen: list[bytes] = []
    url = await serve([answer(b"{}")], seen=seen)
    async with guarded_client(LOOPBACK) as client:
        await fetch(client, client.build_request("POST", url, json={"q": "x"}))

    assert seen[0].startswith(b"POST / HTTP/1.1")


@pytest.mark.parametrize("hops", [5, 6])
async def test_redirects_are_followed_up_to_the_limit(serve: Serve, hops: int) -> None:
    pages = {f"/{n}": [answer(b"", f"Location: /{n + 1}", status="302 Found")] for n in range(hops)}
    url = await serve({**pages, f"/{hops}": [answer(b"end")]})
    async with guarded_client(LOOPBACK) as client:
        if hops == 5:
            assert (await fetch(client, f"{url}/0")).content == b"end"
        else:
            with pytest.raises(FetchFailed, match="redirects more than 5 times"):
                await fetch(client, f"{url}/0")


async def test_a_redirect_that_goes_in_circles_ends(serve: Serve) -> None:
    url = await serve([answer(b"", "Location: /", status="302 Found")])
    async with guarded_client(LOOPBACK) as client:
        with pytest.raises(FetchFailed, match="redirects"):
            await fetch(client, url)


@pytest.mark.parametrize("location", ["http://[::1/", "http://", "//", "http://a b/", "\x00"])
async def test_a_redirect_to_no_url_is_an_error(serve: Serve, location: str) -> None:
    url = await serve([answer(b"", f"Location: {location}", status="302 Found")])
    async with guarded_client(LOOPBACK) as client:
        with pytest.raises((FetchFailed, ToolInputError)):
            await fetch(client, url)


async def test_the_body_of_a_redirect_is_not_read(serve: Serve) -> None:
    endless = itertools.chain(
        [b"HTTP/1.1 302 Found\r\nLocation: /end\r\n\r\n"], itertools.repeat(b"x" * 65_536)
    )
    url = await serve({"/": endless, "/end": [answer(b"end")]})
    async with guarded_client(LOOPBACK) as client:
        assert (await fetch(client, f"{url}/", SMALL)).content == b"end"


@pytest.mark.parametrize("length", ["Content-Length: 100000000000", "Content-Length: 10000000"])
async def test_a_body_is_cut_at_the_limit_whatever_length_it_tells(
    serve: Serve, length: str
) -> None:
    head = f"HTTP/1.1 200 OK\r\n{length}\r\n\r\n".encode()
    url = await serve(itertools.chain([head], itertools.repeat(b"x" * 65_536)))
    async with guarded_client(LOOPBACK) as client:
        response = await fetch(client, url, SMALL)

    assert (response.content, response.truncated) == (b"x" * 1_000, True)


async def test_a_body_of_just_the_limit_is_whole(serve: Serve) -> None:
    url = await serve([answer(b"x" * 1_000)])
    async with guarded_client(LOOPBACK) as client:
        response = await fetch(client, url, SMALL)

    assert (len(response.content), response.truncated) == (1_000, False)


async def test_what_came_before_a_cut_connection_is_kept_and_marked(serve: Serve) -> None:
    url = await serve([b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"])
    async with guarded_client(LOOPBACK) as client:
        response = await fetch(client, url)

    assert (response.content, response.truncated) == (b"half", True)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"],
        [b"HTTP/1.1 200"],
        [b"220 mail.example ESMTP\r\n"],
        [b"\x16\x03\x01\x02\x00"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"],
        [b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 200_000 + b"\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\n" + b"X-Many: 1\r\n" * 20_000 + b"\r\n"],
        [answer(b"not gzip", "Content-Encoding: gzip")],
        [answer(b"x", "Content-Encoding: br")],
        [answer(b"x", "Content-Encoding: gzip, gzip")],
    ],
)
async def test_a_broken_answer_is_an_error(serve: Serve, parts: list[bytes]) -> None:
    url = await serve(parts)
    async with guarded_client(LOOPBACK) as client:
        with pytest.raises(FetchFailed, match="could not be fetched"):
            await fetch(client, url)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"])
async def test_a_server_that_stalls_is_left(serve: Serve, head: bytes) -> None:
    url = await serve([head], hang=True)
    async with guarded_client(LOOPBACK) as client:
        with pytest.raises(FetchFailed, match=r"not complete within 0\.2 seconds"):
            await fetch(client, url, FetchLimits(total_s=0.2))


async def test_a_server_that_drips_is_left(serve: Serve) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while not reader.at_eof():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, guarded_client(LOOPBACK, timeout_s=5) as client:
        with pytest.raises(FetchFailed, match="not complete"):
            await fetch(client, f"http://127.0.0.1:{port}/", FetchLimits(total_s=0.3))


async def test_a_server_that_is_not_there_is_an_error() -> None:
    async with guarded_client(LOOPBACK) as client:
        with pytest.raises(FetchFailed, match=r"^http://127\.0\.0\.1:1/a could not be fetched"):
            await fetch(client, "http://127.0.0.1:1/a?token=secret")


def bomb(kind: str) -> bytes:
    """Return a body of 100 MB that is packed small."""
    window = {"gzip": 31, "deflate": 15, "bare": -15}[kind]
    packer = zlib.compressobj(9, zlib.DEFLATED, window)
    parts = [packer.compress(bytes(1_000_000)) for _ in range(100)]
    return b"".join([*parts, packer.flush()])


@pytest.mark.parametrize("kind", ["gzip", "deflate", "bare"])
async def test_a_bomb_is_cut_while_it_is_unpacked(serve: Serve, kind: str) -> None:
    encoding = "gzip" if kind == "gzip" else "deflate"
    url = await serve([answer(bomb(kind), f"Content-Encoding: {encoding}")])
    async with guarded_client(LOOPBACK) as client:
        tracemalloc.start()
        response = await fetch(client, url, FetchLimits(max_bytes=100_000))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert (response.content, response.truncated) == (bytes(100_000), True)
    assert peak < 10_000_000


async def test_packed_bytes_are_bounded_too(serve: Serve) -> None:
    nothing = gzip.compress(b"")
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"text")
    url = await serve(itertools.chain([head], itertools.repeat(nothing * 100)))
    async with guarded_client(LOOPBACK) as client:
        response = await fetch(client, url, SMALL)

    assert (response.content, response.truncated) == (b"text", True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=300_000), st.sampled_from(["gzip", "deflate", "bare"]), st.integers(1, 9))
async def test_packed_bodies_come_out_as_they_were(
    serve: Serve, body: bytes, kind: str, cut: int
) -> None:
    window = {"gzip": 31, "deflate": 15, "bare": -15}[kind]
    packer = zlib.compressobj(6, zlib.DEFLATED, window)
    packed = packer.compress(body) + packer.flush()
    encoding = "gzip" if kind == "gzip" else "deflate"
    whole = answer(packed, f"Content-Encoding: {encoding}")
    url = await serve([whole[: len(whole) // cut], whole[len(whole) // cut :]])
    async with guarded_client(LOOPBACK) as client:
        response = await fetch(client, url)

    assert (response.content == body, response.truncated) == (True, False)


async def test_several_gzip_members_are_one_body_and_a_tail_is_ignored(serve: Serve) -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"two") + b"\0\0"
    url = await serve([answer(packed, "Content-Encoding: gzip")])
    async with guarded_client(LOOPBACK) as client:
        response = await fetch(client, url)

    assert (response.content, response.truncated) == (b"one two", False)


async def test_a_packed_body_that_is_cut_off_is_marked(serve: Serve) -> None:
    packed = gzip.compress(b"text " * 1_000)
    url = await serve([answer(packed[:-4], "Content-Encoding: gzip")])
    async with guarded_client(LOOPBACK) as client:
        response = await fetch(client, url)

    assert response.truncated
