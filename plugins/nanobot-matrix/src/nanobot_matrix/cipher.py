"""Cipher: how messages of rooms are encrypted, or that they are not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from nanobot_core.chat import CallFailed, Cause

if TYPE_CHECKING:
    from nanobot_core import JsonObject, PluginContext
    from nanobot_matrix import wire
    from nanobot_matrix.homeserver import Homeserver
    from nanobot_matrix.known import Known
    from nanobot_matrix.settings import MatrixSettings

Notice: TypeAlias = Callable[[str, str], Awaitable[None]]
"""Sends a text to a room, which is the first of its arguments."""
ENCRYPTED = (
    "This room is encrypted, and I cannot read encrypted messages; please write to me in a room "
    "without encryption, or let my owner install nanobot-matrix[e2e]."
)


class Cipher(ABC):
    """Reads and writes the messages of rooms.

    Attributes:
        device: the agent's device for people who verify it; empty if it encrypts nothing.
    """

    device: str = ""

    @abstractmethod
    async def take(self, sync: wire.Sync, *, is_first: bool) -> None:
        """Take what devices sent, before the messages of a sync are read. It is then on disk.

        Args:
            is_first: the sync does not continue another one.
        """

    @abstractmethod
    async def note(self, room: str, events: Iterable[wire.Event]) -> None:
        """Take the state of a room, before its messages are read."""

    @abstractmethod
    async def read(self, room: str, event: wire.Event) -> wire.Event | None:
        """Return a message as its sender wrote it; ``None`` if it must not be read, or not yet."""

    @abstractmethod
    async def quote(self, room: str, event: wire.Event) -> wire.Event | None:
        """Return an event that a message refers to; ``None`` if it cannot be read."""

    @abstractmethod
    async def late(self) -> Sequence[tuple[str, wire.Event]]:
        """Return messages that could not be read before, with their rooms."""

    @abstractmethod
    async def settle(self, events: Iterable[tuple[str, str]]) -> None:
        """Note which messages are stored, as rooms and ids of events."""

    @abstractmethod
    async def write(self, room: str, content: JsonObject) -> tuple[str, JsonObject]:
        """Return the type and content of the event that carries a message.

        Raises:
            CallFailed: the message must not be sent as it is, and cannot be encrypted.
        """

    @abstractmethod
    async def encrypts(self, room: str) -> bool:
        """Whether messages to a room are encrypted.

        Raises:
            CallFailed: the room must not be written to, or the homeserver does not say.
        """

    async def aclose(self) -> None:  # noqa: B027 - a cipher that keeps nothing has nothing to close
        """Close files. Can be called again."""


class NoCipher(Cipher):
    """Reads and writes rooms that are not encrypted.

    Args:
        notice: sends a text to a room, even if it is encrypted.
    """

    def __init__(
        self,
        ctx: PluginContext,
        server: Homeserver,
        settings: MatrixSettings,
        known: Known,
        notice: Notice,
    ) -> None:
        self._log = ctx.logger
        self._server = server
        self._encrypted_only = settings.encrypted_only
        self._known = known
        self._notice = notice

    async def take(self, sync: wire.Sync, *, is_first: bool) -> None:
        """Do nothing."""

    async def note(self, room: str, events: Iterable[wire.Event]) -> None:
        """Note that a room is encrypted."""
        if any(event.type == "m.room.encryption" and event.state_key == "" for event in events):
            self._known.encrypted.put(room, value=True)

    async def read(self, room: str, event: wire.Event) -> wire.Event | None:
        """Return a message; if it is encrypted, report that."""
        if event.type != "m.room.encrypted":
            return None if self._encrypted_only else event
        self._known.encrypted.put(room, value=True)
        count = self._known.unread.get(room, 0)
        self._known.unread[room] = count + 1
        if count == 0:
            self._log.warning("room {} is encrypted; its messages cannot be read", room)
        await self._known.tell_once(room, room, ENCRYPTED, self._notice)
        return None

    async def quote(self, room: str, event: wire.Event) -> wire.Event | None:
        """Return the event."""
        return event

    async def late(self) -> Sequence[tuple[str, wire.Event]]:
        """Return nothing."""
        return ()

    async def settle(self, events: Iterable[tuple[str, str]]) -> None:
        """Do nothing."""

    async def write(self, room: str, content: JsonObject) -> tuple[str, JsonObject]:
        """Return the message as it is, unless others in its room are encrypted."""
        await self.encrypts(room)
        return "m.room.message", content

    async def encrypts(self, room: str) -> bool:
        """Return False, or raise a failure: what is written there would be readable."""
        is_encrypted = self._known.encrypted.get(room)
        if is_encrypted is None:
            is_encrypted = await self._server.encryption(room) is not None
            self._known.encrypted.put(room, is_encrypted)
        if is_encrypted or self._encrypted_only:
            reason = f"room {room} is encrypted or must be, and the agent cannot encrypt messages"
            raise CallFailed(Cause.FORBIDDEN, reason)
        return False
