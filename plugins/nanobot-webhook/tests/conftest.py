"""The channel between a program that writes and one that takes replies, over real HTTP."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from nanobot_core import AsgiApp, JsonObject
from nanobot_core.testing import ChannelPlatform, FakeClock, FakePluginContext, RecordingInbox
from nanobot_webhook.channel import WebhookChannel
from nanobot_webhook.intake import build_app
from nanobot_webhook.signature import decode_key, sign

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
Respond = Callable[[int], Response]


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Site:
    """An ASGI application on a port of the loopback that stays the same when it is opened again."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port: int = self._listener.getsockname()[1]
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def is_open(self) -> bool:
        return self._server is not None

    async def open(self) -> None:
        if self._listener.fileno() < 0:
            self._listener = socket.create_server(("127.0.0.1", self._port))
        config = uvicorn.Config(
            self._app, http="h11", ws="none", lifespan="off", log_config=None, log_level="critical"
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        async with asyncio.timeout(10):
            while not self._server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.005)

    async def close(self) -> None:
        """Break every connection and accept no more."""
        server, self._server = self._server, None
        if server is not None and self._task is not None:
            self.break_off(server)
            server.should_exit = True
            await self._task

    def break_off(self, server: _Server | None = None) -> None:
        """Break every connection."""
        server = server or self._server
        assert server is not None
        for connection in list(server.server_state.connections):
            connection.transport.abort()


@dataclass
class Receiver:
    """Takes replies as a program of the owner does.

    Attributes:
        requests: headers and parsed bodies of all that was posted.
        respond: what it answers to the number of a request, from 1.
    """

    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    respond: Respond = field(default=lambda number: PlainTextResponse("ok"))

    @property
    def data(self) -> list[dict[str, Any]]:
        """The replies' data."""
        return [json.loads(body)["data"] for _, body in self.requests]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.requests.append((dict(request.headers), await request.body()))
        await self.respond(len(self.requests))(scope, receive, send)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A channel with everything around it.

    Attributes:
        channel: runs, unless it was asked not to.
        inbox: keeps what arrives.
        receiver: keeps what is sent.
        client: knows the intake's address.
        ctx: the plugin's context.
        clock: its clock.
    """

    channel: WebhookChannel
    inbox: RecordingInbox
    receiver: Receiver
    client: httpx.AsyncClient
    ctx: FakePluginContext
    clock: FakeClock

    @staticmethod
    def message(content: str = "hello", **data: Any) -> dict[str, Any]:
        """Return the body of a message."""
        return _message(content, **data)

    def signed(
        self, body: bytes, message_id: str = "msg_1", secret: str = SECRET, age_s: int = 0
    ) -> dict[str, str]:
        """Return the headers for `body`."""
        timestamp = int(self.clock.now().timestamp()) - age_s
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(decode_key(secret), message_id, timestamp, body),
        }

    async def post(self, body: bytes | dict[str, Any], **signing: Any) -> httpx.Response:
        """Send a signed body."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.post(
            "/webhook", content=content, headers=self.signed(content, **signing)
        )


def _message(content: str, **data: Any) -> dict[str, Any]:
    return {
        "type": "message.created",
        "data": {"chat_id": "kitchen", "sender_id": "thermostat", "content": content, **data},
    }


def mounted(ctx: FakePluginContext) -> AsgiApp:
    """Return the application as the gateway's server mounts it."""
    app = build_app(ctx)

    async def at_path(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "root_path": "/webhook"}, receive, send)

    return at_path


