"""What the queue stores of a message: where it stands in line, and its text."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from nanobot_core.bus.codec import encode_inbound, encode_outbound
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.messages import InboundMessage, OutboundMessage

BEHIND: Final = 0
READY: Final = 1
DELAYED: Final = 2
OUT: Final = 3
"""The states of a stored message; see `nanobot_core.bus.ledger`."""

INBOUND: Final = "in"
_OUTBOUND: Final = "out:"
_PLAIN_BYTES: Final = 64
_DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A message as it is stored.

    Attributes:
        queue: `INBOUND`, or what `outbound_queue` says.
        lane: the session or chat, of which one message is out at a time.
        is_control: waits for no other of its lane and comes first.
        key: what the same message is known again by, or ``None``.
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
        queue: the queue that it stood in.
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
    """Return what is stored of a received message."""
    key = message.dedupe_key
    return Entry(
        queue=INBOUND,
        lane=lane_of(message.session_key),
        is_control=message.is_control,
        key=None if key is None else _key(INBOUND, message.channel, key),
        payload=encode_inbound(message),
    )


def outbound_entry(message: OutboundMessage) -> Entry:
    """Return what is stored of a reply."""
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
    """Return the lane of a session or a chat: short, whatever its name is made of."""
    return _key(name)


def _key(*parts: str) -> bytes:
    """Return bytes that no other parts have.

    Short ones stay as they are, because platforms count their messages: keys in the order of their
    arrival lie side by side on the disk, and digests everywhere.
    """
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    # Lengths in front, because any byte may be part of a name.
    plain = b"".join([*(b"%d:" % len(part) for part in encoded), *encoded])
    if len(plain) <= _PLAIN_BYTES:
        return plain
    return b"#" + blake2b(plain, digest_size=_DIGEST_BYTES).digest()
