"""ControlClient: sends requests to the gateway from another process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nanobot_core.app.lock import is_running, running_pid
from nanobot_core.app.wire import (
    MAX_LINE_BYTES,
    ControlError,
    event_from_json,
    from_json,
    read_line,
    socket_address,
    write_line,
)
from nanobot_core.contracts.client import ignore_event
from nanobot_core.events import TurnOutcome

if TYPE_CHECKING:
    from nanobot_core.contracts.client import EventSink
    from nanobot_core.messages import JsonObject, JsonValue

CONNECT_LIMIT_S = 5.0
ANSWER_LIMIT_S = 10.0
"""Seconds that a gateway has to answer."""
CHANGE_LIMIT_S = 120.0
"""Seconds that it has to load or unload plugins."""
SILENCE_LIMIT_S = 20.0
"""Seconds of silence after which a gateway counts as hanging; a turn itself has no limit."""
Answering = Callable[["JsonObject"], Awaitable[Literal["yes", "always", "no"]]]
"""Answers a question about a tool call, from its text, name, arguments and ``may_always``."""


async def _refuse(_question: JsonObject) -> Literal["no"]:
    return "no"


class ControlClient:
    """A client of the gateway of one data folder.

    Args:
        folder: folder of the gateway, ``gateway`` in nanobot's home.
    """

    def __init__(self, folder: Path) -> None:
        self.folder: Path = folder

    @property
    def is_there(self) -> bool:
        """Whether a gateway runs and has a control socket."""
        return (self.folder / "control.sock").exists() and is_running(self.folder)

    @property
    def pid(self) -> int | None:
        """Process id of the gateway; ``None`` if none runs or it is unknown."""
        return running_pid(self.folder)

    async def call(
        self, do: str, *, limit_s: float | None = None, **arguments: JsonValue
    ) -> JsonValue:
        """Send a request and return the result.

        Args:
            do: name of the request.
            limit_s: seconds that the gateway has; ``None`` means `ANSWER_LIMIT_S`.
            arguments: arguments of the request.

        Raises:
            ControlError: no gateway runs, it refused, or it did not answer.
        """
        seconds = ANSWER_LIMIT_S if limit_s is None else limit_s
        try:
            async with asyncio.timeout(seconds), self._connected() as (reader, writer):
                await write_line(writer, {"do": do, **arguments})
                while (line := await self._read(reader)) is not None and "ok" not in line:
                    pass  # a keep-alive line
                return _result(line)
        except TimeoutError as error:
            raise self._hung(seconds) from error

    async def turn(
        self, arguments: JsonObject, on_event: EventSink, decide: Answering = _refuse
    ) -> TurnOutcome:
        """Let the gateway answer a message.

        Args:
            arguments: ``text``, ``session``, ``model``, ``media``.
            on_event: receives the events of the turn; a call begins when it has received its
                `ToolCallStarted`.
            decide: answers questions about tool calls that need the owner's approval.

        Raises:
            ControlError: no gateway runs, it refused, or it was silent for `SILENCE_LIMIT_S`.

        Cancellation:
            The connection is closed, which stops the turn.
        """
        return from_json(TurnOutcome, await self.ask("turn", arguments, decide, on_event))

    async def ask(
        self,
        do: str,
        arguments: JsonObject,
        decide: Answering = _refuse,
        on_event: EventSink = ignore_event,
    ) -> JsonValue:
        """Send a request that takes as long as it takes, and return its result.

        Args:
            do: name of the request.
            arguments: of the request.
            decide: answers questions about tool calls that need the owner's approval.
            on_event: receives the events of a turn.

        Raises:
            ControlError: as in `turn`.
        """
        async with self._connected() as (reader, writer):
            await write_line(writer, {"do": do, "confirms": True, **arguments})
            try:
                async with asyncio.TaskGroup() as questions:
                    open_questions: list[asyncio.Task[None]] = []
                    while (line := await self._read(reader)) is not None and "ok" not in line:
                        if "question" in line:
                            # Events arrive, and the end is noticed, while a person thinks.
                            answering = _answer(writer, line, decide)
                            open_questions.append(questions.create_task(answering))
                        elif (event := event_from_json(line)) is not None:
                            await on_event(event)
                            if "number" in line:
                                await write_line(writer, {"number": line["number"]})
                    for question in open_questions:
                        question.cancel()
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from errors
            return _result(line)

    async def _read(self, reader: asyncio.StreamReader) -> JsonObject | None:
        """Return the next line of the gateway, which sends keep-alive lines while it works."""
        try:
            async with asyncio.timeout(SILENCE_LIMIT_S):
                return await read_line(reader)
        except TimeoutError as error:
            raise self._hung(SILENCE_LIMIT_S) from error

    def _hung(self, seconds: float) -> ControlError:
        pid = self.pid
        which = f"the gateway with process id {pid}" if pid else "the gateway"
        end = f"end it with kill -9 {pid}" if pid else "end its process"
        return ControlError(
            f"{which} has not answered within {seconds:g} seconds and may hang; nanobot gateway "
            f"logs shows what it did last; {end} and start it again"
        )

    @asynccontextmanager
    async def _connected(
        self,
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        try:
            folder_fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise _absent() from error
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                reader, writer = await asyncio.open_unix_connection(
                    socket_address(self.folder, folder_fd), limit=MAX_LINE_BYTES
                )
        except (TimeoutError, BlockingIOError) as error:
            raise self._hung(CONNECT_LIMIT_S) from error
        except OSError as error:
            raise _absent() from error
        finally:
            os.close(folder_fd)
        try:
            yield reader, writer
        except ConnectionError as error:
            msg = "the gateway ended during the request; nanobot gateway logs shows why"
            raise ControlError(msg) from error
        finally:
            writer.close()


async def _answer(writer: asyncio.StreamWriter, line: JsonObject, decide: Answering) -> None:
    # The number distinguishes this answer from a late one.
    await write_line(writer, {"number": line.get("number"), "answer": await decide(line)})


def _absent() -> ControlError:
    return ControlError("no gateway runs here; start one with nanobot gateway")


def _result(line: JsonObject | None) -> JsonValue:
    if line is None:
        msg = "the gateway ended before it answered; nanobot gateway logs shows why"
        raise ControlError(msg)
    if line.get("ok") is not True:
        raise ControlError(str(line.get("error") or "the gateway refused"))
    return line.get("result")
