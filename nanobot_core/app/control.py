"""ControlServer: takes requests of commands over a socket that only the owner can use."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanobot_core.app.wire import (
    MAX_LINE_BYTES,
    ControlError,
    read_line,
    socket_address,
    write_line,
)
from nanobot_core.contracts.plugin import Ticket
from nanobot_core.errors import NanobotError
from nanobot_core.tasks import TURN_END_S

if TYPE_CHECKING:
    from nanobot_core.events import ApprovalRequested
    from nanobot_core.messages import JsonObject, JsonValue
    from nanobot_core.tasks import Spawn

MAX_CONNECTIONS = 32
REQUEST_LIMIT_S = 30.0
"""Seconds that a caller has to send its request."""
ALIVE_INTERVAL_S = 5.0
"""Seconds between keep-alive lines to a caller whose request takes long."""
_BUSY = b'{"ok": false, "error": "the gateway has too many callers; try again later"}\n'


class Connection:
    """One caller.

    Attributes:
        request: its request.
    """

    def __init__(
        self, request: JsonObject, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.request: JsonObject = request
        self._reader = reader
        self._writer = writer
        self._writing = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._asked = 0
        self._answers: dict[int, asyncio.Future[JsonObject | None]] = {}
        self._is_gone = False

    def text(self, name: str) -> str:
        """Return a text of the request.

        Raises:
            ControlError: it is missing.
        """
        value = self.request.get(name)
        if not isinstance(value, str) or not value:
            msg = f"'{name}' is missing"
            raise ControlError(msg)
        return value

    async def send(self, content: JsonObject) -> None:
        """Send something to the caller before the result."""
        async with self._writing:
            await write_line(self._writer, content)

    async def ask(self, content: JsonObject) -> JsonObject | None:
        """Send something that the caller answers; return the answer.

        An answer has the number of what it answers, so that a late one does not answer something
        else.

        Returns:
            ``None`` if the caller has disconnected.
        """
        if self._is_gone:
            return None
        self._asked += 1
        number = self._asked
        answer: asyncio.Future[JsonObject | None] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            await self.send({**content, "number": number})
            return await answer
        finally:
            del self._answers[number]

    async def decide(self, event: ApprovalRequested) -> Ticket | None:
        """Ask the caller about a tool call, one question at a time."""
        async with self._asking:
            answer = await self.ask(
                {
                    "question": event.question,
                    "name": event.call.name,
                    "arguments": event.call.arguments,
                    "may_always": event.may_always,
                    "event": asdict(event),
                }
            )
        word = answer.get("answer") if answer else None
        return Ticket(word in {"yes", "always"}, "terminal", always=word == "always")

    async def listen(self) -> None:
        """Receive answers until the caller disconnects.

        Raises:
            ControlError: it sends something that is not JSON.
        """
        try:
            while (line := await read_line(self._reader)) is not None:
                number = line.get("number")
                if isinstance(number, int) and (answer := self._answers.get(number)):
                    _settle(answer, line)
        finally:
            self._is_gone = True
            for answer in self._answers.values():
                _settle(answer, None)


Handler = Callable[[Connection], Coroutine[Any, Any, "JsonValue"]]


class ControlServer:
    """Listens on a unix socket that only the owner's account can open.

    Args:
        folder: folder of the gateway.
        handlers: name of each request to its handler.
        spawn: starts tasks that the agent owns.
    """

    def __init__(self, folder: Path, handlers: Mapping[str, Handler], spawn: Spawn) -> None:
        self._folder = folder
        self._handlers = dict(handlers)
        self._spawn = spawn
        self._server: asyncio.Server | None = None
        self._folder_fd = -1
        self._file = folder / "control.sock"
        self._callers: set[asyncio.Task[None]] = set()
        self._working: set[asyncio.Task[JsonValue]] = set()

    async def start(self) -> None:
        """Listen.

        Raises:
            ControlError: the socket cannot be created.
        """
        try:
            self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            listening = self._bound(socket_address(self._folder, self._folder_fd))
        except OSError as error:
            msg = f"cannot listen on '{self._file}': {error.strerror or error}"
            raise ControlError(msg) from error
        self._server = await asyncio.start_unix_server(
            self._accept, sock=listening, limit=MAX_LINE_BYTES
        )

    def _bound(self, address: str) -> socket.socket:
        self._file.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.bind(address)
            # Before anyone can connect. The umask would affect all threads.
            self._file.chmod(0o600)
        except BaseException:
            listening.close()
            raise
        return listening

    async def drain(self, limit_s: float) -> None:
        """Let requests finish, for at most `limit_s` seconds."""
        if self._working:
            await asyncio.wait(self._working, timeout=limit_s)

    async def stop(self) -> None:
        """Stop listening and disconnect all callers."""
        if self._server is not None:
            self._server.close()
        callers = set(self._callers)
        for task in callers:
            task.cancel()
        if callers:
            await asyncio.wait(callers, timeout=TURN_END_S)
        self._file.unlink(missing_ok=True)
        if self._folder_fd >= 0:
            os.close(self._folder_fd)
            self._folder_fd = -1

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._callers) >= MAX_CONNECTIONS:
            writer.write(_BUSY)
            writer.close()
            return
        task = self._spawn(self._serve(reader, writer), name="control")
        self._callers.add(task)
        task.add_done_callback(self._callers.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self._answer(reader, writer)
            if answer is not None:
                await write_line(writer, answer)
        except ConnectionError:
            pass  # the caller has disconnected
        finally:
            writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> JsonObject | None:
        """Return the answer to a caller, or ``None`` if it sent no request."""
        try:
            async with asyncio.timeout(REQUEST_LIMIT_S):
                request = await read_line(reader)
        except TimeoutError:
            return _refusal(f"no request was received within {REQUEST_LIMIT_S:g} seconds")
        except ControlError as error:
            return _refusal(str(error))
        if request is None:
            return None
        try:
            result = await self._handle(Connection(request, reader, writer))
        except NanobotError as error:
            return _refusal(str(error))
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - isolation point: a request cannot end the gateway
            from loguru import logger

            logger.opt(exception=error).error("a request over the control socket failed")
            return _refusal(f"{type(error).__name__}: {error}")
        return {"ok": True, "result": result}

    async def _handle(self, connection: Connection) -> JsonValue:
        """Run the handler until it is done or the caller disconnects."""
        name = connection.text("do")
        handler = self._handlers.get(name)
        if handler is None:
            msg = f"unknown request '{name}'; the gateway may have another version, restart it"
            raise ControlError(msg)
        work = self._spawn(handler(connection), name=f"control:{name}")
        self._working.add(work)
        work.add_done_callback(self._working.discard)
        hearing = self._spawn(connection.listen(), name=f"control:{name}:listen")
        try:
            while not await _any_done(work, hearing):
                await connection.send({"alive": True})
        finally:
            hearing.cancel()
            if not work.done():
                work.cancel()
            await asyncio.wait({work, hearing}, timeout=TURN_END_S)
        if work.done() and not work.cancelled():
            return work.result()
        if not hearing.cancelled() and (error := hearing.exception()) is not None:
            raise error
        raise ConnectionResetError


def _settle(answer: asyncio.Future[JsonObject | None], line: JsonObject | None) -> None:
    if not answer.done():
        answer.set_result(line)


def _refusal(reason: str) -> JsonObject:
    return {"ok": False, "error": reason}


async def _any_done(*tasks: asyncio.Task[Any]) -> bool:
    """Wait for the first of `tasks`, for at most `ALIVE_INTERVAL_S`; return whether one is done."""
    done, _ = await asyncio.wait(
        tasks, timeout=ALIVE_INTERVAL_S, return_when=asyncio.FIRST_COMPLETED
    )
    return bool(done)
