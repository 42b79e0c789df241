"""The server as the gateway runs it, on a free port of the loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from nanobot_core import AsgiApp
from nanobot_core.testing import FakeClock, FakeGateway, FakePluginContext
from nanobot_http.service import HttpService

SECRET = "a-secret-of-many-characters"
Serve = Callable[..., AbstractAsyncContextManager["Served"]]


@dataclass(frozen=True, kw_only=True)
class Served:
    """A server that runs.

    Attributes:
        gateway: what it serves for.
        client: knows its base URL.
        ctx: the plugin's context.
        clock: the server's.
        task: the service's run.
        token: headers of who knows the secret.
    """

    gateway: FakeGateway
    client: httpx.AsyncClient
    ctx: FakePluginContext
    clock: FakeClock
    task: asyncio.Task[None]
    token: Mapping[str, str] = field(default_factory=lambda: {"authorization": f"Bearer {SECRET}"})

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it was given."""
        place = urlsplit(str(self.client.base_url))
        assert place.hostname
        assert place.port
        return place.hostname, place.port

    async def raw(self, data: bytes) -> bytes:
        """Send bytes on a connection of their own, and return all that comes back."""
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(data)
            await writer.drain()
            async with asyncio.timeout(10):
                return await reader.read()
        finally:
            writer.close()

    async def answer_to(self, head: str) -> int:
        """Send the head of a request, its own address for ``HERE``, and return the status."""
        host, port = self.address
        text = head.replace("HERE", f"{host}:{port}").replace("\n", "\r\n")
        answer = await self.raw(f"{text}\r\nConnection: close\r\n\r\n".encode())
        return int(answer.split(b" ", 2)[1])


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Runs the service: ``serve(gateway, **section)``."""

    @asynccontextmanager
    async def serve(gateway: FakeGateway | None = None, **section: Any) -> AsyncIterator[Served]:
        gateway = gateway or FakeGateway(secret=SecretStr(SECRET))
        clock = FakeClock()
        async with (
            FakePluginContext(
                tmp_path, plugin_id="http", settings=section, gateway=gateway, clock=clock
            ) as ctx,
            asyncio.TaskGroup() as group,
        ):
            service = HttpService(ctx)
            task = group.create_task(service.run())
            async with asyncio.timeout(10):
                url = await service.url()
            async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=10) as client:
                yield Served(gateway=gateway, client=client, ctx=ctx, clock=clock, task=task)
            task.cancel()

    return serve


@pytest.fixture
def load_echo() -> Callable[[], Awaitable[AsgiApp]]:
    """Loads an application that answers with what came in."""

    async def load() -> AsgiApp:
        return _echo

    return load


@pytest.fixture
def load_proof() -> Callable[[], Awaitable[AsgiApp]]:
    """Loads an application for an open mount that checks a signature of its own."""

    async def load() -> AsgiApp:
        return _signed

    return load


async def _signed(scope: Scope, receive: Receive, send: Send) -> None:
    if Request(scope).headers.get("x-signature") != "good":
        await PlainTextResponse("who are you?", 401)(scope, receive, send)
        return
    scope["extensions"]["nanobot.caller"]["proven"]()
    await PlainTextResponse("welcome")(scope, receive, send)


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    body = await request.body()
    text = f"{scope['root_path']} {scope['path']} {len(body)}"
    await PlainTextResponse(text)(scope, receive, send)
