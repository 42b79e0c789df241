"""EventStream: the connection over which Discord sends events.

It is not the one of the SDK, which counts an event as received before it is stored, forgets the
session when the program ends, and closes the connection at an event that it cannot read.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from aiohttp import ClientError, WSMsgType
from pydantic import ValidationError

from nanobot_core.chat import CallFailed, Cause
from nanobot_discord import wire
from nanobot_discord.failures import CLOSES

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

    from nanobot_discord.bot import Bot

TakeEvent: TypeAlias = Callable[[str, object, Callable[[], None]], None]
"""Takes the name of an event, its data, and a function to call when it is finished."""

_QUERY = "/?v=10&encoding=json"
_DISPATCH, _HEARTBEAT, _IDENTIFY, _RESUME, _RECONNECT = 0, 1, 2, 6, 7
_INVALID_SESSION, _HELLO, _HEARTBEAT_ACK = 9, 10, 11
_HELLO_LIMIT_S = 30.0
_KEEPS_SESSION = 4000
"""Code with which the bot closes a connection; Discord forgets the session at 1000 and 1001."""
_FORGOTTEN = frozenset({4007, 4009})
"""Codes with which Discord closes a connection whose session cannot be resumed."""
_INVALID_PAUSE_S = (1.0, 5.0)
"""Discord asks for a random pause in this range before a bot identifies itself again."""
_SHORT_S, _MOST_SHORT = 10.0, 5
"""After so many short connections in a row, the gateway's supervisor decides about the next one."""


