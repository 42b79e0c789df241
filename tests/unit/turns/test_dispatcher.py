"""Which message is answered when."""

from __future__ import annotations

import asyncio

import pytest

from nanobot_core import ChatRequest, LLMResponse, OutboundMessage, ToolCall, ToolContext, tool
from nanobot_core.app.gateway import Gateway
from nanobot_core.turns import dispatcher as module, running
from nanobot_core.turns.pipeline import UNKNOWN_COMMAND
from tests.unit.turns.conftest import Desk, DoomedBus, asks, echo, wish_of

pytestmark = pytest.mark.anyio


class Gates:
    """A model that answers ``wait NAME`` when the gate of that name is opened."""

    def __init__(self) -> None:
        self._gates: dict[str, asyncio.Event] = {}
        self.inside: list[str] = []

    def gate(self, name: str) -> asyncio.Event:
        return self._gates.setdefault(name, asyncio.Event())

    async def answer(self, request: ChatRequest) -> LLMResponse:
        wish = wish_of(request)
        verb, _, name = wish.partition(" ")
        if verb == "wait":
            self.inside.append(name)
            try:
                await self.gate(name).wait()
            finally:
                self.inside.remove(name)
        return await echo(request)


@pytest.fixture
def gates(desk: Desk) -> Gates:
    made = Gates()
    desk.answer = made.answer
    return made


async def test_messages_of_a_session_are_answered_in_order(desk: Desk) -> None:
    async with desk.open():
        for number in range(8):
            await desk.say(str(number))
        assert await desk.replies(8) == [f"re: {number}" for number in range(8)]
    assert [message.reply_to for message in desk.sent] == sorted(
        (message.reply_to for message in desk.sent), key=lambda key: int((key or "p0")[1:])
    )


async def test_sessions_go_on_side_by_side(desk: Desk, gates: Gates) -> None:
    async with desk.open():
        await desk.say("wait a", "a")
        await desk.until(lambda: gates.inside == ["a"])
        await desk.say("quick", "b")
        assert await desk.replies(1, "b") == ["re: quick"]
        await desk.say("behind", "a")
        assert desk.texts("a") == []
        gates.gate("a").set()
        assert await desk.replies(2, "a") == ["re: wait a", "re: behind"]


async def test_no_more_turns_run_than_may(desk: Desk, gates: Gates) -> None:
    desk.settings["agents.max_concurrent_turns"] = 2
    async with desk.open():
        for name in "abc":
            await desk.say(f"wait {name}", name)
        await desk.until(lambda: len(gates.inside) == 2)
        assert set(gates.inside) == {"a", "b"}
        gates.gate("b").set()
        await desk.until(lambda: set(gates.inside) == {"a", "c"})
        for name in "ac":
            gates.gate(name).set()
        await desk.replies(1, "c")


async def test_a_control_command_is_answered_beside_a_turn(desk: Desk, gates: Gates) -> None:
    async with desk.open():
        await desk.say("wait a")
        await desk.until(lambda: gates.inside)
        await desk.say("/status")
        assert "Model:" in (await desk.replies(1))[0]
        gates.gate("a").set()
        assert (await desk.replies(2))[1] == "re: wait a"


async def test_stop_ends_a_model_call_and_the_next_message_works(desk: Desk, gates: Gates) -> None:
    async with desk.open():
        await desk.say("wait a")
        await desk.until(lambda: gates.inside)
        await desk.say("/stop")
        assert await desk.replies(1) == ["Stopped."]
        assert gates.inside == []
        await desk.say("next")
        assert await desk.replies(2) == ["Stopped.", "re: next"]
        await desk.say("/stop")
        assert (await desk.replies(3))[2] == "Nothing is running in this chat."


