"""What every session store must do, as tests.

A store's own tests subclass `SessionStoreContract` and say how to make one::

    class TestJsonlSessionStore(SessionStoreContract):
        def store(self, tmp_path: Path) -> SessionStore:
            return JsonlSessionStore(tmp_path)
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from nanobot_core.contracts.store import Checkpoint, SessionState
from nanobot_core.messages import ImageBlock, Message, TextBlock, ToolCall
from nanobot_core.testing.suite import ConformanceSuite

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.contracts.store import SessionStore

_START = datetime(2026, 1, 1, 12, tzinfo=UTC)
_ALL = 10_000
_LIMIT_S = 30.0


def _state(minute: int = 0, *, last_consolidated: int = 0) -> SessionState:
    return SessionState(
        created_at=_START,
        updated_at=_START + timedelta(minutes=minute),
        last_consolidated=last_consolidated,
    )


def _users(*texts: str) -> list[Message]:
    return [Message(role="user", content=text) for text in texts]


async def _texts(store: SessionStore, key: str) -> list[str]:
    return [message.text async for message in store.read(key)]


class SessionStoreContract(ConformanceSuite):
    """Tests of the guarantees of `SessionStore`; a subclass may add to them."""

    @abstractmethod
    def store(self, tmp_path: Path) -> SessionStore:
        """Return a store whose data belongs to `tmp_path`.

        Called again with the same folder it gives another store on the same data, as after a
        restart. Both are closed by the test.
        """

    async def test_an_unknown_session_is_none_and_reads_as_empty(self, tmp_path: Path) -> None:
        async with aclosing(self.store(tmp_path)) as store:
            assert await store.load("cli:nobody", _ALL) is None
            assert await _texts(store, "cli:nobody") == []
            assert await store.summaries() == []

    async def test_every_field_survives_a_restart(self, tmp_path: Path) -> None:
        messages = [
            Message(
                role="user",
                content=(TextBlock("look\n"), ImageBlock("image/png", "", "/tmp/a.png")),  # noqa: S108 (only a text here)
                timestamp=_START,
                inbound_id="in-1",
                extra={"mood": ["glad", 1, None]},
            ),
            Message(
                role="assistant",
                tool_calls=(
                    ToolCall("a", "look", {"at": {"x": 1.5}}),
                    ToolCall("b", "look", {}, "{"),
                ),
                reasoning="hm",
                provider_blocks=({"type": "thinking", "signature": "="},),
            ),
            Message(role="tool", content="no", tool_call_id="a", name="look", is_error=True),
            Message(role="tool", content="yes", tool_call_id="b", name="look", origin="x@1"),
        ]
        state = SessionState(
            created_at=_START,
            updated_at=_START + timedelta(microseconds=1),
            checkpoint=Checkpoint(turn_id="t", inbound_id="in-1", iteration=2, running=("a",)),
            metadata={"title": "Zoë", "nested": {"deep": [True]}},
        )
        async with aclosing(self.store(tmp_path)) as store:
            await store.append("cli:direct", messages, state)
        async with aclosing(self.store(tmp_path)) as store:
            session = await store.load("cli:direct", _ALL)
            assert session is not None
            assert (session.key, session.state, list(session.messages)) == (
                "cli:direct",
                state,
                messages,
            )
            assert session.repaired == ()
            assert [message async for message in store.read("cli:direct")] == messages

    @pytest.mark.parametrize(
        "text",
        ["", "a\nb\r\nc", "\u2028\u2029\x85", '"\\{}[],', "🙂 e\u0301 \u202e", "x" * 300_000],
    )
    async def test_a_text_comes_back_as_it_was(self, tmp_path: Path, text: str) -> None:
        async with aclosing(self.store(tmp_path)) as store:
            await store.append("cli:direct", _users(text, "after"), _state())
            assert await _texts(store, "cli:direct") == [text, "after"]

    async def test_load_gives_the_newest_messages_and_their_number_after_restarts(
        self, tmp_path: Path
    ) -> None:
        for number in range(20):
            async with aclosing(self.store(tmp_path)) as store:
                await store.append("cli:direct", _users(str(number)), _state(number))
        async with aclosing(self.store(tmp_path)) as store:
            session = await store.load("cli:direct", 3)
            assert session is not None
            assert [message.text for message in session.messages] == ["17", "18", "19"]
            assert session.first_index == 17
            assert await _texts(store, "cli:direct") == [str(number) for number in range(20)]

    async def test_load_leaves_out_what_is_consolidated(self, tmp_path: Path) -> None:
        async with aclosing(self.store(tmp_path)) as store:
            await store.append("cli:direct", _users("a", "b", "c"), _state())
            await store.append("cli:direct", _users("d"), _state(last_consolidated=2))
            session = await store.load("cli:direct", _ALL)
            assert session is not None
            assert [message.text for message in session.messages] == ["c", "d"]
            assert session.first_index == 2
            assert await _texts(store, "cli:direct") == ["a", "b", "c", "d"]

    async def test_the_last_state_counts_even_without_messages(self, tmp_path: Path) -> None:
        async with aclosing(self.store(tmp_path)) as store:
            await store.append("cli:direct", _users("a"), _state())
            await store.append("cli:direct", [], _state(5, last_consolidated=1))
        async with aclosing(self.store(tmp_path)) as store:
            session = await store.load("cli:direct", _ALL)
            assert session is not None
            assert session.state == _state(5, last_consolidated=1)
            assert (session.messages, session.first_index) == ((), 1)

    async def test_keys_that_look_alike_are_different_sessions(self, tmp_path: Path) -> None:
        keys = ["a:b", "A:b", "a_b", "a:B", "a/b", "a\\b", "../a:b", "a:b ", "ä:b", "a" * 300, "."]
        async with aclosing(self.store(tmp_path)) as store:
            for key in keys:
                await store.append(key, _users(f"of {key}"), _state())
            for key in keys:
                assert await _texts(store, key) == [f"of {key}"]
            assert sorted(summary.key for summary in await store.summaries()) == sorted(keys)

    async def test_summaries_are_newest_first(self, tmp_path: Path) -> None:
        async with aclosing(self.store(tmp_path)) as store:
            for key, minute in (("a", 1), ("b", 3), ("c", 2)):
                await store.append(key, _users(key), _state(minute))
            found = await store.summaries()
            assert [(one.key, one.updated_at) for one in found] == [
                (key, _state(minute).updated_at) for key, minute in (("b", 3), ("c", 2), ("a", 1))
            ]
            assert all(summary.size > 0 for summary in found)
            assert [await store.summary(summary.key) for summary in found] == found
            assert await store.summary("d") is None

    async def test_a_deleted_session_is_gone_and_may_begin_again(self, tmp_path: Path) -> None:
        async with aclosing(self.store(tmp_path)) as store:
            await store.append("cli:direct", _users("old"), _state())
            assert await store.delete("cli:direct") is True
            assert await store.delete("cli:direct") is False
            assert await store.load("cli:direct", _ALL) is None
            await store.append("cli:direct", _users("new"), _state())
            assert await _texts(store, "cli:direct") == ["new"]

    async def test_a_message_sent_while_a_session_is_deleted_begins_it_again(
        self, tmp_path: Path
    ) -> None:
        async with aclosing(self.store(tmp_path)) as store, asyncio.timeout(_LIMIT_S):
            await store.append("cli:direct", _users("old"), _state())
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(store.delete("cli:direct"))
                tasks.create_task(store.append("cli:direct", _users("new"), _state()))
        async with aclosing(self.store(tmp_path)) as store:
            session = await store.load("cli:direct", _ALL)
            assert session is not None
            assert session.repaired == ()
            assert [message.text for message in session.messages] == ["new"]

    async def test_appends_side_by_side_are_stored_in_the_order_of_calls(
        self, tmp_path: Path
    ) -> None:
        numbers = range(10)
        keys = [f"chat:{number}" for number in range(8)]
        async with aclosing(self.store(tmp_path)) as store, asyncio.timeout(_LIMIT_S):
            async with asyncio.TaskGroup() as tasks:
                for number in numbers:
                    for key in keys:
                        tasks.create_task(store.append(key, _users(str(number)), _state(number)))
            for key in keys:
                session = await store.load(key, _ALL)
                assert session is not None
                assert (session.repaired, session.state) == ((), _state(numbers[-1]))
                assert await _texts(store, key) == [str(number) for number in numbers]
