"""Work that a crash or a restart interrupts: its chat and its plugin get the result once."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from loguru import logger

from nanobot_core import Assignment, InboundMessage, ToolContext, tool
from nanobot_core.bus.sqlite import SqliteBus
from nanobot_core.sessions.folder import safe_name
from nanobot_core.sessions.history import OUTCOME_UNKNOWN
from tests.strangers import delegator
from tests.unit.turns.conftest import Death, Desk
from tests.unit.turns.test_assigned_work import ended, ends, gateway, obey, stored
from tests.unit.turns.test_resumption import life
from tests.unit.turns.test_rights_of_work import job, requester

pytestmark = pytest.mark.anyio
WISH = 'call stamp {"what": "a"}'


def office(home: Path, stamped: Counter[str], **settings: object) -> Desk:
    """Return a desk with a tool that has an effect, whose owner is 8."""
    desk = Desk(home, answer=obey, plugins=(delegator,))

    @tool
    async def stamp(context: ToolContext, what: str) -> str:
        """Have an effect."""
        desk.death.point("before stamp")
        stamped[what] += 1
        desk.death.point("after stamp")
        return "stamped"

    desk.tools = (stamp,)
    desk.settings |= {"owner": ["8"]} | settings
    return desk


async def give(desk: Desk) -> None:
    """Store work for the next process."""
    path = desk.home / "gateway" / "bus.sqlite"
    path.parent.mkdir(parents=True)
    bus = await SqliteBus.open(path, clock=desk.clock)
    given = Assignment(
        plugin=f"{desk.id}x0",
        id="a",
        source="cron",
        requester=requester("owner"),
        title="Stamp",
        session_key="work:a",
    )
    await bus.publish_inbound(InboundMessage.of(given, WISH))
    await bus.aclose()


async def finished(desk: Desk) -> None:
    await desk.until(lambda: desk.death.came.is_set() or (desk.texts() and ends(desk)))


async def test_a_crash_at_any_step_loses_and_doubles_nothing(desk: Desk, tmp_path: Path) -> None:
    died_at = Counter[str]()
    for at in count(1):
        stamped = Counter[str]()
        one = office(tmp_path / str(at), stamped)
        await give(one)
        death = Death(at)
        async with life(one, death):
            await finished(one)
        if not death.came.is_set():
            break
        async with life(one, Death()):
            await finished(one)
            noted = [message.text for message in await stored(one, "desk:1")]
        point = death.passed[-1]
        died_at[point] += 1
        replies = {end["reply"] for end in ends(one)}
        assert replies <= {"stamped", OUTCOME_UNKNOWN}, point
        assert len(replies) == 1, point
        assert {message.content for message in one.sent if message.kind == "final"} == replies, (
            point
        )
        assert len({m.idempotency_key for m in one.sent if m.kind == "final"}) == 1, point
        assert stamped["a"] <= 1, point
        assert stamped["a"] == 1 or replies == {OUTCOME_UNKNOWN}, point
        assert noted.count("(You wrote this without being asked: Stamp.)") <= 1, point
    assert {"after append", "after stamp", "before acknowledge inbound"} <= set(died_at)


@pytest.mark.parametrize("authority", ["owner", "guest"])
async def test_a_question_of_work_waits_for_its_answer_over_a_restart(
    desk: Desk, tmp_path: Path, authority: str
) -> None:
    stamped = Counter[str]()
    rule = {"tool": "stamp", "action": "ask"}
    guests = {"tools.guests.allow": ["stamp"]} if authority == "guest" else {}
    one = office(tmp_path / "h", stamped, **{"tools.approval": [rule]}, **guests)
    one.settings["owner"] = ["8"] if authority == "owner" else ["1"]
    await give(one)
    (one.home / "gateway" / "owner.json").write_text('["desk", "owners"]')
    async with one.open():
        await one.until(lambda: any(message.buttons for message in one.sent))
    (question,) = (message for message in one.sent if message.buttons)
    assert question.content.startswith("**")
    async with one.open():
        sender = "8" if authority == "owner" else "1"
        await one.say(question.buttons[0][0].value, question.chat_id, sender=sender)
        (end,) = await ended(one)
    assert (end["reply"], stamped["a"]) == ("stamped", 1)
    assert question.chat_id == ("1" if authority == "owner" else "owners")
    assert "'Stamp' (cron): Run stamp?" in question.content


async def test_nothing_is_noted_within_an_interrupted_turn(desk: Desk) -> None:
    @tool
    async def stall(context: ToolContext) -> str:
        """Never end."""
        await asyncio.Event().wait()
        return ""

    desk.answer, desk.plugins, desk.tools = obey, (delegator,), (stall,)
    async with desk.open():
        await desk.say("call stall {}")
        await desk.until(lambda: len(desk.requests) == 1)
    (desk.home / "gateway" / "bus.sqlite").unlink()
    desk.settings |= {"owner": ["8"]}
    async with desk.open():
        access = await gateway(desk)
        await access.assign(job(requester("owner")), "say it")
        await desk.replies(1)
        await desk.say("hello")
        await desk.replies(2)
        texts = [message.text for message in await stored(desk, "desk:1")]
    assert "re: say it" not in texts
    assert texts[-1] == "re: hello"


async def test_a_history_that_cannot_be_used_costs_only_the_note(desk: Desk) -> None:
    lines: list[str] = []
    sink = logger.add(lines.append, format="{message}")
    desk.answer, desk.plugins = obey, (delegator,)
    desk.settings |= {"owner": ["8"]}
    (desk.home / "locks" / safe_name("desk:1")).mkdir(parents=True)
    async with desk.open():
        access = await gateway(desk)
        await access.assign(job(requester("owner")), "say it")
        assert await desk.replies(1) == ["re: say it"]
        await desk.until(lambda: any("not in the history of the chat" in line for line in lines))
    logger.remove(sink)
