"""Work that plugins give to the agent: what it may use, who gets the answer, and how it ends."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from nanobot_core import (
    Assignment,
    AuthenticationFailed,
    ChatRequest,
    LLMResponse,
    OutboundMessage,
    Requester,
    ToolCall,
    ToolContext,
    tool,
)
from nanobot_core.agent.structured import ANSWER_TOOL
from nanobot_core.contracts.service import GatewayAccess
from nanobot_core.messages import JsonObject, Message
from nanobot_core.turns import dispatcher
from tests.strangers import delegator
from tests.unit.turns.conftest import Desk, asks, echo, wish_of

pytestmark = pytest.mark.anyio


@tool(for_guests=True)
async def speak(context: ToolContext, chat: str, text: str) -> str:
    """Write to a chat.

    Args:
        chat: its id.
        text: the words.
    """
    await context.send(OutboundMessage(channel="desk", chat_id=chat, content=text, kind="notice"))
    return "spoken"


async def obey(request: ChatRequest) -> LLMResponse:
    """Make the calls that the user's words name (``call NAME JSON;; ...``), then repeat results."""
    results = []
    for message in reversed(request.messages):
        if message.role != "tool":
            break
        results.append(message.text)
    if results:
        return LLMResponse(content=" | ".join(reversed(results)))
    verb, _, rest = wish_of(request).removeprefix("> ").partition(" ")
    if verb != "call":
        return await echo(request)
    calls = [one.strip().partition(" ") for one in rest.split(";;")]
    return asks(
        *(ToolCall(f"c{n}", name, json.loads(text)) for n, (name, _, text) in enumerate(calls))
    )


def assign(name: str, content: str, tool_name: str = "assign", **how: Any) -> str:
    """Return the words on which the model gives work to the agent."""
    arguments = {"name": name, "content": content, "how": json.dumps(how)}
    return f"call {tool_name} {json.dumps(arguments)}"


@pytest.fixture
def office(desk: Desk) -> Desk:
    """A desk with the stranger that gives work, and a model that obeys."""
    desk.answer, desk.tools, desk.plugins = obey, (speak,), (delegator,)
    return desk


async def gateway(desk: Desk) -> GatewayAccess:
    await desk.until(lambda: desk.access)
    assert desk.access is not None
    return desk.access


def ends(desk: Desk) -> list[dict[str, Any]]:
    return delegator.records(desk.home / "workspace", "ends")


async def ended(desk: Desk, number: int = 1) -> list[dict[str, Any]]:
    await desk.until(lambda: len(ends(desk)) >= number)
    return ends(desk)


async def stored(desk: Desk, session: str) -> list[Message]:
    assert desk.bot is not None
    return [message async for message in desk.bot.sessions.read(session)]


async def test_work_is_answered_in_the_chat_and_noted_in_its_session(office: Desk) -> None:
    async with office.open():
        await office.say(assign("a", "say it", title="A reminder"))
        assert sorted(await office.replies(2)) == ["assigned a", "re: say it"]
        (end,) = await ended(office)
        assert (end["id"], end["reply"], end["session"]) == ("a", "re: say it", "delegator:a")
        await office.say("what was that?")
        await office.replies(3)
        await office.say(assign("a", "say it"))
        assert (await office.replies(4))[3] == "a is known"
        texts = [message.text for message in await stored(office, "desk:1")]
    at = texts.index("re: say it")
    assert texts[at - 1] == "(You wrote this without being asked: A reminder.)"
    assert texts.count("re: say it") == 1
    answered = next(message for message in office.sent if message.content == "re: say it")
    assert answered.reply_to is None


@pytest.mark.parametrize(
    ("delivery", "wish", "shown"),
    [
        ("always", "it rains", ["re: it rains"]),
        ("never", "it rains", []),
        ("when_notable", "report true", ["it rains"]),
        ("when_notable", "report false", []),
        ("when_notable", "it rains", []),
        ("always", "fail", []),
    ],
)
async def test_delivery_decides_whether_the_chat_gets_the_answer(
    office: Desk, delivery: str, wish: str, shown: list[str]
) -> None:
    async def answer(request: ChatRequest) -> LLMResponse:
        verb, _, rest = wish_of(request).partition(" ")
        if verb == "fail":
            raise AuthenticationFailed("desk", "the key is not accepted")
        if verb == "report":
            report: JsonObject = {"worth_a_message": rest == "true", "text": "it rains"}
            return asks(ToolCall("r", ANSWER_TOOL, report))
        return await obey(request)

    office.answer = answer
    async with office.open():
        await office.say(assign("a", wish, delivery=delivery))
        (end,) = await ended(office)
        await office.replies(1 + len(shown))
        assert bool(end["error"]) == (
            wish == "fail" or (delivery, wish) == ("when_notable", "it rains")
        )
        assert sorted(set(office.texts()) - {"assigned a"}) == shown
    assert office.texts(kind="notice") == []


@pytest.mark.parametrize("delivery", ["always", "when_notable", "never"])
async def test_tools_send_messages_only_if_the_answer_is_sent(office: Desk, delivery: str) -> None:
    wish = 'call speak {"chat": "1", "text": "psst"}'

    async def answer(request: ChatRequest) -> LLMResponse:
        report: JsonObject = {"worth_a_message": False, "text": ""}
        has_spoken = request.messages[-1].role == "tool"
        if has_spoken and any(each.name == ANSWER_TOOL for each in request.tools):
            return asks(ToolCall("r", ANSWER_TOOL, report))
        return await obey(request)

    office.answer = answer
    async with office.open():
        await office.say(assign("a", wish, delivery=delivery))
        await ended(office)
        await office.replies(1)
    assert office.texts(kind="notice") == (["psst"] if delivery == "always" else [])


