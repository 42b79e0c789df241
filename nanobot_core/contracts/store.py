"""Session store: durable history."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Literal

from nanobot_core.messages import JsonObject, Message
from nanobot_core.record import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The progress of a turn, stored so that a crash loses no finished work.

    Attributes:
        turn_id: the turn under way.
        inbound_id: the message that started it, or ``None``.
        iteration: number of the model call whose tool calls are running.
        running: ids of calls that may have begun and have no result yet.
    """

    turn_id: str
    inbound_id: str | None = None
    iteration: int = 0
    running: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """Facts of a session besides its messages; the last stored state counts.

    Attributes:
        created_at: when the session began, aware.
        updated_at: when it was last written, aware.
        last_consolidated: number of messages from the start that memory has taken up.
        checkpoint: the turn under way, or ``None``.
        metadata: facts of plugins and commands (model override, title), plain data.
    """

    created_at: datetime
    updated_at: datetime
    last_consolidated: int = 0
    checkpoint: Checkpoint | None = None
    metadata: JsonObject = field(default_factory=dict)

    def touched(self, now: datetime) -> SessionState:
        """Return the same state, updated at `now`."""
        return replace(self, updated_at=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """The part of a session that the store returns.

    Attributes:
        key: session key.
        state: its latest state.
        messages: history from ``state.last_consolidated`` on, oldest first; only the newest part
            if the caller set a limit.
        first_index: number, counted from the session's start, of ``messages[0]``.
        repaired: sentences on damage found and repaired while loading.
    """

    key: str
    state: SessionState
    messages: tuple[Message, ...] = ()
    first_index: int = 0
    repaired: tuple[str, ...] = ()

    @property
    def last_index(self) -> int:
        """Number of the first message that is not stored yet."""
        return self.first_index + len(self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """One line of a list of sessions. Sizes are in bytes."""

    key: str
    updated_at: datetime
    size: int


class SessionStore(ABC):
    """Durable histories. One process at a time writes a session; its calls come in order."""

    @abstractmethod
    async def load(self, key: str, max_messages: int) -> StoredSession | None:
        """Return the newest part of a session, or ``None`` if it does not exist.

        Damage is repaired once, and the damaged part is set aside; readable text is never
        lost. The cost depends on `max_messages`, not on the length of the session.

        Raises:
            SessionError: the medium cannot be read.
        """

    @abstractmethod
    async def append(self, key: str, messages: Sequence[Message], state: SessionState) -> None:
        """Add `messages` and make `state` the latest; durable when it returns, or nothing is added.

        The cost depends on what is added, not on the size of the session.

        Raises:
            SessionError: the medium cannot be written; the former content is intact. A temporary
                error, such as a full disk, is retried for messages from chats.
        """

    @abstractmethod
    def read(self, key: str) -> AsyncIterator[Message]:
        """Yield the whole transcript from its first message, consolidated part included."""

    @abstractmethod
    async def summaries(self) -> list[SessionSummary]:
        """Return all sessions, newest first."""

    async def summary(self, key: str) -> SessionSummary | None:
        """Return one session of `summaries`, or ``None`` if it does not exist.

        Programs ask for it in every turn. A store that can find one session without listing all
        overrides it.
        """
        return next((each for each in await self.summaries() if each.key == key), None)

    @abstractmethod
    async def delete(self, key: str) -> bool:
        """Delete a session; False if it does not exist."""

    def forget(self, key: str) -> None:
        """Drop cached facts about a session, because another process has changed it."""

    async def aclose(self) -> None:
        """Finish writing. Called once at shutdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec:
    """A session store or bus as a plugin contributes it; the settings name the active one.

    Attributes:
        kind: the slot it fills.
        name: value for ``agents.defaults.session_store`` or ``gateway.bus``.
        factory: ``package.module:name`` of a callable ``(ctx)`` that returns it.
    """

    kind: Literal["sessions", "bus"]
    name: str
    factory: str
