"""RemoteClient: the agent of a gateway, used from outside its process as from inside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import Nanobot, ToolRule
from nanobot_core.app.client import ControlClient
from nanobot_core.app.remote import RemoteClient
from nanobot_core.app.wire import ControlError
from nanobot_core.assignment import Requester
from nanobot_core.contracts.client import AgentClient, DirectTurn
from nanobot_core.contracts.plugin import Ticket
from nanobot_core.errors import NanobotError, SessionError
from nanobot_core.events import (
    ApprovalRequested,
    RunEvent,
    TextStreamed,
    ToolCallFinished,
    ToolCallStarted,
    TurnOutcome,
)
from nanobot_core.messages import Message
from tests.gateways import Platform, running, write_config

pytestmark = pytest.mark.anyio
ASK = {"approval": [{"tool": "note", "action": "ask"}]}
OWNER = Requester(channel="editor", session_key="editor:1", authority="machine")
GUEST = Requester(channel="editor", session_key="editor:1", authority="guest")
NOTE = 'call note {"word": "once"}'


@asynccontextmanager
async def remote(home: Path, **sections: Any) -> AsyncIterator[tuple[Nanobot, RemoteClient]]:
    write_config(home, **sections)
    async with running(home) as bot:
        yield bot, RemoteClient(ControlClient(home / "gateway"))


def turn(text: str, **more: Any) -> DirectTurn:
    return DirectTurn(requester=OWNER, text=text, **more)


@pytest.mark.parametrize("kind", ["direct", "remote"])
@pytest.mark.parametrize("text", ["say hello to all", NOTE, "/help", "/status", "fail"])
async def test_both_clients_report_the_same_events(tmp_path: Path, kind: str, text: str) -> None:
    events: list[RunEvent] = []

    async def watch(event: RunEvent) -> None:
        events.append(event)

    async with remote(tmp_path) as (bot, far):
        client: AgentClient = far if kind == "remote" else bot.client
        outcome = await client.take_turn(turn(text), watch)

    assert isinstance(events[-1], TurnOutcome)
    assert [each for each in events if isinstance(each, TurnOutcome)] == [outcome]
    assert outcome.turn.session_key == "editor:1"
    assert (outcome.error is not None) is (text == "fail")
    if text == NOTE:
        kinds = [type(each) for each in events]
        assert kinds.index(ToolCallStarted) < kinds.index(ToolCallFinished)


@pytest.mark.parametrize("kind", ["direct", "remote"])
async def test_a_call_begins_when_the_program_has_received_it(tmp_path: Path, kind: str) -> None:
    seen: list[bool] = []
    notes = tmp_path / "workspace" / "notes.txt"

    async def watch(event: RunEvent) -> None:
        if isinstance(event, ToolCallStarted):
            await asyncio.sleep(0.2)  # a call that did not wait would have ended
            seen.append(notes.exists())

    async with remote(tmp_path) as (bot, far):
        client: AgentClient = far if kind == "remote" else bot.client
        await client.take_turn(turn(NOTE), watch)

    assert seen == [False]
    assert notes.read_text() == "once\n"


@pytest.mark.parametrize("kind", ["direct", "remote"])
@pytest.mark.parametrize("allowed", [True, False, None])
async def test_the_program_decides_and_no_chat_is_asked(
    tmp_path: Path, kind: str, allowed: bool | None
) -> None:
    asked: list[ApprovalRequested] = []

    async def decide(event: ApprovalRequested) -> Ticket | None:
        asked.append(event)
        return None if allowed is None else Ticket(allowed, "me")

    async def watch(_event: RunEvent) -> None:
        pass

    async with Platform() as platform:
        write_config(tmp_path, platform, tools=ASK)
        async with running(tmp_path) as bot:
            far = RemoteClient(ControlClient(tmp_path / "gateway"))
            client: AgentClient = far if kind == "remote" else bot.client
            await platform.say("say I am here")
            await platform.shows("I am here")
            if allowed is None and kind == "direct":
                return  # without an answer the next one is asked: the owner's chat
            await client.take_turn(turn(NOTE), watch, decide)

            assert [each.call.arguments for each in asked] == [{"word": "once"}]
            assert not any("/approve" in text for text in platform.texts())
    assert (tmp_path / "workspace" / "notes.txt").exists() is (allowed is True)


async def test_without_a_program_that_decides_the_owner_is_asked_in_a_chat(tmp_path: Path) -> None:
    async def watch(_event: RunEvent) -> None:
        pass

    async with Platform() as platform:
        write_config(tmp_path, platform, tools=ASK)
        async with running(tmp_path), asyncio.TaskGroup() as group:
            client = RemoteClient(ControlClient(tmp_path / "gateway"))
            await platform.say("say I am here")
            await platform.shows("I am here")
            calling = group.create_task(client.call_tool(OWNER, "note", {"word": "once"}))
            question = await platform.shows("/approve")
            assert "by editor: Run note?" in question["text"]
            assert not (tmp_path / "workspace" / "notes.txt").exists()
            await platform.say(question["buttons"][0])
            assert (await calling).text == "noted once"


async def test_events_go_on_and_the_end_is_noticed_while_a_question_is_open(
    tmp_path: Path,
) -> None:
    open_question, ended = asyncio.Event(), asyncio.Event()

    async def decide(_event: ApprovalRequested) -> Ticket | None:
        open_question.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return None

    async def watch(_event: RunEvent) -> None:
        pass

    tools = {**ASK, "approval_timeout_s": 1}
    async with remote(tmp_path, tools=tools) as (_, client), asyncio.timeout(20):
        outcome = await client.take_turn(turn(NOTE), watch, decide)

    assert open_question.is_set()
    assert ended.is_set()
    assert "not approved" in (outcome.reply or "")


async def test_what_fails_in_the_program_ends_the_turn(tmp_path: Path) -> None:
    async def decide(_event: ApprovalRequested) -> Ticket | None:
        raise ValueError("no screen")

    async def watch(event: RunEvent) -> None:
        if isinstance(event, TextStreamed):
            raise ValueError("no window")

    async with remote(tmp_path, tools=ASK) as (bot, client), asyncio.timeout(20):
        with pytest.raises(ValueError, match="no screen"):
            await client.take_turn(turn(NOTE), watch, decide)
        with pytest.raises(ValueError, match="no window"):
            await client.take_turn(turn("say hello"), watch)
        assert (await bot.run("say well")).reply == "well"


async def test_cancelling_stops_the_turn_in_the_gateway(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def watch(_event: RunEvent) -> None:
        begun.set()

    async with remote(tmp_path) as (_, client):
        task = asyncio.create_task(client.take_turn(turn("stream"), watch))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(20):
            outcome = await client.take_turn(turn("say again"), watch)
        assert outcome.reply == "again"


async def test_tools_are_those_of_the_requester(tmp_path: Path) -> None:
    async with remote(tmp_path, tools={"guests": {"allow": ["note"]}}) as (bot, client):
        rule = ToolRule(allow=("wait_*",), deny=("wait_long",))
        limited = Requester(authority="machine", tools=(rule,))
        for who, names in (
            (OWNER, {"note", "wait_long", "wait_beside", "ignore_stop"}),
            (GUEST, {"note"}),
            (limited, {"wait_beside"}),
        ):
            found = await client.tools(who)
            assert {each.definition.name for each in found} == names
            assert list(found) == list(await bot.client.tools(who))
        assert {each.origin.partition("@")[0] for each in await client.tools(OWNER)} == {"chatty"}
        outcome = await client.call_tool(limited, "note", {"word": "no"})
        assert outcome.is_error
        assert not (tmp_path / "workspace" / "notes.txt").exists()


@pytest.mark.parametrize("arguments", [{}, {"word": ["a"]}, {"other": 1}])
async def test_wrong_arguments_are_a_result(tmp_path: Path, arguments: dict[str, Any]) -> None:
    async with remote(tmp_path) as (_, client):
        outcome = await client.call_tool(OWNER, "note", arguments)

    assert outcome.is_error
    assert "word" in outcome.text


async def test_sessions_are_read_and_changed(tmp_path: Path) -> None:
    async def watch(_event: RunEvent) -> None:
        pass

    async with remote(tmp_path) as (bot, client):
        sessions = client.sessions
        assert await sessions.page("editor:1") is None
        folder = str(tmp_path)
        for number in range(4):
            await client.take_turn(turn(f"say {number}", folder=folder), watch)
        (entry,) = await sessions.entries()
        assert (entry.key, entry.title, entry.folder) == ("editor:1", "3", folder)
        page = await sessions.page("editor:1", before=4, limit=3)
        assert page is not None
        assert page == await bot.client.sessions.page("editor:1", before=4, limit=3)
        assert [each.text for each in page.messages] == ["0", "say 1", "1"]
        assert (page.first_index, page.total) == (1, 8)
        assert [each.index for each in await sessions.search("SAY 2")] == [4]
        assert await sessions.set_title("editor:1", " My\ntitle ")
        assert not await sessions.set_title("editor:2", "none")
        assert await sessions.branch("editor:1", 2, "editor:copy")
        copy = await sessions.page("editor:copy")
        assert copy is not None
        assert [each.text for each in copy.messages] == ["say 0", "0"]
        with pytest.raises(SessionError, match="exists"):
            await sessions.create("editor:copy", [Message(role="user", content="x")])
        assert await sessions.delete("editor:copy")
        assert not await sessions.delete("editor:copy")
        (entry,) = await sessions.entries()
        assert (entry.title, entry.is_titled) == ("My title", True)


async def test_a_folder_is_for_the_owner_and_absolute(tmp_path: Path) -> None:
    async def watch(_event: RunEvent) -> None:
        pass

    async with remote(tmp_path) as (_, client):
        for who, folder in ((OWNER, "here"), (GUEST, "/tmp")):
            given = DirectTurn(requester=who, text="say no", folder=folder)
            with pytest.raises(NanobotError, match="absolute path"):
                await client.take_turn(given, watch)


async def test_without_a_gateway_the_error_says_what_to_do(tmp_path: Path) -> None:
    client = RemoteClient(ControlClient(tmp_path / "gateway"))
    with pytest.raises(ControlError, match="start one with nanobot gateway"):
        await client.tools(OWNER)
    with pytest.raises(SessionError, match="start one with nanobot gateway"):
        await client.sessions.entries()
