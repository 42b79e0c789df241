"""Connections: several addresses, proxies, what is left open."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpcore
import httpx
import pytest

from nanobot_core.net import (
    Address,
    FetchFailed,
    FetchLimits,
    GuardedTransport,
    NetworkPolicy,
    Resolver,
    fetch,
    guarded_client,
)
from tests.unit.net.conftest import LOOPBACK, Serve, answer


def fixed(*addresses: str) -> Resolver:
    async def resolve(host: str, port: int) -> tuple[Address, ...]:
        return tuple(ipaddress.ip_address(text) for text in addresses)

    return resolve


async def test_the_next_address_is_tried_when_one_does_not_answer(serve: Serve) -> None:
    seen: list[bytes] = []
    url = await serve([answer(b"here")], seen=seen)
    port = httpx.URL(url).port
    resolver = fixed("127.0.0.9", "127.0.0.1")
    async with guarded_client(LOOPBACK, resolver=resolver) as client:
        response = await fetch(client, f"http://name.test:{port}/x")

    assert response.content == b"here"
    assert f"Host: name.test:{port}\r\n".encode() in seen[0]


@pytest.mark.parametrize("addresses", [(), ("127.0.0.8", "127.0.0.9")])
async def test_a_name_without_an_address_that_answers_fails(addresses: tuple[str, ...]) -> None:
    async with guarded_client(LOOPBACK, resolver=fixed(*addresses)) as client:
        with pytest.raises(FetchFailed):
            await fetch(client, "http://name.test:1/")


async def test_a_resolver_that_hangs_is_left() -> None:
    async def never(host: str, port: int) -> tuple[Address, ...]:
        await asyncio.Event().wait()
        raise AssertionError

    async with guarded_client(LOOPBACK, resolver=never, timeout_s=0.1) as client:
        with pytest.raises(FetchFailed, match="did not answer in time"):
            await fetch(client, "http://name.test/")


@pytest.mark.parametrize("part", [b"", b"\x05\x00"])
async def test_nothing_stays_open_when_a_connection_is_given_up(part: bytes) -> None:
    """TLS and SOCKS handshakes that hang are where httpcore leaves its connection open."""
    gone = asyncio.Event()

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(part)
        with suppress(ConnectionError):
            await reader.read(-1)
        gone.set()
        writer.close()

    server = await asyncio.start_server(stall, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    proxy = f"socks5://127.0.0.1:{port}" if part else None
    async with server, guarded_client(LOOPBACK, proxy=proxy) as client:
        with pytest.raises(FetchFailed, match="not complete"):
            await fetch(client, f"https://127.0.0.1:{port}/", FetchLimits(total_s=0.2))
        await asyncio.wait_for(gone.wait(), 10)


@asynccontextmanager
async def running_proxy(kind: str, asked: list[str]) -> AsyncIterator[str]:
    """A proxy that forwards HTTP requests, or a SOCKS5 proxy."""

    async def socks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        version, methods = await reader.readexactly(2)
        offered = await reader.readexactly(methods)
        writer.write(b"\x05\x02" if 2 in offered else b"\x05\x00")
        if 2 in offered:
            _, size = await reader.readexactly(2)
            user = await reader.readexactly(size)
            password = await reader.readexactly((await reader.readexactly(1))[0])
            asked.append(f"{user.decode()}:{password.decode()}")
            writer.write(b"\x01\x00")
        _, _, _, form = await reader.readexactly(4)
        if form == 1:
            host = str(ipaddress.IPv4Address(await reader.readexactly(4)))
        else:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        port = int.from_bytes(await reader.readexactly(2), "big")
        writer.write(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
        assert version == 5
        return f"{host}:{port}"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if kind == "socks5":
                asked.append(await socks(reader, writer))
                target = asked[-1]
            head = await reader.readuntil(b"\r\n\r\n")
            if kind == "http":
                asked.append(head.decode().splitlines()[0])
                target = httpx.URL(asked[-1].split()[1]).netloc.decode()
            name, _, port = target.rpartition(":")
            there = "127.0.0.1" if name == "name.test" else name
            inner_reader, inner_writer = await asyncio.open_connection(there, int(port))
            inner_writer.write(head)
            writer.write(await inner_reader.read(-1))
            inner_writer.close()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("kind", ["http", "socks5"])
async def test_requests_go_through_the_proxy_under_their_name(serve: Serve, kind: str) -> None:
    asked: list[str] = []
    url = await serve([answer(b"through")])
    port = httpx.URL(url).port
    policy = NetworkPolicy(("127.0.0.7/32",))  # the proxy itself need not be opened
    async with (
        running_proxy(kind, asked) as proxy,
        guarded_client(policy, proxy=f"{kind}://{proxy}", resolver=fixed("127.0.0.7")) as client,
    ):
        response = await fetch(client, f"http://name.test:{port}/")

    assert response.content == b"through"
    assert f"name.test:{port}" in asked[0]


async def test_the_proxy_is_told_user_and_password(serve: Serve) -> None:
    asked: list[str] = []
    url = await serve([answer(b"through")])
    async with (
        running_proxy("socks5", asked) as proxy,
        guarded_client(LOOPBACK, proxy=f"socks5://me:secret@{proxy}") as client,
    ):
        await fetch(client, url)

    assert asked[0] == "me:secret"


@pytest.mark.parametrize("proxy", ["ftp://user:secret@x/", "", "http://", "http://[::1", "x:1"])
def test_a_proxy_that_is_none_is_refused_without_showing_it(proxy: str) -> None:
    with pytest.raises(ValueError, match="http, https, socks5 or socks5h URL") as caught:
        GuardedTransport(LOOPBACK, proxy=proxy)
    assert "secret" not in str(caught.value)


async def test_httpcores_exceptions_come_as_those_of_httpx(serve: Serve) -> None:
    url = await serve([b"nonsense\r\n\r\n"])
    async with guarded_client(LOOPBACK) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(url)
        with pytest.raises(httpx.ConnectError):
            await client.get("http://127.0.0.1:1/")


def test_every_exception_of_httpcore_has_its_like_in_httpx() -> None:
    from nanobot_core.net.transport import _httpx_errors

    known = [
        kind
        for name in httpcore.__all__
        if isinstance(kind := getattr(httpcore, name), type) and issubclass(kind, Exception)
    ]
    assert len(known) > 10
    for kind in known:
        if kind is httpcore.ConnectionNotAvailable:  # stays inside of httpcore
            continue
        with pytest.raises(httpx.TransportError) as caught, _httpx_errors():
            raise kind("why")
        assert type(caught.value).__name__ in {each.__name__ for each in kind.__mro__}
