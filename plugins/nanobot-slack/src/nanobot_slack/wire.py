"""The parts of Slack's events that the channel reads. Other fields are ignored."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

_JOINERS = "\u200c\u200d"
"""Invisible characters that are part of names in some scripts, and of some emoji."""


def _on_one_line(name: str) -> str:
    """Return the visible characters of a name, which users choose themselves."""
    flat = " ".join(name.split())
    return "".join(letter for letter in flat if letter.isprintable() or letter in _JOINERS)


def _text_or_none(value: object) -> str:
    """Read what is not text, such as null, as an empty text."""
    if not isinstance(value, str):
        return ""
    # Half a surrogate pair is no text.
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _size_or_none(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


Text = Annotated[str, BeforeValidator(_text_or_none)]
Name = Annotated[str, BeforeValidator(_text_or_none), AfterValidator(_on_one_line)]
Id = Annotated[str, Field(pattern=r"^[A-Z0-9]{2,40}$")]
OptionalId = Annotated[str, Field(pattern=r"^[A-Z0-9]{0,40}$"), BeforeValidator(_text_or_none)]
Stamp = Annotated[str, Field(pattern=r"^[0-9]{1,12}\.[0-9]{1,9}$")]
"""Id of a message in its conversation: seconds since 1970."""
OptionalStamp = Annotated[
    str, Field(pattern=r"^([0-9]{1,12}\.[0-9]{1,9})?$"), BeforeValidator(_text_or_none)
]


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class File(_Wire):
    """A file of a message."""

    id: Id
    name: Name = ""
    title: Name = ""
    size: Annotated[int | None, BeforeValidator(_size_or_none)] = None
    mode: Text = ""
    is_external: bool = False
    url_private: Text = ""
    url_private_download: Text = ""
    external_url: Text = ""


class Shared(_Wire):
    """An attachment; of another message, if `is_share` is true."""

    is_share: bool = False
    author_name: Name = ""
    text: Text = ""


class Edit(_Wire):
    """Who edited a message, and when."""

    user: OptionalId = ""
    ts: OptionalStamp = ""


class Message(_Wire):
    """A message, as events and histories contain it; `subtype` tells its kind."""

    type: Text = ""
    subtype: Text = ""
    ts: Stamp
    thread_ts: OptionalStamp = ""
    user: OptionalId = ""
    bot_id: OptionalId = ""
    parent_user_id: OptionalId = ""
    text: Text = ""
    files: tuple[File, ...] = ()
    attachments: tuple[Shared, ...] = ()
    edited: Edit | None = None


class Event(Message):
    """A message in an event, or the change of one."""

    channel: Id
    message: Message | None = None
    previous_message: Message | None = None


class EventType(_Wire):
    """The kind of an event, which determines whether the rest is read."""

    type: Text = ""
    subtype: Text = ""


class User(_Wire):
    """A person."""

    id: Id


class Place(_Wire):
    """Where a button was pressed."""

    channel_id: Id
    message_ts: Stamp
    thread_ts: OptionalStamp = ""


class Action(_Wire):
    """A pressed button."""

    value: Text = ""
    action_ts: Stamp


class PressedMessage(_Wire):
    """The message with the button."""

    text: Text = ""
    thread_ts: OptionalStamp = ""
    blocks: tuple[dict[str, object], ...] = ()


class Press(_Wire):
    """A button was pressed."""

    type: Text = ""
    user: User
    container: Place
    message: PressedMessage = PressedMessage()
    actions: tuple[Action, ...] = ()


class Command(_Wire):
    """A slash command, which has no message."""

    command: Text = ""
    text: Text = ""
    user_id: Id
    channel_id: Id
    trigger_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9.]{1,100}$")]


class Envelope(_Wire):
    """A frame of the socket; Slack sends it again until `envelope_id` is acknowledged."""

    type: Text = ""
    envelope_id: Text = ""
    reason: Text = ""
    num_connections: Annotated[int | None, BeforeValidator(_size_or_none)] = None
    payload: dict[str, object] = Field(default_factory=dict)


def read_frame(text: str) -> Envelope:
    """Return a frame of the socket.

    Raises:
        ValueError: it is none.
        RecursionError: it is nested too deeply.
    """
    # Not by pydantic, which refuses a frame with half a surrogate pair in a text.
    return Envelope.model_validate(json.loads(text))
