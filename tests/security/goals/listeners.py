"""Services of the machine that no command and no tool may reach, and a door that none may open."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self, TypeAlias
from uuid import uuid4

_Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
_READ_LIMIT_S = 2.0
_KNOCK_EVERY_S = 0.1


class Listeners:
    """What listens on this machine, as an async context manager.

    Attributes:
        heard: (kind, data) of each contact; the kinds are ``tcp``, ``tcp6``, ``unix``,
            ``abstract``, ``udp``, and ``door`` when someone else has opened the port `door`.
        port: TCP port on 127.0.0.1, and on ::1 where there is one.
        udp: UDP port on 127.0.0.1.
        abstract: name of the abstract socket, without its NUL.
        door: TCP port on which nothing listens.
    """

    def __init__(self, path: Path) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.port: int = 0
        self.udp: int = 0
        self.abstract: str = f"nanobot-goals-{uuid4().hex}"
        self.door: int = 0
        self._path = path
        self._servers: list[asyncio.Server] = []
        self._datagrams: asyncio.DatagramTransport | None = None

    async def __aenter__(self) -> Self:
        await self._open(asyncio.start_server(self._serving("tcp"), "127.0.0.1", 0))
        self.port = self._servers[0].sockets[0].getsockname()[1]
        with contextlib.suppress(OSError):  # a machine without IPv6
            await self._open(asyncio.start_server(self._serving("tcp6"), "::1", self.port))
        await self._open(asyncio.start_unix_server(self._serving("unix"), str(self._path)))
        await self._open(asyncio.start_unix_server(self._serving("abstract"), f"\0{self.abstract}"))
        self._datagrams, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Datagrams(self), local_addr=("127.0.0.1", 0)
        )
        self.udp = self._datagrams.get_extra_info("sockname")[1]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.door = free.getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        if self._datagrams is not None:
            self._datagrams.close()

    async def knock(self) -> None:
        """Try the port `door` until it opens; runs until cancelled."""
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.door)
                writer.close()
                self.heard.append(("door", b""))
                return
            await asyncio.sleep(_KNOCK_EVERY_S)

    async def _open(self, opening: Awaitable[asyncio.Server]) -> None:
        self._servers.append(await opening)

    def _serving(self, kind: str) -> _Serve:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.heard.append((kind, b""))
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_READ_LIMIT_S):
                    self.heard.append((kind, await reader.read(65_536)))
                writer.write(ANSWER)
                await writer.drain()
            writer.close()

        return serve


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._listeners.heard.append(("udp", data))
