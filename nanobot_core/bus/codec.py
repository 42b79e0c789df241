"""Messages as JSON text, the form in which the queue keeps them.

What is empty is left out. A reader takes what it knows and ignores the rest, so that an older and
a newer version of nanobot may work on one file in turn.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Final, get_args

from nanobot_core.messages import Button, InboundMessage, OutboundKind, OutboundMessage

if TYPE_CHECKING:
    from nanobot_core.messages import JsonObject, JsonValue

_KINDS: Final[tuple[OutboundKind, ...]] = get_args(OutboundKind)


def encode_inbound(message: InboundMessage) -> str:
    """Return `message` as text.

    Raises:
        TypeError: its metadata is no plain data.
        ValueError: its metadata contains itself.
    """
    return _encode(
        {
            "channel": message.channel,
            "sender_id": message.sender_id,
            "chat_id": message.chat_id,
            "content": message.content,
            "id": message.id,
            "media": list(message.media),
            "timestamp": None if message.timestamp is None else message.timestamp.isoformat(),
            "metadata": message.metadata,
            "session_key_override": message.session_key_override,
            "dedupe_key": message.dedupe_key,
            "is_group": message.is_group,
            "is_addressed": message.is_addressed,
            "is_control": message.is_control,
        }
    )


def decode_inbound(text: str) -> InboundMessage:
    """Return the message that `encode_inbound` wrote.

    Raises:
        ValueError: it is damaged: no object, or without a place that it came from.
    """
    record = _Record(text)
    return InboundMessage(
        channel=record.required("channel"),
        sender_id=record.text("sender_id"),
        chat_id=record.required("chat_id"),
        content=record.text("content"),
        id=record.text("id"),
        media=record.texts("media"),
        timestamp=record.instant("timestamp"),
        metadata=record.mapping("metadata"),
        session_key_override=record.text_or_none("session_key_override"),
        dedupe_key=record.text_or_none("dedupe_key"),
        is_group=record.flag("is_group"),
        is_addressed=record.flag("is_addressed"),
        is_control=record.flag("is_control"),
    )


def encode_outbound(message: OutboundMessage) -> str:
    """Return `message` as text.

    Raises:
        TypeError: its metadata is no plain data.
        ValueError: its metadata contains itself.
    """
    return _encode(
        {
            "channel": message.channel,
            "chat_id": message.chat_id,
            "content": message.content,
            "kind": message.kind,
            "reply_to": message.reply_to,
            "media": list(message.media),
            "metadata": message.metadata,
            "idempotency_key": message.idempotency_key,
            "buttons": [
                [[button.label, button.value] for button in row] for row in message.buttons
            ],
            "draft_id": message.draft_id,
        }
    )


def decode_outbound(text: str) -> OutboundMessage:
    """Return the message that `encode_outbound` wrote.

    Raises:
        ValueError: it is damaged: no object, or without a place to go.
    """
    record = _Record(text)
    kind = record.text("kind")
    return OutboundMessage(
        channel=record.required("channel"),
        chat_id=record.required("chat_id"),
        content=record.text("content"),
        kind=next((known for known in _KINDS if known == kind), "final"),
        reply_to=record.text_or_none("reply_to"),
        media=record.texts("media"),
        metadata=record.mapping("metadata"),
        idempotency_key=record.text("idempotency_key"),
        buttons=record.buttons("buttons"),
        draft_id=record.text_or_none("draft_id"),
    )


def _encode(record: JsonObject) -> str:
    kept = {name: value for name, value in record.items() if value not in _EMPTY}
    # Escaped, because half a surrogate pair, which platforms do send, is no valid UTF-8.
    return json.dumps(kept, separators=(",", ":"))


_EMPTY: Final[tuple[JsonValue, ...]] = (None, False, [], {})


class _Record:
    """Fields of a JSON object; one of a wrong type reads as absent."""

    def __init__(self, text: str) -> None:
        try:
            fields = json.loads(text)
        except RecursionError as error:
            msg = "it is nested too deeply"
            raise ValueError(msg) from error
        if not isinstance(fields, dict):
            msg = "it is no JSON object"
            raise ValueError(msg)
        self._fields: JsonObject = fields

    def required(self, name: str) -> str:
        value = self._fields.get(name)
        if not isinstance(value, str):
            msg = f"it has no '{name}'"
            raise ValueError(msg)
        return value

    def text(self, name: str) -> str:
        return self.text_or_none(name) or ""

    def text_or_none(self, name: str) -> str | None:
        value = self._fields.get(name)
        return value if isinstance(value, str) else None

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(item for item in self._list(name) if isinstance(item, str))

    def flag(self, name: str) -> bool:
        return self._fields.get(name) is True

    def mapping(self, name: str) -> JsonObject:
        value = self._fields.get(name)
        return value if isinstance(value, dict) else {}

    def instant(self, name: str) -> datetime | None:
        try:
            return datetime.fromisoformat(self.text(name))
        except ValueError:
            return None

    def buttons(self, name: str) -> tuple[tuple[Button, ...], ...]:
        return tuple(
            tuple(button for item in row if (button := _button(item)) is not None)
            for row in self._list(name)
            if isinstance(row, list)
        )

    def _list(self, name: str) -> list[JsonValue]:
        value = self._fields.get(name)
        return value if isinstance(value, list) else []


def _button(item: JsonValue) -> Button | None:
    match item:
        case [str(label), str(value)]:
            return Button(label, value)
    return None
