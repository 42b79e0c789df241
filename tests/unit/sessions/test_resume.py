"""How a message continues whose turn had begun before."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from nanobot_core.contracts.store import Checkpoint, SessionState, StoredSession
from nanobot_core.messages import Message, ToolCall
from nanobot_core.sessions.history import OUTCOME_UNKNOWN, STEERED, Resumption, resume

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OWN = Checkpoint(turn_id="t", inbound_id="in")
FOREIGN = Checkpoint(turn_id="u", inbound_id="other")
LOOK, STAMP = ToolCall("a", "look", {}), ToolCall("b", "stamp", {})
USER = Message(role="user", content="hi", inbound_id="in")
ASKS = Message(role="assistant", tool_calls=(LOOK, STAMP))
ANSWER = Message(role="assistant", content="done")
BEFORE = (Message(role="user", content="earlier", inbound_id="old"), ANSWER)


def result(call: ToolCall) -> Message:
    return Message(role="tool", content="seen", tool_call_id=call.id, name=call.name)


def steered(inbound_id: str) -> Message:
    return Message(role="user", content="and", inbound_id=inbound_id, extra={STEERED: True})


def taken(
    *messages: Message, checkpoint: Checkpoint | None = OWN, inbound_id: str = "in"
) -> Resumption | None:
    state = SessionState(created_at=NOW, updated_at=NOW, checkpoint=checkpoint)
    session = StoredSession(key="t:1", state=state, messages=messages)
    return resume(session, inbound_id, lambda call: call.name == "look")


def must(*messages: Message, **options: Checkpoint | None) -> Resumption:
    found = taken(*messages, **options)  # type: ignore[arg-type]  # the tests give checkpoints alone
    assert found is not None
    return found


@pytest.mark.parametrize("messages", [(), BEFORE, (Message(role="user", content="hi"),)])
def test_a_message_that_is_not_stored_was_not_begun(messages: tuple[Message, ...]) -> None:
    assert taken(*messages, checkpoint=None) is None
    assert taken(*messages, checkpoint=FOREIGN) is None


def test_a_message_before_its_first_model_call_begins_with_the_same_history() -> None:
    found = must(*BEFORE, USER)
    assert found.message is USER
    assert list(found.before) == list(BEFORE)
    assert (found.progress, found.repeat, found.interrupted) == ([], (), ())
    assert not found.is_done


def test_harmless_calls_are_repeated_and_others_told() -> None:
    found = must(*BEFORE, USER, ASKS)
    assert found.repeat == (LOOK,)
    assert [(m.tool_call_id, m.text) for m in found.interrupted] == [("b", OUTCOME_UNKNOWN)]
    assert [m.tool_call_id for m in found.progress] == [None, "b"]


def test_results_that_were_stored_are_kept() -> None:
    found = must(USER, ASKS, result(STAMP))
    assert (found.repeat, found.interrupted) == ((LOOK,), ())
    assert found.progress == [ASKS, result(STAMP)]
    assert must(USER, ASKS, result(LOOK), result(STAMP)).repeat == ()


def test_an_answer_that_was_stored_is_given_again() -> None:
    found = must(*BEFORE, USER, ASKS, result(LOOK), result(STAMP), ANSWER, checkpoint=None)
    assert (found.is_done, found.answer) == (True, ANSWER)
    assert ASKS in found.progress


def test_a_later_turn_does_not_hide_the_answer() -> None:
    later = (Message(role="user", content="next", inbound_id="next"), ASKS)
    found = must(USER, ANSWER, *later, checkpoint=FOREIGN)
    assert (found.is_done, found.answer) == (True, ANSWER)


def test_a_turn_that_failed_goes_on() -> None:
    told = Message(role="tool", content=OUTCOME_UNKNOWN, tool_call_id="b", name="stamp")
    found = must(USER, ASKS, result(LOOK), told, checkpoint=None)
    assert not found.is_done
    assert (found.repeat, found.interrupted) == ((), ())
    assert found.progress == [ASKS, result(LOOK), told]


def test_calls_of_another_turn_are_closed_and_never_run_in_this_one() -> None:
    """A job may have run in the session after the process that answered this message died."""
    told = Message(role="tool", content=OUTCOME_UNKNOWN, tool_call_id="b", name="stamp")
    job = Message(role="user", content="job", inbound_id="other")
    jobs = Message(role="assistant", tool_calls=(ToolCall("x", "look", {}),))
    found = must(USER, ASKS, result(LOOK), told, job, jobs, checkpoint=FOREIGN)
    assert found.repeat == ()
    assert [message.tool_call_id for message in found.interrupted] == ["x"]
    assert found.progress == [ASKS, result(LOOK), told]


def test_what_was_said_meanwhile_belongs_to_the_turn() -> None:
    found = must(USER, ASKS, result(LOOK), result(STAMP), steered("two"))
    assert [message.text for message in found.progress][-1] == "and"
    assert not found.is_done


def test_what_was_taken_into_a_turn_that_has_ended_needs_no_answer_of_its_own() -> None:
    messages = (USER, ASKS, result(LOOK), result(STAMP), steered("two"), ANSWER)
    found = taken(*messages, checkpoint=None, inbound_id="two")
    assert found is not None
    assert (found.is_done, found.answer) == (True, None)


def test_a_message_without_a_word_keeps_what_came_of_it() -> None:
    silent = Message(role="user", content="", inbound_id="in")
    found = must(silent, ASKS, result(LOOK), result(STAMP))
    assert found.progress == [ASKS, result(LOOK), result(STAMP)]


ENTRIES = st.sampled_from(
    [USER, ASKS, ANSWER, result(LOOK), result(STAMP), steered("two"), *BEFORE]
)


@given(st.lists(ENTRIES, max_size=8), st.sampled_from([None, OWN, FOREIGN]))
def test_whatever_is_stored_no_call_is_both_repeated_and_answered(
    messages: list[Message], checkpoint: Checkpoint | None
) -> None:
    found = taken(*messages, checkpoint=checkpoint)
    if found is None:
        assert USER not in messages
        return
    answered = {message.tool_call_id for message in found.progress if message.role == "tool"}
    assert not answered & {call.id for call in found.repeat}
    assert all(call.name == "look" for call in found.repeat)
    if checkpoint is not OWN:
        assert found.repeat == ()
