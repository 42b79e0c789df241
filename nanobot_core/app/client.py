"""ControlClient: the gateway as another process sees it."""

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
from nanobot_core.events import TurnOutcome

if TYPE_CHECKING:
    from nanobot_core.agent.run import EventSink
    from nanobot_core.messages import JsonObject, JsonValue

CONNECT_LIMIT_S = 5.0
ANSWER_LIMIT_S = 10.0
"""Seconds that a gateway has to answer a question."""
CHANGE_LIMIT_S = 120.0
"""Seconds that it has for what loads or unloads plugins."""
SILENCE_LIMIT_S = 20.0
"""Seconds after which a gateway hangs that says nothing; turns take as long as they take."""
Decide = Callable[["JsonObject"], Awaitable[Literal["yes", "always", "no"]]]
"""Asked about a tool call: question, name, arguments and whether "always" may be answered."""


async def _refuse(_question: JsonObject) -> Literal["no"]:
    return "no"


class ControlClient:
    """Speaks with the gateway of one data folder.

    Args:
        folder: folder of the gateway, ``gateway`` in nanobot's home.
    """

    def __init__(self, folder: Path) -> None:
        self.folder: Path = folder

    @property
    def is_there(self) -> bool:
        """Whether a gateway runs and can be asked."""
        return (self.folder / "control.sock").exists() and is_running(self.folder)

    @property
    def pid(self) -> int | None:
        """Process id of the gateway; ``None`` when none runs or it is unknown."""
        return running_pid(self.folder)

    async def call(
        self, do: str, *, limit_s: float | None = None, **arguments: JsonValue
    ) -> JsonValue:
        """Ask for something and return the result.

        Args:
            do: what is asked for.
            limit_s: seconds that the gateway has; `ANSWER_LIMIT_S` by default.
            arguments: what belongs to it.

        Raises:
            ControlError: no gateway runs, it refused, or it does not answer.
        """
        seconds = ANSWER_LIMIT_S if limit_s is None else limit_s
        try:
            async with asyncio.timeout(seconds), self._connected() as (reader, writer):
                await write_line(writer, {"do": do, **arguments})
                while (line := await self._read(reader)) is not None and "ok" not in line:
                    pass  # a sign that it works on it
                return _result(line)
        except TimeoutError as error:
            raise self._hung(seconds) from error

    async def turn(
        self, arguments: JsonObject, on_event: EventSink, decide: Decide = _refuse
    ) -> TurnOutcome:
        """Have a message answered.

        Args:
            arguments: ``text``, ``session``, ``model``, ``media``.
            on_event: receives what happens.
            decide: asked about tool calls that need a word of the owner's.

        Raises:
            ControlError: no gateway runs, it refused, or it shows no sign of life for
                `SILENCE_LIMIT_S`.

        Cancellation:
            The connection is closed, which stops the turn.
        """
        async with self._connected() as (reader, writer):
            await write_line(writer, {"do": "turn", **arguments})
            while (line := await self._read(reader)) is not None and "ok" not in line:
                if "question" in line:
                    # The number tells this answer from one that comes after its time.
                    answer: JsonObject = {"number": line.get("number")}
                    await write_line(writer, {**answer, "answer": await decide(line)})
                elif (event := event_from_json(line)) is not None:
                    await on_event(event)
            return from_json(TurnOutcome, _result(line))

    async def _read(self, reader: asyncio.StreamReader) -> JsonObject | None:
        """Return what the gateway says next; one that works on something says so now and then."""
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
            msg = "the gateway ended meanwhile; nanobot gateway logs shows the reason"
            raise ControlError(msg) from error
        finally:
            writer.close()


def _absent() -> ControlError:
    return ControlError("no gateway runs here; start one with nanobot gateway")


def _result(line: JsonObject | None) -> JsonValue:
    if line is None:
        msg = "the gateway ended before it answered; nanobot gateway logs shows the reason"
        raise ControlError(msg)
    if line.get("ok") is not True:
        raise ControlError(str(line.get("error") or "the gateway refused"))
    return line.get("result")
