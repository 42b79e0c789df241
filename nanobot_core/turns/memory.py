"""SessionMemory: the memory backend as turns use it, with limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar
from weakref import WeakKeyDictionary

from nanobot_core.agent.tokens import RequestMeter
from nanobot_core.channels.access import first_part
from nanobot_core.contracts.memory import OWNERS_MEMORY, Consolidated, HistorySpan, MemoryScope
from nanobot_core.errors import SessionError
from nanobot_core.record import dataclass
from nanobot_core.sessions.session import SUMMARY
from nanobot_core.tasks import cancel_and_wait, run_bounded
from nanobot_core.turns.failure import or_instead

if TYPE_CHECKING:
    from nanobot_core.agent.tokens import TokenEstimator
    from nanobot_core.contracts.memory import MemoryBackend
    from nanobot_core.contracts.plugin import ContextBlock
    from nanobot_core.events import TurnInfo, TurnSource
    from nanobot_core.messages import InboundMessage, Message
    from nanobot_core.sessions.session import Session, Sessions
    from nanobot_core.tasks import Spawn
    from nanobot_core.turns.locks import SessionLocks

T = TypeVar("T")
READ_LIMIT_S = 5.0
"""Seconds for the passages of a request."""
ARCHIVE_LIMIT_S = 30.0
"""Seconds until messages are safe; a summary may take longer, but is not waited for."""
MUST_LIMIT_S = 120.0
"""Seconds that a person waits for a consolidation, without which the request does not fit."""
BACKGROUND_LIMIT_S = 600.0
"""Seconds for a consolidation in the background."""
RECALL_TOKENS = 2_000
"""Tokens of what memory adds to a turn because of the words of its sender."""
WITHOUT_MEMORY = "the turn continues without memory"

Sharing = Literal["shared", "channel", "chat", "sender"]


def memory_of(
    message: InboundMessage, source: TurnSource, sharing: Sharing, *, is_owner: bool
) -> str:
    """Return the name of the memory that a message may read and add to.

    What others say, and what is said where others read along, stays out of the owner's memory
    unless it is shared by everyone.

    Args:
        message: the message.
        source: what started its turn.
        sharing: ``memory.scope`` of the configuration.
        is_owner: the owner wrote it.
    """
    given = message.assignment
    is_chats = (
        source in {"chat", "api"} if given is None else given.requester.authority != "machine"
    )
    is_elsewhere = is_owner and not is_chats  # a terminal, or a program
    if sharing == "shared" or is_elsewhere:
        return OWNERS_MEMORY
    if sharing == "channel":
        return f"channel/{message.channel}"
    if sharing == "chat" or message.is_group:
        return f"chat/{message.channel}:{message.chat_id}"
    if is_owner:
        return OWNERS_MEMORY
    return f"sender/{message.channel}:{first_part(message.sender_id)}"


@dataclass(frozen=True, slots=True)
class _Consolidation:
    span: HistorySpan
    work: asyncio.Task[Consolidated]


class SessionMemory:
    """What turns ask of the memory backend. Its methods are called while a turn holds the session.

    A backend that fails or takes too long is reported, and costs recall but never the answer. One
    consolidation of a session runs at a time.

    Args:
        backend: the active one, or ``None``.
        sessions: have the messages to consolidate.
        locks: order the turns of a session, and what changes it between them.
        spawn: starts the calls of the backend.
    """

    def __init__(
        self,
        backend: MemoryBackend | None,
        sessions: Sessions,
        locks: SessionLocks,
        spawn: Spawn,
    ) -> None:
        self._backend = backend
        self._sessions = sessions
        self._locks = locks
        self._spawn = spawn
        self._running: dict[str, _Consolidation] = {}
        self._meters: WeakKeyDictionary[Session, RequestMeter] = WeakKeyDictionary()

    async def passages(self, turn: TurnInfo, query: str) -> list[ContextBlock]:
        """Return the passages for a request, those that fit `query` included."""
        if self._backend is None or turn.memory is None:
            return []
        scope = MemoryScope(name=turn.memory, session_key=turn.session_key)
        always = self._limited(self._backend.context(scope), READ_LIMIT_S)
        found = [*await or_instead((), always, WITHOUT_MEMORY)]
        if "recall" in self._backend.abilities:
            recalled = self._backend.recall(scope, query, RECALL_TOKENS)
            found += await or_instead((), self._limited(recalled, READ_LIMIT_S), WITHOUT_MEMORY)
        return found

    async def make_room(
        self, session: Session, turn: TurnInfo, estimator: TokenEstimator, budget: int
    ) -> None:
        """Consolidate before a turn if the history does not fit into `budget` tokens."""
        if self._backend is None or self._tokens(session, estimator) <= budget:
            return
        if (running := self._running.get(session.key)) is not None:
            await asyncio.wait({running.work}, timeout=MUST_LIMIT_S)
            await self._store_done(session)
        span = self._span(session, turn, estimator)
        if span is not None and sum(span.tokens) > budget:
            work = self._consolidated(self._backend, span, budget, must=True)
            task = self._spawn(work, name=f"consolidate:{session.key}")
            self._running[session.key] = _Consolidation(span, task)
            try:
                await asyncio.wait({task})
                await self._store_done(session)
            finally:
                self._running.pop(session.key, None)
                task.cancel()

    def consolidate_later(
        self, session: Session, turn: TurnInfo, estimator: TokenEstimator, budget: int
    ) -> None:
        """Consolidate in the background, if the history is longer than half of `budget` tokens."""
        if self._backend is None or session.key in self._running:
            return
        if self._tokens(session, estimator) <= budget // 2:
            return
        span = self._span(session, turn, estimator)
        if span is not None:
            work = self._consolidated(self._backend, span, budget, must=False)
            task = self._spawn(work, name=f"consolidate:{session.key}")
            self._running[session.key] = _Consolidation(span, task)
            self._spawn(self._store_later(session.key, task), name=f"consolidate:{session.key}")

    async def archive(
        self, session: Session, turn: TurnInfo, messages: Sequence[Message], summary: str = ""
    ) -> bool:
        """Pass messages to memory before the session continues without them.

        Args:
            session: the session.
            turn: the turn that ends the conversation or has outgrown its request.
            messages: the first ones of ``session.messages``.
            summary: of these messages, if the turn made one; else empty.

        Returns:
            Whether they are safe, or there is nothing that could keep them.
        """
        if self._backend is None or turn.memory is None or not messages:
            return True
        if (running := self._running.pop(session.key, None)) is not None:
            await cancel_and_wait(running.work)
        first = session.stored.first_index
        span = HistorySpan(
            scope=MemoryScope(name=turn.memory, session_key=session.key),
            messages=tuple(messages),
            first_index=first,
            summary=summary or _summary_of(session),
            is_summarised=bool(summary),
        )
        work = self._limited(self._backend.archive(span), ARCHIVE_LIMIT_S)
        return await or_instead(False, _is_done(work), WITHOUT_MEMORY)

    async def _consolidated(
        self, backend: MemoryBackend, span: HistorySpan, budget: int, *, must: bool
    ) -> Consolidated:
        limit_s = MUST_LIMIT_S if must else BACKGROUND_LIMIT_S
        work = self._limited(backend.consolidate(span, budget, must=must), limit_s)
        return await or_instead(Consolidated(), work, WITHOUT_MEMORY)

    async def _store_later(self, key: str, work: asyncio.Task[Consolidated]) -> None:
        """Store the result of `work` between two turns, unless a turn has stored it."""
        await asyncio.wait({work})
        async with self._locks.hold(key):
            if key in self._running:
                await self._store_done(await self._sessions.open(key))

    async def _store_done(self, session: Session) -> None:
        """Store the result of the session's consolidation, if it has ended."""
        running = self._running.get(session.key)
        if running is None or not running.work.done():
            return
        del self._running[session.key]
        done = Consolidated() if running.work.cancelled() else running.work.result()
        if done.messages <= 0:
            return
        until = running.span.first_index + min(done.messages, len(running.span.messages))
        try:
            await self._sessions.mark_consolidated(session, until, summary=done.summary)
        except SessionError as error:
            # The backend gets the same messages again, and recognises them.
            from loguru import logger

            logger.bind(session=session.key).warning(
                "cannot store the result of a consolidation, so it will be repeated: {}", error
            )

    def _tokens(self, session: Session, estimator: TokenEstimator) -> int:
        meter = self._meters.setdefault(session, RequestMeter())
        return estimator.estimate(meter.measure(session.messages))

    def _span(
        self, session: Session, turn: TurnInfo, estimator: TokenEstimator
    ) -> HistorySpan | None:
        if turn.memory is None or not session.messages:
            return None
        return HistorySpan(
            scope=MemoryScope(name=turn.memory, session_key=session.key),
            messages=session.messages,
            first_index=session.stored.first_index,
            tokens=tuple(estimator.count_all([message]) for message in session.messages),
            summary=_summary_of(session),
        )

    def _limited(self, work: Awaitable[T], limit_s: float) -> Awaitable[T]:
        return run_bounded(self._spawn, _contained(work), limit_s=limit_s, name="memory backend")


def _summary_of(session: Session) -> str:
    summary = session.state.metadata.get(SUMMARY)
    return summary if isinstance(summary, str) else ""


async def _contained(work: Awaitable[T]) -> T:
    """Await work of a plugin; what would end the program becomes an ordinary error."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        msg = f"the memory backend raised {type(error).__name__}"
        raise RuntimeError(msg) from error


async def _is_done(work: Awaitable[object]) -> bool:
    await work
    return True
