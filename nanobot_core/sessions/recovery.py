"""What a crash left of a turn, and how it goes on. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot_core.sessions.history import unknown_outcome

if TYPE_CHECKING:
    from collections.abc import Callable

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
