"""Which results of work join the turn of a chat, and which messages join the turn of work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nanobot_core import Assignment, ChatRequest, LLMResponse, Requester, ToolCall, ToolRule
from tests.strangers import delegator
from tests.unit.turns.conftest import Desk, asks, wish_of
from tests.unit.turns.test_assigned_work import ended, ends, gateway, obey
from tests.unit.turns.test_rights_of_work import where

pytestmark = pytest.mark.anyio


class Gate:
    """A model that calls a tool for ``wait``, and answers when the gate is open."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.waiting = 0

    async def answer(self, request: ChatRequest) -> LLMResponse:
        if request.messages[-1].text.endswith("wait"):
            self.waiting += 1
            await self.is_open.wait()
            return asks(ToolCall("w", "where", {}))
        if request.messages[-1].role == "tool":
            return LLMResponse(content="alone")
        return await obey(request)


@pytest.fixture
def gate(desk: Desk) -> Gate:
    made = Gate()
    desk.settings["agents.defaults.steering"] = True
    desk.answer, desk.tools, desk.plugins = made.answer, (where,), (delegator,)
    return made


def result(name: str = "a", sender: str = "me", **more: Any) -> Assignment:
    who = {"channel": "desk", "chat_id": "1", "sender_id": sender, "session_key": "desk:1"}
    limits = {"authority": "owner", "is_group": False, "tools": ()}
    asked = Requester(**(who | {key: more.pop(key, value) for key, value in limits.items()}))
    fields: dict[str, Any] = {"plugin": delegator.plugin_id(), "source": "subagent"} | more
    return Assignment(id=name, requester=asked, **fields)


@pytest.mark.parametrize("steering", [True, False])
async def test_results_join_the_turn_of_the_person_who_asked(
    desk: Desk, gate: Gate, steering: bool
) -> None:
    desk.settings["agents.defaults.steering"] = steering
    async with desk.open():
        access = await gateway(desk)
        await desk.say("wait")
        await desk.until(lambda: gate.waiting)
        for name in "ab":
            await access.assign(result(name), f"result {name}")
        gate.is_open.set()
        assert await desk.replies(1) == ["re: result b"]
        found = {end["id"]: (end["reply"], end["session"]) for end in await ended(desk, 2)}
        assert found == dict.fromkeys("ab", ("re: result b", "desk:1"))
    assert [wish_of(request) for request in desk.requests] == ["wait", "result b"]
    assert "result a" in "".join(message.text for message in desk.requests[-1].messages[-2:])


async def test_messages_of_people_wait_without_steering_and_nothing_overtakes_them(
    desk: Desk, gate: Gate
) -> None:
    desk.settings["agents.defaults.steering"] = False
    async with desk.open():
        access = await gateway(desk)
        await desk.say("wait")
        await desk.until(lambda: gate.waiting)
        await access.assign(result("a"), "result a")
        await desk.say("by the way")
        await access.assign(result("b"), "result b")
        gate.is_open.set()
        assert await desk.replies(3) == ["re: result a", "re: by the way", "re: result b"]


async def test_results_that_wait_have_one_answer(desk: Desk, gate: Gate) -> None:
    desk.settings |= {"agents.defaults.steering": False, "agents.max_concurrent_turns": 1}
    async with desk.open():
        access = await gateway(desk)
        await desk.say("wait", "2", sender="you")
        await desk.until(lambda: gate.waiting)
        for number in range(5):
            await access.assign(result(str(number)), f"result {number}")
        gate.is_open.set()
        found = {end["id"]: end["reply"] for end in await ended(desk, 5)}
        assert await desk.replies(1) == ["re: result 4"]
    assert found == {str(number): "re: result 4" for number in range(5)}
    assert len(desk.requests) == 3


@pytest.mark.parametrize(
    "other",
    [
        {"sender": "you"},
        {"authority": "guest"},
        {"authority": "machine", "sender": "user"},
        {"tools": (ToolRule(deny=("where",)),)},
        {"model": "desk/two"},
        {"max_iterations": 3},
        {"instructions": "Be brief."},
        {"delivery": "when_notable"},
        {"delivery": "never"},
    ],
)
async def test_results_with_other_rights_or_limits_have_a_turn_of_their_own(
    desk: Desk, gate: Gate, other: dict[str, Any]
) -> None:
    async with desk.open():
        access = await gateway(desk)
        await desk.say("wait")
        await desk.until(lambda: gate.waiting)
        await access.assign(result(**other), "result")
        gate.is_open.set()
        (end,) = await ended(desk)
        assert "alone" in await desk.replies(1)
    assert end["is_owner"] == (other.get("authority") != "guest" and other.get("sender") != "you")
    assert [wish_of(request) for request in desk.requests[:2]] == ["wait", "wait"]


@pytest.mark.parametrize(
    ("text", "more", "joins"),
    [
        ("by the way", {}, True),
        ("/status", {}, False),
        ("/model", {}, False),
        ("by the way", {"tools": (ToolRule(allow=("where",)),)}, False),
        ("by the way", {"authority": "guest"}, False),
        ("by the way", {"sender": "you"}, False),
    ],
)
async def test_a_message_joins_only_what_has_the_rights_of_its_sender(
    desk: Desk, gate: Gate, text: str, more: dict[str, Any], joins: bool
) -> None:
    async with desk.open():
        access = await gateway(desk)
        await access.assign(result(**more), "wait")
        await desk.until(lambda: gate.waiting)
        await desk.say(text)
        gate.is_open.set()
        await ended(desk)
        await desk.replies(1 if joins else 2)
    assert [text in wish_of(request) for request in desk.requests[1:2]] == [joins]
    assert ("alone" in desk.texts()) == (not joins)
    assert len(ends(desk)) == 1
