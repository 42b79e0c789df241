"""The parts of the Cloud API's calls that the channel reads (documentation "Webhooks").

Each message and each status is validated separately, so that a malformed one does not affect the
others. Other fields are ignored, and ``null`` is the same as no field.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

_JOINERS = "\u200c\u200d"
"""Invisible characters that are part of names in some scripts, and of some emoji."""


def _on_one_line(name: str) -> str:
    """Return the visible characters of a name, which people choose themselves."""
    flat = " ".join(name.split())
    return "".join(letter for letter in flat if letter.isprintable() or letter in _JOINERS)


_Name = Annotated[str, AfterValidator(_on_one_line)]
Phone = Annotated[str, Field(pattern=r"^[0-9]{3,20}$")]
UserId = Annotated[str, Field(pattern=r"^[A-Z]{2}(\.ENT)?\.[A-Za-z0-9]{1,128}$")]
_MessageId = Annotated[str, Field(pattern=r"^[!-~]{1,512}$")]


class Wire(BaseModel):
    """Base of the models."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", defer_build=True, coerce_numbers_to_str=True
    )

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, fields: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
        if isinstance(fields, dict):
            return {key: value for key, value in fields.items() if value is not None}
        return fields


class Profile(Wire):
    """What people say about themselves."""

    name: _Name = ""


class Person(Wire):
    """A person who writes; at least one id is known.

    Attributes:
        wa_id: phone number, which WhatsApp hides if the person has a user name.
        user_id: id of the person for this business.
    """

    wa_id: Phone | None = None
    user_id: UserId | None = None
    profile: Profile = Profile()


class Text(Wire):
    """A text."""

    body: str = ""


class Media(Wire):
    """An attached file: image, audio, video, document or sticker."""

    id: str = Field(pattern=r"^[A-Za-z0-9_.:=-]{1,256}$")
    mime_type: str = ""
    filename: _Name = ""
    caption: str = ""
    file_size: int | None = None


class Location(Wire):
    """A point on the map, possibly with a name."""

    latitude: float
    longitude: float
    name: _Name = ""
    address: _Name = ""


class ContactName(Wire):
    """The name on a contact card."""

    formatted_name: _Name = ""


class ContactPhone(Wire):
    """A phone number on a contact card."""

    phone: _Name = ""


class ContactCard(Wire):
    """A contact that somebody shared."""

    name: ContactName = ContactName()
    phones: tuple[ContactPhone, ...] = ()


class Reaction(Wire):
    """An emoji on a message; empty if it was removed."""

    message_id: str = ""
    emoji: _Name = ""


class Choice(Wire):
    """A pressed button or a chosen row: `id` is what the agent gave, `title` what was shown."""

    id: str = ""
    title: str = ""


class Interactive(Wire):
    """An answer to buttons or to a list."""

    button_reply: Choice | None = None
    list_reply: Choice | None = None


class TemplateButton(Wire):
    """A pressed button of a template."""

    payload: str = ""
    text: str = ""


class Context(Wire):
    """What a message refers to."""

    id: str = ""
    forwarded: bool = False
    frequently_forwarded: bool = False


class Message(Wire):
    """A message of a person; `type` determines which field has a value."""

    id: _MessageId
    from_phone: Phone | None = Field(default=None, alias="from")
    from_user_id: UserId | None = None
    timestamp: int = 0
    type: str = ""
    group_id: str = ""
    text: Text | None = None
    image: Media | None = None
    audio: Media | None = None
    video: Media | None = None
    document: Media | None = None
    sticker: Media | None = None
    location: Location | None = None
    contacts: tuple[ContactCard, ...] = ()
    reaction: Reaction | None = None
    interactive: Interactive | None = None
    button: TemplateButton | None = None
    context: Context = Context()


class Fault(Wire):
    """Why something failed."""

    code: int = 0
    title: str = ""
    message: str = ""


class Status(Wire):
    """The state of a message of the agent."""

    id: _MessageId
    status: str
    timestamp: int = 0
    errors: tuple[Fault, ...] = ()
