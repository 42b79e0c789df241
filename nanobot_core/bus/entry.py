"""Messages in the form in which the queue stores them: their place in line, and their JSON text.

Empty fields are left out of the text. A reader takes the fields that it knows and ignores the rest,
so that an older and a newer version of nanobot can use one file in turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, get_args

from nanobot_core.assignment import Assignment
from nanobot_core.messages import Button, InboundMessage, OutboundKind, OutboundMessage
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from dataclasses import Field

    from pydantic import TypeAdapter

    from nanobot_core.messages import JsonValue

BEHIND: Final = 0
READY: Final = 1
DELAYED: Final = 2
OUT: Final = 3
"""The states of a stored message; see `nanobot_core.bus.ledger`."""

_EMPTY: Final[tuple[object, ...]] = (None, False, (), [], {})

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

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


def inbound_entry(message: InboundMessage) -> Entry:
    """Return the stored form of a received message."""
    identity = message.identity
    return Entry(
        queue=INBOUND,
        lane=lane_of(message.session_key),
        is_control=message.is_control,
        key=None if identity is None else _key(INBOUND, *identity),
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


def microseconds(moment: datetime) -> int:
    """Return an instant as microseconds of Unix time."""
    return (moment - _EPOCH) // _MICROSECOND


def instant(unix_us: int) -> datetime:
    """Return the instant that `microseconds` has turned into a number."""
    return _EPOCH + unix_us * _MICROSECOND


def encode_inbound(message: InboundMessage) -> str:
    """Return `message` as text.

    Raises:
        TypeError: its metadata is not plain data.
        ValueError: its metadata contains itself.
    """
    timestamp, given = message.timestamp, message.assignment
    return _encode(
        message,
        timestamp=None if timestamp is None else timestamp.isoformat(),
        assignment=None if given is None else asdict(given),
    )


def encode_outbound(message: OutboundMessage) -> str:
    """Return `message` as text; raises as `encode_inbound`."""
    buttons = [[[button.label, button.value] for button in row] for row in message.buttons]
    return _encode(message, buttons=buttons)


def decode_inbound(text: str) -> InboundMessage:
    """Return the message that `encode_inbound` wrote.

    Raises:
        ValueError: it is not an object, lacks its channel or chat, or has an invalid assignment.
    """
    return InboundMessage(**_decode(text, InboundMessage.__dataclass_fields__))


def decode_outbound(text: str) -> OutboundMessage:
    """Return the message that `encode_outbound` wrote; raises as `decode_inbound`."""
    return OutboundMessage(**_decode(text, OutboundMessage.__dataclass_fields__))


def decode_dead(queue: str, text: str) -> InboundMessage | OutboundMessage:
    """Return the message of a dead letter; one that cannot be read has its text as content."""
    channel = channel_of(queue)
    try:
        return decode_inbound(text) if channel is None else decode_outbound(text)
    except ValueError:
        if channel is None:
            return InboundMessage(channel="", sender_id="", chat_id="", content=text)
        return OutboundMessage(channel=channel, chat_id="", content=text)


def _encode(message: InboundMessage | OutboundMessage, **converted: object) -> str:
    record = {name: getattr(message, name) for name in message.__dataclass_fields__} | converted
    kept = {name: value for name, value in record.items() if value not in _EMPTY}
    # Escaped, because half a surrogate pair, which platforms do send, is not valid UTF-8.
    return json.dumps(kept, separators=(",", ":"))


def _decode(text: str, fields: Mapping[str, Field[Any]]) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except RecursionError as error:
        msg = "it is nested too deeply"
        raise ValueError(msg) from error
    if not isinstance(record, dict):
        msg = "it is not a JSON object"
        raise ValueError(msg)
    for name in ("channel", "chat_id"):
        if not isinstance(record.get(name), str):
            msg = f"it has no '{name}'"
            raise ValueError(msg)
    return {name: _READERS[str(field.type)](record.get(name)) for name, field in fields.items()}


def _items(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _instant(value: JsonValue) -> datetime | None:
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _buttons(row: list[JsonValue]) -> Iterator[Button]:
    for item in row:
        match item:
            case [str(label), str(value)]:
                yield Button(label, value)


def _assignment(value: JsonValue) -> Assignment | None:
    """Return an assignment, which is valid as a whole: without it, a message has other rights."""
    if value is None:
        return None
    return _assignment_type().validate_python(value)


@cache
def _assignment_type() -> TypeAdapter[Assignment]:
    from pydantic import TypeAdapter

    return TypeAdapter(Assignment)


_READERS: Final[Mapping[str, Callable[[JsonValue], object]]] = {
    "str": lambda value: value if isinstance(value, str) else "",
    "str | None": lambda value: value if isinstance(value, str) else None,
    "bool": lambda value: value is True,
    "datetime | None": _instant,
    "Assignment | None": _assignment,
    "JsonObject": lambda value: value if isinstance(value, dict) else {},
    "OutboundKind": lambda value: value if value in get_args(OutboundKind) else "final",
    "tuple[str, ...]": lambda value: tuple(item for item in _items(value) if isinstance(item, str)),
    "tuple[tuple[Button, ...], ...]": lambda value: tuple(
        tuple(_buttons(row)) for row in _items(value) if isinstance(row, list)
    ),
}
"""By the type of a field, how to read it; a value of a wrong type counts as missing."""
