"""What a crash left of a turn, and how it goes on. Pure functions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nanobot_core.record import dataclass
from nanobot_core.sessions.history import align, unknown_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nanobot_core.contracts.store import Checkpoint, StoredSession
    from nanobot_core.messages import Message, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """How to go on with an interrupted turn.

    Attributes:
        checkpoint: the turn.
        repeat: calls to run again, in call order; repeating them does no harm.
        interrupted: results to store for calls that must not be run again.
        answer: the turn's last reply when it was stored before the crash, else ``None``.
    """

    checkpoint: Checkpoint
    repeat: tuple[ToolCall, ...] = ()
    interrupted: tuple[Message, ...] = ()
    answer: Message | None = None


def resume(session: StoredSession, is_repeatable: Callable[[ToolCall], bool]) -> Resumption | None:
    """Return how to go on after a crash, or ``None`` when no turn was under way.

    A call without a result is run again only where that is harmless. All others count as
    interrupted, even those that had not begun: they were asked for in the belief that the calls
    before them would succeed.

    Args:
        session: as loaded, not aligned.
        is_repeatable: whether a call is read-only or idempotent; false for unknown tools.
    """
    checkpoint = session.state.checkpoint
    if checkpoint is None:
        return None
    answered: set[str | None] = set()
    for message in reversed(session.messages):
        if message.role == "tool":
            answered.add(message.tool_call_id)
        elif message.role == "assistant" and message.tool_calls:
            open_calls = [call for call in message.tool_calls if call.id not in answered]
            return Resumption(
                checkpoint=checkpoint,
                repeat=tuple(call for call in open_calls if is_repeatable(call)),
                interrupted=tuple(
                    unknown_outcome(call) for call in open_calls if not is_repeatable(call)
                ),
            )
        else:
            is_answer = message.role == "assistant" and message is session.messages[-1]
            return Resumption(checkpoint=checkpoint, answer=message if is_answer else None)
    return Resumption(checkpoint=checkpoint)


STEERED = "steered"
"""Mark in `Message.extra` of what the user said while a turn was under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenUp:
    """A message that was worked on before, and how to go on with it.

    Attributes:
        message: the message as it is stored.
        before: legal history before it.
        progress: legal messages since, what they came to included; calls to repeat have no result
            among them.
        interrupted: results to store for calls that must not be run again.
        repeat: calls to run again, in call order.
        is_done: nothing is left to do but to send the `answer`, if there is one.
        answer: what the turn came to, else ``None``.
    """

    message: Message
    before: Sequence[Message]
    progress: Sequence[Message]
    interrupted: Sequence[Message] = ()
    repeat: tuple[ToolCall, ...] = ()
    is_done: bool = False
    answer: Message | None = None


def take_up(
    session: StoredSession, inbound_id: str, is_repeatable: Callable[[ToolCall], bool]
) -> TakenUp | None:
    """Return how to go on with an inbound message, or ``None`` when it was not begun.

    Args:
        session: as loaded, not aligned.
        inbound_id: id of the message.
        is_repeatable: as in `resume`.
    """
    messages = session.messages
    place = next(
        (
            index
            for index in range(len(messages) - 1, -1, -1)
            if messages[index].role == "user" and messages[index].inbound_id == inbound_id
        ),
        None,
    )
    if place is None:
        return None
    message = messages[place]
    before, since = messages[:place], _of_one_turn(messages[place + 1 :])
    checkpoint = session.state.checkpoint
    is_own = checkpoint is not None and checkpoint.inbound_id == inbound_id
    if not is_own:
        last = since[-1] if since else None
        is_answer = last is not None and last.role == "assistant" and not last.tool_calls
        is_steered = message.extra.get(STEERED) is True
        if is_answer or is_steered:
            answer = last if is_answer and not is_steered else None
            return TakenUp(message=message, before=(), progress=since, is_done=True, answer=answer)
    # Calls of another turn are closed, so that the history is whole, and never run in this one.
    found = resume(session, is_repeatable if is_own else lambda _call: False)
    interrupted = found.interrupted if found else ()
    repeat = found.repeat if found else ()
    waiting = {call.id for call in repeat}
    # A stand-in, because a message without a word would be left out.
    opening = replace(message, content="-")
    since_message = align([opening, *since, *(interrupted if is_own else ())])[1:]
    return TakenUp(
        message=message,
        before=align(before),
        progress=[entry for entry in since_message if entry.tool_call_id not in waiting],
        interrupted=interrupted,
        repeat=repeat,
    )


def _of_one_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """Return `messages` up to the user message that begins another turn."""
    for index, message in enumerate(messages):
        if message.role == "user" and message.extra.get(STEERED) is not True:
            return messages[:index]
    return messages