class EventStream:
    """Receives events, and resumes the session after planned and accidental ends of a connection.

    Discord sends what a connection has missed again to the next one, so that none is opened before
    the other is closed.

    Args:
        take_event: called with each event, in order; it must not raise.
        alive: called with each frame.
    """

    def __init__(self, bot: Bot, take_event: TakeEvent, alive: Callable[[], None]) -> None:
        self._bot = bot
        self._token = bot.settings.token.get_secret_value().strip()
        self._session = bot.session
        self._clock = bot.clock
        self._take_event = take_event
        self._alive = alive
        self._goes_on = False
        self._is_answered = True

    async def run(self, url: str) -> NoReturn:
        """Receive until cancelled.

        Args:
            url: where a session begins.

        Raises:
            CallFailed: the connection is lost and cannot be restored at once.
        """
        short = 0
        while True:
            self._goes_on = False
            began_s = self._clock.monotonic_s()
            code = await self._connection(url)
            short = short + 1 if self._clock.monotonic_s() - began_s < _SHORT_S else 0
            if code is not None and code in CLOSES:
                raise CallFailed(Cause.CREDENTIALS, CLOSES[code])
            if code in _FORGOTTEN and self._session.id:
                self._session.drop()
            elif not self._goes_on or short > _MOST_SHORT:
                reason = f"Discord closes the event stream (code {code})"
                raise CallFailed(Cause.UNREACHABLE, reason)

    async def _connection(self, url: str) -> int | None:
        """Receive over one connection, and return the code with which it was closed."""
        try:
            address = (self._session.url or url).rstrip("/") + _QUERY
            socket = await self._bot.connection.open_socket(address)
        except CallFailed:
            self._session.url = ""  # the usual address can resume it too
            raise
        try:
            async with asyncio.timeout(_HELLO_LIMIT_S):
                hello = await self._next(socket)
            interval_s = _interval_s(hello)
            if interval_s is not None:
                await self._introduce(socket)
                async with asyncio.TaskGroup() as group:
                    beating = group.create_task(self._beat(socket, interval_s), name="heartbeat")
                    await self._read(socket)
                    beating.cancel()
        except TimeoutError as error:
            raise CallFailed(Cause.UNREACHABLE, "Discord did not answer in time") from error
        finally:
            await socket.close(code=_KEEPS_SESSION)
        return socket.close_code

    async def _introduce(self, socket: ClientWebSocketResponse) -> None:
        """Resume the session, or begin one."""
        if self._session.id:
            resumed = {
                "token": self._token,
                "session_id": self._session.id,
                "seq": self._session.backlog.finished,
            }
            await _send(socket, _RESUME, resumed)
            return
        properties = dict.fromkeys(("browser", "device"), "nanobot") | {"os": sys.platform}
        intents = self._bot.settings.intents
        identity = {"token": self._token, "intents": intents, "properties": properties}
        await _send(socket, _IDENTIFY, identity)

    async def _beat(self, socket: ClientWebSocketResponse, interval_s: float) -> None:
        """Send heartbeats; close the connection if Discord does not answer them."""
        self._is_answered = True
        # Discord asks for a random part, because many bots reconnect at the same time.
        await self._clock.sleep(interval_s * random.random())  # noqa: S311 - not a secret
        # While the backlog is full, answers are not read.
        while self._is_answered or self._session.backlog.is_full:
            await self._send_beat(socket)
            await self._clock.sleep(interval_s)
        await socket.close(code=_KEEPS_SESSION)

    async def _send_beat(self, socket: ClientWebSocketResponse) -> None:
        self._is_answered = False
        await _send(socket, _HEARTBEAT, self._session.backlog.finished or None)

    async def _read(self, socket: ClientWebSocketResponse) -> None:
        """Take frames until the connection ends, or Discord asks for another one."""
        while (frame := await self._next(socket)) is not None:
            if frame.op == _DISPATCH:
                self._dispatch(frame)
                await self._session.backlog.wait_for_room()
            elif frame.op == _HEARTBEAT:
                await self._send_beat(socket)
            elif frame.op == _HEARTBEAT_ACK:
                self._is_answered = True
            elif frame.op == _RECONNECT:
                return
            elif frame.op == _INVALID_SESSION:
                self._goes_on = bool(self._session.id)
                if frame.d is not True:
                    self._session.drop()
                await self._clock.sleep(random.uniform(*_INVALID_PAUSE_S))  # noqa: S311 - as above
                return

    def _dispatch(self, frame: wire.Frame) -> None:
        number = frame.s or 0
        if frame.t == "READY":
            try:
                ready = wire.Ready.model_validate(frame.d)
            except ValidationError:
                self._bot.report("the beginning of a session (READY) that cannot be read")
                return
            self._session.begin(ready.session_id, ready.resume_gateway_url, number)
        if frame.t in {"READY", "RESUMED"}:
            self._goes_on = True
        elif not self._session.backlog.take(number):
            return
        finish = self._session.finisher(number)
        if frame.t == "RESUMED":
            self._session.backlog.take(number)
            finish()
        self._take_event(frame.t, frame.d, finish)

    async def _next(self, socket: ClientWebSocketResponse) -> wire.Frame | None:
        """Return the next frame that can be read, or ``None`` if the connection is closed."""
        while True:
            message = await socket.receive()
            if message.type not in {WSMsgType.TEXT, WSMsgType.BINARY}:
                return None
            self._alive()
            try:
                return read_frame(message.data)
            except (ValueError, RecursionError):
                self._bot.report("a frame of the event stream that cannot be read")


def _interval_s(hello: wire.Frame | None) -> float | None:
    """Return the seconds between heartbeats, or ``None`` if this is no greeting."""
    if hello is None or hello.op != _HELLO or not isinstance(hello.d, dict):
        return None
    interval_ms = hello.d.get("heartbeat_interval")
    return interval_ms / 1_000 if isinstance(interval_ms, int | float) and interval_ms > 0 else None


def read_frame(data: str | bytes) -> wire.Frame:
    """Return a frame of the event stream.

    Raises:
        ValueError: it is malformed.
        RecursionError: it is nested too deeply.
    """
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    frame: object = json.loads(text)
    if "\\ud" in text or "\\uD" in text:
        # Half a surrogate pair is no text; the models refuse it.
        frame = json.loads(json.dumps(frame, ensure_ascii=False).encode("utf-8", "replace"))
    return wire.Frame.model_validate(frame)


async def _send(socket: ClientWebSocketResponse, operation: int, data: object) -> None:
    try:
        await socket.send_str(json.dumps({"op": operation, "d": data}))
    except (ClientError, ConnectionError):
        return  # the reader sees that the connection is closed
