"""Bus: the queue between channels and turns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from nanobot_core.messages import InboundMessage, OutboundMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to work on a message, until it is acknowledged, released or expired.

    Attributes:
        id: names the lease when it is given back.
        attempt: how often the message has been handed out, from 1.
    """

    id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundLease(Lease):
    """A received message to work on."""

    message: InboundMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundLease(Lease):
    """A reply to deliver."""

    message: OutboundMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class BusDepth:
    """How many messages wait, by where they stand."""

    inbound: int
    outbound: int
    dead: int


class Bus(ABC):
    """Inbox and outbox. Every message is handed out at least once until it is acknowledged."""

    @abstractmethod
    async def publish_inbound(self, message: InboundMessage) -> bool:
        """Store a received message; False when its dedupe key was seen within seven days.

        Raises:
            BusError: it is not stored, because the medium failed or the queue is full.
        """

    @abstractmethod
    async def receive_inbound(self) -> InboundLease:
        """Wait for the next message, oldest first; of one session one is out at a time."""

    @abstractmethod
    async def publish_outbound(self, message: OutboundMessage) -> bool:
        """Store a reply; False when its idempotency key is already there.

        Raises:
            BusError: it is not stored.
        """

    @abstractmethod
    async def receive_outbound(self, channel: str) -> OutboundLease:
        """Wait for the next reply of `channel`; of one chat one is out at a time."""

    @abstractmethod
    async def acknowledge(self, lease: Lease) -> None:
        """Say that the work is done; the message is not handed out again."""

    @abstractmethod
    async def release(self, lease: Lease, *, delay_s: float = 0.0) -> None:
        """Give the message back, to be handed out again after `delay_s` seconds."""

    @abstractmethod
    async def bury(self, lease: Lease, reason: str) -> None:
        """Move the message to the dead letters, whole and with the reason."""

    @abstractmethod
    async def depth(self) -> BusDepth:
        """Return how many messages wait."""

    async def aclose(self) -> None:
        """Finish writing. Called once at shutdown."""
