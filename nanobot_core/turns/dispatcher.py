"""Dispatcher: which message is answered when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from nanobot_core.agent.run import ignore_event
from nanobot_core.channels.insist import RETRY_S, insist
from nanobot_core.errors import BusError
from nanobot_core.messages import InboundMessage, OutboundMessage
from nanobot_core.tasks import TURN_END_S
from nanobot_core.turns.pipeline import TurnPipeline, TurnRequest

if TYPE_CHECKING:
    from nanobot_core.channels.live import LiveView
    from nanobot_core.channels.outbox import Outbox
    from nanobot_core.channels.waiting import Waiting
    from nanobot_core.clock import Clock
    from nanobot_core.contracts.bus import Bus, InboundLease
    from nanobot_core.events import TurnOutcome
    from nanobot_core.tasks import Spawn

RECEIVERS = 4
"""Messages asked for at the same time: each waits until the queue has written what it writes."""
MAX_ATTEMPTS = 5
"""Times that a message is handed out: one that ends the process each time must not for ever."""
UNKNOWN_COMMAND = "I do not know this command any more."
GIVEN_UP = "I tried to answer your message several times and could not; please write it anew."


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the dispatcher needs of the channels.

    Attributes:
        outbox: takes messages to chats.
        waiting: shows people that their message is being worked on.
        view: returns what shows a turn to the chat of a message, or ``None``.
        is_owner: whether the sender of a message is the owner.
    """

    outbox: Outbox
    waiting: Waiting
    view: Callable[[InboundMessage], LiveView | None]
    is_owner: Callable[[InboundMessage], bool]


