"""The parts of Feishu's events that the channel reads. Fields may be null; others are ignored."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


def _on_one_line(name: str) -> str:
    """Return the visible characters of a name, which users choose themselves."""
    return "".join(letter for letter in " ".join(name.split()) if letter.isprintable())


def _text_or_empty(value: object) -> object:
    return "" if value is None else value


def _object_or_empty(value: object) -> object:
    return value if isinstance(value, dict) else {}


def _list_or_empty(value: object) -> object:
    return value if isinstance(value, list) else []


_Text = Annotated[str, BeforeValidator(_text_or_empty)]
_Name = Annotated[str, BeforeValidator(_text_or_empty), AfterValidator(_on_one_line)]


class _Wire(BaseModel):
    model_config = ConfigDict(
        coerce_numbers_to_str=True, defer_build=True, extra="ignore", frozen=True
    )


class PersonId(_Wire):
    """The ids of a person or a bot; only the first is the same in all chats of an app."""

    open_id: _Text = ""


class Sender(_Wire):
    """Who wrote."""

    sender_id: Annotated[PersonId, BeforeValidator(_object_or_empty)] = PersonId()
    sender_type: _Text = ""


class Mention(_Wire):
    """A mention; `key` stands for it in the text."""

    key: str = Field(min_length=1)
    id: Annotated[PersonId, BeforeValidator(_object_or_empty)] = PersonId()
    name: _Name = ""


class Message(_Wire):
    """A message; `content` is JSON in a text, whose form depends on the type."""

    message_id: str = Field(min_length=1)
    chat_id: str = Field(min_length=1)
    chat_type: _Text = ""
    message_type: _Text = ""
    content: _Text = ""
    create_time: _Text = ""
    root_id: _Text = ""
    parent_id: _Text = ""
    thread_id: _Text = ""
    mentions: Annotated[tuple[Mention, ...], BeforeValidator(_list_or_empty)] = ()


class Received(_Wire):
    """The event ``im.message.receive_v1``."""

    sender: Sender
    message: Message


class Action(_Wire):
    """What a pressed button carries."""

    value: Annotated[dict[str, Any], BeforeValidator(_object_or_empty)] = Field(
        default_factory=dict
    )


class Place(_Wire):
    """Where a button was pressed."""

    open_message_id: _Text = ""
    open_chat_id: _Text = ""


class Pressed(_Wire):
    """The event ``card.action.trigger``."""

    operator: PersonId
    action: Action
    context: Place
    token: _Text = ""


class Header(_Wire):
    """Describes an event."""

    event_id: _Text = ""
    event_type: _Text = ""


class Event(_Wire):
    """An event."""

    header: Header
    event: Annotated[dict[str, Any], BeforeValidator(_object_or_empty)] = Field(
        default_factory=dict
    )
