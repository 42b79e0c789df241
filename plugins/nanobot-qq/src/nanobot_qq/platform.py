"""QQPlatform: a bot in private chats and groups of QQ."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from nanobot_core.chat import (
    CallFailed,
    Cause,
    ChatPlatform,
    SendLimits,
    SocketClosed,
    serve_sockets,
    utf16_length,
)
from nanobot_qq.client import Client
from nanobot_qq.failure import ENDED, KEYS, LINKS, MARKUP, REPEATED, QQFailed, after_close
from nanobot_qq.mapping import GROUP, PRESS, read_message, read_press
from nanobot_qq.replies import build_replies
from nanobot_qq.session import build_session
from nanobot_qq.settings import QQSettings
from nanobot_qq.text import Form, message_body, written
from nanobot_qq.wire import Frame, Hello, Interaction, Message, Ready

if TYPE_CHECKING:
    from nanobot_core import JsonObject, PluginContext
    from nanobot_core.chat import Attachment, Intake, Piece, Received, RichText, Socket

_MB = 1024 * 1024
TEXT_CHARS = 2_000
"""QQ does not document its limit; others send between 500 and 5,000 characters."""
_PENDING = 1_000
"""Messages that are not stored yet; more end the connection, and QQ sends them again."""
_MESSAGE_EVENTS, _PRESS_EVENTS = 1 << 25, 1 << 26
"""QQ refuses a bot that asks for events which it is not allowed."""
_DISPATCH, _BEAT, _IDENTIFY, _RESUME, _RECONNECT, _INVALID, _HELLO = 0, 1, 2, 6, 7, 9, 10
_MESSAGES = frozenset({"C2C_MESSAGE_CREATE", "GROUP_AT_MESSAGE_CREATE"})
_TOO_FAST_S = 60.0
_HELD_S = 20.0
"""How often a message that waits for a message of a person looks for one; it costs no call."""
_CHAT = re.compile(rf"(?:{GROUP})?[0-9A-Za-z_-]{{1,128}}")
_HELD = (
    "QQ takes no more answers to the last messages of this chat (at most 5 to each, within 60 "
    "minutes, in groups within 5 minutes); nanobot sends it when someone writes there again"
)
_UNKNOWN = (
    "QQ takes only answers, and nobody has written in this chat; see `active_messages` of "
    "channels.qq"
)


def _size(part: RichText) -> int:
    """Return the UTF-16 units of the longer form of a part."""
    return max(utf16_length(written(part, form)) for form in ("markdown", "text"))


LIMITS = SendLimits(
    text=TEXT_CHARS,
    measure=_size,
    schemes=frozenset({"http", "https"}),
    file_bytes=20 * _MB,
    # QQ shows no others; they are sent as files.
    kinds={".jpg": "image", ".jpeg": "image", ".png": "image", ".mp4": "video", ".silk": "voice"},
)


def open_platform(ctx: PluginContext) -> QQPlatform:
    """Return a bot that is not connected. Call it in a thread, because it reads certificates.

    Raises:
        CallFailed: the settings have no credentials.
    """
    settings = ctx.settings(QQSettings)
    if not settings.app_id or not settings.secret.get_secret_value():
        reason = (
            "`app_id` and `secret` of channels.qq are empty; copy them from q.qq.com, your bot, "
            "Development settings"
        )
        raise CallFailed(Cause.CREDENTIALS, reason)
    return QQPlatform(ctx, Client(ctx, settings), settings)


class QQPlatform(ChatPlatform):
    """A bot; its chats are ``group:<group_openid>`` or the openid of a person."""

    limits = LIMITS

    def __init__(self, ctx: PluginContext, client: Client, settings: QQSettings) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._client = client
        self._settings = settings
        self._session = ctx.shared(build_session)
        self._replies = ctx.shared(build_replies)
        self._shows_markup = settings.msg_format == "markdown"
        self._token = ""
        self._is_refused = False

    async def sign_in(self) -> str:
        """Return the id of the bot."""
        await self._client.gateway()
        return f"bot {self._settings.app_id}"

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    # --- sending

    async def send(self, chat_id: str, piece: Piece, *, reply_to: str | None, key: str) -> str:
        """Send a text or a file in answer to the newest message of the chat.

        A piece that is sent again has the same number, and QQ refuses the second one. Formatting
        and links that QQ refuses are left out; each form has a number of its own.
        """
        if _CHAT.fullmatch(chat_id) is None:
            raise CallFailed(Cause.FORBIDDEN, "this is not the id of a chat of QQ")
        if reply_to is not None and reply_to.startswith(PRESS):
            reply_to = None
        if piece.files:
            media = await self._client.upload(chat_id, piece.files[0])
            body: JsonObject = {"msg_type": 7, "content": " ", "media": media}
            return await self._answer(chat_id, body, reply_to, key)
        has_markup = bool(piece.text.spans or piece.buttons)
        form: Form = "markdown" if self._shows_markup and has_markup else "text"
        while True:
            form_key = f"{key}:{form}" if key else ""
            try:
                body = message_body(piece, form)
                return await self._answer(chat_id, body, reply_to, form_key)
            except QQFailed as error:
                if form != "links" and error.code in LINKS:
                    form = "links"
                elif form == "markdown" and error.code in MARKUP:
                    self._log.info("{}; nanobot sends it as text", error.reason)
                    form = "text"
                else:
                    raise

    async def _answer(self, chat_id: str, body: JsonObject, reply_to: str | None, key: str) -> str:
        """Send a message as an answer; without a message to answer, as an active one."""
        while slot := await self._replies.claim(chat_id, key, reply_to):
            numbered = {**body, "msg_id": slot.message, "msg_seq": slot.number}
            try:
                return await self._client.send(chat_id, numbered)
            except QQFailed as error:
                if error.code == REPEATED and slot.is_repeated:
                    return ""
                is_over = error.code in ENDED
                await self._replies.drop(chat_id, key, slot, is_over=is_over)
                if not is_over and error.code != REPEATED:
                    raise
            except CallFailed as error:
                # A refused repetition does not say whether the first call arrived.
                if error.cause is not Cause.UNREACHABLE and not slot.is_repeated:
                    await self._replies.drop(chat_id, key, slot)
                raise
        if self._settings.active_messages:
            return await self._client.send(chat_id, body)
        if await self._replies.left(chat_id) is None:
            raise CallFailed(Cause.FORBIDDEN, _UNKNOWN)
        raise CallFailed(Cause.BUSY, _HELD, retry_after_s=_HELD_S)

    # --- receiving

    async def receive(self, intake: Intake) -> None:
        """Receive events until cancelled."""
        await self._session.load(self._settings.app_id)
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(self._session.keep(), name="QQ sequence")
            try:
                serve = partial(self._serve, intake, group)
                await serve_sockets(self._client.open_gateway, serve, self._ctx.clock)
            finally:
                keeping.cancel()

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """Yield the content of a file."""
        async for part in self._client.download(file.ref):
            yield part

    async def _serve(
        self,
        intake: Intake,
        group: asyncio.TaskGroup,
        socket: Socket,
        _renew: Callable[[], None],
    ) -> None:
        """Receive from a connection until QQ asks for a new one."""
        beats: list[asyncio.Task[None]] = []
        try:
            while True:
                raw = await socket.receive()
                intake.alive()
                frame = intake.parsed(partial(Frame.model_validate_json, raw))
                if frame is None:
                    continue
                if frame.op == _HELLO and not beats:
                    pause_s = Hello.model_validate(frame.d).heartbeat_interval / 1000
                    socket.expect_within(2 * pause_s)
                    beats.append(group.create_task(self._beat(socket, pause_s), name="QQ beats"))
                    await socket.send(await self._greeting())
                elif frame.op == _RECONNECT:
                    return
                elif frame.op == _INVALID:
                    await self._session.forget()
                    return
                elif frame.op == _DISPATCH:
                    await self._take(intake, frame)
        except SocketClosed as error:
            await self._after_close(error)
        except ValueError as error:
            raise CallFailed(Cause.UNREACHABLE, "QQ's greeting cannot be read") from error
        finally:
            for beat in beats:
                beat.cancel()

    async def _greeting(self) -> str:
        """Return the frame that starts or resumes a session."""
        self._token = await self._client.token()
        token = f"QQBot {self._token}"
        if not self._session.id:
            identity = {
                "token": token,
                "intents": _MESSAGE_EVENTS | (_PRESS_EVENTS if self._shows_markup else 0),
                "shard": [0, 1],
                "properties": {"$os": "linux", "$browser": "nanobot", "$device": "nanobot"},
            }
            return json.dumps({"op": _IDENTIFY, "d": identity})
        self._session.resume()
        resumed = {"token": token, "session_id": self._session.id, "seq": self._session.sequence}
        return json.dumps({"op": _RESUME, "d": resumed})

    async def _beat(self, socket: Socket, pause_s: float) -> None:
        """Confirm what is stored, and show that the connection is used."""
        while True:
            await self._ctx.clock.sleep(pause_s)
            sequence = self._session.sequence or None
            socket.send_soon(json.dumps({"op": _BEAT, "d": sequence}))

    async def _after_close(self, error: SocketClosed) -> None:
        """Prepare the next connection, or raise a `CallFailed`."""
        step = after_close(error.code)
        if isinstance(step, CallFailed):
            raise step from error
        if step is None:
            raise error
        if step == "identify":
            await self._session.forget()
        elif step == "wait":
            await self._ctx.clock.sleep(_TOO_FAST_S)
        elif step == "token":
            if self._is_refused:  # also with the token before this one
                raise CallFailed(Cause.CREDENTIALS, KEYS) from error
            self._is_refused = True
            await self._client.renew_token(self._token)

    async def _take(self, intake: Intake, frame: Frame) -> None:
        """Pass an event on. It is settled when it is stored, or has nothing for the agent."""
        if frame.t in {"READY", "RESUMED"}:
            self._is_refused = False
            if frame.t == "READY":
                ready = Ready.model_validate(frame.d)
                await self._session.begin(ready.session_id, frame.s or 0)
            return
        settle = self._session.receive(frame.s) if frame.s else lambda: None
        received = intake.parsed(partial(self._read, frame))
        if received is None:
            settle()
            return
        if self._session.open_count > _PENDING:
            raise CallFailed(Cause.UNREACHABLE, "too many messages are not stored yet")
        message = received.message
        if message.dedupe_key and frame.t in _MESSAGES:
            await self._replies.note(message.chat_id, message.dedupe_key, message.timestamp)
        intake.put(received, settle)

    def _read(self, frame: Frame) -> Received | None:
        if frame.t in _MESSAGES:
            received = read_message(Message.model_validate(frame.d))
            if received is None:
                return None
            chat_id = received.message.chat_id

            async def keep(is_admitted: bool) -> None:
                if is_admitted:
                    await self._replies.keep(chat_id)

            return replace(received, settled=keep)
        if frame.t == "INTERACTION_CREATE":
            press = Interaction.model_validate(frame.d)
            received = read_press(press)

            async def confirm(_is_admitted: bool) -> None:
                await self._client.confirm(press.id)

            return None if received is None else replace(received, settled=confirm)
        return None
