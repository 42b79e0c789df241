"""Messages in the form in which the queue stores them: their place in line, and their JSON text.

Empty fields are left out of the text. A reader takes the fields that it knows and ignores the rest,
so that an older and a newer version of nanobot can use one file in turn.
"""

from __future__ import annotations

import json
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, get_args

from nanobot_core.messages import Button, InboundMessage, OutboundKind, OutboundMessage
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.messages import JsonObject, JsonValue

BEHIND: Final = 0
READY: Final = 1
DELAYED: Final = 2
OUT: Final = 3
"""The states of a stored message; see `nanobot_core.bus.ledger`."""

_KINDS: Final[tuple[OutboundKind, ...]] = get_args(OutboundKind)
_EMPTY: Final[tuple[JsonValue, ...]] = (None, False, [], {})

INBOUND: Final = "in"
_OUTBOUND: Final = "out:"
_PLAIN_BYTES: Final = 64
_DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A message as it is stored.

    Attributes:
        queue: `INBOUND`, or the result of `outbound_queue`.
        lane: the session or chat, of which one message is out at a time.
        is_control: comes first, without waiting for others of its lane.
        key: recognises a repeated message, or ``None``.
        payload: the message as JSON text.
    """

    queue: str
    lane: bytes
    is_control: bool
    key: bytes | None
    payload: str


@dataclass(frozen=True, slots=True)
class Taken:
    """A stored message that was handed out.

    Attributes:
        number: names it as long as it is stored, and orders the messages by arrival.
        attempt: how often it has been handed out, from 1.
        stored_us: when it was stored, in microseconds of Unix time.
        payload: the message as JSON text.
    """

    number: int
    attempt: int
    stored_us: int
    payload: str


@dataclass(frozen=True, slots=True)
class Buried:
    """A stored message that was given up.

    Attributes:
        number: as in `Taken`.
        queue: its former queue.
        attempts: how often it had been handed out.
        buried_us: when it was given up, in microseconds of Unix time.
        reason: why.
        payload: the message as JSON text.
    """

    number: int
    queue: str
    attempts: int
    buried_us: int
    reason: str
    payload: str


def inbound_entry(message: InboundMessage) -> Entry:
    """Return the stored form of a received message."""
    key = message.dedupe_key
    return Entry(
        queue=INBOUND,
        lane=lane_of(message.session_key),
        is_control=message.is_control,
        key=None if key is None else _key(INBOUND, message.channel, key),
        payload=encode_inbound(message),
    )


def outbound_entry(message: OutboundMessage) -> Entry:
    """Return the stored form of a reply."""
    key = message.idempotency_key
    return Entry(
        queue=outbound_queue(message.channel),
        lane=lane_of(message.chat_id),
        is_control=False,
        key=_key(_OUTBOUND, key) if key else None,
        payload=encode_outbound(message),
    )


def outbound_queue(channel: str) -> str:
    """Return the name of the queue of a channel's replies."""
    return _OUTBOUND + channel


def channel_of(queue: str) -> str | None:
    """Return the channel whose replies `queue` holds; ``None`` for that of received messages."""
    return None if queue == INBOUND else queue.removeprefix(_OUTBOUND)


def lane_of(name: str) -> bytes:
    """Return the lane of a session or a chat, which is short for any name."""
    return _key(name)


def _key(*parts: str) -> bytes:
    """Return bytes that are unique to these parts.

    Short ones are not hashed, because platforms number their messages: keys in order of arrival are
    neighbours on the disk, digests are not.
    """
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    # Lengths in front, because any byte may be part of a name.
    plain = b"".join([*(b"%d:" % len(part) for part in encoded), *encoded])
    if len(plain) <= _PLAIN_BYTES:
        return plain
    return b"#" + blake2b(plain, digest_size=_DIGEST_BYTES).digest()


def encode_inbound(message: InboundMessage) -> str:
    """Return `message` as text.

    Raises:
        TypeError: its metadata is not plain data.
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
        ValueError: it is not an object, or lacks its channel or chat.
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
        TypeError: its metadata is not plain data.
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
        ValueError: it is not an object, or lacks its channel or chat.
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
    # Escaped, because half a surrogate pair, which platforms do send, is not valid UTF-8.
    return json.dumps(kept, separators=(",", ":"))


class _Record:
    """Fields of a JSON object; one of a wrong type counts as missing."""

    def __init__(self, text: str) -> None:
        try:
            fields = json.loads(text)
        except RecursionError as error:
            msg = "it is nested too deeply"
            raise ValueError(msg) from error
        if not isinstance(fields, dict):
            msg = "it is not a JSON object"
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
