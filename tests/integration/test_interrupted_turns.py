"""Turns of a whole agent that are stopped or that a crash interrupts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NoReturn

import pytest

from nanobot_core import (
    AgentHook,
    ContentReady,
    ContextRequested,
    InboundMessage,
    IterationFinished,
    IterationStarted,
    Message,
    Nanobot,
    PluginContext,
    TextStreamed,
    Tool,
    ToolBatchStarted,
    ToolCallProposed,
    TurnOutcome,
    TurnStarted,
    on,
)
from nanobot_core.contracts.store import Checkpoint, SessionState
from nanobot_core.events import NoticeGiven, RunEvent
from nanobot_core.sessions.history import OUTCOME_UNKNOWN, align
from nanobot_core.testing import FakeReply
from nanobot_core.tools import tool
from nanobot_core.turns.recorder import INTERRUPTED
from nanobot_core.turns.request import TurnRequest
from tests.integration.conftest import KEY, Start, call, history
from tests.scripted_provider import ScriptedPlugin

pytestmark = pytest.mark.anyio


# --- stopping --------------------------------------------------------------------------------


async def test_leaving_the_stream_early_stops_the_turn(start: Start) -> None:
    gate = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return ""

    ended: list[TurnOutcome] = []

    class Listens:
        @on.after_turn
        def note(self, event: TurnOutcome) -> None:
            ended.append(event)

    script = ScriptedPlugin(FakeReply(pieces=("Wait.",), tool_calls=(call("wait"),)), "next")
    async with start(script, plugins=(Listens(),)) as bot:
        bot.tools.register(wait)
        async with asyncio.timeout(5):
            stream = bot.stream("hi")
            async for _ in stream:
                break
            await stream.aclose()  # type: ignore[attr-defined]  # an async generator
            assert (await bot.run("again")).reply == "next"
        stored = await history(bot)
    assert [outcome.stop_reason for outcome in ended] == ["cancelled", "completed"]
    assert [message.role for message in align(stored)] == [m.role for m in stored]
    assert INTERRUPTED in stored[-3].text


class Stops:
    """Cancels a turn at the n-th point that it passes, at its next wait from there on."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.task: asyncio.Task[Any] | None = None

    def point(self, event: object = None) -> None:
        self.left -= 1
        if self.left == 0 and self.task is not None:
            asyncio.get_running_loop().call_soon(self.task.cancel)

    async def on_event(self, event: RunEvent) -> None:
        self.point()
        await asyncio.sleep(0)

    @on.before_turn
    def before_turn(self, event: TurnStarted) -> None:
        self.point()

    @on.gather_context
    def gather_context(self, event: ContextRequested) -> None:
        self.point()

    @on.before_iteration
    def before_iteration(self, event: IterationStarted) -> None:
        self.point()

    @on.after_iteration
    def after_iteration(self, event: IterationFinished) -> None:
        self.point()

    @on.before_execute_tools
    def before_execute_tools(self, event: ToolBatchStarted) -> None:
        self.point()

    @on.authorize_tool_call
    def authorize_tool_call(self, event: ToolCallProposed) -> None:
        self.point()

    @on.finalize_content
    def finalize_content(self, event: ContentReady) -> None:
        self.point()


@pytest.mark.parametrize("at", range(1, 41))
async def test_a_turn_stopped_anywhere_leaves_a_legal_history(start: Start, at: int) -> None:
    stops = Stops(at)

    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        stops.point()
        await asyncio.sleep(0)
        return "seen"

    @tool
    async def act() -> str:
        """Act."""
        stops.point()
        await asyncio.sleep(0)
        return "done"

    calls = FakeReply(
        pieces=("I ", "look."),
        tool_calls=(call("look", "1"), call("look", "2"), call("act", "3")),
    )
    script, other = ScriptedPlugin(calls, call("act", "4"), "whole answer"), ScriptedPlugin("fine")
    message = InboundMessage(channel="t", sender_id="me", chat_id="1", content="work")
    async with start(script, plugins=(stops, other)) as bot, asyncio.timeout(5):
        bot.tools.register(look)
        bot.tools.register(act)
        turn = bot.process_direct(TurnRequest(message=message, on_event=stops.on_event))
        stops.task = asyncio.get_running_loop().create_task(turn)
        await asyncio.wait({stops.task})
        was_stopped, was_reached, stops.task = stops.task.cancelled(), stops.left <= 0, None
        outcome = await bot.run("next", session="t:1", model=other.model)
        stored = await history(bot, "t:1")
    assert was_stopped is was_reached, "a cancellation is never swallowed"
    assert outcome.reply == "fine"
    sent = list(other.provider.requests[0].messages[1:-1])
    assert align(sent) == sent
    assert [(m.role, m.text) for m in align(stored)] == [(m.role, m.text) for m in stored]
    if was_stopped:
        assert stored[-3].text.endswith((INTERRUPTED, "whole answer"))


