"""A disk without room for sessions: no accepted message is missing from its session."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nanobot_core import ChatRequest, LLMResponse, Message
from nanobot_core.contracts.store import SessionState
from nanobot_core.sessions.jsonl import JsonlSessionStore
from nanobot_core.tasks import RETRY_S
from tests.unit.turns.conftest import Desk, wish_of

pytestmark = pytest.mark.anyio
KEY = "desk:1"
START = datetime(2026, 1, 1, tzinfo=UTC)
STATE = SessionState(created_at=START, updated_at=START)


def store_of(desk: Desk) -> JsonlSessionStore:
    return JsonlSessionStore(desk.home / "workspace" / "sessions")


async def begun(desk: Desk) -> Path:
    """Give the chat a session file that is larger than the message queue will be."""
    messages = [Message(role=role, content="x" * 1_500_000) for role in ("user", "assistant")]
    await store_of(desk).append(KEY, messages, STATE)
    (path,) = (desk.home / "workspace" / "sessions").iterdir()
    return path


@contextmanager
def no_room(path: Path) -> Iterator[None]:
    """Let no file of this process grow beyond the size of `path`."""
    former, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (former, hard))


async def in_time(desk: Desk, condition: Callable[[], bool]) -> None:
    """Let time pass until `condition` holds."""
    async with asyncio.timeout(20):
        while not condition():
            await desk.clock.advance(RETRY_S)


async def tried(desk: Desk, times: int) -> None:
    """Wait until the session store was asked to store something so many times."""
    await in_time(desk, lambda: desk.death.passed.count("before append") >= times)


async def texts(desk: Desk) -> list[str]:
    return [message.text async for message in store_of(desk).read(KEY)][2:]


async def test_a_message_waits_for_room_and_is_answered_once(desk: Desk) -> None:
    path = await begun(desk)
    async with desk.open():
        with no_room(path):
            await desk.say("keep me")
            await tried(desk, 5)
            assert desk.texts() == []
        await in_time(desk, lambda: desk.texts() == ["re: keep me"])
        assert sum(wish_of(request) == "keep me" for request in desk.requests) == 1
    assert await texts(desk) == ["keep me", "re: keep me"]


async def test_a_message_whose_turn_fails_is_in_the_session_all_the_same(desk: Desk) -> None:
    async def fail(request: ChatRequest) -> LLMResponse:
        msg = "no model today"
        raise RuntimeError(msg)

    desk.answer = fail
    path = await begun(desk)
    async with desk.open():
        with no_room(path):
            await desk.say("keep me")
            await tried(desk, 2)
        await in_time(desk, lambda: len(desk.texts()) == 1)
    assert (await texts(desk))[0] == "keep me"


async def test_a_gateway_that_ends_meanwhile_leaves_the_message_to_the_next(desk: Desk) -> None:
    path = await begun(desk)
    with no_room(path):
        async with desk.open():
            await desk.say("keep me")
            await tried(desk, 2)
    async with desk.open():
        assert await desk.replies(1) == ["re: keep me"]
    assert await texts(desk) == ["keep me", "re: keep me"]


async def test_stopping_the_turn_does_not_wait_for_room(desk: Desk) -> None:
    path = await begun(desk)
    async with desk.open():
        with no_room(path):
            await desk.say("keep me")
            await tried(desk, 2)
            await desk.say("/stop")
            assert len(await desk.replies(1)) == 1
