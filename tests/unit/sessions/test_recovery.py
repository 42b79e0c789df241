from __future__ import annotations

from datetime import UTC, datetime

import pytest

from nanobot_core.contracts.store import Checkpoint, SessionState, StoredSession
from nanobot_core.messages import Message, ToolCall
from nanobot_core.sessions.history import OUTCOME_UNKNOWN
from nanobot_core.sessions.recovery import Resumption, resume

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
) -> Resumption | None:
    state = SessionState(created_at=NOW, updated_at=NOW, checkpoint=checkpoint)
    session = StoredSession(key="cli:direct", state=state, messages=messages)
    return resume(session, lambda call: call.name == "read")


def test_without_a_checkpoint_there_is_nothing_to_resume() -> None:
    assert after_crash(USER, ASKS, checkpoint=None) is None


def test_finished_calls_stay_harmless_ones_repeat_others_are_interrupted() -> None:
    found = after_crash(USER, ASKS, result("a"))
    assert found is not None
    assert found.checkpoint == CHECKPOINT
    assert found.repeat == (CALLS[2],)
    (interrupted,) = found.interrupted
    assert (interrupted.tool_call_id, interrupted.text) == ("b", OUTCOME_UNKNOWN)
    assert interrupted.is_error
    assert found.answer is None


def test_a_call_that_must_not_repeat_is_interrupted_even_when_not_begun() -> None:
    found = after_crash(USER, ASKS, checkpoint=Checkpoint(turn_id="t"))
    assert found is not None
    assert [message.tool_call_id for message in found.interrupted] == ["b"]


def test_a_message_that_came_meanwhile_does_not_hide_open_calls() -> None:
    found = after_crash(USER, ASKS, result("b"), result("c"), Message(role="tool", content="x"))
    assert found is not None
    assert (found.repeat, found.interrupted) == ((CALLS[0],), ())


@pytest.mark.parametrize("messages", [(), (USER,), (ASKS, result("a"), USER)])
def test_a_turn_that_had_not_reached_its_first_calls_begins_anew(
    messages: tuple[Message, ...],
) -> None:
    assert after_crash(*messages) == Resumption(checkpoint=CHECKPOINT)


def test_an_answer_that_was_stored_is_not_asked_for_again() -> None:
    answer = Message(role="assistant", content="done")
    assert after_crash(USER, answer) == Resumption(checkpoint=CHECKPOINT, answer=answer)
    assert after_crash(USER, answer, USER) == Resumption(checkpoint=CHECKPOINT)
