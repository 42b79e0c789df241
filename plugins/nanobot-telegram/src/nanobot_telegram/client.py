"""The calls to Telegram that the channel uses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any
from urllib.parse import quote

from telegram import (
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputMediaAudio,
    InputMediaDocument,
    InputMediaPhoto,
    InputMediaVideo,
    MessageEntity,
    ReplyParameters,
)
from telegram.constants import ChatAction

from nanobot_core import Button, MediaTooLarge
from nanobot_core.chat import (
    CallFailed,
    Cause,
    Piece,
    RichText,
    SpanKind,
    Upload,
    utf16_length,
)
from nanobot_telegram import wire
from nanobot_telegram.call import TimeLimits
from nanobot_telegram.connection import Connection
from nanobot_telegram.mapping import ChatRef
from nanobot_telegram.settings import TelegramSettings

_ALBUM_MEDIA = {
    "image": InputMediaPhoto,
    "video": InputMediaVideo,
    "audio": InputMediaAudio,
    "file": InputMediaDocument,
}


def open_client(settings: TelegramSettings, limits: TimeLimits) -> Client:
    """Return a client that is not connected. Call it in a thread, because it reads certificates.

    Raises:
        CallFailed: the settings have no token.
    """
    token = settings.token.get_secret_value()
    if not token:
        reason = "the token is missing; set channels.telegram.token to the token from BotFather"
        raise CallFailed(Cause.CREDENTIALS, reason)
    proxy = settings.proxy.get_secret_value() if settings.proxy is not None else None
    return Client(Connection(token, settings.api_base, proxy, limits))


class Client:
    """Receives updates, and makes calls that are not about a single message.

    Every method raises `CallFailed` if the call fails.

    Attributes:
        writer: sends messages over the same connection.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bot = connection.bot
        self._limits = connection.limits
        self.writer: Writer = Writer(connection)

    async def get_me(self) -> wire.User:
        """Return the bot itself."""
        async with self._connection.call(self._limits.call_s):
            me = await self._bot.get_me()
        return wire.User(
            id=me.id, is_bot=True, username=me.username or "", first_name=me.first_name
        )

    async def begin_polling(self, *, drop_pending: bool) -> None:
        """Remove the webhook, because Telegram refuses `fetch_updates` while there is one."""
        async with self._connection.call(self._limits.call_s):
            await self._bot.delete_webhook(drop_pending_updates=drop_pending)

    async def set_webhook(
        self, url: str, secret: str, kinds: Sequence[str], *, drop_pending: bool
    ) -> None:
        """Make Telegram call `url` with each update."""
        async with self._connection.call(self._limits.call_s):
            await self._bot.set_webhook(
                url,
                secret_token=secret,
                allowed_updates=list(kinds),
                drop_pending_updates=drop_pending,
            )

    async def fetch_updates(
        self, offset: int | None, kinds: Sequence[str], *, wait: bool
    ) -> list[object]:
        """Return the unparsed updates from `offset` on, at most 100.

        Args:
            offset: id of the first update. Telegram forgets all updates before it.
            wait: if there are no updates, wait for the next one, for at most `poll_s`.
        """
        wait_s = self._limits.poll_s if wait else 0.0
        async with self._connection.call(wait_s + self._limits.call_s):
            found = await self._bot.fetch_updates(offset, wait_s, kinds, self._limits.step_s)
        if not isinstance(found, list):
            raise CallFailed(Cause.UNREACHABLE, "the answer cannot be read (not a list)")
        return found

    async def fetch_file(self, file_id: str, name: str, max_bytes: int) -> bytes:
        """Return the content of a file.

        Raises:
            MediaTooLarge: the file has more than `max_bytes`.
            CallFailed: the file cannot be fetched.
        """
        async with self._connection.call(self._limits.transfer_s):
            file = await self._bot.get_file(file_id)
            if (file.file_size or 0) > max_bytes:
                raise MediaTooLarge(name, max_bytes)
            address = file.file_path or ""
            # The SDK treats a path that exists on this machine as a file of a local server.
            if not address.startswith(self._bot.base_file_url):
                raise CallFailed(Cause.REFUSED, "Telegram did not return the address of the file")
            return await self._connection.retrieve(quote(address, safe=":/%?=&"))

    async def set_commands(self, commands: Mapping[str, str]) -> None:
        """Show commands, as name to summary, in the bot's menu."""
        async with self._connection.call(self._limits.call_s):
            await self._bot.set_my_commands(list(commands.items()))

    async def answer_press(self, callback_id: str) -> None:
        """Confirm a pressed button to the user's client."""
        async with self._connection.call(self._limits.call_s):
            await self._bot.answer_callback_query(callback_id)

    async def aclose(self) -> None:
        """Close all connections. Can be called again."""
        await self._connection.aclose()


