from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path

import pytest

from nanobot_core.contracts.store import Checkpoint, SessionState, StoredSession
from nanobot_core.errors import SessionError
from nanobot_core.messages import Message
from nanobot_core.sessions.jsonl import JsonlSessionStore
from nanobot_core.sessions.session import Session, Sessions
from nanobot_core.testing import FakeClock

KEY = "cli:direct"


def user(text: str) -> Message:
    return Message(role="user", content=text)


def texts(session: Session) -> list[str]:
    return [message.text for message in session.messages]


class CountingStore(JsonlSessionStore):
    """Counts loads; an append may be held up or made to fail."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, fsync=False)
        self.loads: list[str] = []
        self.broken = False
        self.written = asyncio.Event()
        self.go_on: asyncio.Event | None = None

    async def load(self, key: str, max_messages: int) -> StoredSession | None:
        self.loads.append(key)
        return await super().load(key, max_messages)

    async def append(self, key: str, messages: Sequence[Message], state: SessionState) -> None:
        if self.broken:
            raise SessionError(key, "disk full")
        await super().append(key, messages, state)
        self.written.set()
        if self.go_on is not None:
            await self.go_on.wait()


@pytest.mark.anyio
async def test_a_new_session_is_stored_with_its_first_message(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    sessions = Sessions(store, FakeClock())
    session = await sessions.open(KEY)
    assert (session.key, session.messages) == (KEY, ())
    assert await store.load(KEY, 10) is None
    checkpoint = Checkpoint(turn_id="t")
    await sessions.append(session, user("a"), checkpoint=checkpoint, metadata={"title": "x"})
    await sessions.append(session, user("b"))
    stored = await store.load(KEY, 10)
    assert stored is not None
    assert (stored.state, stored.messages) == (session.state, session.messages)
    assert (session.state.checkpoint, session.state.metadata) == (checkpoint, {"title": "x"})
    await sessions.append(session, checkpoint=None)
    assert session.state.checkpoint is None
    assert texts(session) == ["a", "b"]


@pytest.mark.anyio
async def test_consolidated_messages_leave_memory_and_stay_in_the_store(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    sessions = Sessions(store, FakeClock())
    session = await sessions.open(KEY)
    await sessions.append(session, user("a"), user("b"), user("c"))
    await sessions.mark_consolidated(session, 1)
    assert texts(session) == ["b", "c"]
    await sessions.mark_consolidated(session, 3)
    assert texts(session) == []
    await sessions.append(session, user("d"))
    assert texts(session) == ["d"]
    reopened = await Sessions(store, FakeClock()).open(KEY)
    assert (texts(reopened), reopened.state) == (["d"], session.state)
    assert [message.text async for message in store.read(KEY)] == ["a", "b", "c", "d"]


@pytest.mark.anyio
async def test_a_session_in_use_is_one_object_and_an_idle_one_leaves_memory(
    tmp_path: Path,
) -> None:
    store = CountingStore(tmp_path)
    sessions = Sessions(store, FakeClock(), max_sessions=2)
    async with asyncio.TaskGroup() as tasks:
        opened = [tasks.create_task(sessions.open(KEY)) for _ in range(3)]
    session = opened[0].result()
    assert all(task.result() is session for task in opened)
    del opened
    for key in ("a", "b", "c"):
        await sessions.open(key)
    assert await sessions.open(KEY) is session
    assert store.loads.count(KEY) == 1
    await sessions.open("b")
    await sessions.open("c")
    gc.collect()
    await sessions.open("a")
    assert store.loads.count("a") == 2


@pytest.mark.anyio
async def test_memory_holds_the_newest_messages_only(tmp_path: Path) -> None:
    sessions = Sessions(JsonlSessionStore(tmp_path, fsync=False), FakeClock(), max_messages=20)
    session = await sessions.open(KEY)
    for number in range(50):
        await sessions.append(session, user(str(number)))
        assert len(session.messages) <= 20
        assert session.messages[-1].text == str(number)
    assert len(session.messages) >= 15
    assert session.state.last_consolidated == 0
    await sessions.mark_consolidated(session, session.stored.first_index + 2)
    assert session.state.last_consolidated == 50 - len(session.messages)


@pytest.mark.anyio
async def test_a_refused_append_changes_nothing(tmp_path: Path) -> None:
    store = CountingStore(tmp_path)
    sessions = Sessions(store, FakeClock())
    session = await sessions.open(KEY)
    await sessions.append(session, user("a"))
    before = session.stored
    store.broken = True
    with pytest.raises(SessionError):
        await sessions.append(session, user("b"), metadata={"x": 1})
    assert session.stored == before


@pytest.mark.anyio
async def test_after_a_cancelled_append_memory_shows_what_the_store_has(tmp_path: Path) -> None:
    store = CountingStore(tmp_path)
    sessions = Sessions(store, FakeClock())
    session = await sessions.open(KEY)
    store.go_on = asyncio.Event()
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        append = tasks.create_task(sessions.append(session, user("written")))
        await store.written.wait()
        append.cancel()
    assert append.cancelled()
    assert texts(session) == ["written"]
