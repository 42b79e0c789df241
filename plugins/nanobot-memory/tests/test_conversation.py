"""A conversation of hundreds or thousands of turns, with a model that knows only its request.

The scripted model plays chat, summariser and answerer from the text that it is sent, so the test
measures what the memory brings back, and not how clever a model is.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

import nanobot_memory.plugin
from nanobot_core import (
    ChatRequest,
    Completed,
    LLMProvider,
    LLMResponse,
    Message,
    Nanobot,
    PluginContext,
    ProviderSpec,
    StreamEvent,
    TextDelta,
    ToolCall,
    on,
)

pytestmark = pytest.mark.anyio

WINDOW_TOKENS = 16_000
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
        questions: question to answer.
    """

    turns: list[str] = field(default_factory=list)
    questions: dict[str, str] = field(default_factory=dict)


def script_of(turns: int, seed: int) -> Script:
    """Return 40 facts, 20 that change twice, 20 sets of events to count, 30 questions without."""
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
    return script


class Mind(LLMProvider):
    """Answers each request from its text alone, and checks its shape.

    Attributes:
        largest: characters of the largest request.
        summaries: how many were asked for.
    """

    name = "script"

    def __init__(self) -> None:
        self.largest = 0
        self.summaries = 0

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        self.largest = max(self.largest, sum(len(each.text) for each in request.messages))
        check_pairs(request.messages)
        last = request.messages[-1]
        if not request.tools:  # from this package, or from the core when a turn grows too long
            self.summaries += 1
            said = "".join(each.text for each in request.messages).rpartition("<conversation ")[2]
            content = "\n".join(f"- {fact}" for fact in facts_in(said))
            answer = LLMResponse(content=content or "(nothing)", finish_reason="stop")
        elif last.role == "tool":
            question = next(m.text for m in reversed(request.messages) if m.role == "user")
            answer = LLMResponse(content=answered(question, last.text), finish_reason="stop")
        elif "?" in last.text:
            call = ToolCall(f"c{next(_numbers)}", "search_memory", {"query": keyword(last.text)})
            answer = LLMResponse(content=None, tool_calls=(call,), finish_reason="tool_calls")
        else:
            answer = LLMResponse(content="Noted.", finish_reason="stop")
        if answer.content:
            yield TextDelta(answer.content)
        yield Completed(answer)


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


class ScriptPlugin:
    def __init__(self, factory: str) -> None:
        self._factory = factory

    @on.contribute_providers
    def contribute_providers(self, ctx: PluginContext) -> Iterable[ProviderSpec]:
        yield ProviderSpec(
            name="script", factory=self._factory, needs_key=False, default_base="http://localhost"
        )


@asynccontextmanager
async def started(folder: Path, mind: Mind) -> AsyncIterator[Nanobot]:
    """Yield an agent with this package and the script alone, whatever else is installed."""
    module = ModuleType(f"memory_script_{next(_numbers)}")
    module.create = lambda *_: mind  # type: ignore[attr-defined]  # a module made for this test
    sys.modules[module.__name__] = module
    defaults = {
        "model": "script/large",
        "context_window_tokens": WINDOW_TOKENS,
        "max_tokens": 1_000,
    }
    settings = {"agents": {"defaults": defaults}, "plugins": {"policy": "listed", "enabled": []}}
    file = folder / "config.json"
    file.write_text(json.dumps(settings), "utf-8")
    bot = Nanobot.from_config(file, home=folder)
    await bot.plugins.register(ScriptPlugin(f"{module.__name__}:create"), "script")
    await bot.plugins.register(nanobot_memory.plugin, "memory-here")
    async with bot:
        yield bot


def stored_bytes(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


async def converse(folder: Path, script: Script, mind: Mind) -> Iterator[tuple[int, float, int]]:
    """Say everything; return number, milliseconds a turn and bytes a turn after every hundred."""
    rows = []
    async with started(folder, mind) as bot:
        begun, size = time.perf_counter(), stored_bytes(folder)
        for number, text in enumerate(script.turns, 1):
            outcome = await bot.run(text)
            assert outcome.error is None, outcome.error
            if number % 100 == 0:
                passed_ms, now = (time.perf_counter() - begun) * 1_000, stored_bytes(folder)
                rows.append((number, passed_ms / 100, (now - size) // 100))
                begun, size = time.perf_counter(), now
        await bot.run("/new")
    return iter(rows)


async def score(folder: Path, script: Script, mind: Mind) -> list[str]:
    """Ask everything in a new process of the agent; return what was answered wrongly."""
    wrong = []
    async with started(folder, mind) as bot:
        for number, (question, right) in enumerate(script.questions.items()):
            reply = (await bot.run(question, session=f"sdk:question{number}")).reply
            if reply != right:
                wrong.append(f"{question} {right}, not {reply}")
    return wrong


@pytest.mark.timeout(300)
async def test_what_was_said_is_found_after_hundreds_of_turns(tmp_path: Path) -> None:
    mind, script = Mind(), script_of(500, seed=1)
    await converse(tmp_path, script, mind)

    assert await score(tmp_path, script, mind) == []
    assert mind.summaries > 5
    assert mind.largest < WINDOW_TOKENS * 4


@pytest.mark.long
@pytest.mark.timeout(1_800)
async def test_what_was_said_is_found_after_thousands_of_turns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mind, script = Mind(), script_of(5_000, seed=2)
    rows = list(await converse(tmp_path, script, mind))
    wrong = await score(tmp_path, script, mind)

    lines = ["", "turn\tms a turn\tbytes a turn"]
    for number, milliseconds, size in rows:
        if number in {100, 200, 500} or number % 1_000 == 0:
            lines.append(f"{number}\t{milliseconds:.1f}\t{size:,}")
    lines.append(f"right: {len(script.questions) - len(wrong)} of {len(script.questions)}")
    lines.append(f"summaries: {mind.summaries}; largest request: {mind.largest:,} characters")
    with capsys.disabled():
        sys.stdout.write("\n".join(lines) + "\n")
    assert wrong == []
    assert mind.largest < WINDOW_TOKENS * 4
