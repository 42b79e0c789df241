"""A turn on disk, and what stays of it when it breaks off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from nanobot_core import Message, SessionError, ToolCall, TurnInfo
from nanobot_core.contracts.store import SessionState
from nanobot_core.events import RunEvent, StreamRestarted, TextStreamed
from nanobot_core.sessions.history import OUTCOME_UNKNOWN
from nanobot_core.sessions.jsonl import JsonlSessionStore
from nanobot_core.sessions.session import Session, Sessions
from nanobot_core.testing import FakeClock
from nanobot_core.turns.recorder import INTERRUPTED, TurnRecorder

pytestmark = pytest.mark.anyio

TURN = TurnInfo(id="t1", session_key="t:1", channel="t", chat_id="1", sender_id="me", source="chat")
QUESTION = Message(role="user", content="work", inbound_id="in1")


class FullDisk(JsonlSessionStore):
    """A store that refuses everything on request."""

    is_full = False

    async def append(self, key: str, messages: Sequence[Message], state: SessionState) -> None:
        if self.is_full:
            raise SessionError(key, "the disk is full")
        await super().append(key, messages, state)


async def begun(tmp_path: Path) -> tuple[TurnRecorder, Session, FullDisk]:
    store = FullDisk(tmp_path)
    sessions = Sessions(store, FakeClock())
    session = await sessions.open("t:1")

    async def ignore(event: RunEvent) -> None:
        pass

    return TurnRecorder(sessions, session, TURN, ignore), session, store


async def test_the_checkpoint_names_the_calls_that_are_open(tmp_path: Path) -> None:
    recorder, session, _ = await begun(tmp_path)
    await recorder.begin(QUESTION)
    calls = (ToolCall("a", "look", {}), ToolCall("b", "act", {}))
    await recorder.record([Message(role="assistant", tool_calls=calls)], calls)
    await recorder.record([Message(role="tool", tool_call_id="a", name="look")], ())
    checkpoint = session.state.checkpoint
    assert checkpoint is not None
    assert (checkpoint.turn_id, checkpoint.inbound_id) == ("t1", "in1")
    assert (checkpoint.iteration, checkpoint.running) == (1, ("b",))
    await recorder.end(Message(role="assistant", content="done"))
    assert session.state.checkpoint is None


async def test_a_message_that_the_queue_has_is_stored_with_what_comes_next(tmp_path: Path) -> None:
    recorder, session, _ = await begun(tmp_path)
    await recorder.begin(QUESTION, is_queued=True)
    assert not [*session.messages]
    calls = (ToolCall("a", "look", {}),)
    await recorder.record([Message(role="assistant", content="let me", tool_calls=calls)], calls)
    checkpoint = session.state.checkpoint
    assert checkpoint is not None
    assert (checkpoint.inbound_id, checkpoint.running) == ("in1", ("a",))
    await recorder.record([Message(role="tool", tool_call_id="a", content="seen")], ())
    await recorder.end(Message(role="assistant", content="done"))
    assert [message.text for message in session.messages] == ["work", "let me", "seen", "done"]


@pytest.mark.parametrize("stopped", [True, False])
async def test_a_message_that_the_queue_has_is_kept_when_its_turn_breaks_off(
    tmp_path: Path, stopped: bool
) -> None:
    recorder, session, _ = await begun(tmp_path)
    await recorder.begin(QUESTION, is_queued=True)
    await recorder.break_off(stopped=stopped)
    expected = ["work", INTERRUPTED] if stopped else ["work"]
    assert [message.text for message in session.messages] == expected


async def test_an_end_that_was_stored_and_then_cancelled_stores_nothing_twice(
    tmp_path: Path,
) -> None:
    recorder, session, _ = await begun(tmp_path)
    await recorder.begin(QUESTION, is_queued=True)
    ending = asyncio.create_task(recorder.end(Message(role="assistant", content="done")))
    for _ in range(3):  # until it is being written
        await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    await recorder.break_off(stopped=True)
    assert [message.text for message in session.messages] == ["work", "done"]


async def test_an_end_that_is_cancelled_before_it_was_stored_loses_nothing(tmp_path: Path) -> None:
    recorder, session, _ = await begun(tmp_path)
    await recorder.begin(QUESTION, is_queued=True)
    ending = asyncio.create_task(recorder.end(Message(role="assistant", content="done")))
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    await recorder.break_off(stopped=True)
    assert [message.text for message in session.messages] == ["work", INTERRUPTED]


async def test_a_failed_turn_closes_its_calls_and_leaves_the_task_open(tmp_path: Path) -> None:
    recorder, session, _ = await begun(tmp_path)
    await recorder.begin(QUESTION)
    calls = (ToolCall("a", "look", {}),)
    await recorder.record([Message(role="assistant", tool_calls=calls)], calls)
    await recorder.break_off(stopped=False)
    assert [message.text for message in session.messages] == ["work", "", OUTCOME_UNKNOWN]


def streamed(text: str) -> TextStreamed:
    return TextStreamed(turn=TURN, iteration=1, text=text)


async def test_a_stopped_turn_keeps_what_was_read_of_the_answer(tmp_path: Path) -> None:
    recorder, session, _ = await begun(tmp_path)
    await recorder.begin(QUESTION)
    await recorder.watch(streamed("void"))
    await recorder.watch(StreamRestarted(reason="reset"))
    await recorder.watch(streamed("Once upon"))
    await recorder.break_off(stopped=True)
    assert session.messages[-1].text == f"Once upon\n\n{INTERRUPTED}"


@pytest.mark.parametrize("is_ended", [False, True])
async def test_what_is_not_begun_or_has_ended_is_not_broken_off(
    tmp_path: Path, is_ended: bool
) -> None:
    recorder, session, _ = await begun(tmp_path)
    if is_ended:
        await recorder.begin(QUESTION)
        await recorder.end(Message(role="assistant", content="done"))
    before = session.messages
    await recorder.break_off(stopped=True)
    assert session.messages == before


async def test_a_full_disk_leaves_the_checkpoint_and_hides_no_cancellation(tmp_path: Path) -> None:
    recorder, session, store = await begun(tmp_path)
    await recorder.begin(QUESTION)
    store.is_full = True
    await recorder.break_off(stopped=True)
    assert session.state.checkpoint is not None
