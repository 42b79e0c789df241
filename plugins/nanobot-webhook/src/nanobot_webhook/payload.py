"""The JSON of messages and replies, in the form of Standard Webhooks: type, timestamp, data."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    JsonValue,
    StringConstraints,
    ValidationError,
    model_validator,
)

from nanobot_core import InboundMessage

MESSAGE_TYPE = "message.created"
REPLY_TYPE = "reply.created"
"""Differs from the type of messages, so that a signed reply cannot be sent back as a message."""
CHANNEL = "webhook"
_MAX_FILES = 20
_MAX_NAMED = 5

_MAX_NAMES = 8


def _check_visible(text: str) -> str:
    # Ids become lines of the log and parts of session keys.
    if not text.strip() or not text.isprintable():
        msg = "visible characters on one line are needed"
        raise ValueError(msg)
    return text


def _check_undivided(text: str) -> str:
    if "|" in text:
        msg = "'|' separates ids from names; put names into sender_names"
        raise ValueError(msg)
    return text


def _check_finite(metadata: dict[str, JsonValue]) -> dict[str, JsonValue]:
    # RFC 8259 has no infinity; pydantic reads 1e999 as one.
    json.dumps(metadata, allow_nan=False)
    return metadata


_Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]
_Id = Annotated[_Name, AfterValidator(_check_visible)]
_Person = Annotated[_Id, AfterValidator(_check_undivided)]


class PayloadRefused(Exception):
    """A message has the wrong form; the text says where, without quoting it."""


def _decode_base64(text: object) -> bytes:
    # pydantic's own type skips characters that are not base64.
    try:
        return base64.b64decode(text if isinstance(text, str) else "?", validate=True)
    except ValueError:
        msg = "not base64"
        raise ValueError(msg) from None


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class IncomingFile(_Part):
    """A file inside a message. An address instead would let the sender choose what is fetched."""

    name: _Name
    content: Annotated[bytes, BeforeValidator(_decode_base64)]


class MessageData(_Part):
    """The data of a message; see `InboundMessage`."""

    chat_id: _Id
    sender_id: _Person
    sender_names: tuple[_Person, ...] = ()
    content: str = ""
    files: tuple[IncomingFile, ...] = ()
    is_group: bool = False
    is_addressed: bool = False
    is_forwarded: bool = False
    metadata: Annotated[dict[str, JsonValue], AfterValidator(_check_finite)] = {}

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        if not self.content.strip() and not self.files:
            msg = "content or files are needed"
            raise ValueError(msg)
        if len(self.files) > _MAX_FILES:
            msg = f"at most {_MAX_FILES} files"
            raise ValueError(msg)
        if len(self.sender_names) > _MAX_NAMES:
            msg = f"at most {_MAX_NAMES} sender_names"
            raise ValueError(msg)
        return self


class MessagePayload(_Part):
    """The body of a message."""

    type: Literal["message.created"]
    timestamp: AwareDatetime | None = None
    data: MessageData


def parse_message(body: bytes) -> MessagePayload:
    """Return the message in `body`.

    Raises:
        PayloadRefused: it is not one.
    """
    try:
        return MessagePayload.model_validate_json(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        places = [
            f"{'.'.join(str(step) for step in one['loc']) or 'body'}: {one['msg']}"
            for one in found[:_MAX_NAMED]
        ]
        raise PayloadRefused("; ".join(places)) from None


def build_inbound(payload: MessagePayload, message_id: str, sent_at: datetime) -> InboundMessage:
    """Return the message for the agent, its files left out.

    Args:
        message_id: the sender's id of it.
        sent_at: when it was sent, where the payload does not say when it was written.
    """
    data = payload.data
    return InboundMessage(
        channel=CHANNEL,
        sender_id=data.sender_id,
        chat_id=data.chat_id,
        content=data.content,
        sender_names=data.sender_names,
        timestamp=payload.timestamp or sent_at,
        metadata={**data.metadata, "message_id": message_id},
        dedupe_key=message_id,
        is_group=data.is_group,
        is_addressed=data.is_addressed,
        is_forwarded=data.is_forwarded,
    )
