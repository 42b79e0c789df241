"""Two processes with one session: one turn after another, and none on an outdated history."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nanobot_core import Message
from nanobot_core.clock import SystemClock
from nanobot_core.errors import SessionError
from nanobot_core.sessions.jsonl import JsonlSessionStore
from nanobot_core.sessions.session import Sessions
from nanobot_core.turns import locks as module
from nanobot_core.turns.locks import SessionLocks

pytestmark = pytest.mark.anyio
KEY = "cli:r"
LIMIT_S = 5.0


class Process:
    """What a process has of its own."""

    def __init__(self, folder: Path) -> None:
        store = JsonlSessionStore(folder / "sessions")
        self.sessions = Sessions(store, SystemClock())
        self.locks = SessionLocks(folder / "locks", self.sessions)

    async def say(self, text: str) -> list[str]:
        """Take a turn, and return the history."""
        async with self.locks.hold(KEY):
            session = await self.sessions.open(KEY)
            await self.sessions.append(session, Message(role="user", content=text))
            return [message.text for message in session.messages]


async def test_a_turn_sees_what_another_process_has_stored(tmp_path: Path) -> None:
    one, other = Process(tmp_path), Process(tmp_path)

    assert await one.say("a") == ["a"]
    assert await other.say("b") == ["a", "b"]
    assert await one.say("c") == ["a", "b", "c"]
    assert await one.say("d") == ["a", "b", "c", "d"]


async def test_a_turn_waits_for_the_one_of_another_process(tmp_path: Path) -> None:
    one, other = Process(tmp_path), Process(tmp_path)

    async with asyncio.timeout(LIMIT_S), one.locks.hold(KEY):
        waiting = asyncio.create_task(other.say("b"))
        await asyncio.wait({waiting}, timeout=3 * module.WAIT_STEP_S)
        assert not waiting.done()
        session = await one.sessions.open(KEY)
        await one.sessions.append(session, Message(role="user", content="a"))

    async with asyncio.timeout(LIMIT_S):
        assert await waiting == ["a", "b"]


async def test_a_deleted_session_leaves_no_file_and_keeps_its_order(tmp_path: Path) -> None:
    one, other = Process(tmp_path), Process(tmp_path)
    await one.say("a")

    async with asyncio.timeout(LIMIT_S):
        async with one.locks.hold(KEY):
            waiting = asyncio.create_task(other.say("b"))
            await asyncio.wait({waiting}, timeout=3 * module.WAIT_STEP_S)
            await one.sessions.delete(KEY)
            one.locks.discard(KEY)
        # The other one has the lock of a removed file, which no longer keeps anyone out.
        async with one.locks.hold(KEY):
            session = await one.sessions.open(KEY)
            await one.sessions.append(session, Message(role="user", content="new"))
        assert await waiting in (["b"], ["new", "b"])
        assert sorted(await one.say("c")) == ["b", "c", "new"]
        async with one.locks.hold(KEY):
            await one.sessions.delete(KEY)
            one.locks.discard(KEY)

    assert list((tmp_path / "locks").iterdir()) == []


async def test_on_a_full_disk_each_turn_reads_the_session_again(tmp_path: Path) -> None:
    one, other = Process(tmp_path), Process(tmp_path)
    await one.say("a")
    with no_room():
        async with other.locks.hold(KEY):
            pass
    async with other.locks.hold(KEY):
        session = await other.sessions.open(KEY)
        await other.sessions.append(session, Message(role="user", content="b"))
    assert await one.say("c") == ["a", "b", "c"]


async def test_a_lock_file_that_cannot_be_used_is_a_session_error(tmp_path: Path) -> None:
    one = Process(tmp_path)
    await one.say("a")
    (file,) = (tmp_path / "locks").iterdir()
    file.unlink()
    file.mkdir()
    with pytest.raises(SessionError, match="cannot lock it"):
        await one.say("b")


@contextmanager
def no_room() -> Iterator[None]:
    """Let every write to a file fail, as on a full disk."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)


async def test_a_session_that_is_never_released_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_LIMIT_S", 0.01)
    one, other = Process(tmp_path), Process(tmp_path)

    async with one.locks.hold(KEY):
        with pytest.raises(SessionError, match="another nanobot process"):
            await other.say("b")
    assert await other.say("b") == ["b"]
