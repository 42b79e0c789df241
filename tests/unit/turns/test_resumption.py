"""A crash at every single step of a turn: what was begun goes on, and nothing is done twice."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest

from nanobot_core import ChatRequest, LLMResponse, Message, ToolCall, ToolContext, tool
from nanobot_core.sessions.history import OUTCOME_UNKNOWN, align
from nanobot_core.sessions.jsonl import JsonlSessionStore
from tests.unit.turns.conftest import Death, Desk, Killed, asks

pytestmark = pytest.mark.anyio

WISH = re.compile(r"do (\w+)")
KEPT = 1_000


@dataclass
class Work:
    """Three kinds of tools, what they did over all lives, and a model that calls each once."""

    desk: Desk
    done: Counter[str] = field(default_factory=Counter)
    words: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        desk, done = self.desk, self.done

        @tool(read_only=True)
        async def look(context: ToolContext, what: str) -> str:
            """Look."""
            desk.death.point("before look")
            done[f"look {what}"] += 1
            desk.death.point("after look")
            return "seen"

        @tool(idempotent=True)
        async def fix(context: ToolContext, what: str) -> str:
            """Bring about a state."""
            desk.death.point("before fix")
            done[f"fix {what}"] += 1
            desk.death.point("after fix")
            return "fixed"

        @tool
        async def stamp(context: ToolContext, what: str) -> str:
            """Have an effect."""
            desk.death.point("before stamp")
            done[f"stamp {what}"] += 1
            desk.death.point("after stamp")
            return "stamped"

        desk.tools, desk.answer = [look, fix, stamp], self.answer

    async def answer(self, request: ChatRequest) -> LLMResponse:
        """Call each tool for the newest request except those after an answer."""
        history = list(request.messages)
        assert_legal(history)
        (start,) = [i for i, m in enumerate(history) if m.role == "user" and opens(history, i)][-1:]
        (wish, *_) = WISH.findall(history[start].text)[-1:]
        results = [m for m in history[start:] if m.role == "tool"]
        self.desk.death.point("model call")
        if not results:
            names = ("look", "fix", "stamp")
            return asks(*(ToolCall(f"{name}-{wish}", name, {"what": wish}) for name in names))
        told = [f"{m.name}=<{m.text}>" for m in results]
        meanwhile = [
            w for m in history[start + 1 :] if m.role == "user" for w in WISH.findall(m.text)
        ]
        return LLMResponse(content=" ".join([f"done {wish}", *meanwhile, *told]))


def opens(history: list[Message], index: int) -> bool:
    """Whether a user message opens a turn: what is said meanwhile follows the result of a tool."""
    return history[index - 1].role != "tool"


def assert_legal(history: list[Message]) -> None:
    """Each call has one result, right behind it; nothing else is a result."""
    waiting: set[str | None] = set()
    for message in history:
        if message.role == "tool":
            waiting.remove(message.tool_call_id)
        else:
            assert waiting == set()
            waiting = {call.id for call in message.tool_calls}
    assert waiting == set()


Scenario = Callable[[Desk], None]


def two_messages(desk: Desk) -> None:
    desk.waiting = [desk.message("do a"), desk.message("do b")]


def steered(desk: Desk) -> None:
    desk.settings["agents.defaults.steering"] = True
    two_messages(desk)


@asynccontextmanager
async def life(desk: Desk, death: Death) -> AsyncIterator[None]:
    desk.death = death
    async with desk.open():
        yield


def answers(desk: Desk) -> dict[str, set[str]]:
    """Return the keys of the answers by the wish that each answers."""
    found: dict[str, set[str]] = {}
    for message in desk.sent:
        if message.kind == "final" and not (message.reply_to or "").startswith("/approve"):
            assert message.content.startswith("done "), message.content
            head = re.split(r"\w+=<", message.content, maxsplit=1)[0]
            for wish in head.split()[1:]:
                found.setdefault(wish, set()).add(message.idempotency_key)
    return found


async def answered(desk: Desk, number: int) -> None:
    """Wait until so many wishes are answered and nothing waits, or the process is dead."""
    await desk.until(
        lambda: desk.death.came.is_set() or (len(answers(desk)) == number and not desk.waiting)
    )


async def points_of(folder: Path, scenario: Scenario) -> list[str]:
    """Return every point that a life without a crash passes."""
    desk = Desk(folder)
    Work(desk)
    scenario(desk)
    async with life(desk, Death()):
        await desk.until(lambda: set(answers(desk)) == {"a", "b"})
        await desk.until(lambda: desk.death.passed.count("after acknowledge outbound") >= 1)
    return desk.death.passed


async def judge(desk: Desk, work: Work, death: Death) -> None:
    """Nobody is without an answer, and nothing was done twice that must not be."""
    died_at = death.passed[-1]
    found = answers(desk)
    assert {wish: len(keys) for wish, keys in found.items()} == {"a": 1, "b": 1}, died_at
    finals = list(dict.fromkeys(m.idempotency_key for m in desk.sent if m.kind == "final"))
    texts = {m.idempotency_key: m.content for m in desk.sent if m.kind == "final"}
    assert [texts[key].split()[1] for key in finals] == ["a", "b"][: len(finals)], died_at
    sends = Counter(message.idempotency_key for message in desk.sent)
    passed = Counter(death.passed)
    if passed["after send"] <= passed["after acknowledge outbound"]:
        assert set(sends.values()) == {1}, died_at
    for text in texts.values():
        assert "look=<seen>" in text, died_at
        assert "fix=<fixed>" in text, died_at
        wish = text.split()[1]
        assert work.done[f"stamp {wish}"] <= 1, died_at
        if f"stamp=<{OUTCOME_UNKNOWN}>" in text:
            notices = [m.content for m in desk.sent if m.kind == "notice"]
            assert sum("taken effect: stamp" in notice for notice in notices) == 1, died_at
        else:
            assert "stamp=<stamped>" in text, died_at
            assert work.done[f"stamp {wish}"] == 1, died_at
    store = JsonlSessionStore(desk.home / "workspace" / "sessions")
    stored = await store.load("desk:1", KEPT)
    assert stored is not None
    assert stored.repaired == (), died_at
    assert stored.state.checkpoint is None, died_at
    assert_legal(list(stored.messages))
    # Repair finds nothing to add and nothing to leave out.
    assert Counter(m.text for m in align(stored.messages)) == Counter(
        m.text for m in stored.messages
    ), died_at
    said = [m.text for m in stored.messages if m.role == "user"]
    assert said == ["do a", "do b"], died_at


@pytest.mark.parametrize("scenario", [pytest.param(two_messages, marks=pytest.mark.long), steered])
@pytest.mark.timeout(240)
async def test_a_crash_at_any_step_costs_nothing(
    desk: Desk, tmp_path: Path, scenario: Scenario
) -> None:
    names = await points_of(tmp_path / "whole", scenario)
    assert len(names) > 30
    assert ("after take_inbound" in names) is (scenario is steered)
    told = Counter[str]()
    for at in count(1):
        one = Desk(tmp_path / str(at))
        work = Work(one)
        scenario(one)
        death = Death(at)
        async with life(one, death):
            await answered(one, 2)
        if not death.came.is_set():
            break
        died_at = death.passed[-1]
        async with life(one, Death()):
            try:
                await answered(one, 2)
            except TimeoutError:
                pytest.fail(f"no answers after {death.passed}: {one.sent}, {one.death.passed}")
        await judge(one, work, death)
        told[died_at] += 1
    assert sum(told.values()) > 30
    assert {"before append", "after append", "after stamp", "after send"} <= set(told)


def questions(desk: Desk) -> list[str]:
    """Return what the owner may answer with to open questions."""
    found = [message.buttons[0][0].value for message in desk.sent if message.buttons]
    return list(dict.fromkeys(found))


async def answer_questions(desk: Desk) -> None:
    """Allow what is asked, as an owner whose platform offers the word until it is accepted."""
    await desk.until(lambda: (questions(desk) and desk.inbox) or desk.death.came.is_set())
    for word in questions(desk):
        if desk.inbox is not None:
            message = replace(desk.message(word), dedupe_key=word)
            with suppress(Killed):
                await desk.inbox.publish(message)


@pytest.mark.timeout(240)
async def test_a_crash_around_a_question_to_the_owner_costs_nothing(
    desk: Desk, tmp_path: Path
) -> None:
    told = Counter[str]()
    for at in count(1):
        one = Desk(tmp_path / str(at))
        one.settings["tools.approval"] = [{"tool": "stamp", "action": "ask"}]
        work = Work(one)
        one.waiting = [one.message("do a")]
        death = Death(at)
        async with life(one, death):
            await answer_questions(one)
            await answered(one, 1)
        if not death.came.is_set():
            break
        died_at = death.passed[-1]
        async with life(one, Death()):
            if not answers(one):
                asking = asyncio.create_task(answer_questions(one))
                await answered(one, 1)
                asking.cancel()
        assert [len(keys) for keys in answers(one).values()] == [1], died_at
        (text,) = {message.content for message in one.sent if message.content.startswith("done")}
        assert work.done["stamp a"] <= 1, died_at
        if "stamp=<stamped>" in text:
            assert work.done["stamp a"] == 1, died_at
        else:
            assert f"stamp=<{OUTCOME_UNKNOWN}>" in text, (died_at, text)
            notices = [m.content for m in one.sent if m.kind == "notice"]
            assert sum("taken effect: stamp" in notice for notice in notices) == 1, died_at
        told["stamped" if "stamp=<stamped>" in text else "unknown"] += 1
    assert told["stamped"] > 10
    assert told["unknown"] > 0