async def test_limits_apply_to_the_request(office: Desk) -> None:
    (office.home / "workspace").mkdir(parents=True)
    (office.home / "workspace" / "SOUL.md").write_text("You are Zephyrine.")
    async with office.open():
        await office.say("hello")
        await office.replies(1)
        rules = [{"allow": ["speak", "assign"]}, {"allow": ["s*"]}]
        how: dict[str, Any] = {"instructions": "Count sheep.", "tools": rules, "model": "desk/two"}
        await office.say(assign("a", "sheep", **how))
        await ended(office)
    (own, *_, others) = office.requests
    assert "Zephyrine" in own.messages[0].text
    assert others.messages[0].text == "Count sheep."
    assert "Zephyrine" not in "".join(message.text for message in others.messages)
    assert [each.name for each in others.tools] == ["speak"]
    assert (own.model, others.model) == ("one", "two")
    assert "Started by: subagent" in others.messages[-1].text


async def test_rules_of_the_parent_apply_to_its_children(office: Desk) -> None:
    child = assign("b", "say it", tools=[{"allow": ["*"]}])
    async with office.open():
        await office.say(assign("a", child, tools=[{"allow": ["assign"]}]))
        await ended(office, 2)
    names = {
        message.text.splitlines()[-1]: [each.name for each in request.tools]
        for request in office.requests
        for message in request.messages[-1:]
    }
    assert names["say it"] == ["assign"]


async def test_calls_of_the_model_are_counted(office: Desk) -> None:
    async def answer(request: ChatRequest) -> LLMResponse:
        if wish_of(request) == "loop" and request.tools:
            number = str(len(request.messages))
            return asks(ToolCall(f"c{number}", "speak", {"chat": "9", "text": number}))
        return await obey(request)

    office.answer = answer
    async with office.open():
        await office.say(assign("a", "loop", max_iterations=3))
        (end,) = await ended(office)
    assert end["stop_reason"] == "iteration_limit"
    assert len(office.texts("9", kind="notice")) == 3


@pytest.mark.parametrize("command", ["/new", "/stop", "/status"])
async def test_a_slash_command_in_a_task_is_not_run(office: Desk, command: str) -> None:
    async with office.open():
        await office.say(assign("a", command, session_key="", parent=None))
        (end,) = await ended(office)
    assert end["reply"] == f"re: {command}"


async def test_work_in_a_call_returns_its_answer_and_sends_where_it_says(office: Desk) -> None:
    wish = 'call speak {"chat": "1", "text": "psst"}'
    async with office.open():
        await office.say(assign("a", wish, "work"))
        assert await office.replies(1) == ["a ended (completed): spoken"]
    assert office.texts(kind="notice") == ["psst"]
    assert ends(office) == []


async def test_work_in_a_call_never_waits_for_the_turn_of_that_call(office: Desk) -> None:
    async with office.open():
        await office.say(assign("a", "say it", "work", session_key=""))
        (answer,) = await office.replies(1)
    assert "needs a session of its own" in answer


async def test_work_that_is_tried_too_often_is_reported_and_no_chat_learns_of_it(
    office: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with office.open():
        await office.say("hello")
        await office.replies(1)
        monkeypatch.setattr(dispatcher, "MAX_ATTEMPTS", 0)
        access = await gateway(office)
        requester = Requester(channel="desk", chat_id="1", sender_id="me", session_key="desk:1")
        given = Assignment(plugin=delegator.plugin_id(), id="a", source="cron", requester=requester)
        await access.assign(given, "say it")
        (end,) = await ended(office)
        assert (end["stop_reason"], end["error"]) == ("failed", "tried 0 times without an answer")
        assert (await access.status()).depth.dead == 1
    assert office.texts() == ["re: hello"]


async def test_work_does_not_move_the_chat_in_which_the_owner_last_wrote(office: Desk) -> None:
    async with office.open():
        await office.say(assign("a", "say it"), "1")
        await ended(office)
        await office.say("hello", "2")
        await office.replies(1, "2")
        await office.say(
            assign("b", "call assign " + json.dumps({"name": "c", "content": "d"})), "2"
        )
        await ended(office, 2)
        access = await gateway(office)
        requester = Requester(
            channel="desk", chat_id="1", sender_id="me", session_key="desk:1", authority="owner"
        )
        given = Assignment(plugin=delegator.plugin_id(), id="z", source="cron", requester=requester)
        await access.assign(given, "say it")
        await ended(office, 4)
        assert access.owners_chat == ("desk", "2")


async def test_people_do_not_wait_for_any_amount_of_work(office: Desk) -> None:
    async def answer(request: ChatRequest) -> LLMResponse:
        if wish_of(request) == "hang":
            await asyncio.Event().wait()
        return await obey(request)

    office.answer = answer
    office.settings["agents.max_concurrent_turns"] = 4
    async with office.open():
        access = await gateway(office)
        asked = Requester(channel="desk", chat_id="1", sender_id="me", session_key="desk:1")
        for number in range(8):
            given = Assignment(
                plugin="x",
                id=str(number),
                source="cron",
                requester=asked,
                session_key=f"work:{number}",
                parent="desk:1",
            )
            await access.assign(given, "hang")
        await office.until(lambda: len(office.requests) == 3)
        await office.say("hello")
        assert await office.replies(1) == ["re: hello"]
        assert len(office.requests) == 4
        await office.say("/stop")
        await office.until(lambda: "Stopped." in office.texts())
        assert (await access.status()).depth.inbound == 0
