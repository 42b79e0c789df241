"""DiscordPlatform: an open connection to Discord."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nanobot_core.chat import (
    DISCORD,
    Attachment,
    CallFailed,
    Cause,
    ChatPlatform,
    Piece,
    Records,
    RichText,
    SendLimits,
    utf16_size,
    write_markup,
)
from nanobot_discord.bot import Bot
from nanobot_discord.chats import Chats
from nanobot_discord.client import Client
from nanobot_discord.commands import offer_commands
from nanobot_discord.confirmations import Confirmations
from nanobot_discord.connection import Connection
from nanobot_discord.events import EventStream
from nanobot_discord.failures import PORTAL
from nanobot_discord.incoming import Incoming
from nanobot_discord.mapping import Reader
from nanobot_discord.session import open_session

if TYPE_CHECKING:
    from nanobot_core import Button, PluginContext
    from nanobot_core.chat import Intake
    from nanobot_discord.settings import DiscordSettings

_MB = 1024 * 1024
_NO_PINGS: Mapping[str, Any] = {"parse": [], "replied_user": False}
_NONCE_CHARS = 25
_LABEL_CHARS = 80
_ROW, _ROWS = 5, 5
_SAVE_PAUSE_S = 1.0
_MOST_REPORTS = 100


@dataclass(frozen=True, slots=True)
class _Files:
    """What outlives a connection, in files of the plugin's data folder."""

    chats: Records
    session: Records


def _build_files(ctx: PluginContext) -> _Files:
    return _Files(Records(ctx.data_dir / "chats.json"), Records(ctx.data_dir / "session.json"))


def open_platform(ctx: PluginContext, settings: DiscordSettings) -> DiscordPlatform:
    """Return a platform that is not signed in.

    Raises:
        CallFailed: the settings have no token.
    """
    if not settings.token.get_secret_value().strip():
        reason = (
            "the token is missing; set channels.discord.token to the one that 'Reset Token' shows "
            f"at {PORTAL}, page Bot"
        )
        raise CallFailed(Cause.CREDENTIALS, reason)
    return DiscordPlatform(ctx, settings)


def _measure(text: RichText) -> int:
    """Return the size of a text as it is sent."""
    return utf16_size(RichText(write_markup(text, DISCORD)))


