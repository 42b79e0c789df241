"""Dispatcher: which message is answered when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from nanobot_core.contracts.client import ignore_event
from nanobot_core.errors import BusError, SessionError
from nanobot_core.events import StopReason, TurnOutcome
from nanobot_core.messages import InboundMessage, OutboundMessage
from nanobot_core.tasks import RETRY_S, TURN_END_S, retry_until_stored
from nanobot_core.turns.assigned import REVOKED, Standing, joins, text_for_chat
from nanobot_core.turns.pipeline import TurnPipeline
from nanobot_core.turns.request import TurnRequest
from nanobot_core.turns.running import RunningTurn, RunningTurns

if TYPE_CHECKING:
    from nanobot_core.channels.live import LiveView, WaitIndicator
    from nanobot_core.channels.outbox import Outbox
    from nanobot_core.clock import Clock
    from nanobot_core.contracts.bus import Bus, InboundLease
    from nanobot_core.tasks import Spawn

RECEIVERS = 4
"""Messages requested at the same time: each request waits for the queue's current write."""
MAX_ATTEMPTS = 5
"""Attempts to answer a message; one that crashes the process must not do so forever."""
GIVEN_UP = "I tried to answer your message several times and could not. Please send it again."


@dataclass(frozen=True, slots=True)
class DispatcherPorts:
    """What the dispatcher needs from the channels.

    Attributes:
        outbox: takes messages to chats.
        indicator: shows people that their message is being worked on.
        view: returns what shows a turn to the chat of a message, or ``None``.
        is_owner: whether the sender of a message is the owner.
        standing: what the requester of work may do now.
    """

    outbox: Outbox
    indicator: WaitIndicator
    view: Callable[[InboundMessage], LiveView | None]
    is_owner: Callable[[InboundMessage], bool]
    standing: Callable[[InboundMessage], Awaitable[Standing]]


