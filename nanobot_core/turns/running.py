"""RunningTurns: the current turns, and how many may run at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from nanobot_core.tasks import TURN_END_S, Spawn

if TYPE_CHECKING:
    from nanobot_core.assignment import Assignment
    from nanobot_core.contracts.bus import InboundLease
    from nanobot_core.messages import InboundMessage

MAX_PARENTS = 1_000
"""Sessions of work whose parents are remembered after their turns."""


class RunningTurn:
    """A message that is being answered.

    Attributes:
        steered: messages that arrived meanwhile and were added to the turn.
        is_owner: it has the rights of the owner.
        has_begun: its task has run. One that is cancelled before would not end its message.
        is_stopped: its user stopped it and expects no answer.
        is_closed: no more messages are added to it.
        has_slot: it runs, and counts towards the limit of turns.
    """

    def __init__(self, lease: InboundLease, slots: Sequence[asyncio.Semaphore]) -> None:
        self.lease: InboundLease = lease
        self.steered: list[InboundLease] = []
        self.is_owner: bool = False
        self.has_begun: bool = False
        self.is_stopped: bool = False
        self.is_closed: bool = False
        self.has_slot: bool = False
        self._slots = slots
        self._taking = asyncio.Lock()

    async def take_slot(self) -> None:
        """Wait until the turn may run; does nothing if it has a slot."""
        # Several calls of one turn may have waited for a person, and all of them continue.
        async with self._taking:
            if not self.has_slot:
                async with AsyncExitStack() as taken:
                    for slots in self._slots:
                        await taken.enter_async_context(slots)
                    taken.pop_all()
                self.has_slot = True

    def release_slot(self) -> None:
        """Let another turn run; does nothing without a slot."""
        if self.has_slot:
            self.has_slot = False
            for slots in self._slots:
                slots.release()


_target_turn: ContextVar[RunningTurn | None] = ContextVar("nanobot_target_turn")
"""The turn that was running when the current command arrived."""


class WaitingWork:
    """Work that this process has stored and not started, so that it can be stopped."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Assignment, bool]] = {}
        """By id of its message; whether it was stopped."""

    def expect(self, message: InboundMessage) -> bool:
        """Note that work is about to be stored; False if it is already waiting."""
        if message.id in self._known or message.assignment is None:
            return False
        self._known[message.id] = (message.assignment, False)
        return True

    def forget(self, message: InboundMessage) -> bool:
        """Note that work starts, or was not stored; return whether it was stopped."""
        return self._known.pop(message.id, (None, False))[1]

    def is_stopped(self, message: InboundMessage) -> bool:
        """Whether work was stopped before it started."""
        return self._known.get(message.id, (None, False))[1]

    def is_due_in(self, session_key: str) -> bool:
        """Whether work for a session is waiting."""
        given = (given for given, _ in self._known.values())
        return any((one.session_key or one.requester.session_key) == session_key for one in given)

    def stop(self, message_id: str) -> bool:
        """Stop waiting work; False if the id is unknown."""
        if message_id not in self._known:
            return False
        self._known[message_id] = (self._known[message_id][0], True)
        return True

    def stop_for(self, is_parent: Callable[[str], bool]) -> bool:
        """Stop the work whose parent session matches; False if nothing was stopped."""
        ids = [key for key, (one, _) in self._known.items() if one.parent and is_parent(one.parent)]
        for key in ids:
            self.stop(key)
        return bool(ids)


