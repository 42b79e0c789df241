"""Which calls an interrupted turn leaves open."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from nanobot_core.contracts.store import Checkpoint, SessionState, StoredSession
from nanobot_core.messages import Message, ToolCall
from nanobot_core.sessions.history import open_calls

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CHECKPOINT = Checkpoint(turn_id="t", inbound_id="in", iteration=1, running=("a", "b", "c"))
USER = Message(role="user", content="hi")
CALLS = tuple(
    ToolCall(call_id, name, {}) for call_id, name in (("a", "read"), ("b", "write"), ("c", "read"))
)
ASKS = Message(role="assistant", tool_calls=CALLS)


def result(call_id: str) -> Message:
    return Message(role="tool", content="seen", tool_call_id=call_id)


def after_crash(
    *messages: Message, checkpoint: Checkpoint | None = CHECKPOINT
) -> tuple[ToolCall, ...]:
    state = SessionState(created_at=NOW, updated_at=NOW, checkpoint=checkpoint)
    return open_calls(StoredSession(key="cli:direct", state=state, messages=messages))


def test_without_a_checkpoint_no_call_is_open() -> None:
    assert after_crash(USER, ASKS, checkpoint=None) == ()


def test_calls_without_a_result_are_open_in_call_order() -> None:
    assert after_crash(USER, ASKS) == CALLS
    assert after_crash(USER, ASKS, result("b")) == (CALLS[0], CALLS[2])


def test_a_foreign_result_does_not_hide_open_calls() -> None:
    foreign = Message(role="tool", content="x")
    assert after_crash(USER, ASKS, result("b"), result("c"), foreign) == (CALLS[0],)


@pytest.mark.parametrize(
    "messages",
    [(), (USER,), (ASKS, result("a"), USER), (USER, Message(role="assistant", content="done"))],
)
def test_a_turn_before_its_first_calls_or_after_its_answer_has_none(
    messages: tuple[Message, ...],
) -> None:
    assert after_crash(*messages) == ()