async def test_stop_ends_a_tool_and_its_effect_never_shows(desk: Desk) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def work(context: ToolContext) -> str:
        """Work."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "late"

    async def answer(request: ChatRequest) -> LLMResponse:
        if request.messages[-1].role == "user" and wish_of(request) == "go":
            return asks(ToolCall("c", "work", {}))
        return await echo(request)

    desk.tools, desk.answer = [work], answer
    async with desk.open():
        await desk.say("go")
        await begun.wait()
        await desk.say("/stop")
        assert await desk.replies(1) == ["Stopped."]
        assert ended.is_set()
        await desk.say("next")
        assert await desk.replies(2) == ["Stopped.", "re: next"]
    assert not any("late" in message.content for message in desk.sent)


async def test_stop_reaches_a_turn_that_waits_for_its_turn(desk: Desk, gates: Gates) -> None:
    desk.settings["agents.max_concurrent_turns"] = 1
    async with desk.open():
        await desk.say("wait a", "a")
        await desk.until(lambda: gates.inside)
        await desk.say("waits", "b")
        await desk.say("/stop", "b")
        assert await desk.replies(1, "b") == ["Stopped."]
        gates.gate("a").set()
        await desk.replies(1, "a")
        await desk.say("next", "b")
        assert await desk.replies(2, "b") == ["Stopped.", "re: next"]


async def test_what_is_said_after_a_stop_is_answered(desk: Desk) -> None:
    async with desk.open():
        await desk.say("/stop")
        await desk.say("next")
        assert sorted(await desk.replies(2)) == ["Nothing is running in this chat.", "re: next"]


async def test_a_tool_that_ignores_its_end_does_not_hold_up_the_answer_to_stop(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "TURN_END_S", 0.05)
    begun, gate = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn(context: ToolContext) -> str:
        """Stay."""
        begun.set()
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return "done"

    async def answer(request: ChatRequest) -> LLMResponse:
        return asks(ToolCall("c", "stubborn", {}))

    desk.tools, desk.answer = [stubborn], answer
    async with desk.open():
        await desk.say("go")
        await begun.wait()
        await desk.say("/stop")
        assert await desk.replies(1) == ["Stopped."]
        gate.set()


async def test_what_is_said_meanwhile_goes_into_the_turn(desk: Desk) -> None:
    desk.settings["agents.defaults.steering"] = True
    begun, gate = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def look(context: ToolContext) -> str:
        """Look."""
        begun.set()
        await gate.wait()
        return "seen"

    async def answer(request: ChatRequest) -> LLMResponse:
        if len(desk.requests) == 1:
            return asks(ToolCall("c", "look", {}))
        words = [m.text.splitlines()[-1] for m in request.messages if m.role == "user"]
        return LLMResponse(content=" + ".join(words))

    desk.tools, desk.answer = [look], answer
    async with desk.open():
        await desk.say("one")
        await begun.wait()
        await desk.say("two")
        await desk.say("of a guest", sender="guest")
        await desk.say("three")
        gate.set()
        found = await desk.replies(3)
    assert found[0] == "one + two"
    assert found[1].endswith("of a guest"), "another person's words are a turn of their own"
    assert found[2].endswith("three"), "and nobody overtakes them"


@pytest.mark.parametrize("wanted", [False, True])
async def test_an_answer_after_a_message_of_a_tool_is_sent_where_the_owner_wants_it(
    desk: Desk, wanted: bool
) -> None:
    desk.settings |= {
        "channels.send_final_after_message": wanted,
        "agents.defaults.steering": False,
    }

    @tool
    async def write(context: ToolContext) -> str:
        """Write to the chat."""
        await context.send(
            OutboundMessage(channel=context.channel, chat_id=context.chat_id, content="Here it is.")
        )
        return "sent"

    async def answer(request: ChatRequest) -> LLMResponse:
        if wish_of(request) != "write":
            return await echo(request)
        if request.messages[-1].role == "tool":
            return LLMResponse(content="I sent it.")
        return asks(ToolCall("c", "write", {}))

    desk.tools, desk.answer = [write], answer
    async with desk.open():
        await desk.say("write")
        await desk.until(desk.texts)
        await desk.say("and?")
        await desk.until(lambda: "re: and?" in desk.texts())
    assert desk.texts() == ["Here it is.", *(["I sent it."] if wanted else []), "re: and?"]


async def test_the_answer_to_what_is_said_meanwhile_is_sent_after_a_tool_has_written(
    desk: Desk,
) -> None:
    desk.settings["agents.defaults.steering"] = True
    begun, gate = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def tell(context: ToolContext) -> str:
        """Write to the chat."""
        await context.send(
            OutboundMessage(channel=context.channel, chat_id=context.chat_id, content="told")
        )
        begun.set()
        await gate.wait()
        return "sent"

    async def answer(request: ChatRequest) -> LLMResponse:
        if len(desk.requests) == 1:
            return asks(ToolCall("c", "tell", {}))
        return LLMResponse(content="I have told you, and now this.")

    desk.tools, desk.answer = [tell], answer
    async with desk.open():
        await desk.say("tell me")
        await begun.wait()
        await desk.say("and this?")
        gate.set()
        assert await desk.replies(2) == ["told", "I have told you, and now this."]


async def test_a_command_said_meanwhile_waits_for_the_end_of_the_turn(desk: Desk) -> None:
    desk.settings["agents.defaults.steering"] = True
    begun, gate = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def look(context: ToolContext, n: int) -> str:
        """Look."""
        begun.set()
        await gate.wait()
        return "seen"

    async def answer(request: ChatRequest) -> LLMResponse:
        if len(desk.requests) < 8:
            return asks(ToolCall(f"c{len(desk.requests)}", "look", {"n": len(desk.requests)}))
        return await echo(request)

    desk.tools, desk.answer = [look], answer
    async with desk.open():
        await desk.say("one")
        await begun.wait()
        await desk.say("/new")
        gate.set()
        assert await desk.replies(2) == ["re: one", "Started a new conversation."]


async def test_turns_under_way_end_before_the_gateway_does(desk: Desk, gates: Gates) -> None:
    async with desk.open():
        await desk.say("wait a")
        await desk.until(lambda: gates.inside)
        desk.stop()
        await asyncio.sleep(0)
        gates.gate("a").set()
    assert desk.texts() == ["re: wait a"]


async def test_what_does_not_end_in_time_is_answered_by_the_next_process(
    desk: Desk, gates: Gates
) -> None:
    async with desk.open():
        await desk.say("wait a")
        await desk.say("behind")
        await desk.until(lambda: gates.inside)
    assert desk.texts() == []
    gates.gate("a").set()
    async with desk.open():
        assert await desk.replies(2) == ["re: wait a", "re: behind"]


async def test_a_message_that_ends_the_process_again_and_again_is_given_up(desk: Desk) -> None:
    from tests.unit.turns.conftest import Death

    async def answer(request: ChatRequest) -> LLMResponse:
        if wish_of(request) == "poison":
            desk.death.came.set()
            desk.death.point("a crash")
        return await echo(request)

    desk.answer = answer
    desk.waiting = [desk.message("poison"), desk.message("fine")]
    for _ in range(module.MAX_ATTEMPTS):
        desk.death = Death()
        async with desk.open():
            await desk.death.came.wait()
    desk.death = Death()
    async with desk.open():
        assert await desk.replies(2) == [module.GIVEN_UP, "re: fine"]
    bus = await DoomedBus.open(desk.home / "gateway" / "bus.sqlite", clock=desk.clock)
    (letter,) = await bus.dead_letters()
    await bus.aclose()
    assert (letter.message.content, letter.attempts) == ("poison", module.MAX_ATTEMPTS + 1)
    assert letter.reason == "tried 5 times without an answer"


async def test_a_full_disk_at_the_end_of_a_turn_costs_time_and_no_answer(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from collections.abc import Sequence

    from nanobot_core import BusError
    from nanobot_core.contracts.bus import Lease

    real, failures = DoomedBus.acknowledge, [BusError("full")] * 3

    async def acknowledge(
        bus: DoomedBus, lease: Lease, *, replies: Sequence[OutboundMessage] = ()
    ) -> None:
        if failures:
            raise failures.pop()
        await real(bus, lease, replies=replies)

    monkeypatch.setattr(DoomedBus, "acknowledge", acknowledge)
    async with desk.open():
        await desk.say("one")
        await desk.say("two")
        while len(desk.texts()) < 2:
            await desk.clock.advance(1)
            await asyncio.sleep(0.005)
    assert desk.texts() == ["re: one", "re: two"]
    assert failures == []


async def test_a_turn_that_waits_for_the_owner_lets_others_run(desk: Desk) -> None:
    """Several calls of one turn may wait; each comes back, and the turn holds one slot."""
    desk.settings |= {
        "agents.max_concurrent_turns": 1,
        "tools.approval": [{"tool": "risky", "action": "ask"}],
    }

    @tool(read_only=True)
    async def risky(context: ToolContext, what: str) -> str:
        """Do something risky."""
        return f"did {what}"

    async def answer(request: ChatRequest) -> LLMResponse:
        if request.messages[-1].role == "user" and wish_of(request) == "go":
            return asks(*(ToolCall(f"c{n}", "risky", {"what": n}) for n in "xyz"))
        return await echo(request)

    desk.tools, desk.answer = [risky], answer
    async with desk.open():
        await desk.say("go", "a")
        await desk.until(lambda: len(desk.texts("a", "notice")) == 3)
        await desk.say("quick", "b")
        assert await desk.replies(1, "b") == ["re: quick"]
        questions = [message for message in desk.sent if message.kind == "notice"]
        for number, question in enumerate(questions):
            value = question.buttons[0][0].value
            await desk.say(value, "a")
            await desk.replies(number + 1, "a")
        assert (await desk.replies(4, "a"))[-1] == "re: go"
        # Every slot is there again, and not one more.
        for chat in "cd":
            await desk.say("quick", chat)
            assert await desk.replies(1, chat) == ["re: quick"]
        assert desk.bot is not None


async def test_a_question_outlives_the_process(desk: Desk) -> None:
    desk.settings["tools.approval"] = [{"tool": "risky", "action": "ask"}]
    done: list[str] = []

    @tool
    async def risky(context: ToolContext) -> str:
        """Do something risky."""
        done.append("x")
        return "did it"

    async def answer(request: ChatRequest) -> LLMResponse:
        if request.messages[-1].role == "user" and wish_of(request) == "go":
            return asks(ToolCall("c", "risky", {}))
        return LLMResponse(content=request.messages[-1].text)

    desk.tools, desk.answer = [risky], answer
    desk.settings["gateway.grace_s"] = 0.5
    async with desk.open():
        await desk.say("go")
        await desk.until(lambda: desk.texts(kind="notice"))
    assert done == []
    (question,) = [message for message in desk.sent if message.kind == "notice"]
    async with desk.open():
        await desk.until(lambda: desk.bot is not None and desk.inbox is not None)
        await desk.say(question.buttons[0][0].value)
        assert sorted(await desk.replies(2)) == ["Approved.", "did it"]
    assert done == ["x"]
    assert desk.texts(kind="notice") == [question.content], "it is not asked twice"


async def test_who_is_not_the_owner_commands_nothing(desk: Desk) -> None:
    async with desk.open():
        await desk.say("/plugins", sender="guest")
        assert await desk.replies(1) == ["/plugins is for the owner only."]


async def test_a_control_command_whose_plugin_has_gone_is_answered(desk: Desk) -> None:
    async with desk.open():
        await desk.until(lambda: desk.inbox is not None)
        gateway = desk.access
        assert isinstance(gateway, Gateway)
        await gateway.bus.publish_inbound(desk.message("/gone", is_control=True, id="gone"))
        assert await desk.replies(1) == [UNKNOWN_COMMAND]