class Dispatcher:
    """Passes messages to turns: those of one session in order, different sessions concurrently.

    Args:
        bus: the message queue.
        pipeline: answers messages.
        channels: what it needs from the channels.
        turns: the turns under way.
        spawn: starts tasks that the application owns.
        clock: source of time.
        steering: messages that arrive during a turn are added to it, not only results of work.
    """

    def __init__(
        self,
        bus: Bus,
        pipeline: TurnPipeline,
        channels: DispatcherPorts,
        turns: RunningTurns,
        *,
        spawn: Spawn,
        clock: Clock,
        steering: bool,
    ) -> None:
        self._bus = bus
        self._pipeline = pipeline
        self._channels = channels
        self._turns = turns
        self._spawn = spawn
        self._clock = clock
        self._steering = steering
        self._commands: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Take messages until cancelled; turns under way continue."""
        async with asyncio.TaskGroup() as receivers:
            for _ in range(RECEIVERS):
                receivers.create_task(self._receive())

    async def _receive(self) -> None:
        from loguru import logger

        while True:
            try:
                lease = await self._bus.receive_inbound()
            except BusError as error:
                logger.error("cannot read the inbox: {}", error)
                await self._clock.sleep(RETRY_S)
                continue
            if lease.message.is_control:
                self._start_command(lease)
            else:
                # The queue hands out the next message of a session when this one is answered.
                self._turns.start(lease, self._answer)

    async def drain(self, grace_s: float) -> None:
        """Let turns end by themselves, then leave the rest to the next process.

        Turns that wait for a person, or have not begun, are left at once.

        Args:
            grace_s: seconds for the others.
        """
        self._turns.cancel_waiting()
        if tasks := self._turns.tasks | self._commands:
            await asyncio.wait(tasks, timeout=grace_s)
        tasks = self._turns.tasks | self._commands
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=TURN_END_S)

    def _start_command(self, lease: InboundLease) -> None:
        """Answer a control command beside the turn of its session."""
        key = lease.message.session_key
        with self._turns.as_target(key):
            task = self._spawn(self._answer_command(lease), name=f"command:{key}")
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)

    async def _answer(self, turn: RunningTurn) -> None:
        from loguru import logger

        message, indicator = turn.lease.message, self._channels.indicator
        try:
            if turn.is_stopped:
                await self._settle_cancelled(turn)
                return
            if message.assignment is None:
                indicator.expect(message)
            await turn.take_slot()
            indicator.begun(message)
            await self._run_turn(turn)
        except asyncio.CancelledError:
            # Its user stopped it, or the process ends.
            await self._settle_cancelled(turn)
            raise
        except Exception as error:  # noqa: BLE001 - isolation point: one message never stops others
            bound = logger.bind(session=message.session_key)
            bound.opt(exception=error).error("cannot answer a message, trying again")
            for lease in (*turn.steered, turn.lease):
                release = partial(self._bus.release, lease, delay_s=RETRY_S)
                self._turns.waiting.expect(lease.message)
                await retry_until_stored(release, self._clock, "a failure")
        finally:
            self._turns.end(turn)
            for lease in (*turn.steered, turn.lease):
                indicator.done(lease.message)

    async def _run_turn(self, turn: RunningTurn) -> None:
        message = turn.lease.message
        if turn.lease.attempt > MAX_ATTEMPTS:
            failed = self._without_answer(turn, "failed", _given_up(turn.lease))
            await self._report_end(turn, failed)
            await self._give_up(turn.lease)
            return
        view = self._channels.view(message)
        request = replace(
            await self._request(message),
            on_event=view.on_event if view else ignore_event,
            more=lambda: self._arrived(turn),
            is_retried=lambda: not turn.is_stopped,
        )
        turn.is_owner = request.is_owner
        try:
            outcome = await self._pipeline.process(request)
        finally:
            if view is not None:
                await view.stop()
        if view is not None:
            await view.close()
        await self._report_end(turn, outcome)
        reply = await self._reply(message, outcome, view.draft_id if view else None)
        if view is not None and reply is None:
            await view.discard()
        await self._settle(turn, [reply] if reply else [])
        if reply is not None and message.assignment is not None:
            self._spawn(self._note(message, reply.content), name=f"note:{message.id}")

    async def _note(self, message: InboundMessage, text: str) -> None:
        from loguru import logger

        try:
            await self._pipeline.note(message, text)
        except SessionError as error:
            bound = logger.bind(session=error.session_key)
            bound.warning("what was sent is not in the history of the chat: {}", error)

    async def _request(self, message: InboundMessage) -> TurnRequest:
        """Return a turn for a message, with the rights that its sender has now."""
        given = message.assignment
        if given is None:
            is_owner = self._channels.is_owner(message)
            return TurnRequest(message=message, source="chat", is_owner=is_owner, is_queued=True)
        standing = await self._channels.standing(message)
        return TurnRequest(
            message=message,
            is_owner=standing == "owner",
            is_queued=True,
            refusal=REVOKED if standing == "revoked" else "",
        )

    async def _report_end(self, turn: RunningTurn, outcome: TurnOutcome) -> None:
        """Report the end of assigned work to the plugins, before its message is acknowledged."""
        for lease in (*turn.steered, turn.lease):
            if (given := lease.message.assignment) is not None:
                await self._pipeline.report_end(given, outcome)

    def _without_answer(
        self, turn: RunningTurn, reason: StopReason, error: str | None = None
    ) -> TurnOutcome:
        request = TurnRequest(message=turn.lease.message, source="chat", is_owner=turn.is_owner)
        info = self._pipeline.turn_of(request)
        return TurnOutcome(turn=info, reply=None, stop_reason=reason, error=error)

    async def _arrived(self, turn: RunningTurn) -> Sequence[InboundMessage]:
        """Add the other messages of the session to its turn, or only results of work."""
        taken: list[InboundMessage] = []
        key = turn.lease.message.session_key
        while not turn.is_closed and (self._steering or self._turns.waiting.is_due_in(key)):
            lease = await self._bus.take_inbound(key)
            if lease is None:
                break
            if lease.message.is_control:
                self._start_command(lease)
            elif await self._may_join(lease.message, turn):
                turn.steered.append(lease)
                self._turns.waiting.forget(lease.message)
                self._channels.indicator.begun(lease.message)
                taken.append(lease.message)
            else:
                turn.is_closed = True
                await self._bus.release(lease)
        return taken

    async def _may_join(self, message: InboundMessage, turn: RunningTurn) -> bool:
        """Whether a message can be added to a turn.

        Commands cannot. Neither can messages of another person, or of one whose rights have
        changed, because a turn has the rights that its sender had at its start.
        """
        if not joins(message, turn.lease.message) or self._turns.waiting.is_stopped(message):
            return False
        if message.assignment is not None:
            standing = await self._channels.standing(message)
            return standing == ("owner" if turn.is_owner else "guest")
        if not self._steering or self._pipeline.commands.is_command(message.content):
            return False
        return self._channels.is_owner(message) == turn.is_owner

    async def _reply(
        self, message: InboundMessage, outcome: TurnOutcome, draft_id: str | None
    ) -> OutboundMessage | None:
        text = text_for_chat(outcome)
        repeats = outcome.has_spoken and not outcome.error
        channels = self._pipeline.setup.settings.channels
        if not text or (repeats and not channels.send_final_after_message):
            return None
        return await self._channels.outbox.compose(
            OutboundMessage(
                channel=message.channel,
                chat_id=message.chat_id,
                content=text,
                reply_to=outcome.turn.message_id,
                idempotency_key=f"{message.id}:final",
                draft_id=draft_id,
            )
        )

    async def _settle(self, turn: RunningTurn, replies: Sequence[OutboundMessage]) -> None:
        """Store the replies and end the message in one step, after the messages added to it."""
        for steered in turn.steered:
            done = partial(self._bus.acknowledge, steered)
            await retry_until_stored(done, self._clock, "a message")
        done = partial(self._bus.acknowledge, turn.lease, replies=replies)
        await retry_until_stored(done, self._clock, "a reply")

    async def _settle_cancelled(self, turn: RunningTurn) -> None:
        if turn.is_stopped:
            await self._report_end(turn, self._without_answer(turn, "cancelled"))
            await self._settle(turn, ())
            return
        with suppress(BusError):  # the next process finds them anyway
            for lease in (*turn.steered, turn.lease):
                await self._bus.release(lease)

    async def _answer_command(self, lease: InboundLease) -> None:
        message = lease.message
        if lease.attempt > MAX_ATTEMPTS:
            await self._give_up(lease)
            return
        outcome = await self._pipeline.process(await self._request(message))
        reply = await self._reply(message, outcome, None)
        done = partial(self._bus.acknowledge, lease, replies=[reply] if reply else [])
        await retry_until_stored(done, self._clock, "a reply")

    async def _give_up(self, lease: InboundLease) -> None:
        """Notify the person who wrote, and make the message a dead letter."""
        message = lease.message
        if message.assignment is None:
            notice = OutboundMessage(
                channel=message.channel,
                chat_id=message.chat_id,
                content=GIVEN_UP,
                reply_to=message.dedupe_key,
                idempotency_key=f"{message.id}:final",
            )
            published = partial(self._channels.outbox.publish, notice)
            await retry_until_stored(published, self._clock, "a failure")
        buried = partial(self._bus.bury, lease, _given_up(lease))
        await retry_until_stored(buried, self._clock, "a failure")


def _given_up(lease: InboundLease) -> str:
    return f"tried {lease.attempt - 1} times without an answer"
