"""Memory backend: recall across sessions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, Final, Literal, TypeAlias

from nanobot_core.contracts.plugin import ContextBlock
from nanobot_core.messages import Message
from nanobot_core.record import dataclass

OWNERS_MEMORY: Final = ""
"""Name of the owner's memory, see `MemoryScope`."""

MemoryAbility: TypeAlias = Literal["recall", "search", "remember", "forget", "entries"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryScope:
    """Which memory is meant, and which session speaks.

    Memories are separate: nothing that is kept under one name is shown under another. The core
    computes the name from ``memory.scope``, the sender and the chat.

    Attributes:
        name: `OWNERS_MEMORY`, or the memory of others such as ``sender/telegram:42``. Not a file
            name: it can hold any character.
        session_key: the session; empty outside of one.
    """

    name: str = OWNERS_MEMORY
    session_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySpan:
    """Consecutive messages of a session.

    Attributes:
        scope: where they belong.
        messages: oldest first; complete turns except perhaps the last one.
        first_index: number of the first one, counted from the start of the session. Together with
            the session it identifies a span: the same messages may come again after a crash, and
            must not be kept twice.
        tokens: estimated tokens of each message.
        summary: a summary of what the session said before them, or of the messages themselves if
            `is_summarised`; may be empty.
        is_summarised: the core has shortened the request of a turn; `summary` replaces the
            messages, so that no model call is needed to keep them.
    """

    scope: MemoryScope
    messages: tuple[Message, ...]
    first_index: int = 0
    tokens: tuple[int, ...] = ()
    summary: str = ""
    is_summarised: bool = False

    @property
    def last_index(self) -> int:
        """Number of the first message after the span."""
        return self.first_index + len(self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidated:
    """What a backend took up of a span.

    Attributes:
        messages: how many from the start of the span; 0 if nothing had to go. The first one that
            remains is a user message.
        summary: what the model reads instead of them and of the span's former summary, so that a
            running conversation keeps its thread.
    """

    messages: int = 0
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEntry:
    """One thing that is remembered.

    Attributes:
        id: names it in `MemoryBackend.forget`, stable for as long as it exists.
        text: what is remembered.
        time: when it was learnt, aware, or ``None`` if unknown.
        session_key: session that it comes from, or empty.
        place: where it is kept, for people: ``MEMORY.md``, ``history``.
    """

    id: str
    text: str
    time: datetime | None = None
    session_key: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """The result of `MemoryBackend.forget`.

    Attributes:
        entries: how many entries are gone.
        remains: sentences on where the text can still be found, such as session files and former
            versions, and how to remove it there.
    """

    entries: int
    remains: tuple[str, ...] = ()


class MemoryBackend(ABC):
    """Remembers beyond the history of a session. One is active.

    The core limits how long each call may take, and answers without memory if one fails. Calls of
    one session come one after another, others concurrently. What a call returns or reports as
    done is on disk.

    Attributes:
        abilities: which of the optional methods of the same name work.
    """

    abilities: ClassVar[frozenset[MemoryAbility]] = frozenset()

    @abstractmethod
    async def context(self, scope: MemoryScope) -> Sequence[ContextBlock]:
        """Return the passages for the system prompt, if any.

        Stable passages must not change unless their content has changed.
        """

    async def recall(
        self, scope: MemoryScope, query: str, token_budget: int
    ) -> Sequence[ContextBlock]:
        """Return passages for one turn that fit the words of its sender.

        Args:
            scope: whose memory.
            query: the words.
            token_budget: tokens that the passages may have together.
        """
        raise NotImplementedError

    @abstractmethod
    async def consolidate(
        self, span: HistorySpan, token_budget: int, *, must: bool
    ) -> Consolidated:
        """Take up the oldest messages of a session that outgrows its budget.

        Args:
            span: the session's whole unconsolidated history.
            token_budget: tokens that the history may have, without system prompt, tools and
                answer.
            must: the next request does not fit otherwise, and a person waits. Otherwise the call
                comes after a turn, in the background.
        """

    @abstractmethod
    async def archive(self, span: HistorySpan) -> None:
        """Take up all of a span, because the session continues without it.

        It returns when nothing can be lost any more; a summary that needs a model may follow
        later, after a restart if necessary.
        """

    async def search(self, scope: MemoryScope, query: str, limit: int) -> Sequence[MemoryEntry]:
        """Return the entries that match `query` best, best first."""
        raise NotImplementedError

    async def remember(self, scope: MemoryScope, text: str) -> MemoryEntry:
        """Keep a text that a person wants to be remembered."""
        raise NotImplementedError

    async def forget(self, scope: MemoryScope, entry_id: str) -> Forgotten:
        """Remove an entry; zero entries if it does not exist."""
        raise NotImplementedError

    async def entries(self, scope: MemoryScope) -> Sequence[MemoryEntry]:
        """Return everything that is remembered, for export."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Finish writing. Called once at shutdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySpec:
    """A memory backend as a plugin contributes it; ``memory.backend`` names the active one.

    Attributes:
        name: value for ``memory.backend``; not ``none``.
        factory: ``package.module:name`` of a callable ``(ctx)`` that returns a `MemoryBackend`.
    """

    name: str
    factory: str
