"""Bus: the queue between channels and turns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime

from nanobot_core.messages import InboundMessage, OutboundMessage
from nanobot_core.record import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to work on a message, until it is acknowledged, released or buried.

    Attributes:
        id: names the lease when it is given back.
        attempt: how often the message has been handed out, from 1.
        stored_at: when the message was published, aware.
    """

    id: str
    attempt: int
    stored_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundLease(Lease):
    """A received message to work on.

    Attributes:
        message: the message.
    """

    message: InboundMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundLease(Lease):
    """A reply to deliver.

    Attributes:
        message: the reply.
    """

    message: OutboundMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that was given up, whole, with the reason.

    Attributes:
        id: names it for `Bus.revive` and `Bus.drop`.
        message: the message.
        reason: why it was given up, for the owner.
        attempts: how often it had been handed out.
        buried_at: when it was given up, aware.
    """

    id: str
    message: InboundMessage | OutboundMessage
    reason: str
    attempts: int
    buried_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BusDepth:
    """How many messages wait or are being worked on, by place.

    Attributes:
        inbound: messages to answer.
        outbound: replies to deliver.
        dead: dead letters.
    """

    inbound: int
    outbound: int
    dead: int


class Bus(ABC):
    """Inbox and outbox. Every message is handed out at least once until it is acknowledged.

    A cancelled call has either been done completely or not at all.

    One process works on a bus. Messages that were handed out and not given back when that process
    died are handed out again, oldest first, when the bus is opened the next time.
    """

    @abstractmethod
    async def publish_inbound(self, message: InboundMessage) -> bool:
        """Store a received message; on disk when it returns, where the bus is durable.

        Args:
            message: with an `id`, unique within nanobot.

        Returns:
            False if a message of the same `InboundMessage.identity` was stored within seven days;
            the same content with another one is another message.

        Raises:
            BusFull: too many messages wait; the platform should offer it again later.
            BusError: the medium failed, and the message is not stored.
        """

    @abstractmethod
    async def receive_inbound(self) -> InboundLease:
        """Wait for the next message, oldest first; of one session one is out at a time.

        A control command does not wait for other messages of its session. It comes before all
        ordinary messages but one: the next one of its session, if that arrived earlier.
        """

    @abstractmethod
    async def take_inbound(self, session_key: str) -> InboundLease | None:
        """Return the next message of a session at once, even while another of it is out.

        For the worker of the session, if it can take more; ``None`` if no message waits, or the
        next one is delayed.
        """

    @abstractmethod
    async def publish_outbound(self, message: OutboundMessage) -> bool:
        """Store a reply; False if its idempotency key was stored within seven days.

        Raises:
            BusError: it is not stored.
        """

    @abstractmethod
    async def receive_outbound(self, channel: str) -> OutboundLease:
        """Wait for the next reply of `channel`; of one chat one is out at a time, in order.

        A reply that was released with a delay holds up its own chat and no other.
        """

    @abstractmethod
    async def acknowledge(self, lease: Lease, *, replies: Sequence[OutboundMessage] = ()) -> None:
        """Mark the work as done; the message is not handed out again.

        Args:
            lease: as received; ignored if it is no longer valid.
            replies: stored in the same step, all or nothing; known idempotency keys are left out.

        Raises:
            BusError: nothing has changed.
        """

    @abstractmethod
    async def release(self, lease: Lease, *, delay_s: float = 0.0) -> None:
        """Give the message back, to be handed out again after `delay_s` seconds."""

    @abstractmethod
    async def bury(self, lease: Lease, reason: str) -> None:
        """Move the message to the dead letters, whole and with the reason."""

    @abstractmethod
    async def dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        """Return the newest dead letters, newest first."""

    @abstractmethod
    async def revive(self, letter_id: str) -> bool:
        """Put a dead letter back into its queue as a new attempt; False if it does not exist."""

    @abstractmethod
    async def drop(self, letter_id: str) -> bool:
        """Delete a dead letter; False if it does not exist."""

    @abstractmethod
    async def depth(self) -> BusDepth:
        """Return how many messages wait."""

    @abstractmethod
    async def outbound_channels(self) -> frozenset[str]:
        """Return the channels with waiting replies, to find those of unknown channels."""

    async def has_outbound(self, channel: str, chat_id: str) -> bool:
        """Return whether a reply to this chat is stored and not delivered.

        The beginning of an answer and progress, which are not stored, wait until all replies are
        delivered. A bus that does not know returns False; with it, they can overtake a reply.
        """
        return False

    async def aclose(self) -> None:
        """Finish writing. Called once at shutdown; waiting receivers have been cancelled."""
