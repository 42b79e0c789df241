"""TelegramPlatform: a bot, by long polling or webhook."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from nanobot_core import shorten
from nanobot_core.chat import (
    FILE_KINDS,
    WEB_SCHEMES,
    CallFailed,
    Cause,
    ChatPlatform,
    Recent,
    SendLimits,
)
from nanobot_telegram import wire
from nanobot_telegram.call import GroupMoved, TimeLimits
from nanobot_telegram.client import Client, open_client
from nanobot_telegram.mapping import ChatRef, read_update
from nanobot_telegram.polling import Poller
from nanobot_telegram.settings import TelegramSettings
from nanobot_telegram.webhook import build_route

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_core.chat import Attachment, Intake, Piece, Received

SCHEMES = WEB_SCHEMES | {"tg"}
"""The schemes of addresses that Telegram opens."""
LIMITS = SendLimits(
    text=4_000,  # UTF-16 units; Telegram accepts 4,096
    schemes=SCHEMES,
    caption=1_024,
    # Upload limits of bots (Bot API, "Sending files") and of albums (``sendMediaGroup``).
    file_bytes=50 * 1024 * 1024,
    kind_bytes={"image": 10 * 1024 * 1024},
    kinds=FILE_KINDS,
    album_files=10,
    album_bytes=50 * 1024 * 1024,
    albums=(frozenset({"image", "video"}), frozenset({"audio"}), frozenset({"file"})),
)
_WEBHOOK_CHECK_S = 45.0
_MENU_NAME = re.compile(r"[a-z0-9_]{1,32}")
"""Names that ``setMyCommands`` accepts."""
_MENU_COMMANDS = 100
_SUMMARY_CHARS = 256
_MESSAGE_ID = re.compile(r"(?:-?[0-9]{1,19}:)?([0-9]{1,19})(?::[0-9]{1,19})?", re.ASCII)
"""The id of a message, or its dedupe key: chat, id and, if it was edited, the time of the edit."""


@dataclass(slots=True)
class _Known:
    """What the plugin knows in this process.

    Attributes:
        moved: old to new ids of groups.
        has_begun: the channel has received updates before.
    """

    moved: Recent[int | str, int] = field(default_factory=Recent)
    has_begun: bool = False


def _build_known(ctx: PluginContext) -> _Known:
    return _Known()


def open_platform(ctx: PluginContext, limits: TimeLimits) -> TelegramPlatform:
    """Return a bot that is not connected. Call it in a thread, because it reads certificates.

    Raises:
        CallFailed: the settings have no token.
    """
    settings = ctx.settings(TelegramSettings)
    return TelegramPlatform(ctx, open_client(settings, limits), settings)


class TelegramPlatform(ChatPlatform):
    """A bot; its chats are named as `ChatRef` writes them."""

    limits = LIMITS

    def __init__(self, ctx: PluginContext, client: Client, settings: TelegramSettings) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._client = client
        self._writer = client.writer
        self._settings = settings
        self._known = ctx.shared(_build_known)
        self._bot = wire.User(id=0)

    async def sign_in(self) -> str:
        """Return the bot's name and id."""
        self._bot = me = await self._client.get_me()
        return f"@{me.username} ({me.first_name}, id {me.id})"

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    # --- sending

    async def send(self, chat_id: str, piece: Piece, *, reply_to: str | None, key: str) -> str:
        """Send a text, a file or an album; Telegram has no key against repetitions."""
        with self._placed(chat_id) as to:
            return str(await self._writer.send_piece(to, piece, self._quoted(reply_to)))

    async def edit(self, chat_id: str, message_id: str, piece: Piece) -> None:
        """Replace the text of a message."""
        with self._placed(chat_id) as to:
            await self._writer.edit_text(to, _number(message_id), piece)

    async def delete(self, chat_id: str, message_id: str) -> None:
        """Remove a message."""
        with self._placed(chat_id) as to:
            await self._writer.delete(to, _number(message_id))

    async def show_typing(self, chat_id: str) -> None:
        """Show a typing indicator for five seconds."""
        with self._placed(chat_id) as to:
            await self._writer.show_typing(to)

    @contextmanager
    def _placed(self, chat_id: str) -> Iterator[ChatRef]:
        """Yield the chat that `chat_id` names, by its present id."""
        to = ChatRef.parse(chat_id)
        if to is None:
            reason = f"'{chat_id}' is not a chat; use an id, or an id and a topic as 'ID:TOPIC'"
            raise CallFailed(Cause.REFUSED, reason)
        moved_to = self._known.moved.get(to.chat)
        if moved_to is not None:
            to = replace(to, chat=moved_to)
        try:
            yield to
        except GroupMoved as error:
            self._known.moved.put(to.chat, error.moved_to)
            raise

    def _quoted(self, platform_id: str | None) -> int | None:
        if platform_id is None or not self._settings.reply_to_message:
            return None
        found = _MESSAGE_ID.fullmatch(platform_id)
        return int(found[1]) if found else None

    # --- receiving

    async def receive(self, intake: Intake) -> None:
        """Receive updates until cancelled."""
        drop_pending = self._settings.drop_pending_updates and not self._known.has_begun
        kinds = ["message", "callback_query"]
        if self._settings.edited_messages:
            kinds.append("edited_message")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._offer_commands(), name="telegram menu")
            if self._settings.webhook.url:
                await self._serve(intake, kinds, drop_pending=drop_pending)
            else:
                await self._client.begin_polling(drop_pending=drop_pending)
                self._known.has_begun = True
                put = partial(self._put, intake)
                await Poller(self._ctx, self._client, intake, put, kinds).run()

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """Yield the content of a file."""
        yield await self._client.fetch_file(file.ref, file.name, self._ctx.media.max_bytes)

    def _put(self, intake: Intake, update: object, done: Callable[[], None]) -> None:
        received = intake.parsed(partial(self._read, update))
        if received is None:
            done()
        else:
            intake.put(received, done)

    def _read(self, update: object) -> Received | None:
        parsed = wire.Update.model_validate(update)
        received = read_update(parsed, self._bot)
        if received is None or parsed.callback_query is None:
            return received
        return replace(received, settled=partial(self._confirm, parsed.callback_query, received))

    async def _confirm(self, query: wire.CallbackQuery, press: Received, is_admitted: bool) -> None:
        """Confirm a pressed button to the user's client, and remove what is used up."""
        with suppress(CallFailed):
            await self._client.answer_press(query.id)
        # In a group, a person who is not admitted must not use up buttons. Buttons with commands
        # remain, because they may be meant for the owner.
        stays = press.message.is_group and press.message.content.startswith("/")
        if is_admitted and not stays and query.message is not None:
            with self._placed(press.message.chat_id) as place:
                await self._writer.remove_buttons(place, query.message.message_id)

    async def _serve(self, intake: Intake, kinds: list[str], *, drop_pending: bool) -> None:
        """Receive updates from the webhook, and regularly check that Telegram responds."""

        async def take(update: object) -> bool:
            received = intake.parsed(partial(self._read, update))
            return received is None or await intake.take(received)

        webhook = self._settings.webhook
        route = self._ctx.shared(build_route)
        route.take = take
        try:
            await self._client.set_webhook(
                webhook.url, webhook.secret.get_secret_value(), kinds, drop_pending=drop_pending
            )
            self._known.has_begun = True
            while True:
                intake.alive()
                await self._ctx.clock.sleep(_WEBHOOK_CHECK_S)
                await self._client.get_me()
        finally:
            route.take = None

    async def _offer_commands(self) -> None:
        """Show the gateway's commands in the menu. If that fails, users can still type them."""
        gateway = self._ctx.gateway
        offered = dict(gateway.commands()) if gateway is not None else {}
        menu = {
            name: shorten(summary or name, _SUMMARY_CHARS)
            for name, summary in offered.items()
            if _MENU_NAME.fullmatch(name)
        }
        try:
            await self._client.set_commands(dict(list(menu.items())[:_MENU_COMMANDS]))
        except CallFailed as error:
            self._log.info("the menu of commands cannot be set: {}", error)


def _number(message_id: str) -> int:
    if not message_id.isdecimal():
        raise CallFailed(Cause.REFUSED, f"'{message_id}' is not the id of a message")
    return int(message_id)
