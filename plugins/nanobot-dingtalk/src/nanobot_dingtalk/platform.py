"""DingTalkPlatform: a robot in Stream mode."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from nanobot_core import shorten
from nanobot_core.chat import (
    COMMONMARK,
    CallFailed,
    Cause,
    ChatPlatform,
    RichText,
    SendLimits,
    serve_sockets,
    write_markup,
)
from nanobot_dingtalk.client import MESSAGES, Client, packed, text_message
from nanobot_dingtalk.failure import WebhookExpired
from nanobot_dingtalk.mapping import GROUP, read_message
from nanobot_dingtalk.route import Route, build_routes, route_of
from nanobot_dingtalk.settings import DingTalkSettings
from nanobot_dingtalk.wire import BotMessage, Frame, acknowledgement, read_data

if TYPE_CHECKING:
    from nanobot_core import JsonObject, PluginContext
    from nanobot_core.chat import Attachment, Intake, Piece, Received, Socket

_MB = 1024 * 1024
_CHARS = 3_500
_BYTES_PER_CHAR = 4
"""14,000 bytes of JSON in total: a push takes 15,000, a webhook 20,000."""
_TITLE_CHARS = 60
_PENDING = 1_000
"""Messages that are not stored yet; further ones are not acknowledged."""
_DIALECT = replace(COMMONMARK, link="[{label}]({url})")
"""DingTalk does not document angle brackets around addresses, which need none."""


def _size(part: RichText) -> int:
    """Return the characters of a part as it is sent, or more if its JSON is long."""
    written = _written(part)
    size = len(packed({"text": written}).encode())
    return max(len(written), -(-size // _BYTES_PER_CHAR))


def _written(part: RichText) -> str:
    return write_markup(part, _DIALECT) if part.spans else part.text


LIMITS = SendLimits(
    text=_CHARS,
    measure=_size,
    schemes=frozenset({"http", "https"}),
    file_bytes=20 * _MB,
    kinds=dict.fromkeys((".jpg", ".jpeg", ".png", ".gif", ".bmp"), "image"),
)


def open_platform(ctx: PluginContext) -> DingTalkPlatform:
    """Return a robot that is not connected. Call it in a thread, because it reads certificates.

    Raises:
        CallFailed: the settings have no credentials.
    """
    settings = ctx.settings(DingTalkSettings)
    if not settings.client_id or not settings.client_secret.get_secret_value():
        reason = (
            "`client_id` and `client_secret` of channels.dingtalk are empty; copy them from "
            "open-dev.dingtalk.com, your app, Credentials & Basic Info"
        )
        raise CallFailed(Cause.CREDENTIALS, reason)
    return DingTalkPlatform(ctx, Client(ctx, settings), settings)


class DingTalkPlatform(ChatPlatform):
    """A robot; its chats are ``group:<conversation>`` or the id of a person."""

    limits = LIMITS

    def __init__(self, ctx: PluginContext, client: Client, settings: DingTalkSettings) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._client = client
        self._settings = settings
        self._routes = ctx.shared(build_routes)
        self._pending = 0

    async def sign_in(self) -> str:
        """Return the id of the app."""
        await self._client.sign_in()
        return f"app {self._settings.client_id}"

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    # --- sending

    async def send(self, chat_id: str, piece: Piece, *, reply_to: str | None, key: str) -> str:
        """Send a text or a file; DingTalk has no key against repetitions and no quotes."""
        route = await self._routes.find(chat_id)
        if piece.files:
            return await self._send_file(chat_id, route, piece)
        text = _written(piece.text)
        title = shorten(" ".join(piece.text.text.split()) or "…", _TITLE_CHARS)
        is_markdown = bool(piece.text.spans)
        reply, msg_key, param = text_message(title, text, is_markdown=is_markdown)
        if route.is_open(self._ctx.clock.now().timestamp()):
            try:
                await self._client.reply(route.webhook, reply)
            except WebhookExpired:
                self._routes.note(chat_id, replace(route, webhook=""))
            else:
                return ""
        return await self._push(chat_id, route, msg_key, param)

    async def _send_file(self, chat_id: str, route: Route, piece: Piece) -> str:
        (file,) = piece.files
        media_id, name = await self._client.upload(file)
        if file.kind == "image":
            param = packed({"photoURL": media_id})
            return await self._push(chat_id, route, "sampleImageMsg", param)
        kind = name.rpartition(".")[2].lower() if "." in name else "file"
        param = packed({"mediaId": media_id, "fileName": name, "fileType": kind})
        return await self._push(chat_id, route, "sampleFile", param)

    async def _push(self, chat_id: str, route: Route, msg_key: str, param: str) -> str:
        robot = route.robot or self._settings.client_id
        body: JsonObject = {"robotCode": robot, "msgKey": msg_key, "msgParam": param}
        if chat_id.startswith(GROUP):
            body["openConversationId"] = chat_id.removeprefix(GROUP)
            answer = await self._client.push("/v1.0/robot/groupMessages/send", body)
        elif route.takes_pushes:
            body["userIds"] = [chat_id]
            answer = await self._client.push("/v1.0/robot/oToMessages/batchSend", body)
            _check_person(answer, chat_id)
        else:
            reason = "DingTalk names this person only for replies, and the time for one has passed"
            raise CallFailed(Cause.FORBIDDEN, reason)
        return str(answer.get("processQueryKey") or "")

    # --- receiving

    async def receive(self, intake: Intake) -> None:
        """Receive frames until cancelled."""
        await serve_sockets(self._client.open_stream, partial(self._serve, intake), self._ctx.clock)

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """Yield the content of a file."""
        async for part in self._client.download(file.ref):
            yield part

    async def _serve(self, intake: Intake, socket: Socket, renew: Callable[[], None]) -> None:
        while True:
            raw = await socket.receive()
            intake.alive()
            frame = intake.parsed(partial(Frame.model_validate_json, raw))
            if frame is None:
                continue
            topic = frame.headers.topic
            if frame.type == "CALLBACK" and topic == MESSAGES:
                self._put(intake, socket, frame)
            elif frame.type == "SYSTEM" and topic == "disconnect":
                renew()
            elif frame.type == "SYSTEM":
                await socket.send(acknowledgement(frame, frame.data))
            elif frame.type == "EVENT":
                await socket.send(acknowledgement(frame, {"status": "SUCCESS", "message": ""}))
            elif frame.type == "CALLBACK":
                await socket.send(acknowledgement(frame, {"response": {}}))

    def _put(self, intake: Intake, socket: Socket, frame: Frame) -> None:
        def done() -> None:
            self._pending -= 1
            socket.send_soon(acknowledgement(frame, {"response": {}}))

        if self._pending >= _PENDING:
            self._log.warning("too many messages are not stored yet; one is not taken")
            return
        self._pending += 1
        received = intake.parsed(partial(self._read, frame))
        if received is None:
            done()
        else:
            intake.put(received, done)

    def _read(self, frame: Frame) -> Received | None:
        message = BotMessage.model_validate(read_data(frame))
        isolates = self._settings.group_user_isolation
        received = read_message(message, isolates_users=isolates)
        if received is None:
            return None
        chat_id = received.message.chat_id
        route = route_of(message)
        if not self._client.takes_replies(route.webhook):
            route = replace(route, webhook="")
        self._routes.note(chat_id, route)

        async def keep(is_admitted: bool) -> None:
            if is_admitted:
                await self._routes.keep(chat_id)

        return replace(received, settled=keep)


def _check_person(answer: JsonObject, person: str) -> None:
    """Raise `CallFailed` if the answer says that a person does not get the message."""
    invalid, slowed = answer.get("invalidStaffIdList"), answer.get("flowControlledStaffIdList")
    if isinstance(invalid, list) and person in invalid:
        reason = "DingTalk does not know this person, or the person cannot use the app"
        raise CallFailed(Cause.FORBIDDEN, reason)
    if isinstance(slowed, list) and person in slowed:
        raise CallFailed(Cause.BUSY, "too many messages to this person")
