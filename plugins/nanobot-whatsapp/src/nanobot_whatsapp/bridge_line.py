"""The connection to the bridge: its token, one command at a time, and the linking of a phone."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from nanobot_core import shorten
from nanobot_core.chat import CallFailed, Cause, SocketClosed, open_socket

if TYPE_CHECKING:
    from nanobot_core import JsonObject, LoginPrompt
    from nanobot_core.chat import Socket
    from nanobot_whatsapp.settings import WhatsAppSettings
    from nanobot_whatsapp.timing import TimeLimits

_NAME = "the WhatsApp bridge"
_REFUSED_TOKEN = frozenset({4001, 4003})
_TEMPORARY = ("not connected", "connection closed", "timed out", "connection lost", "rate-over")
"""Parts of errors of the bridge after which the same command can succeed."""
_ERROR_CHARS = 200
_EARLY = 1_000


class BridgeLine:
    """A connection to the bridge; a lost one is opened again by the next command."""

    def __init__(self, settings: WhatsAppSettings, limits: TimeLimits) -> None:
        self._settings = settings
        self._time = limits
        self._socket: Socket | None = None
        self._early: deque[JsonObject] = deque(maxlen=_EARLY)
        self._connecting = asyncio.Lock()
        self._receiving = asyncio.Lock()
        self._sending = asyncio.Lock()
        self._outcome: asyncio.Future[None] | None = None
        self._is_read = False
        self._unclaimed = 0

    async def connect(self) -> Socket:
        """Open the connection, if it is not open.

        Raises:
            CallFailed: the bridge does not run, or does not accept the token.
        """
        async with self._connecting:
            if self._socket is None:
                self._socket = await self._open()
                self._unclaimed = 0
            return self._socket

    async def aclose(self) -> None:
        """Close the connection. Can be called again."""
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.aclose()

    async def frames(self, alive: Callable[[], None]) -> AsyncIterator[JsonObject]:
        """Yield what the bridge sends, except for results of commands, until it is lost.

        Args:
            alive: called when the connection works; silence is usual, and pings detect its end.
        """
        socket = await self.connect()
        self._is_read = True
        try:
            while True:
                async with self._receiving:
                    frame = self._early.popleft() if self._early else await self._receive(socket)
                alive()
                if frame is not None and not self._finish(frame):
                    yield frame
        finally:
            self._is_read = False
            if self._outcome is not None and not self._outcome.done():
                self._outcome.set_exception(SocketClosed(_NAME, None))

    async def first(self, silence_s: float) -> JsonObject | None:
        """Return the next frame, or ``None`` after `silence_s` seconds without one."""
        socket = await self.connect()
        socket.expect_within(silence_s)
        return self._early.popleft() if self._early else await self._receive(socket)

    async def command(self, command: JsonObject) -> None:
        """Let the bridge do something, and wait until it reports the result.

        Results do not name their command, so that there is one command at a time.

        Raises:
            CallFailed: the bridge is not connected, or reports an error.
        """
        async with self._sending:
            socket = await self.connect()
            outcome = self._outcome = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(self._time.call_s):
                    await socket.send(json.dumps(command))
                    if not self._is_read:
                        await self._await_result(socket, outcome)
                    await outcome
            except TimeoutError as error:
                # A late result would count for the next command.
                await self.aclose()
                reason = "the WhatsApp bridge did not answer in time"
                raise CallFailed(Cause.UNREACHABLE, reason) from error
            except SocketClosed:
                await self.aclose()
                raise
            except asyncio.CancelledError:
                self._unclaimed += 1
                raise
            finally:
                self._outcome = None

    async def _open(self) -> Socket:
        # The bridge listens on 127.0.0.1 only.
        url = self._settings.bridge_url.replace("//localhost", "//127.0.0.1", 1)
        try:
            socket = await open_socket(url, service=_NAME, silence_s=self._time.refusal_s)
        except CallFailed as error:
            hint = "start it, or correct channels.whatsapp.bridge_url"
            raise CallFailed(error.cause, f"{error.reason}; {hint}") from error
        token = self._settings.bridge_token.get_secret_value()
        try:
            await socket.send(json.dumps({"type": "auth", "token": token}))
            # The bridge does not confirm the token; it closes the connection if it is wrong.
            frame = await self._receive(socket)
        except SocketClosed as error:
            if error.code not in _REFUSED_TOKEN:
                raise
            reason = (
                "the WhatsApp bridge does not accept channels.whatsapp.bridge_token; set it to the "
                "BRIDGE_TOKEN with which the bridge was started"
            )
            raise CallFailed(Cause.CREDENTIALS, reason) from error
        if frame is not None:
            self._early.append(frame)
        socket.expect_within(self._time.quiet_s)
        return socket

    async def _await_result(self, socket: Socket, outcome: asyncio.Future[None]) -> None:
        """Receive until the result of a command arrives, while nothing else receives."""
        async with self._receiving:
            while not outcome.done():
                frame = await self._receive(socket)
                if frame is not None and not self._finish(frame):
                    self._early.append(frame)

    async def _receive(self, socket: Socket) -> JsonObject | None:
        """Return the next frame, or ``None`` after a silence.

        Raises:
            SocketClosed: the connection is lost.
        """
        try:
            content = await socket.receive()
        except SocketClosed:
            if self._socket is socket:
                self._socket = None
            raise
        except CallFailed:
            return None
        try:
            frame = json.loads(content)
        except (ValueError, RecursionError):
            frame = None
        return frame if isinstance(frame, dict) else {}

    def _finish(self, frame: JsonObject) -> bool:
        """Pass a result to the command that waits for it, and return whether there was one."""
        if frame.get("type") not in {"sent", "error"}:
            return False
        if self._unclaimed:
            self._unclaimed -= 1
            return True
        if self._outcome is None or self._outcome.done():
            return False
        if frame.get("type") == "sent":
            self._outcome.set_result(None)
        else:
            self._outcome.set_exception(failure_of(str(frame.get("error", ""))))
        return True


def failure_of(error: str) -> CallFailed:
    """Return our error for an error of the bridge, which is a text without a code."""
    is_temporary = any(part in error.lower() for part in _TEMPORARY)
    cause = Cause.UNREACHABLE if is_temporary else Cause.REFUSED
    return CallFailed(cause, f"the WhatsApp bridge reports: {shorten(error, _ERROR_CHARS)}")


async def link_phone(line: BridgeLine, prompt: LoginPrompt, limits: TimeLimits) -> str:
    """Show the codes of the bridge until a phone is linked.

    Returns:
        What to add to the name of the bridge.

    Raises:
        CallFailed: no code was scanned in time.
    """
    await prompt.note(f"Waiting up to {limits.qr_s:.0f} seconds for a code of the bridge.")
    silence_s, is_shown = limits.qr_s, False
    while (frame := await line.first(silence_s)) is not None:
        code = frame.get("qr")
        if frame.get("type") == "qr" and isinstance(code, str):
            await prompt.note("Scan this code with WhatsApp > Settings > Linked devices:")
            await prompt.scan(code)
            silence_s, is_shown = limits.scan_s, True
        elif frame.get("type") == "status" and frame.get("status") == "connected":
            return ", linked to a phone now"
    if is_shown:
        raise CallFailed(Cause.CREDENTIALS, "the code was not scanned in time; run the login again")
    return ", which sent no code; it is linked to a phone already"
