"""What surrounds the turns of a whole agent: summaries, hooks of a run, memory, commands."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from nanobot_core import (
    OWNERS_MEMORY,
    AgentHook,
    ChatRequest,
    ConfigInvalid,
    Consolidated,
    ContentReady,
    ContextRequested,
    ContextTooLong,
    HistorySpan,
    InboundMessage,
    LLMResponse,
    MemoryAbility,
    MemoryBackend,
    MemoryScope,
    Message,
    ModelCallRequested,
    Nanobot,
    PluginRejected,
    StreamEnded,
    TextStreamed,
    ToolCallProposed,
    TurnOutcome,
    on,
)
from nanobot_core.app import application
from nanobot_core.contracts.memory import MemorySpec
from nanobot_core.contracts.plugin import CommandCall, ContextBlock, Deny, SlashCommand
from nanobot_core.contracts.store import SessionState
from nanobot_core.hooks.agent_hook import CompositeHook
from nanobot_core.sessions.folder import SessionFolder, file_name
from nanobot_core.turns.request import TurnRequest
from tests.integration.conftest import KEY, Start, agent, call, started
from tests.scripted_provider import ScriptedPlugin

pytestmark = pytest.mark.anyio


# --- the provider ----------------------------------------------------------------------------


async def test_a_provider_warms_up_once_while_the_context_is_gathered(start: Start) -> None:
    script = ScriptedPlugin("first", "second")
    warm = asyncio.Event()
    warmed_up: list[str] = []

    async def warm_up() -> None:
        warmed_up.append(script.provider.name)
        warm.set()
        raise ModuleNotFoundError("the call reports it")

    script.provider.warm_up = warm_up  # type: ignore[method-assign]

    class Patient:
        @on.gather_context
        async def gather_context(self, event: ContextRequested) -> None:
            async with asyncio.timeout(5):
                await warm.wait()

    async with start(script, plugins=[Patient()]) as bot:
        replies = [(await bot.run(text)).reply for text in ("one", "two")]

    assert replies == ["first", "second"]
    assert warmed_up == [script.provider.name]


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
    assert after[-3] == compacted[-1]
    assert after[-2].text == "hello"


async def test_a_summary_is_made_of_what_was_said_without_its_circumstances(start: Start) -> None:
    script = ScriptedPlugin("first", ContextTooLong("p", "too long"), "notes", "hello")
    async with start(script) as bot:
        await bot.run("long ago")
        await bot.run("now")
    (asked,) = script.provider.requests[2].messages
    assert asked.text.startswith("user: long ago\nassistant: first\n\n")


async def test_a_history_whose_turns_all_went_begins_with_the_message(start: Start) -> None:
    script = ScriptedPlugin(ContextTooLong("p", "too long"), "notes", "hello", "again")
    async with start(script) as bot:
        await fill(bot, talk(1, 9_000))
        await bot.run("now")
        await bot.run("next")
    after = script.provider.requests[3].messages
    said = [m.text.rpartition("\n")[2] for m in after[2:-1]]
    assert said == ["now", "hello"]


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

    abilities = frozenset[MemoryAbility]({"recall"})

    def __init__(self) -> None:
        self.fails = False
        self.archived: list[HistorySpan] = []
        self.spans: list[HistorySpan] = []
        self.musts: list[bool] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.taken = 0
        self.closed = False

    async def context(self, scope: MemoryScope) -> Sequence[ContextBlock]:
        if self.fails:
            raise LookupError("memory is gone")
        return [ContextBlock(name="Memory", text="likes tea", placement="stable")]

    async def recall(
        self, scope: MemoryScope, query: str, token_budget: int
    ) -> Sequence[ContextBlock]:
        return [ContextBlock(name="Recalled", text=f"about {query}")]

    async def consolidate(
        self, span: HistorySpan, token_budget: int, *, must: bool
    ) -> Consolidated:
        self.spans.append(span)
        self.musts.append(must)
        await self.goes_on.wait()
        if self.fails:
            raise LookupError("memory is gone")
        taken, self.taken = self.taken, 0
        return Consolidated(messages=taken, summary="they greeted" if taken else "")

    async def archive(self, span: HistorySpan) -> None:
        if self.fails:
            raise OSError("the disk is full")
        self.archived.append(span)

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


async def settled(bot: Nanobot) -> None:
    """Wait for the work that no turn waits for."""
    work = [task for task in asyncio.all_tasks() if task.get_name().startswith("consolidate:")]
    assert not work or not (await asyncio.wait(work, timeout=5))[1]


async def test_memory_gets_the_words_and_takes_up_the_oldest_messages(tmp_path: Path) -> None:
    script = ScriptedPlugin("one", "two", "three")
    async with remembering(tmp_path, script) as bot:
        memory = RECALLS[-1]
        memory.taken = 20
        await fill(bot, talk(30, 2_000))
        await bot.run("hi")
        await settled(bot)
        await bot.run("again")
        await bot.run("/new")
        await bot.run("once more")
    first, second, third = (request.messages for request in script.provider.requests)
    assert "# Memory\n\nlikes tea" in first[0].text
    assert "about hi" in first[-1].text
    scope = MemoryScope(name=OWNERS_MEMORY, session_key=KEY)
    assert [(span.scope, span.first_index) for span in memory.spans] == [(scope, 0)]
    assert len(memory.spans[0].tokens) == len(memory.spans[0].messages) == 62
    assert "they greeted" in second[1].text
    assert len(second) == 2 + 42 + 1
    (archived,) = memory.archived
    assert (archived.first_index, archived.last_index, archived.summary) == (20, 64, "they greeted")
    assert len(third) == 2
    assert memory.closed


class RemembersAlone:
    @on.contribute_memory
    def contribute_memory(self, ctx: object) -> list[MemorySpec]:
        return [MemorySpec(name="recall", factory=f"{__name__}:create_recall")]


@pytest.mark.parametrize(
    ("plugin", "backend", "is_active"),
    [
        (RemembersAlone(), None, True),
        (RemembersAlone(), "none", False),
        (Remembers(), None, False),
    ],
    ids=["the only one", "none", "one of two"],
)
async def test_the_only_backend_is_active_unless_none_is_wanted(
    tmp_path: Path, plugin: object, backend: str | None, is_active: bool
) -> None:
    script = ScriptedPlugin("one")
    bot = agent(tmp_path, script, memory__backend=backend)
    await bot.plugins.register(script, "scripted")
    await bot.plugins.register(plugin, "remembers")
    async with bot:
        await bot.run("hi")
    assert ("likes tea" in script.provider.requests[0].messages[0].text) is is_active


async def test_a_turn_that_does_not_fit_waits_for_the_consolidation_under_way(
    tmp_path: Path,
) -> None:
    script = ScriptedPlugin("long " * 16_000, "two")
    async with remembering(tmp_path, script) as bot:
        memory = RECALLS[-1]
        memory.taken = 50
        memory.goes_on.clear()
        await fill(bot, talk(30, 2_000))
        await bot.run("hi")
        turn = asyncio.create_task(bot.run("next"))
        await asyncio.wait({turn}, timeout=0.2)
        assert not turn.done()
        memory.goes_on.set()
        assert (await turn).reply == "two"
        await settled(bot)
        session = await bot.pipeline.sessions.open(KEY)
        assert session.stored.first_index == 50
    assert "they greeted" in script.provider.requests[1].messages[1].text
    assert True not in memory.musts


async def test_what_memory_takes_up_late_does_not_undo_a_new_conversation(tmp_path: Path) -> None:
    script = ScriptedPlugin("one", "two")
    async with remembering(tmp_path, script) as bot:
        memory = RECALLS[-1]
        memory.taken = 50
        memory.goes_on.clear()
        await fill(bot, talk(30, 2_000))
        await bot.run("hi")
        await bot.run("/new")
        memory.goes_on.set()
        await settled(bot)
        await bot.run("hi")
    assert len(script.provider.requests[1].messages) == 2
    assert [span.first_index for span in memory.archived] == [0]


async def test_a_history_that_does_not_fit_is_consolidated_before_the_answer(
    tmp_path: Path,
) -> None:
    script = ScriptedPlugin("one")
    async with remembering(tmp_path, script) as bot:
        memory = RECALLS[-1]
        memory.taken = 58
        await fill(bot, talk(30, 5_000))
        assert (await bot.run("hi")).reply == "one"
    (request,) = script.provider.requests
    assert len(request.messages) == 1 + 1 + 2 + 1
    assert memory.musts == [True]


@pytest.mark.parametrize("fails", [False, True])
async def test_memory_keeps_what_a_run_leaves_out_or_the_session_does(
    tmp_path: Path, fails: bool
) -> None:
    script = ScriptedPlugin(ContextTooLong("p", "too long"), "notes", "hello")
    async with remembering(tmp_path, script) as bot:
        memory = RECALLS[-1]
        memory.fails = fails
        await fill(bot, talk(20))
        await bot.run("now")
        session = await bot.pipeline.sessions.open(KEY)
        kept = len(session.messages)
    if fails:
        assert (memory.archived, kept) == ([], 42)
        return
    (archived,) = memory.archived
    assert (archived.is_summarised, archived.summary) == (True, "notes")
    assert archived.last_index + kept == 42


async def test_a_memory_that_fails_costs_recall_and_never_the_answer(tmp_path: Path) -> None:
    script = ScriptedPlugin("one", "two")
    async with remembering(tmp_path, script) as bot:
        RECALLS[-1].fails = True
        assert (await bot.run("hi")).reply == "one"
        assert "Memory could not keep" in str((await bot.run("/new")).reply)
        assert (await bot.run("hi")).reply == "two"


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


async def test_start_and_turns_look_at_no_other_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their cost does not grow with the number of sessions: no list, and no file is repaired."""

    def refuse(folder: SessionFolder) -> NoReturn:
        raise AssertionError(folder)

    monkeypatch.setattr(SessionFolder, "summaries", refuse)
    folder = tmp_path / "workspace" / "sessions"
    folder.mkdir(parents=True)
    others = {folder / file_name(f"chat:{number}") for number in range(500)}
    for file in others:
        file.write_text("damaged")
    async with started(tmp_path, ScriptedPlugin("first", "second")) as bot:
        assert [(await bot.run(text)).reply for text in ("one", "two")] == ["first", "second"]
    assert {file.read_text() for file in others} == {"damaged"}
    assert set(folder.iterdir()) - others == {folder / file_name(KEY)}


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
        assert (await say(bot, "/model")).reply == f"Model: {script.model}"
        refused = (await say(bot, "/model gone/model")).reply or ""
        assert refused.startswith("gone/model cannot be used: no provider is configured")
        for odd in ("two\nlines", "red\x1b[31m", "x" * 301):
            assert "one line" in ((await say(bot, f"/model {odd}")).reply or "")
        assert (await say(bot, f"/model {other.model}")).reply
        assert (await say(bot, "two")).reply == "second"
        status = (await say(bot, "/status")).reply or ""
        assert other.model in status
        assert "4 messages in context" in status
        await say(bot, f"/model {script.model}")
        await say(bot, "/new")
        assert (await say(bot, "three")).reply == "third"
    assert len(script.provider.requests[1].messages) == 2


@pytest.mark.parametrize("command", ["/model", "/status"])
async def test_a_model_without_provider_is_reported_by_commands(start: Start, command: str) -> None:
    async with start("x", agents__defaults__model="gone/model") as bot:
        reply = (await say(bot, command)).reply or ""
    assert "Model: no provider is configured for model 'gone/model'; " in reply


async def test_status_names_plugins_in_trouble(start: Start) -> None:
    async with start("x", plugins__enabled=["ghost"]) as bot:
        status = (await say(bot, "/status")).reply or ""
    assert "Problems:\n- ghost: not-installed" in status


class Talkative:
    @on.gather_context
    def talk(self, event: object) -> list[ContextBlock]:
        return [ContextBlock(name="News", text="n" * 1_000, max_tokens=100)]


async def test_the_status_names_passages_that_are_not_complete(start: Start) -> None:
    async with start("hello", plugins=(Talkative(),)) as bot:
        await bot.run("hi")
        status = (await bot.run("/status")).reply
    assert status is not None
    assert "- The passage kit0/News is cut to 400 of 1,000 characters" in status
