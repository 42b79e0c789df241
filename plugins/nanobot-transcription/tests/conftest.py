"""A transcription service on the loopback that follows a script, and its clients."""

from __future__ import annotations

import asyncio
import email
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any, Literal, Self

import pytest

from nanobot_core import Clock
from nanobot_core.testing import FakeClock, FakePluginContext
from nanobot_transcription.transcriber import Transcriber, build_transcriber

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER of no seconds: closing the socket resets the connection."""
OGG = b"OggS\x00\x02" + bytes(range(256)) * 8


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the service does with a request."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b'{"text": " hello there "}'
    body_repeat: int = 1
    stop_after_bytes: int | None = None
    stop: Literal["close", "stall", "reset"] = "close"
    unread: bool = False
    """Answer as soon as the head of the request is there, as servers do that refuse its size."""


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A request as the service understood it."""

    path: str
    headers: Mapping[str, str]
    fields: Mapping[str, str]
    filename: str | None
    media_type: str
    data: bytes


class Service:
    """Parses multipart uploads with the standard library and answers by a script."""

    def __init__(self, replies: Iterable[Reply]) -> None:
        self.uploads: list[Upload] = []
        self.attempts = 0
        self.changed = asyncio.Condition()
        self.connections: set[asyncio.Task[None]] = set()
        self._script = list(replies)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in self.connections:
            connection.cancel()
        await asyncio.gather(*self.connections, return_exceptions=True)
        await self._server.wait_closed()

    async def wait_for_attempts(self, count: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.attempts >= count)

    async def wait_for_no_connections(self) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: not self.connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self.connections.add(connection)
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # a client may go at any time; only the end of the test cancels
        finally:
            writer.close()
            async with self.changed:
                self.connections.discard(connection)
                self.changed.notify_all()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, _, rest = head.partition(b"\r\n")
        headers = dict(email.message_from_bytes(rest).items())
        headers = {name.lower(): value for name, value in headers.items()}
        reply = self._script.pop(0) if self._script else Reply()
        if not reply.unread:
            body = await reader.readexactly(int(headers["content-length"]))
            self.uploads.append(_parse(first.split()[1].decode(), headers, body))
        async with self.changed:
            self.attempts += 1
            self.changed.notify_all()
        body = reply.body * reply.body_repeat
        shown = {"content-type": "application/json", "content-length": str(len(body))}
        lines = [f"{name}: {value}" for name, value in {**shown, **reply.headers}.items()]
        raw = "\r\n".join([f"HTTP/1.1 {reply.status} X", *lines, "", ""]).encode() + body
        writer.write(raw if reply.stop_after_bytes is None else raw[: reply.stop_after_bytes])
        await writer.drain()
        if reply.stop_after_bytes is None:
            return not reply.unread
        if reply.stop == "stall":
            while await reader.read(1_024):
                pass
        elif reply.stop == "reset":
            raw_socket: socket.socket = writer.get_extra_info("socket")
            raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        return False


def _parse(path: str, headers: Mapping[str, str], body: bytes) -> Upload:
    head = f"Content-Type: {headers['content-type']}\r\n\r\n".encode()
    parts: dict[str, Message] = {}
    for part in email.message_from_bytes(head + body).get_payload():
        assert isinstance(part, Message)
        name = part.get_param("name", header="content-disposition")
        assert isinstance(name, str)
        assert name not in parts
        parts[name] = part
    file = parts.pop("file")
    return Upload(
        path=path,
        headers=headers,
        fields={name: _bytes(part).decode() for name, part in parts.items()},
        filename=file.get_filename(),
        media_type=file.get_content_type(),
        data=_bytes(file),
    )


def _bytes(part: Message) -> bytes:
    found = part.get_payload(decode=True)
    assert isinstance(found, bytes)
    return found


@dataclass
class Desk:
    """A transcriber before its service."""

    transcriber: Transcriber
    service: Service
    context: FakePluginContext
    recording: Path


Serving = Callable[..., AbstractAsyncContextManager[Desk]]


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    """A transcriber before a service: ``serving(*replies, clock=…, **section)``.

    A reply is the arguments of a `Reply`; after the last one every request is answered well.
    """
    recording = tmp_path / "voice message of Ann.oga"
    recording.write_bytes(OGG)

    @asynccontextmanager
    async def serving(
        *replies: Mapping[str, Any], clock: Clock | None = None, **section: Any
    ) -> AsyncIterator[Desk]:
        async with Service(Reply(**each) for each in replies) as service:
            settings = {"provider": "custom", "apiBase": service.url, "apiKey": "sk-canary"}
            context = FakePluginContext(
                tmp_path,
                settings=settings | section,
                plugin_id="transcription",
                clock=clock or FakeClock(),
            )
            async with context:
                yield Desk(build_transcriber(context), service, context, recording)

    return serving


class InstantClock(FakeClock):
    """Passes over all waiting, and remembers it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    async def sleep(self, delay_s: float) -> None:
        self.waits.append(delay_s)
        self._elapsed_s += delay_s


@pytest.fixture
def clock() -> InstantClock:
    return InstantClock()
