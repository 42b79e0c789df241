"""The parts of Telegram's updates that the channel reads (Bot API 10.0, "Available types").

The SDK parses a batch of updates as a whole. Here each update is validated separately, so that a
malformed one does not affect the others. Other fields are ignored.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_JOINERS = "\u200c\u200d"
"""Invisible characters that are part of names in some scripts, and of some emoji."""


def _on_one_line(name: str) -> str:
    """Return the visible characters of a name, which users choose themselves."""
    flat = " ".join(name.split())
    return "".join(letter for letter in flat if letter.isprintable() or letter in _JOINERS)


_Name = Annotated[str, AfterValidator(_on_one_line)]


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class User(_Wire):
    """A person or a bot."""

    id: int
    is_bot: bool = False
    first_name: _Name = ""
    last_name: _Name = ""
    username: _Name = ""


class Chat(_Wire):
    """A private chat, a group, a supergroup or a channel."""

    id: int
    type: str
    title: _Name = ""
    username: _Name = ""


class Entity(_Wire):
    """A part of a text; `offset` and `length` are UTF-16 units."""

    type: str
    offset: int = Field(ge=0)
    length: int = Field(ge=0)
    user: User | None = None


class File(_Wire):
    """Any attached file: photo size, voice, audio, video, video note, animation or document."""

    file_id: str
    file_size: int | None = None
    file_name: _Name | None = None
    mime_type: str | None = None


class Sticker(_Wire):
    """A sticker."""

    emoji: str = ""


class Location(_Wire):
    """A point on the map."""

    latitude: float
    longitude: float


class Venue(_Wire):
    """A place with a name."""

    location: Location
    title: _Name = ""
    address: _Name = ""


class Contact(_Wire):
    """A person's phone number."""

    phone_number: str
    first_name: _Name = ""
    last_name: _Name = ""


class PollOption(_Wire):
    """One answer of a poll."""

    text: str = ""


class Poll(_Wire):
    """A question with answers to choose from."""

    question: str
    options: tuple[PollOption, ...] = ()


class Dice(_Wire):
    """A thrown die or the like."""

    emoji: str = ""
    value: int = 0


class Origin(_Wire):
    """The origin of a forwarded message; its kind determines which field has a value."""

    sender_user: User | None = None
    sender_user_name: _Name = ""
    sender_chat: Chat | None = None
    chat: Chat | None = None


class Quote(_Wire):
    """The part of a message that a reply quotes."""

    text: str = ""


class Message(_Wire):
    """A message. The message of a pressed button may be incomplete if it is old."""

    message_id: int
    chat: Chat
    date: int = 0
    edit_date: int | None = None
    from_user: User | None = Field(default=None, alias="from")
    sender_chat: Chat | None = None
    message_thread_id: int | None = None
    is_topic_message: bool = False
    media_group_id: str | None = None
    forward_origin: Origin | None = None
    reply_to_message: Message | None = None
    quote: Quote | None = None
    forum_topic_created: dict[str, object] | None = None
    text: str = ""
    entities: tuple[Entity, ...] = ()
    caption: str = ""
    caption_entities: tuple[Entity, ...] = ()
    photo: tuple[File, ...] = ()
    voice: File | None = None
    audio: File | None = None
    video: File | None = None
    video_note: File | None = None
    animation: File | None = None
    document: File | None = None
    sticker: Sticker | None = None
    location: Location | None = None
    venue: Venue | None = None
    contact: Contact | None = None
    poll: Poll | None = None
    dice: Dice | None = None


class CallbackQuery(_Wire):
    """A button was pressed."""

    id: str
    from_user: User = Field(alias="from")
    message: Message | None = None
    data: str = ""


class Update(_Wire):
    """An update; at most one of its optional fields has a value."""

    update_id: int
    message: Message | None = None
    edited_message: Message | None = None
    callback_query: CallbackQuery | None = None
