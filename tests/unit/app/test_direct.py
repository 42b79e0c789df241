"""The agent for programs in the gateway: turns, single calls, and their limits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from nanobot_core import (
    AgentTask,
    ApprovalRequested,
    DirectTurn,
    Message,
    NanobotError,
    Requester,
    RunEvent,
    TextStreamed,
    Ticket,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolRule,
    tool,
)
from nanobot_core.contracts.client import ignore_event
from nanobot_core.testing import FakeReply
from tests.gateways import OWNER, Platform, running, write_config
from tests.scripted_provider import ScriptedPlugin

pytestmark = pytest.mark.anyio
ASK = {"approval": [{"tool": "*", "action": "ask"}]}
SEARCH = ToolDefinition(
    name="search", description="Search.", parameters={"type": "object", "properties": {}}
)


def requester(
    *, authority: str = "machine", session: str = "api:1", tools: tuple[ToolRule, ...] = ()
) -> Requester:
    return Requester(
        channel="api",
        chat_id="1",
        sender_id="program",
        session_key=session,
        authority="guest" if authority == "guest" else "machine",
        tools=tools,
    )


@tool
async def where(context: ToolContext) -> str:
    """Return the working folder."""
    return str(context.workspace)


async def test_a_turn_of_a_program_streams_and_is_stored(tmp_path: Path) -> None:
    write_config(tmp_path)
    seen: list[RunEvent] = []

    async def see(event: RunEvent) -> None:
        seen.append(event)

    async with running(tmp_path) as bot:
        outcome = await bot.client.take_turn(
            DirectTurn(requester=requester(), text="say words"), see
        )
        stored = [message.role async for message in bot.sessions.read("api:1")]

    assert outcome.reply
    assert seen[-1] == outcome
    assert any(isinstance(event, TextStreamed) for event in seen)
    assert stored == ["user", "assistant"]
    assert (outcome.turn.source, outcome.turn.is_owner) == ("api", True)


@pytest.mark.parametrize("allowed", [True, False])
async def test_the_program_is_asked_about_a_call(tmp_path: Path, *, allowed: bool) -> None:
    write_config(tmp_path, tools=ASK)
    asked: list[ApprovalRequested] = []

    async def decide(event: ApprovalRequested) -> Ticket:
        asked.append(event)
        return Ticket(allowed, "tester")

    async with running(tmp_path) as bot:
        turn = DirectTurn(requester=requester(), text='call note {"word": "w"}')
        outcome = await bot.client.take_turn(turn, ignore_event, decide)
        single = await bot.client.call_tool(requester(), "note", {"word": "x"}, decide)

    assert [event.call.arguments for event in asked] == [{"word": "w"}, {"word": "x"}]
    assert ("noted w" in (outcome.reply or "")) is allowed
    assert ("noted x" in single.text) is allowed
    assert single.is_error is not allowed


async def test_without_the_program_the_owner_is_asked_in_a_chat(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform, tools=ASK)
        async with running(tmp_path) as bot:
            await platform.say("say hello", sender=OWNER)
            await platform.shows("hello")
            async with asyncio.TaskGroup() as group:
                call = bot.client.call_tool(requester(), "note", {"word": "w"})
                calling = group.create_task(call)
                question = await platform.shows("/approve")
                number = question["text"].partition("/approve ")[2].split()[0]
                await platform.say(f"/approve {number}", sender=OWNER)

    assert "program by api" in question["text"]
    assert calling.result().text == "noted w"


async def test_a_rule_of_the_requester_takes_tools_away(tmp_path: Path) -> None:
    write_config(tmp_path)
    limited = requester(tools=(ToolRule(allow=("fi*",)),))
    async with running(tmp_path) as bot:
        offered = {each.definition.name for each in await bot.client.tools(limited)}
        everything = {each.definition.name for each in await bot.client.tools(requester())}
        refused = await bot.client.call_tool(limited, "note", {"word": "w"})
        turn = DirectTurn(requester=limited, text='call note {"word": "w"}')
        outcome = await bot.client.take_turn(turn, ignore_event)

    assert "note" in everything
    assert "note" not in offered
    assert refused.is_error
    assert "noted" not in (outcome.reply or "")
    assert not (tmp_path / "workspace" / "notes.txt").exists()


async def test_a_guest_of_a_program_has_the_tools_of_guests(tmp_path: Path) -> None:
    write_config(tmp_path)
    guest = requester(authority="guest")
    async with running(tmp_path) as bot:
        assert [each.definition.name for each in await bot.client.tools(guest)] == []
        refused = await bot.client.call_tool(guest, "note", {"word": "w"})

    assert refused.is_error


async def test_an_owner_may_name_a_folder_and_a_guest_may_not(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    write_config(tmp_path)
    async with running(tmp_path) as bot:
        bot.tools.register(where)
        turn = DirectTurn(requester=requester(), text="call where {}", folder=str(project))
        inside = await bot.client.take_turn(turn, ignore_event)
        usual = await bot.client.take_turn(
            DirectTurn(requester=requester(session="api:2"), text="call where {}"), ignore_event
        )
        wrong: Sequence[DirectTurn] = (
            DirectTurn(requester=requester(), text="hi", folder="project"),
            DirectTurn(requester=requester(authority="guest"), text="hi", folder=str(project)),
        )
        for each in wrong:
            with pytest.raises(NanobotError, match="folder"):
                await bot.client.take_turn(each, ignore_event)

    assert str(project) in (inside.reply or "")
    assert str(project) not in (usual.reply or "")


async def test_a_task_ends_with_the_calls_that_its_caller_runs(tmp_path: Path) -> None:
    call = ToolCall(id="c1", name="search", arguments={"query": "x"})
    scripted = ScriptedPlugin(FakeReply(pieces=("Let me look.",), tool_calls=(call,)))
    write_config(tmp_path)
    seen: list[str] = []

    async def see(event: RunEvent) -> None:
        seen.append(type(event).__name__)

    async with running(tmp_path) as bot:
        await bot.plugins.register(scripted, "scripted")
        context = await bot.plugins.context_for("chatty")
        task = AgentTask(
            purpose="ask",
            messages=(Message(role="user", content="find x"),),
            model=scripted.model,
            caller_tools=(SEARCH,),
        )
        outcome = await context.agent.run(task, see)
        with pytest.raises(ValueError, match="tools"):
            await context.agent.run(
                AgentTask(
                    purpose="ask", messages=task.messages, tools=(where,), caller_tools=(SEARCH,)
                )
            )

    assert outcome.content == "Let me look."
    assert [(call.name, call.arguments) for call in outcome.calls] == [("search", {"query": "x"})]
    assert (outcome.stop_reason, outcome.model) == ("completed", scripted.model)
    assert scripted.provider.requests[0].tools == (SEARCH,)
    assert "TextStreamed" in seen


@pytest.mark.parametrize(("continues", "requests"), [(True, 4), (False, 1)])
async def test_a_task_need_not_ask_for_the_rest_of_a_cut_answer(
    tmp_path: Path, *, continues: bool, requests: int
) -> None:
    cut = FakeReply(pieces=("a",), finish_reason="length")
    scripted = ScriptedPlugin(cut, cut, cut, cut)
    write_config(tmp_path)
    async with running(tmp_path) as bot:
        await bot.plugins.register(scripted, "scripted")
        context = await bot.plugins.context_for("chatty")
        task = AgentTask(
            purpose="ask",
            messages=(Message(role="user", content="count"),),
            model=scripted.model,
            continues=continues,
        )
        outcome = await context.agent.run(task)

    assert outcome.stop_reason == "token_limit"
    assert outcome.content == "a" * requests
    assert len(scripted.provider.requests) == requests