class DiscordPlatform(ChatPlatform):
    """A Discord bot: events over a WebSocket, everything else by calls."""

    limits = SendLimits(
        text=2_000,
        measure=_measure,
        schemes=DISCORD.schemes,
        caption=2_000,
        file_bytes=10 * _MB,
        kinds={},  # Discord shows a file by its extension
        album_files=10,
        album_bytes=24 * _MB,
        albums=(frozenset({"file"}),),
        caption_with_buttons=True,
    )

    def __init__(self, ctx: PluginContext, settings: DiscordSettings) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._settings = settings
        self._connection = Connection(settings, ctx.clock)
        self._client = Client(self._connection)
        emoji = settings.read_receipt_emoji
        self._confirmations = Confirmations(self._client, ctx.clock, emoji)
        self._files = ctx.shared(_build_files)
        self._reported: set[str] = set()

    async def sign_in(self) -> str:
        """Check the token, and return the bot's name."""
        user = await self._connection.sign_in()
        return f"{user.shown_name} (@{user.username}, id {user.id})"

    async def receive(self, intake: Intake) -> None:
        """Pass messages, commands and pressed buttons to `intake` until cancelled."""
        bot = await self._bot()
        url = await self._client.socket_url()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._save_regularly(bot), name="discord saves")
                group.create_task(self._offer_commands(), name="discord commands")
                incoming = Incoming(bot, intake, group)
                await EventStream(bot, incoming.take, intake.alive).run(url)
        finally:
            await _save(bot)

    async def send(self, chat_id: str, piece: Piece, *, reply_to: str | None, key: str) -> str:
        """Send a message; the answer to a slash command replaces its line "thinking …"."""
        channel_id = _channel_of(chat_id)
        payload = _content(piece)
        sent = await self._confirmations.answer(reply_to, payload, piece.files)
        if sent is not None:
            return sent
        if key:
            payload |= {"nonce": _nonce(key, piece), "enforce_nonce": True}
        answered = (reply_to or "").partition(":")[0]
        if answered.isdecimal() and self._settings.reply_to_message:
            payload["message_reference"] = {"message_id": answered, "fail_if_not_exists": False}
        sent = await self._sent(channel_id, payload, piece)
        await self._confirmations.remove_mark(answered)
        return sent

    async def _sent(self, channel_id: str, payload: dict[str, Any], piece: Piece) -> str:
        """Send a message; if Discord refuses it as a reply, without the reply."""
        try:
            return await self._client.send(channel_id, payload, piece.files)
        except CallFailed as error:
            if error.cause is not Cause.REFUSED or payload.pop("message_reference", None) is None:
                raise
        return await self._client.send(channel_id, payload, piece.files)

    async def edit(self, chat_id: str, message_id: str, piece: Piece) -> None:
        """Replace the text and the buttons of a message."""
        payload = {"components": []} | _content(piece)
        await self._client.edit(_channel_of(chat_id), message_id, payload)

    async def delete(self, chat_id: str, message_id: str) -> None:
        """Remove a message."""
        await self._client.delete(_channel_of(chat_id), message_id)

    async def show_typing(self, chat_id: str) -> None:
        """Show a typing indicator for ten seconds."""
        await self._client.show_typing(_channel_of(chat_id))

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """Yield the content of an attachment."""
        return self._connection.fetch(file.ref)

    async def aclose(self) -> None:
        """Close the connection. Can be called again."""
        await self._connection.aclose()

    async def _bot(self) -> Bot:
        """Return the bot with what earlier connections have saved."""
        user = await self._connection.sign_in()
        session = open_session(self._files.session, self._settings)
        chats = Chats(self._files.chats)
        await session.load()
        await chats.load()
        channels, bots = self._settings.allow_channels, self._settings.allow_bots
        return Bot(
            settings=self._settings,
            clock=self._ctx.clock,
            connection=self._connection,
            client=self._client,
            session=session,
            chats=chats,
            reader=Reader(user.id, frozenset(channels), frozenset(bots)),
            confirmations=self._confirmations,
            report=self._report,
        )

    async def _offer_commands(self) -> None:
        """Show the gateway's commands in Discord. If that fails, users can still type them."""
        gateway = self._ctx.gateway
        if gateway is None:
            return
        try:
            await offer_commands(self._client, self._files.session, gateway.commands())
        except CallFailed as error:
            self._log.info("the slash commands cannot be registered: {}", error)

    async def _save_regularly(self, bot: Bot) -> None:
        while True:
            bot.chats.must_save.clear()
            await _save(bot)
            with suppress(TimeoutError):
                async with asyncio.timeout(_SAVE_PAUSE_S):
                    await bot.chats.must_save.wait()

    def _report(self, dropped: str) -> None:
        """Log once what is dropped, so that many of a kind do not fill the log."""
        if dropped not in self._reported and len(self._reported) < _MOST_REPORTS:
            self._reported.add(dropped)
            self._log.warning("dropped: {}", dropped)


async def _save(bot: Bot) -> None:
    # The session is the last: what it does not send again must be below the watermarks.
    await bot.chats.save()
    with suppress(OSError):
        await bot.session.save()


def _channel_of(chat_id: str) -> str:
    """Return the channel or thread of a chat; a tool may name anything."""
    channel_id = chat_id.rpartition(":")[2]
    if not (channel_id.isascii() and channel_id.isdecimal() and len(channel_id) <= 20):
        raise CallFailed(Cause.REFUSED, f"'{chat_id}' is not the id of a Discord channel")
    return channel_id


def _content(piece: Piece) -> dict[str, Any]:
    markup = write_markup(piece.text, DISCORD)
    content: dict[str, Any] = {"content": markup, "allowed_mentions": _NO_PINGS}
    if piece.buttons:
        content["components"] = _components(piece.buttons)
    return content


def _components(rows: Sequence[Sequence[Button]]) -> list[dict[str, Any]]:
    """Return rows of buttons; what does not fit into 5 rows of 5 is left out."""
    divided = [row[start : start + _ROW] for row in rows for start in range(0, len(row), _ROW)]
    components = []
    for number, row in enumerate(divided[:_ROWS]):
        buttons = [
            {
                "type": 2,
                "style": 2,
                "label": button.label[:_LABEL_CHARS] or "…",
                # Discord refuses two buttons with the same value.
                "custom_id": f"{number * _ROW + index}:{button.value}",
            }
            for index, button in enumerate(row)
        ]
        components.append({"type": 1, "components": buttons})
    return components


def _nonce(key: str, piece: Piece) -> str:
    """Return what makes a repetition of a piece one message; parts of a refused piece differ."""
    parts = (key, piece.text.text, *(file.path.name for file in piece.files))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:_NONCE_CHARS]