@asynccontextmanager
async def opened(*sites: Site) -> AsyncIterator[None]:
    for site in sites:
        await site.open()
    try:
        yield
    finally:
        await asyncio.gather(*(site.close() for site in sites))


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Bench]]:
    """Runs the channel: ``bench(inbox, running=True, **section)``."""

    @asynccontextmanager
    async def bench(
        inbox: RecordingInbox | None = None, *, running: bool = True, **section: Any
    ) -> AsyncIterator[Bench]:
        inbox, receiver, clock = inbox or RecordingInbox(), Receiver(), FakeClock()
        reply_site = Site(receiver)
        section = {"secret": SECRET, "callback_url": f"{reply_site.url}/replies"} | section
        ctx = FakePluginContext(tmp_path, plugin_id="webhook", settings=section, clock=clock)
        site, channel = Site(mounted(ctx)), WebhookChannel(ctx)
        async with (
            opened(reply_site, site),
            httpx.AsyncClient(base_url=site.url, trust_env=False, timeout=10) as client,
            asyncio.TaskGroup() as group,
        ):
            if running:
                group.create_task(channel.start(inbox))
                await asyncio.sleep(0)
            yield Bench(
                channel=channel,
                inbox=inbox,
                receiver=receiver,
                client=client,
                ctx=ctx,
                clock=clock,
            )
            await channel.stop()

    return bench


class WebhookPlatform(ChannelPlatform):
    """A program that offers its messages until they are taken, and one that takes each reply once.

    Args:
        ctx: the plugin's context, whose settings name `replies`.
        intake: where messages are posted.
        replies: where replies come in.
        group: owns the program that writes.
    """

    chat_id = "kitchen"

    def __init__(
        self, ctx: FakePluginContext, intake: Site, replies: Site, group: asyncio.TaskGroup
    ) -> None:
        self.acknowledged = []
        self.delivered = []
        self.channels: list[WebhookChannel] = []
        self._ctx = ctx
        self._intake = intake
        self._replies = replies
        self._said: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._seen: set[str] = set()
        self._takes: int | None = None
        self.writer = group.create_task(self._write())

    def channel(self) -> WebhookChannel:
        self.channels.append(WebhookChannel(self._ctx))
        return self.channels[-1]

    async def say(self, key: str, text: str) -> None:
        await self._said.put((key, text))

    async def hang_up(self, after: int = 0) -> None:
        self._takes = after
        if not after:
            await self._replies.close()

    async def come_back(self) -> None:
        self._takes = None
        if not self._replies.is_open:
            await self._replies.open()

    async def take(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a reply, unless this side has hung up."""
        request = Request(scope, receive)
        body = json.loads(await request.body())
        if self._takes is not None:
            if self._takes == 0:
                self._replies.break_off()
                return
            self._takes -= 1
        if request.headers["webhook-id"] not in self._seen:
            self._seen.add(request.headers["webhook-id"])
            self.delivered.append(body["data"]["content"])
        await PlainTextResponse("ok")(scope, receive, send)

    async def _write(self) -> None:
        while True:
            key, text = await self._said.get()
            # A connection for each message, so that none is left over when all are answered.
            body = json.dumps(_message(text)).encode()
            while not await self._offer(key, body):  # noqa: ASYNC110 - that is what senders do
                await asyncio.sleep(0.01)
            self.acknowledged.append(key)

    async def _offer(self, key: str, body: bytes) -> bool:
        timestamp = int(self._ctx.clock.now().timestamp())
        headers = {
            "webhook-id": key,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(decode_key(SECRET), key, timestamp, body),
        }
        async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
            answer = await client.post(f"{self._intake.url}/webhook", content=body, headers=headers)
        return answer.is_success


@pytest.fixture
def serve_platform() -> Callable[[Path], AbstractAsyncContextManager[ChannelPlatform]]:
    """Runs a platform for the contract."""

    @asynccontextmanager
    async def serve(tmp_path: Path) -> AsyncIterator[ChannelPlatform]:
        platform: WebhookPlatform

        async def take(scope: Scope, receive: Receive, send: Send) -> None:
            await platform.take(scope, receive, send)

        replies = Site(take)
        section: JsonObject = {"secret": SECRET, "callback_url": replies.url}
        section["max_piece_chars"] = 500
        ctx = FakePluginContext(tmp_path, plugin_id="webhook", settings=section)
        intake = Site(mounted(ctx))
        async with opened(replies, intake), asyncio.TaskGroup() as group:
            platform = WebhookPlatform(ctx, intake, replies, group)
            try:
                yield platform
            finally:
                for channel in platform.channels:
                    await channel.stop()
                platform.writer.cancel()

    return serve
