"""Receives the redirect of a browser at the end of a login, on the loopback (RFC 8252, 7.3)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qs, urlsplit

_MAX_REQUEST_BYTES: Final = 16_384
_REQUEST_LIMIT_S: Final = 10.0
_HEAD: Final = (
    b"Content-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n"
    b"Referrer-Policy: no-referrer\r\nConnection: close\r\n"
)


class RedirectListener:
    """Takes the query of one redirect; see `redirect_listener`.

    Attributes:
        port: where it listens.
    """

    def __init__(self, path: str, state: str | None) -> None:
        self.port: int = 0
        self._path = path
        self._state = state
        self._query: asyncio.Queue[Mapping[str, str]] = asyncio.Queue(1)
        self._has_query = False

    async def query(self) -> Mapping[str, str]:
        """Wait for the redirect and return its query: ``code`` and ``state``, or ``error``."""
        return await self._query.get()

    def offer(self, address: str) -> str:
        """Take the query of `address`, such as one that a person pasted.

        Returns:
            Why it is refused, or an empty string.
        """
        try:
            query = parse_qs(urlsplit(address).query)
        except ValueError:
            query = {}
        given = {key: values[0] for key, values in query.items()}
        if "state" not in given or not given.keys() & {"code", "error"}:
            return "this is not the address that the login ends at"
        if self._state is not None and given["state"] != self._state:
            return "this address belongs to another login"
        if self._has_query:
            return "the login has already ended"
        self._has_query = True
        self._query.put_nowait(given)
        return ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of a browser."""
        try:
            async with asyncio.timeout(_REQUEST_LIMIT_S):
                line = await reader.readline()
                status, page = self._take(line.decode("ascii", "replace"))
                length = f"Content-Length: {len(page.encode())}\r\n\r\n"
                writer.write(f"HTTP/1.1 {status}\r\n".encode() + _HEAD + length.encode())
                writer.write(page.encode())
                await writer.drain()
        except (OSError, ValueError):  # TimeoutError is an OSError
            return
        finally:
            writer.close()

    def _take(self, line: str) -> tuple[str, str]:
        """Return the status and the page for a request line."""
        method, target, *_ = [*line.split(" "), "", ""]
        if method != "GET" or urlsplit(target).path != self._path:
            return "404 Not Found", "Not found."
        if problem := self.offer(target):
            return "400 Bad Request", f"Refused: {problem}."
        if "code" in parse_qs(urlsplit(target).query):
            return "200 OK", "nanobot has received the login. You can close this page."
        return "200 OK", "The login was refused. You can close this page."


@asynccontextmanager
async def redirect_listener(
    path: str = "/callback", *, ports: Sequence[int] = (0,), state: str | None = None
) -> AsyncIterator[RedirectListener]:
    """Listen for the redirect of a login on 127.0.0.1.

    Requests with another path, method or state are refused, and so is a second redirect.

    Args:
        path: of the redirect's address.
        ports: tried in order; 0 takes a free port.
        state: value that the redirect must have; ``None`` if the caller checks it.

    Raises:
        OSError: none of the ports is free.
    """
    listener = RedirectListener(path, state)
    server = await _listen(listener, ports)
    listener.port = server.sockets[0].getsockname()[1]
    try:
        yield listener
    finally:
        server.close()
        await server.wait_closed()


async def _listen(listener: RedirectListener, ports: Sequence[int]) -> asyncio.Server:
    for port in ports:
        try:
            return await asyncio.start_server(
                listener.answer, "127.0.0.1", port, limit=_MAX_REQUEST_BYTES
            )
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    names = " and ".join(map(str, ports))
    msg = f"no port is free for the login (tried {names} on 127.0.0.1)"
    raise OSError(errno.EADDRINUSE, msg)
