"""The server of stand-ins."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("websockets")

import httpx
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from nanobot_core.testing.loopback import LocalRequest, LocalResponse, Loopback

pytestmark = pytest.mark.anyio
LIMIT_S = 5.0


async def test_requests_and_forms_are_answered() -> None:
    seen: list[LocalRequest] = []

    def answer(request: LocalRequest) -> LocalResponse:
        seen.append(request)
        return LocalResponse({"got": len(seen)}, 201, {"X-Extra": "1"})

    async with Loopback(answer) as server, httpx.AsyncClient(base_url=server.http_url) as client:
        response = await client.post(
            "/a/b?x=1%202", json={"k": "ü"}, headers={"Authorization": "t"}
        )
        await client.post("/up", files={"media": ("a ü.txt", b"\r\n\x00--")})
    assert (response.status_code, response.json()) == (201, {"got": 1})
    assert response.headers["x-extra"] == "1"
    first, second = seen
    assert (first.method, first.path, first.query) == ("POST", "/a/b", {"x": "1 2"})
    assert (first.json, first.headers["authorization"]) == ({"k": "ü"}, "t")
    assert second.form() == {"media": ("a ü.txt", b"\r\n\x00--")}
    assert second.json == {}


async def test_an_answer_can_wait_and_a_break_ends_it() -> None:
    asked, news = asyncio.Event(), asyncio.Event()

    async def answer(request: LocalRequest) -> LocalResponse:
        asked.set()
        await news.wait()
        return LocalResponse(b"news")

    async with Loopback(answer) as server, httpx.AsyncClient(base_url=server.http_url) as client:
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            waiting = group.create_task(client.get("/poll"))
            await asked.wait()
            news.set()
        assert waiting.result().content == b"news"
        asked.clear()
        news.clear()
        broken = asyncio.gather(client.get("/poll"), return_exceptions=True)
        async with asyncio.timeout(LIMIT_S):
            await asked.wait()
            server.hang_up()
            (error,) = await broken
        assert isinstance(error, httpx.TransportError)
        with pytest.raises(httpx.TransportError):
            await client.get("/poll")
        server.come_back()
        news.set()
        assert (await client.get("/poll")).content == b"news"


async def test_sockets_are_admitted_served_and_broken() -> None:
    async def talk(connection: ServerConnection) -> None:
        while True:
            await connection.send(await connection.recv())

    server = Loopback(
        lambda request: None,
        talk,
        lambda path, query: None if (path, query) == ("/s", {"ticket": "1"}) else 401,
    )
    async with server, asyncio.timeout(LIMIT_S):
        with pytest.raises(InvalidStatus):
            await connect(f"{server.ws_url}/s?ticket=2", proxy=None)
        async with connect(f"{server.ws_url}/s?ticket=1", proxy=None) as socket:
            await socket.send("echo")
            assert await socket.recv() == "echo"
            server.hang_up()
            with pytest.raises(ConnectionClosed):
                await socket.recv()
