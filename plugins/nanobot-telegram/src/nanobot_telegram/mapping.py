"""Converts Telegram's updates to messages of nanobot, with pure functions."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Self

from nanobot_core import InboundMessage, JsonObject, shorten
from nanobot_core.chat import Attachment, Received
from nanobot_telegram import wire

_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ChatRef:
    """A chat or a topic, written as ``<chat>`` or ``<chat>:<thread>``.

    Attributes:
        chat: id of a chat, or the ``@name`` of a public one.
        thread: id of the topic, or ``None``.
    """

    chat: int | str
    thread: int | None = None

    @classmethod
    def parse(cls, chat_id: str) -> Self | None:
        """Return the chat that `chat_id` names, or ``None`` if it is invalid."""
        chat, colon, thread = chat_id.partition(":")
        number = _number(chat)
        if number is None and not (chat.startswith("@") and len(chat) > 1):
            return None
        if not colon:
            return cls(chat if number is None else number)
        topic = _number(thread)
        return None if topic is None else cls(chat if number is None else number, topic)

    def __str__(self) -> str:
        return str(self.chat) if self.thread is None else f"{self.chat}:{self.thread}"


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


_QUOTE_CHARS = 1_000
_EXTENSIONS = {
    "photo": ".jpg",
    "voice": ".ogg",
    "audio": ".mp3",
    "video": ".mp4",
    "video_note": ".mp4",
    "animation": ".mp4",
    "document": "",
}
"""Kind of file to its extension, if neither its name nor its type has one.

