"""Turns of a whole agent: stored, answered, stopped, taken up again."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import pytest

from nanobot_core import (
    AgentHook,
    AuthenticationFailed,
    ChatRequest,
    ConfigInvalid,
    ContentReady,
    ContextRequested,
    ContextTooLong,
    ErrorRaised,
    InboundMessage,
    IterationFinished,
    IterationStarted,
    LLMResponse,
    MemoryBackend,
    Message,
    ModelCallRequested,
    Nanobot,
    PluginContext,
    PluginRejected,
    StreamEnded,
    TextStreamed,
    Tool,
    ToolBatchStarted,
    ToolCall,
    ToolCallProposed,
    ToolDefinition,
    ToolsOffered,
    TurnOutcome,
    TurnStarted,
    Usage,
    on,
)
from nanobot_core.app import application
from nanobot_core.contracts.memory import MemorySpec
from nanobot_core.contracts.plugin import CommandCall, ContextBlock, Deny, SlashCommand
from nanobot_core.contracts.store import Checkpoint, SessionState
from nanobot_core.events import NoticeGiven, RunEvent
from nanobot_core.hooks.agent_hook import CompositeHook
from nanobot_core.sessions.history import OUTCOME_UNKNOWN, align
from nanobot_core.testing import FakeReply
from nanobot_core.testing.scripted import ScriptedPlugin
from nanobot_core.tools import tool
from nanobot_core.turns.pipeline import TurnRequest
from nanobot_core.turns.recorder import INTERRUPTED
from tests.integration.conftest import Start, agent, started

pytestmark = pytest.mark.anyio

KEY = "sdk:default"


async def history(bot: Nanobot, key: str = KEY) -> list[Message]:
    return [message async for message in bot.sessions.read(key)]


def call(name: str, call_id: str = "c1", **arguments: Any) -> ToolCall:
    return ToolCall(call_id, name, arguments)


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
    sent = script.provider.requests[1].messages
    assert [m.text for m in sent[1:3]] == ["hi", "Hello!"], "runtime blocks are not stored"


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
    class Narrow:
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


async def test_files_that_come_with_a_message_are_shown_once_and_remembered(
    start: Start, tmp_path: Path
) -> None:
    picture = tmp_path / "cat.png"
    picture.write_bytes(b"png")
    script = ScriptedPlugin("a cat", "you sent it")
    async with start(script) as bot:
        await bot.run("", media=[str(picture)])
        await bot.run("what was it?")
        stored = await history(bot)
    assert isinstance(script.provider.requests[0].messages[-1].content, tuple)
    assert stored[0].text == f"Attached file: {picture}"
    assert script.provider.requests[1].messages[1].text == f"Attached file: {picture}"


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


# --- compaction ------------------------------------------------------------------------------


async def fill(bot: Nanobot, messages: Sequence[Message], **metadata: Any) -> None:
    state = SessionState(
        created_at=bot._clock.now(), updated_at=bot._clock.now(), metadata=dict(metadata)
    )
    await bot.sessions.append(KEY, messages, state)


def talk(turns: int, size: int = 300) -> list[Message]:
    return [
        message
        for number in range(turns)
        for message in (
            Message(role="user", content=f"question {number} " + "q" * size),
            Message(role="assistant", content=f"answer {number} " + "a" * size),
        )
    ]


@pytest.mark.parametrize("summary", ["", "what was before"])
async def test_a_summary_is_kept_and_the_next_turn_begins_with_it(
    start: Start, summary: str
) -> None:
    script = ScriptedPlugin(ContextTooLong("p", "too long"), "notes", "hello", "again")
    async with start(script) as bot:
        # A stored message that repair leaves out must not move the boundary.
        await fill(bot, [*talk(10), Message(role="user"), *talk(20)], summary=summary)
        assert (await bot.run("now")).reply == "hello"
        assert (await bot.run("next")).reply == "again"
    compacted, after = (request.messages for request in script.provider.requests[2:])
    assert after[1] == compacted[1]
    assert after[1].text.endswith("\nnotes")
    assert [m.text for m in after[2:-3]] == [m.text for m in compacted[2:-1]]
    assert [m.text for m in after[-3:-1]] == ["now", "hello"]


async def test_a_history_whose_turns_all_went_begins_with_the_message(start: Start) -> None:
    script = ScriptedPlugin(ContextTooLong("p", "too long"), "notes", "hello", "again")
    async with start(script) as bot:
        await fill(bot, talk(1, 9_000))
        await bot.run("now")
        await bot.run("next")
    after = script.provider.requests[3].messages
    assert [m.text for m in after[2:-1]] == ["now", "hello"]


# --- hooks of a run, memory, commands ----------------------------------------------------------


async def test_hooks_of_a_run_hear_that_run_alone(start: Start) -> None:
    heard: list[str] = []

    class Listens(AgentHook):
        async def on_stream(self, event: TextStreamed) -> None:
            await asyncio.sleep(0)
            heard.append(event.text)

        async def on_stream_end(self, event: StreamEnded) -> None:
            heard.append("end")

    class Shouts(AgentHook):
        async def finalize_content(self, event: ContentReady) -> str | None:
            heard.append("final")
            return event.content.upper()

        async def wrap_model_call(
            self,
            event: ModelCallRequested,
            call_next: Callable[[ChatRequest], Awaitable[LLMResponse]],
        ) -> LLMResponse:
            extra = Message(role="user", content="be brief")
            return await call_next(
                replace(event.request, messages=(*event.request.messages, extra))
            )

        async def authorize_tool_call(self, event: ToolCallProposed) -> Deny:
            return Deny("not today")

    script = ScriptedPlugin(call("act"), "done", "quiet")
    async with start(script) as bot:
        outcome = await bot.run("hi", hooks=[CompositeHook(Listens(), Shouts())])
        assert (await bot.run("hi")).reply == "quiet"
    assert outcome.reply == "DONE"
    assert heard == ["end", "done", "end", "final"]
    sent = [request.messages[-1].text for request in script.provider.requests]
    assert [text.endswith("be brief") for text in sent] == [True, True, False]


class Recall(MemoryBackend):
    """Remembers one thing, or fails."""

    def __init__(self) -> None:
        self.fails = False
        self.archived: list[int] = []
        self.taken = 0
        self.closed = False

    async def context(self, session_key: str) -> Sequence[ContextBlock]:
        if self.fails:
            raise LookupError("memory is gone")
        return [ContextBlock(name="Memory", text="likes tea", placement="stable")]

    async def consolidate(
        self, session_key: str, messages: Sequence[Message], token_budget: int
    ) -> int:
        if self.fails:
            raise LookupError("memory is gone")
        taken, self.taken = self.taken, 0
        return taken

    async def archive(self, session_key: str, messages: Sequence[Message]) -> None:
        self.archived.append(len(messages))

    async def aclose(self) -> None:
        self.closed = True
        raise LookupError("does not close either")


RECALLS: list[Recall] = []


def create_recall(ctx: object) -> Recall:
    RECALLS.append(Recall())
    return RECALLS[-1]


class Remembers:
    @on.contribute_memory
    def contribute_memory(self, ctx: object) -> list[MemorySpec]:
        return [
            MemorySpec(name="recall", factory=f"{__name__}:create_recall"),
            MemorySpec(name="rubbish", factory=f"{__name__}:KEY"),
        ]


@asynccontextmanager
async def remembering(
    home: Path, script: ScriptedPlugin, backend: str = "recall"
) -> AsyncIterator[Nanobot]:
    bot = agent(home, script, memory__backend=backend)
    await bot.plugins.register(script, "scripted")
    await bot.plugins.register(Remembers(), "remembers")
    async with bot:
        yield bot


async def test_memory_is_asked_and_takes_up_the_oldest_messages(tmp_path: Path) -> None:
    script = ScriptedPlugin("one", "two")
    async with remembering(tmp_path, script) as bot:
        memory = RECALLS[-1]
        await bot.run("hi")
        memory.taken = 2
        await bot.run("again")
        await bot.run("/new")
    assert "# Memory\n\nlikes tea" in script.provider.requests[0].messages[0].text
    assert len(script.provider.requests[1].messages) == 2
    assert memory.archived == [2]
    assert memory.closed


async def test_a_memory_that_fails_costs_recall_and_never_the_answer(tmp_path: Path) -> None:
    script = ScriptedPlugin("one")
    async with remembering(tmp_path, script) as bot:
        RECALLS[-1].fails = True
        assert (await bot.run("hi")).reply == "one"


@pytest.mark.parametrize(("backend", "error"), [("rubbish", PluginRejected), ("no", ConfigInvalid)])
async def test_a_start_that_fails_closes_what_was_begun(
    tmp_path: Path, backend: str, error: type[Exception]
) -> None:
    stopped: list[str] = []

    class Begins:
        @on.stop
        def stop(self, ctx: object, reason: str) -> None:
            stopped.append(reason)

    script = ScriptedPlugin()
    bot = agent(tmp_path, script, memory__backend=backend)
    await bot.plugins.register(Remembers(), "remembers")
    await bot.plugins.register(Begins(), "begins")
    with pytest.raises(error):
        await bot.__aenter__()
    assert stopped == ["shutdown"]


async def test_an_unknown_session_store_is_told_with_those_there_are(tmp_path: Path) -> None:
    bot = agent(tmp_path, ScriptedPlugin(), agents__defaults__session_store="cloud")
    with pytest.raises(ConfigInvalid, match="expected one of: none, found cloud"):
        await bot.__aenter__()


async def test_what_fails_to_stop_does_not_hold_up_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "PART_END_S", 0.01)
    script, other = ScriptedPlugin("x"), ScriptedPlugin("y")

    async def hang() -> None:
        await asyncio.Event().wait()

    async with started(tmp_path, script, other) as bot:
        await bot.run("hi")
        await bot.run("hi", model=other.model)
        monkeypatch.setattr(other.provider, "aclose", hang)
        store = bot.sessions
        closed = asyncio.Event()
        monkeypatch.setattr(store, "aclose", lambda: _set(closed))
    assert closed.is_set()


async def _set(event: asyncio.Event) -> None:
    event.set()


async def test_results_kept_in_files_go_after_their_time(tmp_path: Path) -> None:
    folder = tmp_path / "workspace" / ".nanobot" / "tool-results" / "session"
    folder.mkdir(parents=True)
    for name, age_days in (("old", 8), ("young", 6)):
        (folder / f"{name}.txt").write_text("x")
        then = time.time() - age_days * 86_400
        os.utime(folder / f"{name}.txt", (then, then))
    async with started(tmp_path, ScriptedPlugin("hello")) as bot:
        for task in list(bot._tasks._tasks):
            await asyncio.wait({task}, timeout=5)
        assert [file.name for file in folder.iterdir()] == ["young.txt"]


async def test_the_work_of_a_turn_does_not_grow_with_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: dict[int, int] = {}
    for count in (100, 5_000):
        script = ScriptedPlugin("warm", call("nope"), "hello")
        async with started(tmp_path / str(count), script) as bot:
            await fill(bot, talk(count // 2, 1))
            await bot.run("first")
            (file,) = (bot.loaded.workspace / "sessions").glob("*.jsonl")
            before = file.stat().st_size
            with monkeypatch.context() as patched:

                def refuse(path: Path, *args: Any, **options: Any) -> NoReturn:
                    raise AssertionError(path)

                patched.setattr(Path, "open", refuse)
                patched.setattr(Path, "read_text", refuse)
                outcome = await bot.run("second")
            assert outcome.reply == "hello"
            written[count] = file.stat().st_size - before
    assert abs(written[5_000] - written[100]) < 200, "only numbers have more digits"


async def answer(ctx: object, call: CommandCall) -> str:
    return f"{call.name} heard {call.text}"


def fail(ctx: object, call: CommandCall) -> str:
    raise SystemExit(1)


class HasCommands:
    @on.contribute_commands
    def contribute_commands(self, ctx: object) -> list[SlashCommand]:
        return [
            SlashCommand(name="shout", summary="shouts", handler=f"{__name__}:answer"),
            SlashCommand(name="break", summary="breaks", handler=f"{__name__}:fail"),
            SlashCommand(name="odd", summary="is none", handler=f"{__name__}:KEY"),
            SlashCommand(
                name="rule", summary="rules", handler=f"{__name__}:answer", owner_only=True
            ),
        ]


async def say(bot: Nanobot, text: str, *, is_owner: bool = True) -> TurnOutcome:
    message = InboundMessage(channel="t", sender_id="me", chat_id="1", content=text)
    return await bot.process_direct(TurnRequest(message=message, is_owner=is_owner))


async def test_commands_are_answered_without_the_model(start: Start) -> None:
    script = ScriptedPlugin("no command")
    async with start(script, plugins=(HasCommands(),)) as bot:
        assert (await say(bot, "/shout  loud ")).reply == "shout heard loud"
        assert "`/shout`: shouts" in ((await say(bot, "/help")).reply or "")
        assert (await say(bot, "/rule", is_owner=False)).reply == "/rule is for the owner only."
        assert (await say(bot, "/rule")).reply == "rule heard "
        broken = await say(bot, "/break")
        assert "plugin 'kit0': its command /break failed with SystemExit" in (broken.error or "")
        odd = await say(bot, "/odd")
        assert "cannot be called" in (odd.error or "")
        assert (await say(bot, "/unknown")).reply == "no command"
        assert "shout" in bot.commands.names()
    assert len(script.provider.requests) == 1


async def test_model_status_and_new_change_the_conversation(start: Start) -> None:
    script, other = ScriptedPlugin("first", "third"), ScriptedPlugin("second")
    async with start(script, plugins=(other,)) as bot:
        await say(bot, "one")
        assert (await say(bot, "/model")).reply == "Model: model"
        assert (await say(bot, f"/model {other.model}")).reply
        assert (await say(bot, "two")).reply == "second"
        status = (await say(bot, "/status")).reply or ""
        assert other.model in status
        assert "4 messages in context" in status
        await say(bot, f"/model {script.model}")
        await say(bot, "/new")
        assert (await say(bot, "three")).reply == "third"
    assert len(script.provider.requests[1].messages) == 2


async def test_status_names_plugins_in_trouble(start: Start) -> None:
    async with start("x", plugins__enabled=["ghost"]) as bot:
        status = (await say(bot, "/status")).reply or ""
    assert "Problems:\n- ghost: not-installed" in status
