"""Applications of plugins on the server."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import pytest
from loguru import logger
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from nanobot_core import AsgiApp
from nanobot_core.testing import FakeGateway

if TYPE_CHECKING:
    from conftest import Serve

    Load = Callable[[], Awaitable[AsgiApp]]

SECRET = "a-secret-of-many-characters"


@pytest.fixture
def log() -> list[str]:
    """Collects what is logged from INFO on."""
    lines: list[str] = []
    logger.add(lambda line: lines.append(str(line)), level="INFO", format="{message}")
    return lines


async def test_a_mount_gets_what_is_below_its_path(serve: Serve, load_echo: Load) -> None:
    async with serve() as served:
        served.gateway.mount("/echo", load_echo, access="open")
        served.gateway.mount("/echo/deep/", load_echo, access="open")
        for path, root in (
            ("/echo", "/echo"),
            ("/echo/", "/echo"),
            ("/echo/a b", "/echo"),
            ("/echo/deep", "/echo/deep"),
            ("/echo/deep/er", "/echo/deep"),
        ):
            answer = await served.client.post(path, content=b"12345")
            assert answer.text == f"{root} {path} 5"
        for path in ("/echoes", "/other", "/"):
            assert (await served.client.get(path)).status_code == 404


async def test_an_application_with_routes_finds_them_below_its_path(serve: Serve) -> None:
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"hello {request.path_params['name']}")

    async def load() -> AsgiApp:
        return Starlette(routes=[Route("/hello/{name}", hello)])

    async with serve() as served:
        served.gateway.mount("/app", load, access="open")
        assert (await served.client.get("/app/hello/you")).text == "hello you"


async def test_the_servers_own_paths_belong_to_no_plugin(serve: Serve, load_echo: Load) -> None:
    async with serve() as served:
        served.gateway.mount("/health", load_echo, access="open")
        served.gateway.mount("/", load_echo, access="open")
        assert (await served.client.get("/health")).json() == {"status": "alive"}
        for method, path in (("POST", "/health"), ("GET", "/health/x"), ("DELETE", "/metrics")):
            assert (await served.client.request(method, path)).status_code == 404
        assert (await served.client.get("/any")).text == " /any 0"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        SECRET,
        "Bearer",
        f"Basic {SECRET}",
        f"Bearer {SECRET}x",
        f"Bearer {SECRET[:-1]}",
        f"Bearer {SECRET.upper()}",
        "Bearer \xe9",
    ],
)
async def test_a_mount_with_token_refuses_anyone_who_does_not_know_it(
    serve: Serve, load_echo: Load, header: str | None
) -> None:
    headers = [] if header is None else [(b"authorization", header.encode("latin-1"))]
    async with serve() as served:
        served.gateway.mount("/echo", load_echo)
        answer = await served.client.get("/echo", headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


async def test_a_mount_with_token_takes_the_secret_of_now(serve: Serve, load_echo: Load) -> None:
    async with serve() as served:
        served.gateway.mount("/echo", load_echo)
        assert (await served.client.get("/echo", headers=served.token)).is_success
        served.gateway.secret = SecretStr("another secret")
        assert (await served.client.get("/echo", headers=served.token)).status_code == 401


async def test_the_secret_is_compared_in_constant_time(
    serve: Serve, load_echo: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[bytes] = []
    real = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    async with serve() as served:
        served.gateway.mount("/echo", load_echo)
        for token, status in ((SECRET, 200), ("x", 401), (f"{SECRET[:-1]}x", 401)):
            answer = await served.client.get("/echo", headers={"authorization": f"Bearer {token}"})
            assert answer.status_code == status
            assert set(compared) == {token.encode()}
            compared.clear()


async def test_without_a_secret_no_one_may_call_a_mount_with_token(
    serve: Serve, load_echo: Load, log: list[str]
) -> None:
    async with serve(FakeGateway()) as served:
        served.gateway.mount("/echo", load_echo, plugin="mine")
        for headers in ({}, {"authorization": "Bearer"}, {"authorization": "Bearer None"}):
            assert (await served.client.get("/echo", headers=headers)).status_code == 401
    assert any("'mine'" in line and "set gateway.secret" in line for line in log)


async def test_an_application_is_loaded_once_and_not_before_it_is_asked_for(
    serve: Serve, load_echo: Load
) -> None:
    loads = 0

    async def load() -> AsgiApp:
        nonlocal loads
        loads += 1
        await asyncio.sleep(0)
        return await load_echo()

    async with serve() as served:
        served.gateway.mount("/echo", load)
        await served.client.get("/echo")
        assert loads == 0
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(served.client.get("/echo", headers=served.token))
                for _ in range(10)
            ]
        assert {call.result().status_code for call in calls} == {200}
        assert loads == 1


async def test_a_plugin_that_was_loaded_again_gets_the_next_request(serve: Serve) -> None:
    def version(number: int) -> AsgiApp:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await PlainTextResponse(f"version {number}")(scope, receive, send)

        return app

    async def load_first() -> AsgiApp:
        return version(1)

    async def load_second() -> AsgiApp:
        return version(2)

    async with serve() as served:
        served.gateway.mount("/app", load_first, access="open")
        assert (await served.client.get("/app")).text == "version 1"
        served.gateway.mounted.clear()
        assert (await served.client.get("/app")).status_code == 404
        served.gateway.mount("/app", load_second, access="open")
        assert (await served.client.get("/app")).text == "version 2"


@pytest.mark.parametrize("error", [RuntimeError("canary"), SystemExit(1), ImportError("canary")])
async def test_a_broken_application_answers_503_and_its_plugin_is_named(
    serve: Serve, load_echo: Load, log: list[str], error: BaseException
) -> None:
    loads = 0

    async def load() -> AsgiApp:
        nonlocal loads
        loads += 1
        if loads == 1:
            raise error
        return await load_echo()

    async with serve() as served:
        served.gateway.mount("/broken", load, access="open", plugin="guilty")
        served.gateway.mount("/echo", load_echo, access="open")
        for _ in range(3):
            answer = await served.client.get("/broken")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
            assert "canary" not in answer.text
        assert (await served.client.get("/echo")).is_success
        assert loads == 1
        await served.clock.advance(30)
        assert (await served.client.get("/broken")).is_success
    assert any("plugin 'guilty' could not be loaded" in line for line in log)


@pytest.mark.parametrize("error", [RuntimeError("canary"), SystemExit(1), KeyboardInterrupt()])
async def test_an_application_that_raises_costs_its_request_only(
    serve: Serve, log: list[str], error: BaseException
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise error

    async def load() -> AsgiApp:
        return app

    async with serve() as served:
        served.gateway.mount("/broken", load, access="open", plugin="guilty")
        answer = await served.client.get("/broken")
        assert (answer.status_code, answer.text) == (500, "internal error")
        assert (await served.client.get("/health")).is_success
    assert any("plugin 'guilty' failed" in line for line in log)


async def test_an_answer_that_breaks_off_is_not_a_whole_answer(serve: Serve) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError

    async def load() -> AsgiApp:
        return app

    async with serve() as served:
        served.gateway.mount("/half", load, access="open")
        with pytest.raises(httpx.RemoteProtocolError):
            await served.client.get("/half")


async def test_an_answer_may_last_longer_than_the_time_to_its_start(serve: Serve) -> None:
    go_on = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        await go_on.wait()
        yield b"two"

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await StreamingResponse(pieces())(scope, receive, send)

    async def load() -> AsgiApp:
        return app

    async with serve(request_timeout_s=0.5) as served:
        served.gateway.mount("/events", load, access="open")
        served.gateway.mount("/hang", _load_hanging, access="open")
        async with served.client.stream("GET", "/events") as answer:
            # That the limit has passed shows in another request, which it ends.
            assert (await served.client.get("/hang")).status_code == 503
            go_on.set()
            assert await answer.aread() == b"onetwo"


async def _load_hanging() -> AsgiApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    return app
