"""Turns of a whole agent: stored, answered, and reported when they fail."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from nanobot_core import (
    AuthenticationFailed,
    ContextRequested,
    ErrorRaised,
    InboundMessage,
    IterationStarted,
    TextStreamed,
    ToolDefinition,
    ToolsOffered,
    TurnOutcome,
    TurnStarted,
    Usage,
    on,
)
from nanobot_core.agent.shortening import RUNTIME_END
from nanobot_core.events import RunEvent
from nanobot_core.testing import FakeReply
from nanobot_core.tools import tool
from nanobot_core.turns.request import TurnRequest
from tests.integration.conftest import Start, call, history, started
from tests.scripted_provider import ScriptedPlugin
from tests.unit.agent.conftest import PIXEL

pytestmark = pytest.mark.anyio


# --- an ordinary turn ------------------------------------------------------------------------


async def test_a_turn_is_answered_and_stored(start: Start) -> None:
    script = ScriptedPlugin(
        FakeReply(pieces=("Hello!",), usage=Usage(prompt_tokens=9)), "Yes, you said hi."
    )
    async with start(script) as bot:
        first = await bot.run("hi")
        second = await bot.run("do you remember?")
        stored = await history(bot)
    assert (first.reply, first.stop_reason, first.error) == ("Hello!", "completed", None)
    assert first.usage.prompt_tokens == 9
    assert first.model == script.model
    assert first.duration_s > 0
    assert second.reply == "Yes, you said hi."
    assert [(m.role, m.text) for m in stored] == [
        ("user", "hi"),
        ("assistant", "Hello!"),
        ("user", "do you remember?"),
        ("assistant", "Yes, you said hi."),
    ]
    assert stored[0].inbound_id
    first_sent, second_sent = (request.messages for request in script.provider.requests)
    assert first_sent[1].text.endswith(f"{RUNTIME_END}\n\nhi")
    assert second_sent[:2] == first_sent, "the prompt cache applies"


async def test_a_text_of_the_owner_replaces_one_of_nanobot(start: Start, tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "identity.md").write_text("You are Bo, at home in {{workspace}}.")
    (tmp_path / "prompts" / "execution.md").write_text("Hurry to {{nowhere}}.")
    script = ScriptedPlugin("hello")
    async with start(script) as bot:
        await bot.run("hi")
        place = bot.loaded.workspace.resolve()
    system = script.provider.requests[0].messages[0].text
    assert system.startswith(f"You are Bo, at home in {place}.\n\n## How to work\n")
    assert "nowhere" not in system


async def test_the_beginning_of_requests_does_not_change_from_turn_to_turn(start: Start) -> None:
    @tool
    def one(text: str = "") -> str:
        """One."""
        return text

    script = ScriptedPlugin("a", "b", "c")
    async with start(script) as bot:
        bot.tools.register(one)
        for _ in range(3):
            await bot.run("hi")
    requests = script.provider.requests
    assert len({request.messages[0].text for request in requests}) == 1
    assert requests[0].tools == requests[1].tools == requests[2].tools
    for former, latter in pairwise(requests):
        assert latter.messages[: len(former.messages) - 1] == former.messages[:-1]


async def test_events_come_in_order_and_the_outcome_last(start: Start) -> None:
    async with start(FakeReply(pieces=("Hel", "lo"))) as bot:
        events = [event async for event in bot.stream("hi")]
    assert [type(event) for event in events] == [TextStreamed, TextStreamed, TurnOutcome]
    assert isinstance(events[-1], TurnOutcome)
    assert events[-1].reply == "Hello"


async def test_a_tool_registered_in_a_running_agent_is_offered_in_the_next_turn(
    start: Start,
) -> None:
    @tool
    def late() -> str:
        """Late."""
        return "here"

    script = ScriptedPlugin("none yet", call("late"), "called")
    async with start(script) as bot:
        await bot.run("hi")
        bot.tools.register(late)
        outcome = await bot.run("now")
    assert [tool.name for tool in script.provider.requests[0].tools] == []
    assert [tool.name for tool in script.provider.requests[1].tools] == ["late"]
    assert (outcome.reply, outcome.tools_used) == ("called", ("late",))


async def test_tools_are_narrowed_by_the_owner_and_by_hooks(start: Start) -> None:
    named: list[list[str]] = []

    class Narrow:
        @on.gather_context
        def names(self, event: ContextRequested) -> None:
            named.append(list(event.tools))

        @on.rewrite_tools
        def fewer(self, event: ToolsOffered) -> tuple[ToolDefinition, ...] | None:
            if event.turn.session_key != "small":
                return None
            return tuple(item for item in event.tools if item.name != "b_two")

    script = ScriptedPlugin("1", "2")
    async with start(
        script, plugins=(Narrow(),), tools__allow=["a_*", "b_*"], tools__deny=["*_one"]
    ) as bot:
        for name in ("a_one", "a_two", "b_two", "c_two"):

            @tool(name=name)
            def some() -> str:
                """Some."""
                return ""

            bot.tools.register(some)
        await bot.run("hi")
        await bot.run("hi", session="small")
    offered = [[item.name for item in request.tools] for request in script.provider.requests]
    assert offered == [["a_two", "b_two"], ["a_two"]]
    assert named == offered


async def test_files_that_come_with_a_message_are_shown_once_and_remembered(
    start: Start, tmp_path: Path
) -> None:
    picture = tmp_path / "cat.png"
    picture.write_bytes(PIXEL)
    script = ScriptedPlugin("a cat", "you sent it")
    async with start(script) as bot:
        await bot.run("", media=[str(picture)])
        await bot.run("what was it?")
        stored = await history(bot)
    assert isinstance(script.provider.requests[0].messages[-1].content, tuple)
    assert stored[0].text == f"Attached file: {picture}"
    again = script.provider.requests[1].messages[1].text
    assert again.endswith(f"{RUNTIME_END}\n\nAttached file: {picture}")


async def test_stored_results_are_cut_and_the_model_saw_them_whole(start: Start) -> None:
    @tool
    def big() -> str:
        """Big."""
        return "x" * 10_000

    script = ScriptedPlugin(call("big"), "done")
    async with start(script) as bot:
        bot.tools.register(big)
        await bot.run("go")
        stored = await history(bot)
    assert len(script.provider.requests[1].messages[-1].text) == 10_000
    assert len(stored[2].text) < 4_200


async def test_two_agents_in_one_process_share_nothing(tmp_path: Path) -> None:
    class Counter:
        def __init__(self) -> None:
            self.turns = 0

        @on.before_turn
        def count(self, event: TurnStarted) -> None:
            self.turns += 1

    one, two, scripts = Counter(), Counter(), (ScriptedPlugin("one"), ScriptedPlugin("two", "2"))
    async with (
        started(tmp_path / "1", scripts[0], one) as first,
        started(tmp_path / "2", scripts[1], two) as second,
    ):
        outcomes = await asyncio.gather(first.run("hi"), second.run("hi"))
        await second.run("again")
        assert [outcome.reply for outcome in outcomes] == ["one", "two"]
        assert len(await history(first)) == 2
    assert (one.turns, two.turns) == (1, 2)
    assert scripts[0].provider.closed
    assert scripts[1].provider.closed


async def test_turns_of_one_session_wait_for_each_other_and_others_do_not(start: Start) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    class Begins:
        @on.before_iteration
        def note(self, event: IterationStarted) -> None:
            begun.set()

    script = ScriptedPlugin(FakeReply(pieces=("slow",), gate=gate), "other", "second")
    async with start(script, plugins=(Begins(),)) as bot, asyncio.TaskGroup() as group:
        first = group.create_task(bot.run("first"))
        await begun.wait()
        second = group.create_task(bot.run("second"))
        other = await bot.run("elsewhere", session="other")
        assert other.reply == "other"
        assert not second.done()
        gate.set()
    assert (first.result().reply, second.result().reply) == ("slow", "second")


# --- failures --------------------------------------------------------------------------------


async def test_a_refused_key_is_reported_once_with_an_id_and_the_session_goes_on(
    start: Start,
) -> None:
    errors: list[ErrorRaised] = []

    class Listens:
        @on.on_error
        def note(self, event: ErrorRaised) -> None:
            errors.append(event)

    refused = AuthenticationFailed("p", "the key is not accepted; set providers.p.api_key")
    script = ScriptedPlugin(refused, "hello")
    async with start(script, plugins=(Listens(),)) as bot:
        outcome = await bot.run("hi")
        assert outcome.stop_reason == "failed"
        assert outcome.reply is None
        assert outcome.error == (
            "provider 'p': the key is not accepted; set providers.p.api_key "
            f"(error {outcome.error_id})"
        )
        assert (await bot.run("again")).reply == "hello"
    assert [(error.id, error.error_type) for error in errors] == [
        (outcome.error_id, "AuthenticationFailed")
    ]


async def test_an_unforeseen_error_is_told_with_an_id_and_no_details(start: Start) -> None:
    async def broken(event: RunEvent) -> None:
        if not isinstance(event, TurnOutcome):
            raise LookupError("a secret detail")

    async with start("hello", "again") as bot:
        request = TurnRequest(
            message=InboundMessage(channel="t", sender_id="me", chat_id="1", content="hi"),
            on_event=broken,
        )
        outcome = await bot.process_direct(request)
        assert outcome.error is not None
        assert outcome.error_id is not None
        assert outcome.error_id in outcome.error
        assert "secret" not in outcome.error
        assert (await bot.run("hi", session="t:1")).reply == "again"


async def test_an_empty_answer_ends_as_a_sentence(start: Start) -> None:
    async with start("", "") as bot:
        outcome = await bot.run("hi")
    assert outcome.stop_reason == "failed"
    assert outcome.reply == outcome.error
    assert "no answer" in (outcome.reply or "")


async def test_without_a_provider_the_error_says_what_to_set(tmp_path: Path) -> None:
    script = ScriptedPlugin()
    async with started(tmp_path, script, agents__defaults__model="gpt-9") as bot:
        outcome = await bot.run("hi")
        assert "no provider is configured for model 'gpt-9'" in (outcome.error or "")
        stream = [event async for event in bot.stream("hi")]
        assert isinstance(stream[-1], TurnOutcome)
