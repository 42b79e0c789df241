"""Ways to lead a request inside that have been tried elsewhere, each refused (network)."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import example, given, strategies as st

from nanobot_core import ToolError
from nanobot_core.net import (
    Address,
    NetworkPolicy,
    Resolver,
    TargetRefused,
    fetch,
    guarded_client,
    resolve_checked,
)
from tests.security.ssrf_corpus import CONFUSED_URLS, INNER_HOSTS, LOOPBACK_HOSTS, PUBLIC_HOSTS

HOSTS = (*LOOPBACK_HOSTS, *INNER_HOSTS)
CANARY = b"canary-of-the-inside"


class Inside:
    """A server on the loopback that must not be reached; with a redirect it is the outside."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.requests: list[bytes] = []
        self.location = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            head = f"HTTP/1.1 302 Found\r\nLocation: {self.location}" if self.location else ""
            head = head or "HTTP/1.1 200 OK"
            length = len(CANARY)
            writer.write(f"{head}\r\nContent-Length: {length}\r\n\r\n".encode() + CANARY)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def inside(*hosts: str) -> AsyncIterator[Inside]:
    found = Inside()
    server = await asyncio.start_server(found.serve, list(hosts) or ["127.0.0.1"])
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        await server.wait_closed()


def answers(*given: tuple[str, ...]) -> tuple[Resolver, list[str]]:
    """Return a resolver that gives one answer after another, and the names it was asked for."""
    asked: list[str] = []

    async def resolve(host: str, port: int) -> tuple[Address, ...]:
        asked.append(host)
        answer = given[min(len(asked), len(given)) - 1]
        return tuple(ipaddress.ip_address(text) for text in answer)

    return resolve, asked


async def test_every_spelling_of_an_inner_host_is_refused_before_a_connection() -> None:
    refused = 0
    async with inside("0.0.0.0") as target, guarded_client(NetworkPolicy()) as client:
        for host in HOSTS:
            url = f"http://{host}:{target.port}/"
            with pytest.raises(ToolError) as caught:
                await fetch(client, url)
            refused += isinstance(caught.value, TargetRefused)
        for url in CONFUSED_URLS:
            with pytest.raises(ToolError):
                await fetch(client, url.replace(":80", f":{target.port}"))
    print(  # noqa: T201 - the number of cases behind the claim
        f"\n{len(HOSTS)} hosts, {refused} of them refused by their address and the others no host "
        f"to httpx or the resolver, and {len(CONFUSED_URLS)} confusing URLs: none got inside"
    )
    assert target.connections == 0
    assert refused > 100


async def test_the_spellings_do_lead_inside_where_nothing_guards() -> None:
    """Shows that the corpus is one: with the loopback opened, it is reached."""
    reached = 0
    policy = NetworkPolicy(("127.0.0.0/8",))
    async with inside() as target, guarded_client(policy) as client:
        for host in ("2130706433", "0x7f.1", "0177.1", "127.1", "017700000001"):
            response = await fetch(client, f"http://{host}:{target.port}/")
            reached += response.content == CANARY

    assert reached == target.connections == 5


@pytest.mark.parametrize("host", HOSTS)
async def test_other_http_stacks_get_the_same_answer(host: str) -> None:
    with pytest.raises((TargetRefused, OSError)):
        await resolve_checked(host.strip("[]"), 80, NetworkPolicy())


@pytest.mark.parametrize("address", PUBLIC_HOSTS)
def test_public_addresses_are_allowed(address: str) -> None:
    assert NetworkPolicy().is_allowed(address)


@given(st.ip_addresses())
@example(ipaddress.ip_address("168.63.129.16"))
def test_no_address_that_is_not_global_is_allowed(address: Address) -> None:
    if isinstance(address, ipaddress.IPv6Address) and address.sixtofour is not None:
        return  # judged by the address inside; Python's versions differ about the one outside
    if not address.is_global or address.is_multicast:
        assert not NetworkPolicy().is_allowed(address)
        assert not NetworkPolicy().is_allowed(str(address))


@given(st.ip_addresses(v=4))
def test_an_address_inside_another_form_is_judged_alike(address: ipaddress.IPv4Address) -> None:
    policy = NetworkPolicy()
    number = int(address)
    forms = {
        "mapped": ipaddress.IPv6Address(0xFFFF << 32 | number),
        "6to4": ipaddress.IPv6Address(0x2002 << 112 | number << 80 | 1),
        "NAT64": ipaddress.IPv6Address(0x64FF9B << 96 | number),
        "ISATAP": ipaddress.IPv6Address(0x20010470 << 96 | 0x5EFE << 32 | number),
    }

    assert {name: policy.is_allowed(form) for name, form in forms.items()} == dict.fromkeys(
        forms, policy.is_allowed(address)
    )
    assert not policy.is_allowed(ipaddress.IPv6Address(number))


