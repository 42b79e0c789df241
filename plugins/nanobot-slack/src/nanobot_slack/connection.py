"""Socket Mode: the connection over which Slack sends events.

The protocol is small: ask for an address, connect, and acknowledge what arrives. The SDK's client
keeps the address after a failed handshake, although it is valid once, and repeats that for ever;
its tasks hide failures, and it acknowledges where it receives. So this is our own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, TypeAlias

import aiohttp

from nanobot_core.chat import CallFailed, Cause
from nanobot_slack import wire
from nanobot_slack.settings import Timing

if TYPE_CHECKING:
    from loguru import Logger

    from nanobot_slack.client import SlackClient

Take: TypeAlias = Callable[[wire.Envelope, Callable[[], None]], None]
"""Accepts an envelope, and calls the second argument when Slack may forget it."""

_ENDED = frozenset(
    {
        aiohttp.WSMsgType.CLOSE,
        aiohttp.WSMsgType.CLOSING,
        aiohttp.WSMsgType.CLOSED,
        aiohttp.WSMsgType.ERROR,
    }
)
_FINAL = {
    "link_disabled": (
        Cause.CREDENTIALS,
        "Socket Mode is off; turn it on at https://api.slack.com/apps, page Socket Mode",
    ),
    "too_many_websockets": (
        Cause.CONFLICT,
        "this Slack app has too many connections; another program uses its tokens",
    ),
}
"""Why Slack ends a connection, where a new one would not help."""


class SocketMode:
    """Receives envelopes until cancelled.

    Args:
        take: see `Take`.
        alive: called for each frame.
        catch_up: called when the first connection is open, before anything is received, so that
            what was missed comes first.
    """

    def __init__(
        self,
        client: SlackClient,
        timing: Timing,
        *,
        take: Take,
        alive: Callable[[], None],
        catch_up: Callable[[], Awaitable[None]],
        log: Logger,
    ) -> None:
        self._client = client
        self._timing = timing
        self._take = take
        self._alive = alive
        self._catch_up = catch_up
        self._log = log

    async def run(self) -> None:
        """Receive. When Slack asks for it, a new connection replaces the old one.

        Raises:
            CallFailed: the connection is lost or refused.
        """
        async with asyncio.TaskGroup() as group:
            is_first = True
            while True:
                link = await self._open()
                if is_first:
                    if link.connections > 1:
                        self._log.warning(
                            "Slack reports {} connections of this app; if another program uses its "
                            "tokens, each receives a part of the messages",
                            link.connections,
                        )
                    await link.wait_for(self._catch_up())
                    is_first = False
                group.create_task(link.serve(), name="slack receives")
                await link.is_ending.wait()

    async def _open(self) -> _Link:
        # Each address is valid for one connection.
        answer = await self._client.call("apps.connections.open", as_app=True)
        stack = AsyncExitStack()
        try:
            async with asyncio.timeout(self._timing.open_s):
                socket = await stack.enter_async_context(
                    self._client.socket(str(answer.get("url")))
                )
                link = _Link(socket, stack, self._timing, self._take, self._alive, self._log)
                await link.greeted()
        except (aiohttp.ClientError, OSError, ValueError, TypeError) as error:
            await stack.aclose()
            # The text of the error may contain the address, which is a secret.
            reason = f"Slack's socket cannot be opened ({type(error).__name__})"
            raise CallFailed(Cause.UNREACHABLE, reason) from None
        except BaseException:
            await stack.aclose()
            raise
        return link


class _Link:
    """One connection.

    Attributes:
        is_ending: Slack will end it, or has ended it.
        connections: how many the app has, as Slack reports it.
    """

    def __init__(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        stack: AsyncExitStack,
        timing: Timing,
        take: Take,
        alive: Callable[[], None],
        log: Logger,
    ) -> None:
        self.is_ending = asyncio.Event()
        self.connections = 1
        self._socket = socket
        self._stack = stack
        self._timing = timing
        self._take = take
        self._alive = alive
        self._log = log
        self._done: asyncio.Queue[str] = asyncio.Queue()

    async def greeted(self) -> None:
        """Wait for the first frame, ``hello``."""
        while (envelope := await self._next()) is None or envelope.type != "hello":
            if envelope is not None and envelope.type == "disconnect":
                raise _ended(envelope.reason)
        self.connections = envelope.num_connections or 1

    async def wait_for(self, work: Awaitable[None]) -> None:
        """Wait for `work`, and close the connection if it fails."""
        try:
            await work
        except BaseException:
            await self._stack.aclose()
            raise

    async def serve(self) -> None:
        """Receive until the connection ends; raise `CallFailed` unless that was announced."""
        try:
            async with asyncio.TaskGroup() as group:
                helpers = [
                    group.create_task(self._acknowledge(), name="slack acknowledges"),
                    group.create_task(self._ping(), name="slack pings"),
                ]
                await self._receive()
                for helper in helpers:
                    helper.cancel()
        finally:
            await self._stack.aclose()

    async def _receive(self) -> None:
        try:
            async with asyncio.timeout(None) as handover:
                while True:
                    envelope = await self._next()
                    if envelope is None:
                        continue
                    if envelope.type != "disconnect":
                        self._pass_on(envelope)
                    elif envelope.reason in _FINAL:
                        raise _ended(envelope.reason)
                    elif not self.is_ending.is_set():
                        self.is_ending.set()
                        loop = asyncio.get_running_loop()
                        handover.reschedule(loop.time() + self._timing.handover_s)
        except (CallFailed, TimeoutError):
            if not self.is_ending.is_set():
                raise

    def _pass_on(self, envelope: wire.Envelope) -> None:
        if envelope.envelope_id:
            self._take(envelope, lambda: self._done.put_nowait(envelope.envelope_id))

    async def _acknowledge(self) -> None:
        while True:
            envelope_id = await self._done.get()
            await self._send(self._socket.send_str(json.dumps({"envelope_id": envelope_id})))

    async def _ping(self) -> None:
        while True:
            await self._send(self._socket.ping())
            await asyncio.sleep(self._timing.ping_s)

    async def _send(self, sending: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(self._timing.silence_s):
                await sending
        except (aiohttp.ClientError, OSError) as error:
            if not self.is_ending.is_set():
                raise _lost(f"the connection is lost ({type(error).__name__})") from None

    async def _next(self) -> wire.Envelope | None:
        """Return the next frame, or ``None`` if it is none of ours."""
        try:
            async with asyncio.timeout(self._timing.silence_s):
                frame = await self._socket.receive()
        except TimeoutError:
            raise _lost(f"Slack sent nothing for {self._timing.silence_s:g} seconds") from None
        if frame.type in _ENDED:
            raise _ended("")
        self._alive()
        if frame.type is aiohttp.WSMsgType.PING:
            await self._send(self._socket.pong(frame.data))
        if frame.type is not aiohttp.WSMsgType.TEXT:
            return None
        try:
            return wire.read_frame(frame.data)
        except (ValueError, RecursionError):
            self._log.warning("a frame of Slack that cannot be read is dropped")
            return None


def _ended(reason: str) -> CallFailed:
    cause, text = _FINAL.get(reason, (Cause.UNREACHABLE, "Slack ended the connection"))
    return CallFailed(cause, text)


def _lost(reason: str) -> CallFailed:
    return CallFailed(Cause.UNREACHABLE, reason)
