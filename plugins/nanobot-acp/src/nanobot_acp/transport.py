"""LineTransport: messages of JSON-RPC, one in each line of standard input and output."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from typing import Any, Final

from acp.exceptions import RequestError

from nanobot_core import NanobotError

MAX_LINE_BYTES: Final = 50 * 1024 * 1024
"""Size of a message, as in the library of the protocol."""
WRITE_LIMIT_S: Final = 60.0
"""Seconds that an editor may leave its messages unread."""
PARSE_ERROR, INVALID_REQUEST = -32700, -32600
"""Codes of JSON-RPC 2.0, section 5.1."""


class NotAPipe(NanobotError):
    """Standard input or output is not connected to an editor."""


def claim_stdio() -> tuple[int, int]:
    """Return descriptors of standard input and output that only this process has.

    Afterwards standard input is empty and standard output is standard error, also for programs
    that this process starts: one line of theirs would break the protocol.
    """
    incoming, outgoing = (fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3) for number in (0, 1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return incoming, outgoing


async def open_transport(incoming: int, outgoing: int) -> LineTransport:
    """Return the transport on two descriptors, which it closes.

    Raises:
        NotAPipe: one of them is a file.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    try:
        await loop.connect_read_pipe(lambda: protocol, os.fdopen(incoming, "rb", buffering=0))
        writing, flow = await loop.connect_write_pipe(
            lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(outgoing, "wb", buffering=0)
        )
    except ValueError as error:
        msg = "nanobot acp is started by an editor, with pipes as standard input and output"
        raise NotAPipe(msg) from error
    return LineTransport(reader, asyncio.StreamWriter(writing, flow, None, loop))


class LineTransport:
    """The `acp` library's ``Transport``; it answers malformed input itself.

    Args:
        reader: its limit is the size of a message.
        writer: where messages go.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; ``None`` at the end of the input."""
        while (line := await self._line()) is not None:
            if not line.strip():
                continue
            try:
                return _message(line)
            except RequestError as error:
                await self.send({"jsonrpc": "2.0", "id": error.data, "error": _error(error)})
        return None

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message.

        Raises:
            ConnectionError: the editor has gone, or has not read for `WRITE_LIMIT_S`.
        """
        self._writer.write(json.dumps(message, default=str).encode() + b"\n")
        try:
            async with asyncio.timeout(WRITE_LIMIT_S):
                await self._writer.drain()
        except TimeoutError as error:
            msg = "the editor is not reading"
            raise ConnectionError(msg) from error

    async def close(self) -> None:
        """Close the output."""
        self._writer.close()

    async def _line(self) -> bytes | None:
        """Return the next line, empty for one that is too long; ``None`` at the end."""
        is_too_long = False
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                is_too_long = True
                await self._reader.readexactly(error.consumed)
            except asyncio.IncompleteReadError:
                return None  # half a line is no message
            except ConnectionError:
                return None
            else:
                break
        if is_too_long:
            text = f"a message is longer than {MAX_LINE_BYTES:,} bytes; send less at once"
            error_object = _error(RequestError(INVALID_REQUEST, text))
            await self.send({"jsonrpc": "2.0", "id": None, "error": error_object})
            return b""
        return line


def _message(line: bytes) -> dict[str, Any]:
    """Return the message in a line.

    Raises:
        RequestError: it is none; ``data`` is its id.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(PARSE_ERROR, "the line is not JSON") from error
    if not isinstance(found, dict):
        raise RequestError(INVALID_REQUEST, "a message is a JSON object; batches are not supported")
    number = found.get("id")
    if isinstance(number, bool) or not isinstance(number, int | str | None):
        raise RequestError(INVALID_REQUEST, "an id is a number or a text")
    if "method" not in found:
        if "error" in found and not _is_error(found["error"]):
            found["error"] = {"code": -32603, "message": "the editor sent an invalid error"}
        return found
    if not isinstance(found["method"], str):
        raise RequestError(INVALID_REQUEST, "a method is a text", number)
    return found


def _is_error(found: object) -> bool:
    return (
        isinstance(found, dict)
        and isinstance(found.get("code"), int)
        and isinstance(found.get("message"), str)
    )


def _error(error: RequestError) -> dict[str, Any]:
    return {"code": error.code, "message": str(error)}
