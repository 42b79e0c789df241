"""Converts messages of the Cloud API to messages of nanobot, with pure functions."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath

from nanobot_core import InboundMessage, JsonObject, shorten
from nanobot_core.chat import Attachment, Received
from nanobot_whatsapp import wire

CHANNEL = "whatsapp"
_QUOTE_CHARS = 1_000
_EXTENSIONS = {
    "image": ".jpg",
    "audio": ".ogg",
    "video": ".mp4",
    "document": "",
    "sticker": ".webp",
}
"""Kind of file to its extension, if neither its name nor its type has one."""
_USUAL = {"audio/ogg": ".ogg", "image/jpeg": ".jpg", "audio/mpeg": ".mp3", "audio/mp4": ".m4a"}
_SYSTEM = frozenset({"system", "request_welcome"})
"""Types of messages that no person has written."""


@dataclass(frozen=True, slots=True)
class Quoted:
    """An earlier message.

    Attributes:
        author: who wrote it; empty if unknown.
    """

    author: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """A person who writes.

    Attributes:
        id: phone number, or the id of the person for this business if the number is hidden.
        user_id: the second of them, or ``None`` if unknown.
        name: as the person chose it; it proves nothing.
    """

    id: str
    user_id: str | None = None
    name: str = ""

    @property
    def other_ids(self) -> tuple[str, ...]:
        """Other forms of the id that an access list may contain."""
        if self.user_id is None or self.user_id == self.id:
            return spellings(self.id)
        return (*spellings(self.id), self.user_id)


def spellings(sender_id: str) -> tuple[str, ...]:
    """Return the usual spelling of a phone number, for access lists."""
    return (f"+{sender_id}",) if sender_id.isdecimal() else ()


def person_of(message: wire.Message, contacts: Iterable[wire.Person]) -> wire.Person | None:
    """Return the ids of the author, or ``None`` if it is not certain who it is."""
    known = list(contacts)
    phone, user_id = message.from_phone, message.from_user_id
    if phone is None and user_id is None:
        # WhatsApp does not repeat a hidden number's other id in the message.
        one = known[0] if len(known) == 1 else None
        return one if one is not None and (one.wa_id or one.user_id) else None
    for person in known:
        if (phone and person.wa_id == phone) or (user_id and person.user_id == user_id):
            return wire.Person(
                wa_id=phone or person.wa_id,
                user_id=user_id or person.user_id,
                profile=person.profile,
            )
    return wire.Person(wa_id=phone, user_id=user_id)


def read_message(message: wire.Message, sender: Sender, quoted: Quoted | None) -> Received | None:
    """Return the content of `message`, or ``None`` if it has none for the agent.

    Args:
        quoted: the message that it answers or reacts to, if it is known.
    """
    # An answer to a message of a group would go to the private chat of its author.
    if message.type in _SYSTEM or message.group_id:
        return None
    files = tuple(_attachments(message))
    pressed = _pressed(message)
    said = pressed or "\n".join(part for part in _parts(message) if part)
    if not said and not files:
        return None
    is_forwarded = message.context.forwarded or message.context.frequently_forwarded
    context = "" if pressed else _context(said, message, quoted, is_forwarded=is_forwarded)
    facts: JsonObject = {"message_id": message.id, "is_group": False}
    if sender.name:
        facts["profile_name"] = sender.name
    if sender.user_id:
        facts["user_id"] = sender.user_id
    if pressed:
        facts["button"] = True
    inbound = InboundMessage(
        channel=CHANNEL,
        sender_id=sender.id,
        chat_id=sender.id,
        content="\n".join(part for part in (context, said) if part),
        sender_names=sender.other_ids,
        timestamp=instant(message.timestamp),
        metadata=facts,
        dedupe_key=message.id,
        is_addressed=True,
        is_forwarded=is_forwarded,
    )
    return Received(message=inbound, said=said, files=files)


def instant(unix_s: int) -> datetime | None:
    """Return a time of WhatsApp, or ``None`` if it is none."""
    try:
        return datetime.fromtimestamp(unix_s, UTC) if unix_s > 0 else None
    except (OverflowError, ValueError, OSError):
        return None


def _pressed(message: wire.Message) -> str:
    """Return the value of a pressed button, or an empty string."""
    if message.interactive is not None:
        choice = message.interactive.button_reply or message.interactive.list_reply
        return (choice.id or choice.title) if choice is not None else ""
    if message.button is not None:
        return message.button.payload or message.button.text
    return ""


def _attachments(message: wire.Message) -> Iterator[Attachment]:
    for kind, file in _files(message):
        yield Attachment(ref=file.id, name=_file_name(kind, file), size=file.file_size)


def _files(message: wire.Message) -> Iterator[tuple[str, wire.Media]]:
    for kind in _EXTENSIONS:
        file: wire.Media | None = getattr(message, kind)
        if file is not None:
            yield kind, file


def _file_name(kind: str, file: wire.Media) -> str:
    name = PurePosixPath(file.filename.replace("\\", "/")).name
    if name:
        return name
    bare = file.mime_type.partition(";")[0].strip().lower()
    extension = _USUAL.get(bare) or mimetypes.guess_extension(bare) or _EXTENSIONS[kind]
    return f"{kind}-{file.id[:16].replace(':', '-')}{extension}"


def _parts(message: wire.Message) -> Iterator[str]:
    """Describe the content in text."""
    if message.text is not None:
        yield message.text.body
    for _, file in _files(message):
        yield file.caption
    if message.location is not None:
        yield _place(message.location)
    for card in message.contacts:
        numbers = ", ".join(phone.phone for phone in card.phones if phone.phone)
        name = ", ".join(part for part in (card.name.formatted_name, numbers) if part)
        yield f"[contact: {name}]"
    if message.reaction is not None and message.reaction.emoji:
        yield f"[reaction: {message.reaction.emoji}]"
    if _is_unknown(message):
        yield f"[a message of type '{shorten(message.type, 40)}', which cannot be shown]"


def _is_unknown(message: wire.Message) -> bool:
    known = (*_EXTENSIONS, "text", "location", "reaction")
    return not message.contacts and all(getattr(message, kind) is None for kind in known)


def _place(location: wire.Location) -> str:
    point = f"{location.latitude}, {location.longitude}"
    name = ", ".join(part for part in (location.name, location.address) if part)
    return f"[place: {name} ({point})]" if name else f"[location: {point}]"


def _context(said: str, message: wire.Message, quoted: Quoted | None, *, is_forwarded: bool) -> str:
    """Describe what `said` refers to. A new command has no context, so that it is recognised."""
    if said.startswith("/") and not is_forwarded:
        return ""
    lines = []
    if quoted is not None:
        lines.append(f"[in reply to {quoted.author or 'a message'}]")
        lines.append(f"> {shorten(quoted.text, _QUOTE_CHARS)}")
    elif message.context.id or message.reaction is not None:
        lines.append("[in reply to an older message]")
    if is_forwarded:
        lines.append("[forwarded from an unknown sender]")
    return "\n".join(lines)