class RunningTurns:
    """The turns under way, at most one for each session.

    Attributes:
        waiting: work that will be a turn later.

    Args:
        spawn: starts tasks that the application owns.
        max_turns: turns that run at the same time.
    """

    def __init__(self, spawn: Spawn, max_turns: int) -> None:
        self._spawn = spawn
        self._slots = asyncio.Semaphore(max_turns)
        self._work_slots = asyncio.Semaphore(max(max_turns - max(max_turns // 4, 1), 1))
        """Fewer, so that messages from people do not wait behind work."""
        self.waiting: WaitingWork = WaitingWork()
        self._turns: dict[str, tuple[RunningTurn, asyncio.Task[None]]] = {}
        """By session key."""
        self._parents: dict[str, str] = {}
        """Session of work to its parent, by the last turn: children may outlive it."""

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """The tasks of all turns."""
        return {task for _, task in self._turns.values()}

    def start(
        self,
        lease: InboundLease,
        answer: Callable[[RunningTurn], Coroutine[Any, Any, None]],
    ) -> None:
        """Answer a message in a task of its own."""
        key, is_work = lease.message.session_key, lease.message.assignment is not None
        slots = (self._work_slots, self._slots) if is_work else (self._slots,)
        turn = RunningTurn(lease, slots)
        turn.is_stopped = self.waiting.forget(lease.message)
        self._note_parent(key, lease.message.assignment)

        async def begin() -> None:
            turn.has_begun = True
            await answer(turn)

        self._turns[key] = (turn, self._spawn(begin(), name=f"turn:{key}"))

    def _note_parent(self, session_key: str, given: Assignment | None) -> None:
        self._parents.pop(session_key, None)
        if given is not None and given.parent is not None:
            self._parents[session_key] = given.parent
            if len(self._parents) > MAX_PARENTS:
                del self._parents[next(iter(self._parents))]

    def end(self, turn: RunningTurn) -> None:
        """Forget a turn that has ended, and release its slot."""
        turn.release_slot()
        key = turn.lease.message.session_key
        if key in self._turns and self._turns[key][0] is turn:
            del self._turns[key]

    @contextmanager
    def as_target(self, session_key: str) -> Iterator[None]:
        """Let `stop`, in tasks started in this block, stop the current turn but no later one."""
        turn, _ = self._turns.get(session_key, (None, None))
        token = _target_turn.set(turn)
        try:
            yield
        finally:
            _target_turn.reset(token)

    async def stop(self, session_key: str) -> bool:
        """Stop the turn of a session and the work for it; False if none is running.

        A command does not stop a turn that began after it arrived. Returns when the turn and all
        that it started have ended, within `TURN_END_S`.
        """
        turn, _ = self._turns.get(session_key, (None, None))
        is_target = turn is not None and turn is _target_turn.get(turn)
        return await self.stop_work_for(session_key, with_own=is_target)

    async def stop_work_for(self, session_key: str, *, with_own: bool) -> bool:
        """Stop the work for a session, and also its own turn if asked to; see `stop`."""
        work = self.work_of(session_key)
        is_waiting = self.waiting.stop_for(
            lambda parent: parent == session_key or self._is_below(parent, session_key)
        )
        own = {session_key} if with_own else set[str]()
        return await self._cancel(own | work) or is_waiting

    def session_of(self, message_id: str) -> str | None:
        """Return the session in which work is running, or ``None``."""
        running = ((key, turn.lease.message) for key, (turn, _) in self._turns.items())
        found = (key for key, message in running if message.assignment and message.id == message_id)
        return next(found, None)

    async def _cancel(self, session_keys: set[str]) -> bool:
        tasks = set[asyncio.Task[None]]()
        for key in session_keys:
            turn, task = self._turns[key]
            turn.is_stopped = True
            if turn.has_begun:
                task.cancel()
            tasks.add(task)
        if tasks:
            await asyncio.wait(tasks, timeout=TURN_END_S)
        return bool(tasks)

    def work_of(self, session_key: str) -> set[str]:
        """Return the sessions in which work for a session is done, and work for those."""
        below = {key for key in self._turns if self._is_below(key, session_key)}
        return below - {session_key}

    def _is_below(self, session_key: str, ancestor: str) -> bool:
        seen, parent = {session_key}, self._parents.get(session_key)
        while parent is not None and parent != ancestor and parent not in seen:
            seen.add(parent)
            parent = self._parents.get(parent)
        return parent == ancestor

    def has(self, session_key: str) -> bool:
        """Whether a turn of a session is under way."""
        return session_key in self._turns

    def cancel_waiting(self) -> None:
        """Cancel the turns without a slot: they wait for a person, or have not begun."""
        for turn, task in self._turns.values():
            if not turn.has_slot:
                task.cancel()

    @asynccontextmanager
    async def without_slot(self, session_key: str) -> AsyncIterator[None]:
        """Let another turn run while that of a session waits for a person."""
        turn, _ = self._turns.get(session_key, (None, None))
        if turn is None:
            yield
            return
        turn.release_slot()
        yield
        await turn.take_slot()
