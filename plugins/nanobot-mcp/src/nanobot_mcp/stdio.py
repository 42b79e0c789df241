"""Transport to a server on standard input and output.

It replaces the SDK's transport, because a server gets exactly the configured environment, messages
of any size use limited memory, descendants of the server are ended too, and standard error goes to
a file of limited size.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from nanobot_mcp.process import Command, ServerLog, ServerProcess, start_process
from nanobot_mcp.trouble import Trouble

_KEPT_BYTES = 2_048
_ID = re.compile(rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{1,100}")')


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line that is too long, of which only the beginning and the end are kept."""

    head: bytes
    tail: bytes
    size: int

    def request_id(self) -> int | str | None:
        """Return the JSON-RPC id that the message probably answers, or ``None``.

        Servers write ``id`` near the beginning or the end of the message.
        """
        found = _ID.search(self.head) or next(reversed([*_ID.finditer(self.tail)]), None)
        if found is None:
            return None
        text = found[1]
        return text[1:-1].decode("utf-8", "replace") if text.startswith(b'"') else int(text)


class LineSplitter:
    """Splits a stream of bytes into lines of at most `max_bytes`.

    A longer line becomes a `LongLine`. The splitter holds at most `max_bytes` and one chunk.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    def feed(self, chunk: bytes) -> Iterator[bytes | LongLine]:
        """Yield the lines that `chunk` completes, without line feeds."""
        *complete, rest = chunk.split(b"\n")
        for piece in complete:
            self._add(piece)
            yield self._finished()
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._max_bytes:
            self._parts.append(piece)
            return
        if self._parts or not self._head:
            self._head = b"".join((*self._parts, piece))[:_KEPT_BYTES]
            self._parts.clear()
        self._tail = (self._tail + piece[-_KEPT_BYTES:])[-_KEPT_BYTES:]

    def _finished(self) -> bytes | LongLine:
        try:
            if self._size > self._max_bytes:
                return LongLine(self._head, self._tail, self._size)
            return b"".join(self._parts)
        finally:
            self._parts, self._size, self._head, self._tail = [], 0, b"", b""


Incoming: TypeAlias = "SessionMessage | Exception"
Streams: TypeAlias = (
    "tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]"
)

MAX_JUNK_LINES = 1_000
"""Lines that are not MCP messages after which the program does not count as a server."""

_LARGE_BYTES = 500_000
"""Larger messages are parsed in a thread."""


@asynccontextmanager
async def open_stdio(
    command: Command, log: ServerLog, max_bytes: int, trouble: Trouble
) -> AsyncIterator[Streams]:
    """Start the server and yield the streams of messages from and to it.

    Raises:
        OSError: the program cannot be started.
        ValueError: a word of the command contains a NUL.
    """
    # Cancelling a start would leave a process behind. Starting is fast.
    with anyio.CancelScope(shield=True):
        process = await start_process(command)
    inward, received = anyio.create_memory_object_stream[Incoming](0)
    outgoing, outward = anyio.create_memory_object_stream[SessionMessage](0)
    pump = _Pump(process, log, trouble)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(pump.read_messages, inward, max_bytes)
            group.start_soon(pump.write_messages, outward, command.greeting)
            group.start_soon(pump.log_errors)
            try:
                yield received, outgoing
            finally:
                # A server that has sent nothing has no work to finish.
                await (process.end() if pump.has_heard else process.end(0))
                group.cancel_scope.cancel()
    finally:
        for stream in (inward, received, outgoing, outward):
            stream.close()


class _Pump:
    """Moves messages between the pipes of a process and the streams of the SDK.

    Attributes:
        has_heard: the server has sent a message.
    """

    def __init__(self, process: ServerProcess, log: ServerLog, trouble: Trouble) -> None:
        self.has_heard: bool = False
        self._process = process
        self._log = log
        self._trouble = trouble
        self._junk = 0

    async def read_messages(self, inward: MemoryObjectSendStream[Incoming], max_bytes: int) -> None:
        """Forward messages until the output ends, or is not MCP."""
        splitter = LineSplitter(max_bytes)
        async with inward:
            while chunk := await self._process.read_output():
                for line in splitter.feed(chunk):
                    message = await self._message(line)
                    try:
                        if message is not None:
                            await inward.send(message)
                    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                        return
                if self._junk > MAX_JUNK_LINES:
                    self._trouble.note(
                        "its standard output contains lines that are not MCP messages"
                    )
                    return
            self._trouble.note(await self._ending())

    async def _message(self, line: bytes | LongLine) -> SessionMessage | None:
        if isinstance(line, LongLine):
            return self._refusal(line)
        if not line.strip():
            return None
        try:
            if len(line) > _LARGE_BYTES:
                message = await anyio.to_thread.run_sync(_parse, line)
            else:
                message = _parse(line)
        except (ValueError, RecursionError):
            self._junk += 1
            if self._junk <= MAX_JUNK_LINES:
                await self._keep(b"[standard output] " + line[:1_000] + b"\n")
            return None
        self.has_heard = True
        return message

    def _refusal(self, line: LongLine) -> SessionMessage | None:
        """Return an error in place of an answer that is too large."""
        request_id = line.request_id()
        if request_id is None:
            return None
        text = f"the answer has {line.size:,} bytes, more than tools.mcp.max_message_bytes allows"
        error = ErrorData(code=INTERNAL_ERROR, message=text)
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))

    async def write_messages(
        self, outward: MemoryObjectReceiveStream[SessionMessage], greeting: bytes
    ) -> None:
        """Write the greeting, then messages, until one side closes."""
        async with outward:
            if greeting and not await self._process.write(greeting):
                return
            async for item in outward:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                if not await self._process.write(f"{text}\n".encode("utf-8", "replace")):
                    return

    async def log_errors(self) -> None:
        """Write standard error to the log."""
        while chunk := await self._process.read_errors():
            await self._keep(chunk)

    async def _keep(self, data: bytes) -> None:
        await anyio.to_thread.run_sync(self._log.write, data)

    async def _ending(self) -> str:
        """Describe how the process ended, which is shortly after its output has ended."""
        await self._process.wait_for_exit(1)
        code = self._process.exit_code
        ending = "it closed its standard output"
        if code is not None:
            ending = (
                f"its process ended by signal {-code}"
                if code < 0
                else (f"its process ended with exit code {code}")
            )
        return f"{ending}; its log is {self._log.path}"


def _parse(line: bytes) -> SessionMessage:
    return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
