"""Sessions in memory: the messages that the model may need, and never more than is stored."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeVar
from weakref import WeakValueDictionary

from nanobot_core.contracts.store import SessionState, StoredSession
from nanobot_core.tasks import retry_until_stored

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from nanobot_core.clock import Clock
    from nanobot_core.contracts.store import Checkpoint, SessionStore
    from nanobot_core.messages import JsonObject, Message


_T = TypeVar("_T")
SUMMARY = "summary"
"""Key in a session's metadata of what the model reads instead of the messages left out."""


class KeyedLocks:
    """One lock for each key in use, first come first served; unused keys take no memory."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    def is_held(self, key: str) -> bool:
        """Whether the lock of `key` is held or waited for."""
        return key in self._locks

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        """Hold the lock of `key` for the length of the block."""
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            _, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = lock, users - 1


class Session:
    """One session as last stored. Only `Sessions` changes it."""

    def __init__(self, stored: StoredSession) -> None:
        self.stored = stored

    @property
    def key(self) -> str:
        """Session key."""
        return self.stored.key

    @property
    def state(self) -> SessionState:
        """Latest state."""
        return self.stored.state

    @property
    def messages(self) -> tuple[Message, ...]:
        """Messages that are not consolidated, oldest first; only the newest if there are many."""
        return self.stored.messages


class Sessions:
    """Opens, extends and shares sessions; what it reports as done is stored.

    There is one `Session` object for a key as long as anything holds it, so two turns never see
    different histories. Idle sessions leave memory.

    Args:
        store: where sessions are kept; closed by its owner.
        clock: source of `updated_at`.
        max_sessions: idle sessions to keep in memory.
        max_messages: messages of one session to keep in memory; older ones stay in the store.
    """

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        *,
        max_sessions: int = 128,
        max_messages: int = 2000,
    ) -> None:
        self._store, self._clock = store, clock
        self._max_sessions, self._max_messages = max_sessions, max_messages
        self._locks = KeyedLocks()
        self._alive: WeakValueDictionary[str, Session] = WeakValueDictionary()
        self._recent: OrderedDict[str, Session] = OrderedDict()

    @property
    def store(self) -> SessionStore:
        """Where sessions are kept."""
        return self._store

    async def open(self, key: str, *, wait_for_room: bool = False) -> Session:
        """Return the session of `key`; a new one is stored with its first message.

        Args:
            key: session key.
            wait_for_room: try again for as long as the store is too full for a repair.

        Raises:
            SessionError: the store cannot be read.
        """

        async def find() -> Session:
            async with self._locks.hold(key):
                return self._alive.get(key) or Session(await self._load(key))

        session = self._alive.setdefault(key, await self._in_time(find, wait_for_room))
        self._recent[key] = session
        self._recent.move_to_end(key)
        if len(self._recent) > self._max_sessions:
            self._recent.popitem(last=False)
        return session

    async def append(
        self,
        session: Session,
        *messages: Message,
        checkpoint: Checkpoint | Literal["keep"] | None = "keep",
        metadata: JsonObject | None = None,
        wait_for_room: bool = False,
    ) -> None:
        """Store `messages` and changes of the state in one step.

        Args:
            session: the session to extend; in memory it changes once the store has it.
            messages: in order; none to change only the state.
            checkpoint: the turn under way, ``None`` when it has ended.
            metadata: replaces the session's metadata; ``None`` leaves it.
            wait_for_room: try again for as long as the store is full, because an accepted message
                must not be lost.

        Raises:
            SessionError: nothing was stored and nothing has changed.

        Cancellation:
            The step may be done or not; the session shows the content of the store.
        """

        async def step() -> None:
            async with self._locks.hold(session.key):
                state = session.state
                if checkpoint != "keep":
                    state = replace(state, checkpoint=checkpoint)
                if metadata is not None:
                    state = replace(state, metadata=metadata)
                await self._store_step(session, messages, state)

        await self._in_time(step, wait_for_room)

    async def mark_consolidated(
        self, session: Session, until: int, *, summary: str | None = None
    ) -> None:
        """Leave the messages before the one numbered `until` out of the history, for good.

        Nothing happens if they are left out already.

        Args:
            session: the session.
            until: counted from the start of the session.
            summary: what the model reads instead of all messages left out so far; empty for
                nothing, ``None`` to keep the former one.

        Raises:
            SessionError: nothing was stored and nothing has changed.
        """
        async with self._locks.hold(session.key):
            stored = session.stored
            until = min(until, stored.first_index + len(stored.messages))
            if until < stored.first_index:
                return
            metadata = session.state.metadata
            if summary is not None:
                metadata = {key: value for key, value in metadata.items() if key != SUMMARY}
                metadata |= {SUMMARY: summary} if summary else {}
            state = replace(session.state, last_consolidated=until, metadata=metadata)
            await self._store_step(session, (), state)

    async def _in_time(self, step: Callable[[], Awaitable[_T]], wait_for_room: bool) -> _T:
        """Do `step`; with `wait_for_room`, try again until the store has room for it."""
        if wait_for_room:
            return await retry_until_stored(step, self._clock, "a session")
        return await step()

    def forget(self, key: str) -> None:
        """Read the session again when it is next opened, because another process has changed it."""
        self._alive.pop(key, None)
        self._recent.pop(key, None)
        self._store.forget(key)

    async def delete(self, key: str) -> bool:
        """Delete a session from the store and from memory; False if it does not exist.

        Raises:
            SessionError: the store cannot delete it.
        """
        async with self._locks.hold(key):
            is_deleted = await self._store.delete(key)
            if (session := self._alive.get(key)) is not None:
                # Anything that holds it must not store deleted messages again.
                session.stored = await self._load(key)
        return is_deleted

    async def _load(self, key: str) -> StoredSession:
        stored = await self._store.load(key, self._max_messages)
        if stored is not None:
            return stored
        now = self._clock.now()
        return StoredSession(key=key, state=SessionState(created_at=now, updated_at=now))

    async def _store_step(
        self, session: Session, added: tuple[Message, ...], state: SessionState
    ) -> None:
        state = state.touched(self._clock.now())
        try:
            await self._store.append(session.key, added, state)
        except asyncio.CancelledError:
            # Only the store knows whether it was written.
            session.stored = await self._load(session.key)
            raise
        before = session.stored
        messages = (*before.messages, *added)
        consolidated = max(state.last_consolidated - before.first_index, 0)
        # A quarter at a time: the start of a prompt that moves with each message is never cached.
        surplus = len(messages) - consolidated - self._max_messages
        if surplus > 0:
            consolidated += max(surplus, self._max_messages // 4)
        session.stored = replace(
            before,
            state=state,
            messages=messages[consolidated:],
            first_index=before.first_index + consolidated,
        )