class Writer:
    """Sends to chats. Every method raises `CallFailed` if Telegram does not accept it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bot = connection.bot
        self._limits = connection.limits

    async def send_piece(self, to: ChatRef, piece: Piece, reply_to: int | None) -> int:
        """Send a text, a file or an album and return the id of its (first) message."""
        if not piece.files:
            return await self._send_text(to, piece, reply_to)
        async with self._connection.call(self._limits.transfer_s):
            if len(piece.files) == 1:
                return await self._send_file(to, piece, reply_to)
            return await self._send_album(to, piece, reply_to)

    async def edit_text(self, to: ChatRef, message_id: int, piece: Piece) -> None:
        """Replace the text of a message."""
        async with self._connection.call(self._limits.call_s):
            await self._bot.edit_message_text(
                piece.text.text,
                chat_id=to.chat,
                message_id=message_id,
                entities=entities_of(piece.text),
                reply_markup=_keyboard(piece.buttons),
            )

    async def delete(self, to: ChatRef, message_id: int) -> None:
        """Remove a message."""
        async with self._connection.call(self._limits.call_s):
            await self._bot.delete_message(to.chat, message_id)

    async def remove_buttons(self, to: ChatRef, message_id: int) -> None:
        """Remove the buttons of a message."""
        async with self._connection.call(self._limits.call_s):
            await self._bot.edit_message_reply_markup(to.chat, message_id)

    async def show_typing(self, to: ChatRef) -> None:
        """Show a typing indicator for five seconds."""
        async with self._connection.call(self._limits.call_s):
            await self._bot.send_chat_action(
                to.chat, ChatAction.TYPING, message_thread_id=to.thread
            )

    async def _send_text(self, to: ChatRef, piece: Piece, reply_to: int | None) -> int:
        async with self._connection.call(self._limits.call_s):
            sent = await self._bot.send_message(
                to.chat,
                piece.text.text,
                entities=entities_of(piece.text),
                reply_markup=_keyboard(piece.buttons),
                message_thread_id=to.thread,
                reply_parameters=_reply(reply_to),
            )
        return sent.message_id

    async def _send_file(self, to: ChatRef, piece: Piece, reply_to: int | None) -> int:
        upload = piece.files[0]
        content = await _read(upload)
        rest: dict[str, Any] = {
            "filename": upload.path.name,
            "caption": piece.text.text or None,
            "caption_entities": entities_of(piece.text),
            "message_thread_id": to.thread,
            "reply_parameters": _reply(reply_to),
        }
        match upload.kind:
            case "image":
                sent = await self._bot.send_photo(to.chat, content, **rest)
            case "voice":
                sent = await self._bot.send_voice(to.chat, content, **rest)
            case "audio":
                sent = await self._bot.send_audio(to.chat, content, **rest)
            case "video":
                sent = await self._bot.send_video(to.chat, content, **rest)
            case "animation":
                sent = await self._bot.send_animation(to.chat, content, **rest)
            case "file":
                sent = await self._bot.send_document(to.chat, content, **rest)
        return sent.message_id

    async def _send_album(self, to: ChatRef, piece: Piece, reply_to: int | None) -> int:
        media = []
        for index, upload in enumerate(piece.files):
            # Clients show the caption of the first file as the caption of the album.
            caption = piece.text if index == 0 else RichText("")
            media.append(
                _ALBUM_MEDIA[upload.kind](
                    await _read(upload),
                    filename=upload.path.name,
                    caption=caption.text or None,
                    caption_entities=entities_of(caption),
                )
            )
        sent = await self._bot.send_media_group(
            to.chat, media, message_thread_id=to.thread, reply_parameters=_reply(reply_to)
        )
        return sent[0].message_id


async def _read(upload: Upload) -> bytes:
    try:
        return await asyncio.to_thread(upload.path.read_bytes)
    except OSError as error:
        raise CallFailed(Cause.REFUSED, f"'{upload.path.name}' cannot be read") from error


_ENTITIES: dict[SpanKind, str] = {
    "link": MessageEntity.TEXT_LINK,
    "quote": MessageEntity.BLOCKQUOTE,
    "heading": MessageEntity.BOLD,
}
"""Kinds whose names differ in the Bot API."""


def entities_of(text: RichText) -> list[MessageEntity] | None:
    """Return the formatting with offsets in UTF-16 units, as the Bot API counts."""
    offsets = [0, *accumulate(map(utf16_length, text.text))]
    found = [
        MessageEntity(
            _ENTITIES.get(span.kind, span.kind),
            offsets[span.offset],
            offsets[span.end] - offsets[span.offset],
            url=span.url or None,
            language=span.language or None,
        )
        for span in text.spans
    ]
    return found or None


def _keyboard(rows: Sequence[Sequence[Button]]) -> InlineKeyboardMarkup | None:
    if not rows:
        return None
    return InlineKeyboardMarkup(
        [
            [InlineKeyboardButton(button.label, callback_data=button.value) for button in row]
            for row in rows
        ]
    )


def _reply(message_id: int | None) -> ReplyParameters | None:
    if message_id is None:
        return None
    # If the message has been deleted, the reply is sent without a quote.
    return ReplyParameters(message_id, allow_sending_without_reply=True)