async def test_what_was_said_before_a_stop_is_kept(start: Start) -> None:
    gate = asyncio.Event()

    class Slow:
        @on.after_iteration
        async def wait(self, event: object) -> None:
            await gate.wait()

    script = ScriptedPlugin(FakeReply(pieces=("Once upon", " a time")), "next")
    async with start(script, plugins=(Slow(),)) as bot:
        async for event in (stream := bot.stream("tell")):
            if isinstance(event, TextStreamed) and event.text == " a time":
                break
        await stream.aclose()  # type: ignore[attr-defined]  # an async generator
        stored = await history(bot)
    assert [m.text for m in stored] == ["tell", f"Once upon a time\n\n{INTERRUPTED}"]


async def test_a_stream_of_an_agent_that_closes_ends_with_an_error(start: Start) -> None:
    begun = asyncio.Event()

    class Begins:
        @on.before_iteration
        def note(self, event: IterationStarted) -> None:
            begun.set()

    async def read(bot: Nanobot) -> list[RunEvent]:
        return [event async for event in bot.stream("hi")]

    script = ScriptedPlugin(FakeReply(pieces=("x",), gate=asyncio.Event()))
    async with asyncio.timeout(5):
        async with start(script, plugins=(Begins(),)) as bot:
            reading = asyncio.get_running_loop().create_task(read(bot))
            await begun.wait()
        with pytest.raises(RuntimeError, match="closed during the turn"):
            await reading


async def test_a_stream_whose_turn_breaks_raises_what_broke_it(start: Start) -> None:
    class Broken(AgentHook):
        def implementations(self, clock: object) -> NoReturn:
            raise LookupError("no hooks")

    async with start("x") as bot:
        with pytest.raises(LookupError, match="no hooks"):
            [event async for event in bot.stream("hi", hooks=[Broken()])]


async def test_an_agent_that_is_not_started_says_so(tmp_path: Path) -> None:
    bot = Nanobot.from_config(home=tmp_path)
    with pytest.raises(RuntimeError, match="not started"):
        await bot.run("hi")
    with pytest.raises(RuntimeError, match="not started"):
        [event async for event in bot.stream("hi")]


# --- crashes ---------------------------------------------------------------------------------


async def test_after_a_crash_open_calls_count_as_unknown_and_the_user_is_told(
    start: Start,
) -> None:
    script = ScriptedPlugin("going on")
    async with start(script) as bot:
        state = SessionState(
            created_at=bot._clock.now(),
            updated_at=bot._clock.now(),
            checkpoint=Checkpoint(turn_id="t", iteration=1, running=("b",)),
        )
        crashed = [
            Message(role="user", content="work"),
            Message(role="assistant", tool_calls=(call("look", "a"), call("exec", "b"))),
            Message(role="tool", content="seen", tool_call_id="a", name="look"),
        ]
        await bot.sessions.append(KEY, crashed, state)
        events = [event async for event in bot.stream("and now?")]
        stored = await history(bot)
        session = await bot.sessions.load(KEY, 10)
    assert isinstance(events[0], NoticeGiven)
    assert events[0].text.endswith(": exec")
    assert stored[3].text == OUTCOME_UNKNOWN
    assert session is not None
    assert session.state.checkpoint is None
    sent = script.provider.requests[0].messages
    assert [m.text for m in sent[1:5]] == ["work", "", "seen", OUTCOME_UNKNOWN]


async def test_in_a_terminal_an_interrupted_read_only_call_runs_again(start: Start) -> None:
    looked: list[str] = []

    @tool(read_only=True)
    async def look(where: str) -> str:
        """Look."""
        looked.append(where)
        return "seen now"

    class Looks:
        @on.contribute_tools
        def give(self, ctx: PluginContext) -> list[Tool]:
            return [look]

    script = ScriptedPlugin("going on")
    async with start(script, plugins=(Looks(),)) as bot:
        now = bot._clock.now()
        checkpoint = Checkpoint(turn_id="t", iteration=1, running=("a", "b"))
        crashed = [
            Message(role="user", content="work"),
            Message(
                role="assistant", tool_calls=(call("exec", "a"), call("look", "b", where="here"))
            ),
        ]
        state = SessionState(created_at=now, updated_at=now, checkpoint=checkpoint)
        await bot.sessions.append("cli:x", crashed, state)
        events: list[RunEvent] = []

        async def on_event(event: RunEvent) -> None:
            events.append(event)

        message = InboundMessage(channel="cli", sender_id="me", chat_id="x", content="and now?")
        await bot.process_direct(
            TurnRequest(message=message, source="cli", is_owner=True, on_event=on_event)
        )
    assert looked == ["here"]
    assert [event.text for event in events if isinstance(event, NoticeGiven)] == [
        "The last turn was interrupted; these calls may have taken effect: exec"
    ]
    sent = script.provider.requests[0].messages
    assert [m.text for m in sent[1:5]] == ["work", "", OUTCOME_UNKNOWN, "seen now"]


async def test_a_crash_before_any_call_is_taken_up_silently(start: Start) -> None:
    async with start("going on") as bot:
        state = SessionState(
            created_at=bot._clock.now(),
            updated_at=bot._clock.now(),
            checkpoint=Checkpoint(turn_id="t"),
        )
        await bot.sessions.append(KEY, [Message(role="user", content="work")], state)
        events = [event async for event in bot.stream("and now?")]
    assert not any(isinstance(event, NoticeGiven) for event in events)
