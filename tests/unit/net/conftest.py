"""A server on the loopback that answers with the given bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from typing import TypeAlias

import pytest

from nanobot_core.net import NetworkPolicy

LOOPBACK = NetworkPolicy(("127.0.0.0/8",))

Parts: TypeAlias = Iterable[bytes]
Serve: TypeAlias = Callable[..., Awaitable[str]]


def answer(body: bytes = b"", *headers: str, status: str = "200 OK") -> bytes:
    """Return a response with a right length."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.fixture
async def serve(anyio_backend: object) -> AsyncIterator[Serve]:
    """Start a server and return its URL; each connection gets the parts, or those of its path.

    ``hang`` keeps the connection open after the last part, else it is closed.
    """
    async with AsyncExitStack() as stack:

        async def start(
            parts: Parts | dict[str, Parts], *, hang: bool = False, seen: list[bytes] | None = None
        ) -> str:
            async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                with suppress(ConnectionError, asyncio.IncompleteReadError):
                    head = await reader.readuntil(b"\r\n\r\n")
                    if seen is not None:
                        seen.append(head)
                    path = head.split(b" ")[1].decode()
                    for part in parts.get(path, ()) if isinstance(parts, dict) else parts:
                        writer.write(part)
                        await writer.drain()
                    if hang:
                        await reader.read()  # until the client goes
                writer.close()

            server = await asyncio.start_server(connected, "127.0.0.1", 0)
            stack.push_async_callback(server.wait_closed)
            stack.callback(server.close)
            return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

        yield start