@given(st.sampled_from(("127.0.0.0/8", "10.0.0.0/8", "fd00::/8", "fe80::/10")), st.data())
def test_what_the_owner_opened_is_open_and_nothing_else(network: str, data: st.DataObject) -> None:
    policy = NetworkPolicy((network,))
    opened = ipaddress.ip_network(network)
    inner = data.draw(st.ip_addresses(network=opened))
    other = data.draw(st.ip_addresses())

    assert policy.is_allowed(inner) or inner in map(ipaddress.ip_address, ("fd00:ec2::254",))
    assert (
        other in opened
        or policy.is_allowed(other) == NetworkPolicy().is_allowed(other)
        or (
            # another form of an address that was opened
            other.version == 6
        )
    )


@pytest.mark.parametrize("address", ["169.254.169.254", "100.100.100.200", "fd00:ec2::254"])
def test_a_metadata_service_is_opened_by_its_own_address_only(address: str) -> None:
    around = NetworkPolicy(("169.254.0.0/16", "100.64.0.0/10", "fd00::/8", "0.0.0.0/0", "::/0"))

    assert not around.is_allowed(address)
    assert NetworkPolicy((address,)).is_allowed(address)


async def test_a_redirect_inside_is_refused() -> None:
    """The first hop is a real server, opened; the second is not."""
    policy = NetworkPolicy(("127.0.0.1/32",))
    async with (
        inside("127.0.0.1") as outside,
        inside("127.0.0.2") as target,
        guarded_client(policy) as client,
    ):
        for host in ("127.0.0.2", "2130706434", "0x7f.2", "[::ffff:127.0.0.2]", "x@127.0.0.2"):
            outside.location = f"http://{host}:{target.port}/"
            with pytest.raises(TargetRefused):
                await fetch(client, f"http://127.0.0.1:{outside.port}/")
        for location in ("file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1:25/_x"):
            outside.location = location
            with pytest.raises(TargetRefused, match="only http and https"):
                await fetch(client, f"http://127.0.0.1:{outside.port}/")

    assert outside.connections == 8
    assert target.connections == 0


async def test_a_name_that_answers_differently_the_second_time_is_asked_once() -> None:
    resolver, asked = answers(("127.0.0.1",), ("127.0.0.2",))
    policy = NetworkPolicy(("127.0.0.1/32",))
    async with (
        inside("127.0.0.1") as first,
        guarded_client(policy, resolver=resolver) as client,
    ):
        response = await fetch(client, f"http://rebind.test:{first.port}/")

        assert response.content == CANARY
        assert asked == ["rebind.test"]
        assert f"Host: rebind.test:{first.port}".encode() in first.requests[0]
        with pytest.raises(TargetRefused, match=r"127\.0\.0\.2"):
            await fetch(client, f"http://rebind.test:{first.port}/")
    assert first.connections == 1


@pytest.mark.parametrize(
    "mixed",
    [
        ("8.8.8.8", "127.0.0.1"),
        ("127.0.0.1", "8.8.8.8"),
        ("2606:4700::1", "::1"),
        ("8.8.8.8", "2606:4700::1", "169.254.169.254"),
    ],
)
async def test_a_name_with_public_and_inner_addresses_is_refused(mixed: tuple[str, ...]) -> None:
    resolver, _ = answers(mixed)
    async with guarded_client(NetworkPolicy(), resolver=resolver) as client:
        with pytest.raises(TargetRefused) as caught:
            await fetch(client, "http://mixed.test/")

    assert caught.value.target == "mixed.test"
    assert caught.value.address in mixed
    assert "tools.ssrf_whitelist" in str(caught.value)


async def test_tls_is_asked_for_the_name_and_not_for_the_address() -> None:
    hello = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello.set_result(await reader.read(4_096))
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    resolver, _ = answers(("127.0.0.1",))
    policy = NetworkPolicy(("127.0.0.1/32",))
    async with server, guarded_client(policy, resolver=resolver) as client:
        with pytest.raises(ToolError):
            await fetch(client, f"https://name.test:{port}/")

    assert b"name.test" in await hello


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with inside("127.0.0.1") as proxy, inside("127.0.0.1") as target:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        async with guarded_client(NetworkPolicy(("127.0.0.0/8",))) as client:
            await fetch(client, f"http://127.0.0.1:{target.port}/")

    assert (proxy.connections, target.connections) == (0, 1)


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_the_target_is_checked_before_a_proxy_is_asked(scheme: str) -> None:
    async with (
        inside("127.0.0.1") as proxy,
        guarded_client(NetworkPolicy(), proxy=f"{scheme}://127.0.0.1:{proxy.port}") as client,
    ):
        for host in ("10.0.0.1", "2852039166", "[::1]", "localhost"):
            with pytest.raises(TargetRefused):
                await fetch(client, f"http://{host}/")

    assert proxy.connections == 0
