"""A conversation of hundreds or thousands of turns, with a model that knows only its request.

The scripted model plays chat, summariser, both phases of Dream and answerer from the text that it
is sent, so the test measures what the memory brings back, and not how clever a model is.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel

import nanobot_memory.plugin
from nanobot_core import (
    ChatRequest,
    Completed,
    LLMProvider,
    LLMResponse,
    Message,
    ModelTool,
    Nanobot,
    PluginContext,
    ProviderSpec,
    StreamEvent,
    TextDelta,
    Tool,
    ToolCall,
    ToolContext,
    on,
)

pytestmark = pytest.mark.anyio

WINDOW_TOKENS = 16_000
FILE_TOKENS = 700
"""Less than all facts need, so that some move to topic files."""
SMALL_TALKS = 10
DREAM_TURNS = 100
BLOCK_TURNS = 500
ROOMS = ("attic", "cellar", "garage", "kitchen", "library", "pantry", "stable", "studio")
FILLER = "It rained again, and the tram was late, so we talked about nothing in particular. " * 4
UNKNOWN = "unknown"
_FACT = re.compile(r"The (\w+ code \d+) is (\w+)\.")
_VISIT = re.compile(r"Visit (\d+) to (\w+)\.")
_numbers = itertools.count(1)


@dataclass
class Script:
    """What is said, and what is asked in the end.

    Attributes:
        turns: messages of the user, in order.
        pages: what the tool ``look_up`` says, by name.
        questions: question to answer.
    """

    turns: list[str] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)
    questions: dict[str, str] = field(default_factory=dict)


def script_of(turns: int, seed: int) -> Script:
    """Return 40 facts, 20 that change twice, 20 sets of events to count, 30 questions without.

    Each fifth turn looks up two pages; what such a turn would have said is on one of them.
    """
    rng = random.Random(seed)
    script, told = Script(), []

    def value() -> str:
        return "".join(rng.choices("bcdfghjklmnpqrstvwxz", k=8))

    for fact in range(60):
        name = f"{rng.choice(ROOMS)} code {fact}"
        values = [value() for _ in range(3 if fact >= 40 else 1)]
        told += [(name, f"The {name} is {each}.") for each in values]
        script.questions[f"What is the {name}?"] = values[-1]
    for _ in range(20):
        town, visits = f"town{value()}", rng.randint(2, 5)
        told += [(town, f"Visit {visit} to {town}.") for visit in range(visits)]
        script.questions[f"How many visits to {town}?"] = str(visits)
    for unsaid in range(900, 930):
        script.questions[f"What is the {rng.choice(ROOMS)} code {unsaid}?"] = UNKNOWN
    # Facts about the same thing keep their order.
    places = sorted(rng.sample(range(turns), len(told)))
    order = [name for name, _ in told]
    rng.shuffle(order)
    queues: dict[str, list[str]] = {}
    for name, text in told:
        queues.setdefault(name, []).append(text)
    script.turns = [f"{FILLER} [{number}]" for number in range(turns)]
    for place, name in zip(places, order, strict=True):
        script.turns[place] = f"{FILLER} {queues[name].pop(0)}"
    for place in range(0, turns, 5):
        said = script.turns[place].removeprefix(FILLER).strip()
        script.pages |= {f"page{place}": f"{said} {FILLER}", f"page{place + 1}": FILLER}
        script.turns[place] = f"Look up page{place} and page{place + 1}."
    return script


class Mind(LLMProvider):
    """Answers each request from its text alone, and checks its shape.

    Attributes:
        largest: characters of the largest request.
        calls: how many requests there were, by purpose.
        sources: where the answers to questions came from.
    """

    name = "script"

    def __init__(self) -> None:
        self.largest = 0
        self.calls: Counter[str] = Counter()
        self.sources: Counter[str] = Counter()

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        self.largest = max(self.largest, sum(len(each.text) for each in request.messages))
        check_pairs(request.messages)
        text, calls = self._answer(request)
        if text:
            yield TextDelta(text)
        yield Completed(
            LLMResponse(
                content=text or None,
                tool_calls=calls,
                finish_reason="tool_calls" if calls else "stop",
            )
        )

    def _answer(self, request: ChatRequest) -> tuple[str, tuple[ToolCall, ...]]:
        last = request.messages[-1]
        asked = next(each.text for each in reversed(request.messages) if each.role == "user")
        if not request.tools and "\n## History\n" in asked:
            self.calls["dream: find"] += 1
            return findings_of(asked), ()
        if "\n## Findings\n" in asked:
            self.calls["dream: edit"] += 1
            return ("Done.", ()) if last.role == "tool" else ("", edits_of(asked))
        if not request.tools:  # from this package, or from the core when a turn grows too long
            self.calls["summary"] += 1
            said = "".join(each.text for each in request.messages).rpartition("<conversation ")[2]
            return summary_of(said), ()
        if "?" in asked:
            self.calls["question"] += 1
            return self._reply(request, asked)
        self.calls["chat"] += 1
        if last.role == "user" and (pages := re.findall(r"page\d+", asked)):
            return "", tuple(call("look_up", page=page) for page in pages)
        return "Noted.", ()

    def _reply(self, request: ChatRequest, asked: str) -> tuple[str, tuple[ToolCall, ...]]:
        name, last = keyword(asked), request.messages[-1]
        if last.role == "tool":
            self.sources["search"] += 1
            return answered(asked, last.text), ()
        prompt = "\n".join(each.text for each in request.messages if each.role == "system")
        known = [fact for fact in _FACT.finditer(prompt) if fact[1] == name]
        if not known:  # events are counted in what a search finds, which has all of them
            return "", (call("search_memory", query=name, limit=30),)
        is_recent = known[-1].start() > prompt.rfind("Recent History")
        self.sources["recent history" if is_recent else "MEMORY.md"] += 1
        return known[-1][2], ()


def call(tool: str, **arguments: str | int) -> ToolCall:
    return ToolCall(f"c{next(_numbers)}", tool, dict(arguments))


def summary_of(said: str) -> str:
    """Return all facts, and as much small talk as makes the summary as long as a real one."""
    talks = re.findall(r"\[(\d+)\]", said)[:SMALL_TALKS]
    lines = [f"They talked about rain and late trams, in message {number}." for number in talks]
    return "\n".join(f"- {line}" for line in [*facts_in(said), *lines]) or "(nothing)"


def findings_of(request: str) -> str:
    """Play the first phase: a line for each fact, and one for all events that belong together."""
    files, _, history = request.partition("\n## History\n")
    memory = re.split(r"^## ", files.partition("## MEMORY.md")[2], flags=re.MULTILINE)[0]
    places: dict[str, str] = {}
    lines: dict[str, str] = {}
    for number, line in re.findall(r"^(\d+)\| - (.*)$", memory, re.MULTILINE):
        places[subject(line)], lines[subject(line)] = number, line
    found: dict[str, str] = {}
    for fact in facts_in(history):
        name = subject(fact)
        former = found.get(name, lines.get(name, ""))
        is_event = bool(former) and fact.startswith("Visit")
        found[name] = former if fact in former else f"{former} {fact}" if is_event else fact
    return (
        "\n".join(
            f"[MEMORY] {line}" + (f" (replaces line {places[name]})" if name in places else "")
            for name, line in found.items()
            if lines.get(name) != line
        )
        or "[SKIP]"
    )


def edits_of(request: str) -> tuple[ToolCall, ...]:
    """Play the second phase: an edit for each finding, all at once."""
    files, _, findings = request.partition("\n## Findings\n")
    memory = re.split(r"^## ", files.partition("## MEMORY.md")[2], flags=re.MULTILINE)[0]
    lines = dict(re.findall(r"^(\d+)\| (.*)$", memory, re.MULTILINE))
    return tuple(
        call(
            "edit_file",
            path="MEMORY.md",
            old_text=f"{lines[number]}\n" if number else "",
            new_text=f"- {line}\n",
        )
        for line, number in re.findall(
            r"^\[MEMORY\] (.*?)(?: \(replaces lines (\d+)\))?$", findings, re.MULTILINE
        )
    )


def subject(line: str) -> str:
    """Return what a line is about: a code, or a town that was visited."""
    if fact := _FACT.search(line):
        return fact[1]
    visit = _VISIT.search(line)
    return visit[2] if visit else line


def facts_in(text: str) -> list[str]:
    return [match[0] for match in re.finditer(f"{_FACT.pattern}|{_VISIT.pattern}", text)]


def keyword(question: str) -> str:
    found = re.search(r"(\w+ code \d+)\?|visits to (\w+)\?", question)
    assert found is not None
    return found[1] or f"Visit {found[2]}"


def answered(question: str, found: str) -> str:
    """Return the newest value or the count that a search result gives."""
    name = keyword(question)
    if name.startswith("Visit"):
        town = name.removeprefix("Visit ")
        return str(len({visit[1] for visit in _VISIT.finditer(found) if visit[2] == town}))
    entries = sorted(found.split("\n\n"), key=number_of)
    values = [fact[2] for entry in entries for fact in _FACT.finditer(entry) if fact[1] == name]
    return values[-1] if values else UNKNOWN


def number_of(entry: str) -> int:
    found = re.match(r"\[history:(\d+)", entry)
    return int(found[1]) if found else 0


def check_pairs(messages: Iterable[Message]) -> None:
    """Assert that each call has its result and each result its call."""
    waiting: set[str] = set()
    for message in messages:
        if message.role == "tool":
            assert message.tool_call_id in waiting
            waiting.discard(message.tool_call_id)
        else:
            assert not waiting
            waiting = {call.id for call in message.tool_calls}
    assert not waiting


class LookUpParams(BaseModel):
    page: str


class LookUpTool(ModelTool[LookUpParams]):
    name = "look_up"
    description = "Read a page."
    parameters_model = LookUpParams
    read_only = True

    def __init__(self, pages: Mapping[str, str]) -> None:
        self._pages = pages

    async def run(self, context: ToolContext, params: LookUpParams) -> str:
        return self._pages[params.page]


class ScriptPlugin:
    def __init__(self, factory: str, pages: Mapping[str, str]) -> None:
        self._factory = factory
        self._pages = pages

    @on.contribute_providers
    def contribute_providers(self, ctx: PluginContext) -> Iterable[ProviderSpec]:
        yield ProviderSpec(
            name="script", factory=self._factory, needs_key=False, default_base="http://localhost"
        )

    @on.contribute_tools
    def contribute_tools(self, ctx: PluginContext) -> Iterable[Tool]:
        yield LookUpTool(self._pages)


@asynccontextmanager
async def started(folder: Path, mind: Mind, script: Script) -> AsyncIterator[Nanobot]:
    """Yield an agent with this package and the script alone, whatever else is installed."""
    module = ModuleType(f"memory_script_{next(_numbers)}")
    module.create = lambda *_: mind  # type: ignore[attr-defined]  # a module made for this test
    sys.modules[module.__name__] = module
    defaults = {
        "model": "script/large",
        "context_window_tokens": WINDOW_TOKENS,
        "max_tokens": 1_000,
    }
    settings = {
        "agents": {"defaults": defaults},
        "plugins": {"policy": "listed", "enabled": []},
        "memory": {"file_tokens": FILE_TOKENS},
    }
    file = folder / "config.json"
    file.write_text(json.dumps(settings), "utf-8")
    bot = Nanobot.from_config(file, home=folder)
    await bot.plugins.register(ScriptPlugin(f"{module.__name__}:create", script.pages), "script")
    await bot.plugins.register(nanobot_memory.plugin, "memory-here")
    async with bot:
        yield bot


def written_bytes() -> int:
    """Return how much this process has written to files."""
    found = re.search(r"^wchar: (\d+)", Path("/proc/self/io").read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return int(found[1])


async def dream(bot: Nanobot) -> None:
    """Dream until all history is read; like an owner, allow what Dream asks for."""
    for _ in range(20):
        reply = (await bot.run("/dream")).reply or ""
        assert "failed" not in reply, reply
        if "set aside" in reply.lower():
            reply = (await bot.run("/dream retry")).reply or ""
            assert "failed" not in reply, reply
        if "Not read yet" not in reply:
            break


@dataclass
class Row:
    """Figures of some hundred turns.

    Attributes:
        turn: number of the last one.
        ms: milliseconds of a turn.
        written: bytes that a turn wrote.
        largest: characters of the largest request.
        calls: to the model, by purpose.
    """

    turn: int
    ms: float
    written: int
    largest: int
    calls: Counter[str]

    def __str__(self) -> str:
        calls = ", ".join(f"{purpose} {count}" for purpose, count in sorted(self.calls.items()))
        return f"{self.turn}\t{self.ms:.1f}\t{self.written:,}\t{self.largest:,}\t{calls}"


async def converse(folder: Path, script: Script, mind: Mind) -> list[Row]:
    """Say everything, and dream now and then; return figures for every `BLOCK_TURNS`."""
    rows = []
    async with started(folder, mind, script) as bot:
        begun, written = time.perf_counter(), written_bytes()
        for number, text in enumerate(script.turns, 1):
            outcome = await bot.run(text)
            assert outcome.error is None, outcome.error
            if number % DREAM_TURNS == DREAM_TURNS // 2:
                await dream(bot)
            if number % BLOCK_TURNS == 0:
                ms = (time.perf_counter() - begun) * 1_000 / BLOCK_TURNS
                size = (written_bytes() - written) // BLOCK_TURNS
                rows.append(Row(number, ms, size, mind.largest, mind.calls))
                mind.largest, mind.calls = 0, Counter()
                begun, written = time.perf_counter(), written_bytes()
        await bot.run("/new")
    return rows


async def score(folder: Path, script: Script, mind: Mind) -> list[str]:
    """Ask everything in a new process of the agent; return what was answered wrongly."""
    wrong = []
    async with started(folder, mind, script) as bot:
        for number, (question, right) in enumerate(script.questions.items()):
            reply = (await bot.run(question, session=f"sdk:question{number}")).reply
            if reply != right:
                wrong.append(f"{question} {right}, not {reply}")
    return wrong


@pytest.mark.timeout(300)
async def test_what_was_said_is_found_after_hundreds_of_turns(tmp_path: Path) -> None:
    mind, script = Mind(), script_of(300, seed=1)
    await converse(tmp_path, script, mind)

    assert await score(tmp_path, script, mind) == []
    assert mind.calls["summary"] > 3
    assert mind.calls["dream: edit"] > 1
    assert set(mind.sources) == {"MEMORY.md", "recent history", "search"}
    assert mind.largest < WINDOW_TOKENS * 4


@pytest.mark.long
@pytest.mark.timeout(1_800)
async def test_what_was_said_is_found_after_thousands_of_turns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mind, script = Mind(), script_of(5_000, seed=2)
    rows = await converse(tmp_path, script, mind)
    wrong = await score(tmp_path, script, mind)

    sources = ", ".join(f"{count} from {source}" for source, count in mind.sources.items())
    lines = ["", "turn\tms a turn\tbytes written a turn\tlargest request\tcalls", *map(str, rows)]
    right = len(script.questions) - len(wrong)
    lines.append(f"right: {right} of {len(script.questions)}: {sources}")
    with capsys.disabled():
        sys.stdout.write("\n".join(lines) + "\n")
    assert wrong == []
    assert all(row.largest < WINDOW_TOKENS * 4 for row in rows)
    assert rows[-1].calls.total() < 1.5 * rows[0].calls.total()
    # The session's file is written again when half of it is superseded. At most, that doubles what
    # is written, from about 1,500 turns on.
    assert rows[-1].written < 2.5 * rows[0].written
    assert rows[-1].written < 1.5 * rows[3].written
