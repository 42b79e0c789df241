"""Panels, cursors and faults, over the local Mochat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nanobot_core import SystemClock
from nanobot_core.chat import CallFailed, Cause
from nanobot_core.testing import FakePluginContext, RecordingInbox, load_stand_in
from nanobot_mochat.channel import build_channel

pytestmark = pytest.mark.anyio
LocalMochat: Any = load_stand_in(Path(__file__).with_name("local_mochat.py"))
Local: TypeAlias = Any
"""Its module is loaded by path, so its types are unknown here."""


@asynccontextmanager
async def running(
    local: Local, tmp_path: Path, inbox: RecordingInbox, **section: Any
) -> AsyncIterator[None]:
    settings = {"allow_from": ["*"], **local.section(), **section}
    ctx = FakePluginContext(tmp_path, settings=settings, plugin_id="mochat", clock=SystemClock())
    channel = build_channel(ctx)
    async with asyncio.timeout(20), ctx, asyncio.TaskGroup() as group:
        group.create_task(channel.start(inbox))
        try:
            yield
        finally:
            await channel.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - a server has no event to wait for
            await asyncio.sleep(0.01)


def calls(local: Local, path: str) -> int:
    return sum(called == path for called, _ in local.calls)


async def looked(local: Local, path: str = "groups/panels/messages") -> None:
    """Wait for two more complete looks."""
    count = calls(local, path)
    await until(lambda: calls(local, path) >= count + 3)


async def test_what_was_written_before_the_first_start_is_not_answered(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMochat() as local:
        local.behind_s = 3_600.0
        await local.say("old", chat="panel-1", mention=True)
        await local.say("old too")
        local.behind_s = 0.0
        async with running(local, tmp_path, inbox, reply_delay_mode="off"):
            await looked(local)
            await looked(local, "sessions/watch")
            await local.say("new", chat="panel-1", mention=True)
            await local.say("new too")
            await inbox.wait_for_stored(2)
    assert sorted(message.content for message in inbox.stored) == ["new", "new too"]


async def test_a_restart_continues_where_it_was(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMochat() as local:
        async with running(local, tmp_path, inbox, reply_delay_mode="off"):
            await looked(local)
            await looked(local, "sessions/watch")
            await local.say("one", chat="panel-1")
            await local.say("two")
            await inbox.wait_for_stored(2)
            await looked(local)
            await looked(local, "sessions/watch")
        await local.say("three", chat="panel-1")
        await local.say("four")
        after = RecordingInbox()
        async with running(local, tmp_path, after, reply_delay_mode="off"):
            await after.wait_for_stored(2)
            await looked(local)
    assert sorted(message.content for message in after.stored) == ["four", "three"]
    assert len(after.attempts) == 2


async def test_a_mention_brings_what_was_collected(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMochat() as local:
        async with running(local, tmp_path, inbox):
            await looked(local)
            await local.say("shall we eat?", sender=local.bert, chat="panel-1")
            await looked(local)
            assert not inbox.attempts
        # What was collected is not lost by a restart.
        async with running(local, tmp_path, inbox):
            await looked(local)
            await local.say("what do you think?", chat="panel-1", mention=True)
            await inbox.wait_for_stored(1)
    (message,) = inbox.stored
    assert message.content == ("[earlier in this panel]\n> Bert: shall we eat?\nwhat do you think?")
    assert message.is_addressed


async def test_after_a_while_the_group_policy_decides(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMochat() as local, running(local, tmp_path, inbox, reply_delay_ms=300):
        await looked(local)
        await local.say("one", chat="panel-1")
        await inbox.wait_for_stored(1)
    assert not inbox.stored[0].is_addressed


async def test_one_session_that_is_gone_does_not_affect_others(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMochat() as local:
        sessions = ["session_gone", local.private(local.anna)]
        async with running(local, tmp_path, inbox, sessions=sessions, panels=[]):
            await looked(local, "sessions/watch")
            await local.say("hello")
            await inbox.wait_for_stored(1)


async def test_it_goes_on_when_the_cursor_cannot_be_saved(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMochat() as local, running(local, tmp_path, inbox):
        await looked(local, "sessions/watch")
        (saved,) = tmp_path.rglob("seen.json")
        saved.unlink()
        saved.mkdir()
        for number in range(2):
            await local.say(f"message {number}")
            await inbox.wait_for_stored(number + 1)
    assert len(inbox.attempts) == 2


async def test_malformed_events_are_passed_over(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMochat() as local, running(local, tmp_path, inbox):
        await looked(local, "sessions/watch")
        session = local.private(local.anna)
        local.push(session, {"messageId": ["x"], "author": 7})
        local.push(session, {"messageId": "y"}, kind="message.recall")
        await local.say("after it")
        await inbox.wait_for_stored(1)
    assert inbox.stored[0].content == "after it"


@pytest.mark.parametrize(
    "section", [{"claw_token": ""}, {"agent_user_id": ""}, {"claw_token": "x"}]
)
async def test_what_is_missing_is_said_with_its_place(
    tmp_path: Path, section: dict[str, str]
) -> None:
    async with LocalMochat() as local:
        ctx = FakePluginContext(
            tmp_path, settings=local.section() | section, plugin_id="mochat", clock=SystemClock()
        )
        channel = build_channel(ctx)
        with pytest.raises(CallFailed, match=r"channels\.mochat\.\w+") as raised:
            await channel.login()
        await channel.stop()
    assert raised.value.cause is Cause.CREDENTIALS
