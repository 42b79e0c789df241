"""The parts of QQ's frames and messages that the channel reads. Other fields are ignored."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


def _on_one_line(name: str) -> str:
    """Return the visible characters of a name, which users choose themselves."""
    return "".join(letter for letter in " ".join(name.split()) if letter.isprintable())


def _text_or_empty(value: object) -> object:
    return "" if value is None else value


def _objects(value: object) -> object:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _object_or_empty(value: object) -> object:
    return value if isinstance(value, dict) else {}


def _number_or_none(value: object) -> object:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_Text = Annotated[str, BeforeValidator(_text_or_empty)]
_Name = Annotated[str, BeforeValidator(_text_or_empty), AfterValidator(_on_one_line)]
_Number = Annotated[int | None, BeforeValidator(_number_or_none)]
_OpenId = Annotated[str, BeforeValidator(_text_or_empty), Field(pattern=r"^[0-9A-Za-z_-]{0,128}$")]
"""An id of a person or group; empty if QQ does not name it."""


class _Wire(BaseModel):
    model_config = ConfigDict(
        coerce_numbers_to_str=True,
        defer_build=True,
        extra="ignore",
        frozen=True,
    )


class Frame(_Wire):
    """A frame of the gateway.

    Attributes:
        s: number of the event within the session.
        t: kind of the event.
    """

    op: int
    s: _Number = None
    t: _Text = ""
    d: Any = None


class Hello(_Wire):
    """The first frame of a connection."""

    heartbeat_interval: float = Field(gt=0, le=600_000)


class Ready(_Wire):
    """A new session."""

    session_id: str = Field(min_length=1)


class Author(_Wire):
    """Who wrote a message; each kind of chat has an id of its own."""

    user_openid: _OpenId = ""
    member_openid: _OpenId = ""
    username: _Name = ""
    bot: bool | None = None


class File(_Wire):
    """A file of a message."""

    url: _Text = ""
    content_type: _Text = ""
    filename: _Name = ""
    size: _Number = None


class Message(_Wire):
    """A message to the bot."""

    id: str = Field(min_length=1)
    author: Author
    content: _Text = ""
    timestamp: _Text = ""
    group_openid: _OpenId = ""
    attachments: Annotated[tuple[File, ...], BeforeValidator(_objects)] = ()


class Resolved(_Wire):
    """What a pressed button carries."""

    button_data: _Text = ""


class Pressed(_Wire):
    """Contains `Resolved`."""

    resolved: Annotated[Resolved, BeforeValidator(_object_or_empty)] = Resolved()


class Interaction(_Wire):
    """A pressed button."""

    id: str = Field(min_length=1)
    group_openid: _OpenId = ""
    group_member_openid: _OpenId = ""
    user_openid: _OpenId = ""
    timestamp: _Text = ""
    data: Annotated[Pressed, BeforeValidator(_object_or_empty)] = Pressed()
