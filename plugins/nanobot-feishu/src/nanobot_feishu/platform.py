"""FeishuPlatform: a bot of Feishu or Lark."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from nanobot_core.chat import (
    FEISHU,
    CallFailed,
    Cause,
    ChatPlatform,
    Recent,
    Socket,
    serve_sockets,
    write_markup,
)
from nanobot_feishu import wire
from nanobot_feishu.card import LIMITS, TEXT_ID, build_card
from nanobot_feishu.client import Client, Link, ping_interval, silence_of
from nanobot_feishu.failure import StreamEnded
from nanobot_feishu.frame import Frame, decode, encode
from nanobot_feishu.link import CONTROL, Parts, acknowledgement, parse, ping
from nanobot_feishu.mapping import instant, read_message, read_press, with_quote
from nanobot_feishu.settings import FeishuSettings

if TYPE_CHECKING:
    from nanobot_core import JsonObject, PluginContext
    from nanobot_core.chat import Attachment, Intake, Piece, Received

_CHAT = re.compile(r"(oc_[0-9A-Za-z_-]+)(?::(om_[0-9A-Za-z_-]+))?|ou_[0-9A-Za-z_-]+", re.ASCII)
_MESSAGE = re.compile(r"om_[0-9A-Za-z_-]+", re.ASCII)
_KEY_CHARS = 40
_QUOTE_LIMIT_S = 3.0
_OLDEST = timedelta(days=1)
"""Feishu offers events again that were not acknowledged, even old ones."""
_PENDING = 1_000
"""Events that are not stored yet; further ones are not taken, and Feishu offers them again."""


@dataclass(slots=True)
class _ShownCard:
    """A card that shows a draft; each change needs a larger `sequence`."""

    card_id: str
    sequence: int = 0

    def next(self) -> int:
        self.sequence += 1
        return self.sequence


@dataclass(slots=True)
class _Known:
    """What outlives a connection: the cards of drafts, by message."""

    cards: Recent[str, _ShownCard]


def _build_known(ctx: PluginContext) -> _Known:
    return _Known(Recent())


def open_platform(ctx: PluginContext) -> FeishuPlatform:
    """Return a bot that is not connected. Call it in a thread, because it reads certificates.

    Raises:
        CallFailed: the settings have no credentials.
    """
    settings = ctx.settings(FeishuSettings)
    if not settings.app_id or not settings.app_secret.get_secret_value():
        reason = (
            "`app_id` and `app_secret` of channels.feishu are empty; copy them from "
            "open.feishu.cn (or open.larksuite.com), your app, Credentials & Basic Info"
        )
        raise CallFailed(Cause.CREDENTIALS, reason)
    return FeishuPlatform(ctx, Client(ctx, settings), settings)


class FeishuPlatform(ChatPlatform):
    """A bot; its chats are ``oc_…``, ``oc_…:om_…`` for a topic, or ``ou_…`` for a person."""

    limits = LIMITS
    completes_drafts = True

    def __init__(self, ctx: PluginContext, client: Client, settings: FeishuSettings) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._client = client
        self._settings = settings
        self._cards = ctx.shared(_build_known).cards
        self._links: dict[Socket, Link] = {}
        self._bot = ""
        self._pending = 0

    async def sign_in(self) -> str:
        """Return the name and the open id of the bot."""
        self._bot, name = await self._client.describe_bot()
        return f"{name or 'bot'} (app {self._settings.app_id}, {self._bot})"

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    # --- sending

    async def send(self, chat_id: str, piece: Piece, *, reply_to: str | None, key: str) -> str:
        """Send a card or a file; an equal key is sent once within an hour."""
        found = _CHAT.fullmatch(chat_id)
        if found is None:
            reason = f"'{chat_id}' is not a chat of Feishu; use an id such as 'oc_…' or 'ou_…'"
            raise CallFailed(Cause.REFUSED, reason)
        card_id = ""
        if piece.files:
            kind, content = await self._client.upload(piece.files[0])
        elif piece.is_draft:
            card_id = await self._client.create_card(build_card(piece, chat_id))
            kind, content = "interactive", {"type": "card", "data": {"card_id": card_id}}
        else:
            kind, content = "interactive", build_card(piece, chat_id)
        unique = hashlib.sha256(key.encode()).hexdigest()[:_KEY_CHARS] if key else ""
        place, root = found[1] or chat_id, found[2] or ""
        message_id = await self._client.send(
            place, root, kind, content, unique, self._quoted(reply_to)
        )
        if card_id:
            self._cards.put(message_id, _ShownCard(card_id))
        return message_id

    async def edit(self, chat_id: str, message_id: str, piece: Piece) -> None:
        """Replace the text of a card with the whole text; the last edit ends its streaming."""
        shown = self._cards.get(message_id)
        if shown is None:
            raise CallFailed(Cause.REFUSED, "the card of this message is not known")
        if not piece.is_draft:
            with suppress(StreamEnded):
                await self._client.set_streaming(shown.card_id, shown.next(), is_on=False)
            card = build_card(piece, chat_id)
            await self._client.replace_card(shown.card_id, card, shown.next())
            self._cards.drop(message_id)
            return
        text = write_markup(piece.text, FEISHU)
        try:
            await self._client.write_text(shown.card_id, TEXT_ID, text, shown.next())
        except StreamEnded:
            await self._client.set_streaming(shown.card_id, shown.next(), is_on=True)
            await self._client.write_text(shown.card_id, TEXT_ID, text, shown.next())

    async def delete(self, chat_id: str, message_id: str) -> None:
        """Remove a message."""
        await self._client.delete(message_id)
        self._cards.drop(message_id)

    def _quoted(self, reply_to: str | None) -> str:
        if reply_to is None or not self._settings.reply_to_message:
            return ""
        return reply_to if _MESSAGE.fullmatch(reply_to) else ""

    # --- receiving

    async def receive(self, intake: Intake) -> None:
        """Receive events until cancelled."""
        await serve_sockets(self._open, partial(self._serve, intake), self._ctx.clock)

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """Yield the content of a file."""
        async for part in self._client.download(file.ref):
            yield part

    async def _open(self) -> Socket:
        link = await self._client.open_link()
        self._links[link.socket] = link
        return link.socket

    async def _serve(self, intake: Intake, socket: Socket, renew: Callable[[], None]) -> None:
        link, parts = self._links.pop(socket), Parts()
        pings = _Pings(link)
        async with asyncio.TaskGroup() as group:
            group.create_task(pings.send(), name="feishu pings")
            while True:
                raw = await socket.receive()
                began_s = time.monotonic()
                intake.alive()
                data = raw.encode() if isinstance(raw, str) else raw
                frame = intake.parsed(partial(decode, data))
                if frame is None:
                    continue
                if frame.method == CONTROL:
                    pings.read(frame)
                    continue
                payload = parts.join(frame)
                if payload is not None:
                    await self._handle(intake, socket, frame, payload, began_s)

    async def _handle(
        self, intake: Intake, socket: Socket, frame: Frame, payload: bytes, began_s: float
    ) -> None:
        def done(data: JsonObject | None = None) -> None:
            socket.send_soon(encode(acknowledgement(frame, began_s, data)))

        event = intake.parsed(lambda: wire.Event.model_validate(parse(payload)))
        kind = event.header.event_type if event is not None else ""
        received = None
        if event is not None and kind == "im.message.receive_v1":
            received = await self._message(intake, event)
        elif event is not None and kind == "card.action.trigger":
            received = intake.parsed(partial(_read_press, event))
            done = partial(done, {"toast": {"type": "info", "content": "OK"}})
        if received is None:  # an event of another kind, which would be offered again
            done()
        elif self._pending >= _PENDING:
            self._log.warning("too many messages are not stored yet; one is not taken")
        else:
            self._pending += 1
            intake.put(received, partial(self._finish, done))

    def _finish(self, done: Callable[[], None]) -> None:
        self._pending -= 1
        done()

    async def _message(self, intake: Intake, event: wire.Event) -> Received | None:
        def read() -> tuple[wire.Received, Received | None]:
            parsed = wire.Received.model_validate(event.event)
            isolates = self._settings.topic_isolation
            return parsed, read_message(parsed, self._bot, isolates_topics=isolates)

        parsed, received = intake.parsed(read) or (None, None)
        if parsed is None or received is None:
            return None
        message = parsed.message
        written = instant(message.create_time)
        if written is not None and self._ctx.clock.now() - written > _OLDEST:
            self._log.warning("a message from {} is too old and dropped", written)
            return None
        is_topic = ":" in received.message.chat_id and message.parent_id == message.root_id
        if message.parent_id and not is_topic:
            received = await self._with_quote(received, message.parent_id)
        return replace(received, settled=partial(self._confirm, message.message_id))

    async def _with_quote(self, received: Received, parent: str) -> Received:
        with suppress(CallFailed, TimeoutError):
            async with asyncio.timeout(_QUOTE_LIMIT_S):
                quoted = await self._client.find(parent)
            return with_quote(received, quoted, self._settings.app_id)
        return received

    async def _confirm(self, message_id: str, is_admitted: bool) -> None:
        if is_admitted and self._settings.react_emoji:
            await self._client.react(message_id, self._settings.react_emoji)


class _Pings:
    """Pings a connection, as often as Feishu asks for."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._ping_s = link.ping_s
        self._changed = asyncio.Event()

    async def send(self) -> None:
        """Ping until cancelled."""
        while True:
            self._changed.clear()
            await self._link.socket.send(encode(ping(self._link.service)))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._ping_s):
                    await self._changed.wait()

    def read(self, frame: Frame) -> None:
        """Use the interval that a pong names."""
        asked = ping_interval(parse(frame.payload)) if frame.payload else None
        if frame.header("type") != "pong" or asked in {None, self._ping_s}:
            return
        self._ping_s = asked or self._ping_s
        self._link.socket.expect_within(silence_of(self._ping_s))
        # The next ping would be too late for a shorter interval.
        self._changed.set()


def _read_press(event: wire.Event) -> Received | None:
    return read_press(wire.Pressed.model_validate(event.event), event.header.event_id)