class _Slot:
    """The right of one turn to run beside others; may be lent away while it waits for a person."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self.is_held: bool = False
        self._taking = asyncio.Lock()

    async def take(self) -> None:
        """Wait for the right; does nothing where it is held."""
        # Several calls of one turn may have waited for a person, and all of them come back.
        async with self._taking:
            if not self.is_held:
                await self._slots.acquire()
                self.is_held = True

    def give_back(self) -> None:
        """Let another turn have it; does nothing where it is not held."""
        if self.is_held:
            self.is_held = False
            self._slots.release()


@dataclass(slots=True)
class _Work:
    """A message that is being answered.

    Attributes:
        is_stopped: its user wants no answer any more.
        is_closed: nothing more is taken into the turn.
        steered: what arrived meanwhile and was taken into the turn.
    """

    lease: InboundLease
    slot: _Slot
    task: asyncio.Task[None] | None = None
    is_stopped: bool = False
    is_closed: bool = False
    steered: list[InboundLease] = field(default_factory=list)


_meant: ContextVar[_Work | None] = ContextVar("nanobot_meant")
"""The turn that was under way when the command came that is being answered."""


class Dispatcher:
    """Hands messages to turns: those of one session in order, sessions side by side.

    Args:
        bus: the message queue.
        pipeline: answers messages.
        surroundings: what it needs of the channels.
        spawn: starts tasks that the application owns.
        clock: source of time.
        max_turns: turns at the same time.
        steering: messages that arrive during a turn are given to it.
    """

    def __init__(
        self,
        bus: Bus,
        pipeline: TurnPipeline,
        surroundings: Surroundings,
        *,
        spawn: Spawn,
        clock: Clock,
        max_turns: int,
        steering: bool,
    ) -> None:
        self._bus = bus
        self._pipeline = pipeline
        self._around = surroundings
        self._spawn = spawn
        self._clock = clock
        self._slots = asyncio.Semaphore(max_turns)
        self._steering = steering
        self._working: dict[str, _Work] = {}
        """By session key."""
        self._commands: set[asyncio.Task[None]] = set()

    @property
    def turns(self) -> int:
        """Turns under way."""
        return len(self._working)

    async def run(self) -> None:
        """Take messages until cancelled; turns under way go on."""
        async with asyncio.TaskGroup() as receivers:
            for _ in range(RECEIVERS):
                receivers.create_task(self._receive())

    async def _receive(self) -> None:
        from loguru import logger

        while True:
            try:
                lease = await self._bus.receive_inbound()
            except BusError as error:
                logger.error("the inbox cannot be read: {}", error)
                await self._clock.sleep(RETRY_S)
                continue
            key = lease.message.session_key
            if lease.message.is_control:
                self._begin_command(lease)
            else:
                # Of one session one message is out at a time: the former is answered.
                work = self._working[key] = _Work(lease, _Slot(self._slots))
                work.task = self._spawn(self._answer(work), name=f"turn:{key}")

    async def stop_turn(self, session_key: str) -> bool:
        """Stop the turn of a session; False when there is none.

        A command stops no turn that began after it came. Returns when the turn has ended with all
        that it started, within `TURN_END_S`.
        """
        work = self._working.get(session_key)
        if work is None or work.task is None or work is not _meant.get(work):
            return False
        work.is_stopped = True
        work.task.cancel()
        await asyncio.wait({work.task}, timeout=TURN_END_S)
        return True

    async def drain(self, grace_s: float) -> None:
        """Let turns end by themselves, then leave the rest to the next process.

        Those that wait for a person, or for their turn to begin, are left at once.

        Args:
            grace_s: seconds for the others.
        """
        self._pipeline.is_draining = True
        for work in self._working.values():
            if work.task is not None and not work.slot.is_held:
                work.task.cancel()
        if tasks := self._tasks():
            await asyncio.wait(tasks, timeout=grace_s)
        tasks = self._tasks()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=TURN_END_S)

    @asynccontextmanager
    async def without_slot(self, session_key: str) -> AsyncIterator[None]:
        """Let another turn run while that of a session waits for a person."""
        work = self._working.get(session_key)
        if work is None:
            yield
            return
        work.slot.give_back()
        yield
        await work.slot.take()

    def _begin_command(self, lease: InboundLease) -> None:
        key = lease.message.session_key
        token = _meant.set(self._working.get(key))
        task = self._spawn(self._answer_command(lease), name=f"command:{key}")
        _meant.reset(token)
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)

    def _tasks(self) -> set[asyncio.Task[None]]:
        return {work.task for work in self._working.values() if work.task} | self._commands

    async def _answer(self, work: _Work) -> None:
        from loguru import logger

        message = work.lease.message
        try:
            self._around.waiting.expect(message)
            await work.slot.take()
            self._around.waiting.begun(message)
            await self._turn(work)
        except asyncio.CancelledError:
            # Either its user stopped it, or the process ends.
            await self._settle_cancelled(work)
            raise
        except Exception as error:  # noqa: BLE001 - isolation point: one message never stops others
            bound = logger.bind(session=message.session_key)
            bound.opt(exception=error).error("a message could not be answered, trying again")
            for lease in (*work.steered, work.lease):
                release = partial(self._bus.release, lease, delay_s=RETRY_S)
                await insist(release, self._clock, "a failure")
        finally:
            work.slot.give_back()
            if self._working.get(message.session_key) is work:
                del self._working[message.session_key]
            for lease in (*work.steered, work.lease):
                self._around.waiting.done(lease.message)

    async def _turn(self, work: _Work) -> None:
        lease = work.lease
        message = lease.message
        if lease.attempt > MAX_ATTEMPTS:
            await self._give_up(lease)
            return
        view = self._around.view(message)
        try:
            outcome = await self._pipeline.process(
                TurnRequest(
                    message=message,
                    source="chat",
                    on_event=view.on_event if view else ignore_event,
                    is_owner=self._around.is_owner(message),
                    more=lambda: self._arrived(work),
                )
            )
        finally:
            if view is not None:
                await view.stop()
        if view is not None:
            await view.close()
        reply = await self._reply(message, outcome, view.draft_id if view else None)
        if view is not None and reply is None:
            await view.discard()
        await self._settle(work, [reply] if reply else [])

    async def _arrived(self, work: _Work) -> Sequence[InboundMessage]:
        """Take what else waits for the session into its turn."""
        taken: list[InboundMessage] = []
        while self._steering and not work.is_closed:
            lease = await self._bus.take_inbound(work.lease.message.session_key)
            if lease is None:
                break
            if lease.message.is_control:
                self._begin_command(lease)
            elif self._may_join(lease.message, work.lease.message):
                work.steered.append(lease)
                self._around.waiting.begun(lease.message)
                taken.append(lease.message)
            else:
                work.is_closed = True
                await self._bus.release(lease)
        return taken

    def _may_join(self, message: InboundMessage, running: InboundMessage) -> bool:
        """Whether a message belongs into a turn: a command has its own, and so has another person.

        What the turn may do was decided for its sender.
        """
        word = message.content.strip().partition(" ")[0].lower()
        is_command = word.startswith("/") and word[1:] in self._pipeline.commands.names()
        return message.sender_id == running.sender_id and not is_command

    async def _reply(
        self, message: InboundMessage, outcome: TurnOutcome, draft_id: str | None
    ) -> OutboundMessage | None:
        text = outcome.error or outcome.reply
        repeats = outcome.has_spoken and not outcome.error
        if not text or (repeats and not self._pipeline.settings.channels.send_final_after_message):
            return None
        return await self._around.outbox.compose(
            OutboundMessage(
                channel=message.channel,
                chat_id=message.chat_id,
                content=text,
                reply_to=message.dedupe_key,
                idempotency_key=f"{message.id}:final",
                draft_id=draft_id,
            )
        )

    async def _settle(self, work: _Work, replies: Sequence[OutboundMessage]) -> None:
        """Store the replies and end the message in one step; what was taken in goes before it."""
        for steered in work.steered:
            await insist(partial(self._bus.acknowledge, steered), self._clock, "a message")
        await insist(
            partial(self._bus.acknowledge, work.lease, replies=replies), self._clock, "a reply"
        )

    async def _settle_cancelled(self, work: _Work) -> None:
        if work.is_stopped:
            await self._settle(work, ())
            return
        with suppress(BusError):  # whoever opens the queue next finds them all the same
            for lease in (*work.steered, work.lease):
                await self._bus.release(lease)

    async def _answer_command(self, lease: InboundLease) -> None:
        """Answer a control command beside the turn of its session."""
        message = lease.message
        if lease.attempt > MAX_ATTEMPTS:
            await self._give_up(lease)
            return
        outcome = await self._pipeline.answer_command(
            TurnRequest(message=message, source="chat", is_owner=self._around.is_owner(message))
        )
        if outcome.reply is None and outcome.error is None:
            # Its plugin has gone since the message came.
            outcome = replace(outcome, reply=UNKNOWN_COMMAND)
        reply = await self._reply(message, outcome, None)
        replies = [reply] if reply else []
        await insist(lambda: self._bus.acknowledge(lease, replies=replies), self._clock, "a reply")

    async def _give_up(self, lease: InboundLease) -> None:
        """Tell the user, and put the message aside for the owner."""
        message = lease.message
        notice = OutboundMessage(
            channel=message.channel,
            chat_id=message.chat_id,
            content=GIVEN_UP,
            reply_to=message.dedupe_key,
            idempotency_key=f"{message.id}:final",
        )
        reason = f"handed out {lease.attempt - 1} times without an answer"
        await insist(lambda: self._around.outbox.publish(notice), self._clock, "a failure")
        await insist(lambda: self._bus.bury(lease, reason), self._clock, "a failure")