Telegram repeats the file of an animation as a ``document``; only the first is used.
"""


def read_update(update: wire.Update, bot: wire.User) -> Received | None:
    """Return the content of `update`, or ``None`` if it has none for the agent.

    Args:
        bot: the bot itself, to recognise messages that address it.
    """
    if update.callback_query is not None:
        return _read_press(update.callback_query)
    message = update.message or update.edited_message
    if message is None:
        return None
    return _read_message(message, bot)


def _read_press(query: wire.CallbackQuery) -> Received | None:
    message = query.message
    if message is None or not query.data:
        return None
    inbound = InboundMessage(
        channel="telegram",
        sender_id=str(query.from_user.id),
        chat_id=str(_place(message)),
        content=query.data,
        sender_names=_names(query.from_user),
        metadata=_facts(message, query.from_user) | {"button": True},
        dedupe_key=f"callback:{query.id}",
        is_group=message.chat.type != "private",
        is_addressed=True,
    )
    return Received(message=inbound)


def _read_message(message: wire.Message, bot: wire.User) -> Received | None:
    # All people who write in the name of a chat share one account, so the chat is the sender.
    sender = message.sender_chat or message.from_user
    files = tuple(_attachments(message))
    spoken, is_addressed = _without_mention(message, bot)
    said = "\n".join(part for part in (spoken, *_descriptions(message)) if part)
    if sender is None or not (said or files):
        return None
    is_edited = message.edit_date is not None
    context = _context(said, message, is_edited=is_edited)
    key = f"{message.chat.id}:{message.message_id}"
    inbound = InboundMessage(
        channel="telegram",
        sender_id=str(sender.id),
        chat_id=str(_place(message)),
        content="\n".join(part for part in (context, said) if part),
        sender_names=_names(sender),
        timestamp=_instant(message.edit_date or message.date),
        metadata=_facts(message, message.from_user),
        dedupe_key=f"{key}:{message.edit_date}" if is_edited else key,
        is_group=message.chat.type != "private",
        is_addressed=is_addressed or _answers(message, bot),
        is_forwarded=message.forward_origin is not None,
    )
    album = None if is_edited else message.media_group_id
    return Received(message=inbound, said=said, files=files, album=album)


def _place(message: wire.Message) -> ChatRef:
    # Replies in an ordinary supergroup have a thread too; only topics are separate chats.
    thread = message.message_thread_id if message.is_topic_message else None
    return ChatRef(message.chat.id, thread)


def _names(sender: wire.User | wire.Chat) -> tuple[str, ...]:
    return (sender.username,) if sender.username else ()


def _facts(message: wire.Message, user: wire.User | None) -> JsonObject:
    facts: JsonObject = {
        "message_id": str(message.message_id),
        "is_group": message.chat.type != "private",
    }
    if user is not None:
        facts |= {"user_id": str(user.id), "first_name": user.first_name}
        if user.username:
            facts["username"] = user.username
    if message.is_topic_message and message.message_thread_id is not None:
        facts["thread"] = str(message.message_thread_id)
    if message.edit_date is not None:
        facts["edited"] = True
    return facts


def _instant(unix_s: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(unix_s, UTC) if unix_s > 0 else None
    except (OverflowError, ValueError, OSError):
        return None


def _without_mention(message: wire.Message, bot: wire.User) -> tuple[str, bool]:
    """Return the text without mentions of the bot, and whether there are any."""
    text, entities = message.text, message.entities
    if not text:
        text, entities = message.caption, message.caption_entities
    units = text.encode("utf-16-le", "surrogatepass")
    handle = f"@{bot.username}".lower()
    found = False
    # From the end, so that the offsets of earlier entities remain valid.
    for entity in sorted(entities, key=lambda entity: entity.offset, reverse=True):
        start, end = entity.offset * 2, (entity.offset + entity.length) * 2
        marked = units[start:end].decode("utf-16-le", "replace")
        is_user = entity.user is not None and entity.user.id == bot.id
        if is_user or (entity.type == "mention" and marked.lower() == handle):
            kept = ""
        elif entity.type == "bot_command" and marked.lower().endswith(handle):
            kept = marked[: -len(handle)]
        else:
            continue
        found = True
        before, after = units[:start], units[end:]
        if not kept and before.endswith(b" \0") and after.startswith(b" \0"):
            after = after[2:]
        units = before + kept.encode("utf-16-le") + after
    return units.decode("utf-16-le", "replace").strip(), found


def _answers(message: wire.Message, bot: wire.User) -> bool:
    answered = message.reply_to_message
    # Every message of a topic "replies" to the service message that opened it.
    if answered is None or answered.forum_topic_created is not None:
        return False
    return answered.from_user is not None and answered.from_user.id == bot.id


def _attachments(message: wire.Message) -> Iterator[Attachment]:
    if message.photo:
        # The same picture in several sizes; the last is the largest.
        yield _attachment("photo", message.photo[-1])
    kinds = {
        "voice": message.voice,
        "audio": message.audio,
        "video": message.video,
        "video_note": message.video_note,
        "animation": message.animation,
        "document": message.document,
    }
    for kind, file in kinds.items():
        if file is not None:
            yield _attachment(kind, file)
            return


def _attachment(kind: str, file: wire.File) -> Attachment:
    name = PurePosixPath((file.file_name or "").replace("\\", "/")).name
    if not name:
        guessed = mimetypes.guess_extension(file.mime_type or "") or ""
        # The name must identify a recording: voice messages are Opus in Ogg.
        extension = _EXTENSIONS[kind] if kind in {"voice", "photo"} else guessed
        name = file.file_id[:16] + (extension or _EXTENSIONS[kind])
    return Attachment(ref=file.file_id, name=name, size=file.file_size)


def _descriptions(message: wire.Message) -> Iterator[str]:
    """Describe the parts that are not text."""
    if message.sticker is not None:
        yield message.sticker.emoji or "[sticker]"
    if message.dice is not None:
        yield f"{message.dice.emoji} {message.dice.value}".strip()
    if message.venue is not None:
        place = ", ".join(part for part in (message.venue.title, message.venue.address) if part)
        yield f"[place: {place} ({_point(message.venue.location)})]"
    elif message.location is not None:
        yield f"[location: {_point(message.location)}]"
    if message.contact is not None:
        name = f"{message.contact.first_name} {message.contact.last_name}".strip()
        yield f"[contact: {name}, {message.contact.phone_number}]"
    if message.poll is not None:
        options = "; ".join(option.text for option in message.poll.options)
        yield f"[poll: {message.poll.question} ({options})]"


def _point(location: wire.Location) -> str:
    return f"{location.latitude}, {location.longitude}"


def _context(said: str, message: wire.Message, *, is_edited: bool) -> str:
    """Describe what `said` refers to. A new command has no context, so that it is recognised."""
    if said.startswith("/") and not is_edited and message.forward_origin is None:
        return ""
    lines = [_quoted(message), _forwarded(message), "[edited]" if is_edited else ""]
    return "\n".join(line for line in lines if line)


def _quoted(message: wire.Message) -> str:
    answered = message.reply_to_message
    if answered is None or answered.forum_topic_created is not None:
        return ""
    text = message.quote.text if message.quote is not None else ""
    text = text or answered.text or answered.caption or "\n".join(_descriptions(answered))
    if not text:
        files = [file.name for file in _attachments(answered)]
        text = f"[{files[0]}]" if files else ""
    author = _name(answered.from_user) if answered.from_user is not None else ""
    if not text:
        return ""
    return f"[in reply to {author or 'a message'}]\n> {shorten(text, _QUOTE_CHARS)}"


def _forwarded(message: wire.Message) -> str:
    origin = message.forward_origin
    if origin is None:
        return ""
    chat = origin.chat or origin.sender_chat
    name = origin.sender_user_name
    if origin.sender_user is not None:
        name = _name(origin.sender_user)
    elif chat is not None:
        name = chat.title or chat.username or str(chat.id)
    return f"[forwarded from {name or 'an unknown sender'}]"


def _name(user: wire.User) -> str:
    return f"{user.first_name} {user.last_name}".strip() or user.username or str(user.id)
