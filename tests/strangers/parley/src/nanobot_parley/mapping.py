"""Converts events of Parley to messages."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from nanobot_core import InboundMessage
from nanobot_core.chat import Attachment, Received

_Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]


class _Person(BaseModel):
    id: _Id
    name: str = ""
    is_bot: bool = False


class _File(BaseModel):
    id: _Id
    name: str = "file"
    size: int | None = None


class _Quote(BaseModel):
    author: str
    text: str


class _Message(BaseModel):
    id: _Id
    chat: _Id
    is_group: bool = False
    author: _Person
    text: str = ""
    mentions: list[str] = []
    files: list[_File] = []
    quote: _Quote | None = None
    version: int = 1


class _Press(BaseModel):
    by: _Person
    value: str


class Event(BaseModel):
    """An event; the fields that this plugin does not know are ignored."""

    id: _Id
    message: _Message
    press: _Press | None = None


class Events(BaseModel):
    """An answer with events, which are read one by one: a malformed one affects no other."""

    events: list[dict[str, Any]]


def read_event(content: dict[str, Any], bot: str, *, takes_edits: bool) -> Received | None:
    """Return the message of an event, or ``None`` if it has none for the agent.

    Raises:
        ValidationError: it is malformed.
    """
    event = Event.model_validate(content)
    message, press = event.message, event.press
    author = press.by if press else message.author
    if author.is_bot or (message.version > 1 and not takes_edits):
        return None
    key = f"press:{event.id}" if press else f"{message.id}:{message.version}"
    inbound = InboundMessage(
        channel="parley",
        sender_id=author.id,
        chat_id=message.chat,
        content=press.value if press else _content(message, bot),
        dedupe_key=key,
        is_group=message.is_group,
        is_addressed=press is not None or bot in message.mentions,
    )
    files = () if press else tuple(message.files)
    attached = tuple(Attachment(ref=file.id, name=file.name, size=file.size) for file in files)
    return Received(message=inbound, files=attached)


def _content(message: _Message, bot: str) -> str:
    said = message.text.removeprefix(f"@{bot}").strip()
    if said.startswith("/"):
        return said
    quote = message.quote
    lines = [f"[in reply to {quote.author}]\n> {quote.text}"] if quote else []
    lines += ["[edited]"] if message.version > 1 else []
    return "\n".join([*lines, said])
