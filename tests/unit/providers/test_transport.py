"""Connections, before servers that behave as servers do."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
import trustme

from nanobot_core.providers.transport import DirectTransport

pytestmark = pytest.mark.anyio

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
LIMIT_S = 10.0


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(20):
        yield


class Service:
    """Hands each connection to `answer`; counts them."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._open = 0
        self._changed = asyncio.Condition()
        self.connections: int = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await self._count(1)
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            await self._count(-1)
            writer.close()

    async def until_open(self, count: int) -> None:
        """Wait until so many connections are open."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._open == count)

    async def _count(self, difference: int) -> None:
        async with self._changed:
            self._open += difference
            self._changed.notify_all()


@asynccontextmanager
async def serving(
    answer: Answer, *, host: str = "127.0.0.1", keepalive_s: float = 60
) -> AsyncIterator[tuple[DirectTransport, httpx.URL, Service]]:
    service = Service(answer)
    async with await asyncio.start_server(service, host, 0) as server:
        address = f"[{host}]" if ":" in host else host
        url = httpx.URL(f"http://{address}:{server.sockets[0].getsockname()[1]}/v1?x=1")
        transport = DirectTransport(url, None, keepalive_s)
        try:
            yield transport, url, service
        finally:
            await transport.aclose()


async def post(
    transport: DirectTransport,
    url: httpx.URL,
    content: bytes = b"{}",
    *,
    write_s: float = LIMIT_S,
    read_s: float = LIMIT_S,
) -> httpx.Response:
    limits = {"connect": LIMIT_S, "write": write_s, "read": read_s}
    request = httpx.Request("POST", url, content=content, extensions={"timeout": limits})
    response = await transport.handle_async_request(request)
    try:
        await response.aread()
    finally:
        await response.aclose()
    return response


async def take_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return head + await reader.readexactly(int(length))


async def arrive() -> None:
    """Let the loop see what was sent: on loopback it is there at once."""
    for _ in range(10):
        await asyncio.sleep(0)


async def always_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await take_request(reader)
        writer.write(OK)


def once(*parts: bytes, is_last: bool = True) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take_request(reader)
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        if not is_last:
            await reader.read()

    return answer


async def test_a_request_arrives_whole_and_its_connection_serves_the_next() -> None:
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            seen.append(await take_request(reader))
            writer.write(OK)

    async with serving(answer) as (transport, url, service):
        for content in (b'{"a": 1}', b"x" * 1_000_000):
            assert (await post(transport, url, content)).content == b"ok"
        assert service.connections == 1
    assert seen[0].startswith(b"POST /v1?x=1 HTTP/1.1\r\n")
    assert seen[0].lower().count(b"\r\nhost: 127.0.0.1:") == 1
    assert [request.partition(b"\r\n\r\n")[2] for request in seen] == [
        b'{"a": 1}',
        b"x" * 1_000_000,
    ]


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        ((b"HTTP/1.1 100 Continue\r\n\r\n", OK), b"ok"),
        ((b"HTTP/1.1 200 OK\r\n\r\n", b"until ", b"the end"), b"until the end"),
        ((b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold",), b"old"),
        (
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r", b"\n0\r\n\r\n"),
            b"abc",
        ),
        (tuple(OK[at : at + 1] for at in range(len(OK))), b"ok"),
        ((b"HTTP/1.1 204 No Content\r\n\r\n",), b""),
    ],
)
async def test_every_form_of_answer_is_read(parts: tuple[bytes, ...], content: bytes) -> None:
    async with serving(once(*parts)) as (transport, url, _):
        assert (await post(transport, url)).content == content


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ((), httpx.RemoteProtocolError),
        ((b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok",), httpx.RemoteProtocolError),
        ((b"SSH-2.0-OpenSSH\r\n\r\n",), httpx.RemoteProtocolError),
        ((b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000,), httpx.RemoteProtocolError),
    ],
)
async def test_an_answer_that_is_none_is_reported_and_its_connection_closed(
    parts: tuple[bytes, ...], error: type[Exception]
) -> None:
    async with serving(once(*parts)) as (transport, url, service):
        with pytest.raises(error):
            await post(transport, url)
        await service.until_open(0)


async def test_a_connection_that_the_service_closed_is_not_used_again() -> None:
    closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await once(OK)(reader, writer)
        writer.close()
        closed.set()

    async with serving(answer) as (transport, url, service):
        for number in (1, 2, 3):
            assert (await post(transport, url)).content == b"ok"
            await closed.wait()
            await service.until_open(0)
            closed.clear()
            await arrive()
            assert service.connections == number


async def test_a_connection_on_which_something_came_unasked_is_not_used_again() -> None:
    told, said = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await once(OK)(reader, writer)
        await told.wait()
        writer.write(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
        said.set()
        await reader.read()

    async with serving(answer) as (transport, url, service):
        assert (await post(transport, url)).status_code == 200
        told.set()
        await said.wait()
        await arrive()
        assert (await post(transport, url)).status_code == 200
        assert service.connections == 2


async def test_a_connection_that_was_free_too_long_is_not_used_again() -> None:
    async with serving(always_ok, keepalive_s=0) as (transport, url, service):
        for _ in range(2):
            await post(transport, url)
        assert service.connections == 2


async def test_an_answer_given_before_the_request_was_taken_is_read() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        await reader.read()

    async with serving(answer) as (transport, url, service):
        response = await post(transport, url, b"x" * 100_000)
        assert response.status_code == 413
        assert service.connections == 1


async def test_a_request_that_is_not_taken_is_given_up() -> None:
    async def answer(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await asyncio.sleep(LIMIT_S)

    async with serving(answer) as (transport, url, _):
        with pytest.raises(httpx.WriteTimeout):
            await post(transport, url, b"x" * 50_000_000, write_s=0.1)


async def test_a_silent_service_is_given_up_in_the_middle_of_its_answer() -> None:
    part = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok"
    async with serving(once(part, is_last=False)) as (transport, url, _):
        with pytest.raises(httpx.ReadTimeout):
            await post(transport, url, read_s=0.1)


async def test_an_answer_that_no_one_reads_takes_little_memory() -> None:
    sent = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await take_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 100_000)
            await writer.drain()
            sent += 100_000

    async with serving(answer) as (transport, url, service):
        request = httpx.Request("POST", url, content=b"{}")
        response = await transport.handle_async_request(request)
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 50_000_000  # what the system buffers
        await response.aclose()
        await service.until_open(0)


async def test_a_cancelled_request_closes_its_connection() -> None:
    async with serving(once(is_last=False)) as (transport, url, service):
        call = asyncio.create_task(post(transport, url))
        await service.until_open(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await service.until_open(0)


async def test_requests_side_by_side_have_a_connection_each() -> None:
    async with serving(always_ok) as (transport, url, service):
        for _ in range(2):
            async with asyncio.TaskGroup() as group:
                for _ in range(20):
                    group.create_task(post(transport, url))
        assert service.connections <= 20


async def test_an_address_of_version_6_is_reached() -> None:
    async with serving(always_ok, host="::1") as (transport, url, _):
        assert (await post(transport, url)).content == b"ok"


async def test_who_is_not_there_is_reported() -> None:
    transport = DirectTransport(httpx.URL("http://127.0.0.1:9"), None, 60)
    with pytest.raises(httpx.ConnectError):
        await post(transport, httpx.URL("http://127.0.0.1:9/"))


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_a_service_behind_tls_is_reached_if_its_certificate_is_trusted(
    is_trusted: bool,
) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(theirs)
    ours = ssl.create_default_context()
    (authority if is_trusted else stranger).configure_trust(ours)
    service = Service(always_ok)
    async with await asyncio.start_server(service, "127.0.0.1", 0, ssl=theirs) as server:
        url = httpx.URL(f"https://localhost:{server.sockets[0].getsockname()[1]}/")
        transport = DirectTransport(url, ours, 60)
        if is_trusted:
            for content in (b"{}", b"x" * 1_000_000):
                assert (await post(transport, url, content)).content == b"ok"
            assert service.connections == 1
        else:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await post(transport, url)
        await transport.aclose()
        await service.until_open(0)


async def test_many_small_parts_leave_the_loop_to_others() -> None:
    """Guards against a service that freezes the gateway with what it sends at once."""
    ticks = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take_request(reader)
        chunks = b"1\r\nx\r\n" * 5_000
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks)
        await writer.drain()
        await reader.read()

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async with serving(answer) as (transport, url, _):
        limits = {"connect": LIMIT_S, "write": LIMIT_S, "read": LIMIT_S}
        request = httpx.Request("POST", url, content=b"{}", extensions={"timeout": limits})
        response = await transport.handle_async_request(request)
        await arrive()
        ticking = asyncio.ensure_future(tick())
        seen: list[int] = []
        async for _ in response.aiter_raw():
            seen.append(ticks)
            if len(seen) == 5_000:
                break
        ticking.cancel()
        await response.aclose()
    assert max(map(seen.count, set(seen))) <= 256
