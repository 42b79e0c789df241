"""``/stop`` ends the work for a session, wherever it is, and nothing else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from nanobot_core import Assignment, ChatRequest, InboundMessage, LLMResponse, Requester
from nanobot_core.bus.sqlite import SqliteBus
from nanobot_core.contracts.bus import InboundLease
from nanobot_core.tasks import TaskOwner
from nanobot_core.turns.running import RunningTurn, RunningTurns
from tests.strangers import delegator
from tests.unit.turns.conftest import Desk, wish_of
from tests.unit.turns.test_assigned_work import assign, ended, ends, gateway, obey

pytestmark = pytest.mark.anyio
ME = Requester(channel="desk", chat_id="1", sender_id="me", session_key="desk:1", authority="owner")


@pytest.fixture
def office(desk: Desk) -> Desk:
    desk.answer, desk.plugins = patient, (delegator,)
    return desk


async def patient(request: ChatRequest) -> LLMResponse:
    if wish_of(request) == "hang":
        await asyncio.Event().wait()
    return await obey(request)


def work(name: str, **fields: Any) -> Assignment:
    fields = {"parent": "desk:1", "session_key": f"work:{name}", "source": "cron"} | fields
    return Assignment(plugin=delegator.plugin_id(), id=name, requester=ME, **fields)


def hanging(desk: Desk) -> int:
    return sum(wish_of(request) == "hang" for request in desk.requests)


async def test_it_ends_children_and_their_children_and_no_one_elses(office: Desk) -> None:
    async with office.open():
        await office.say(assign("child", assign("grandchild", "hang", "work")))
        await office.say(assign("second", "hang"))
        await office.say(assign("others", "hang"), "2")
        await office.until(lambda: hanging(office) == 3)
        await office.say("/stop")
        await office.until(lambda: "Stopped." in office.texts())
        found = {end["id"]: end["stop_reason"] for end in await ended(office, 2)}
        assert found == {"child": "cancelled", "second": "cancelled"}
        await office.say("/stop")
        await office.until(lambda: "Nothing is running in this chat." in office.texts())
        await office.say("/stop", "2")
        assert (await ended(office, 3))[2]["id"] == "others"
    stops = delegator.records(office.home / "workspace", "stops")
    assert [stop["session"] for stop in stops] == ["desk:1", "desk:1", "desk:2"]


async def test_it_ends_the_children_of_what_has_ended(office: Desk) -> None:
    async with office.open():
        await office.say(assign("child", assign("grandchild", "hang")))
        await ended(office)
        await office.until(lambda: hanging(office) == 1)
        await office.say("/stop")
        await office.until(lambda: "Stopped." in office.texts())
        found = {end["id"]: end["stop_reason"] for end in await ended(office, 2)}
        assert found == {"child": "completed", "grandchild": "cancelled"}


async def test_a_turn_whose_task_has_not_run_ends_its_message_too(office: Desk) -> None:
    """Cancelled before its first step, it kept its message, and its session waited for ever."""
    owner, message = TaskOwner(), office.message("hello")
    turns, stopped = RunningTurns(owner.spawn, max_turns=1), list[bool]()

    async def answer(turn: RunningTurn) -> None:
        stopped.append(turn.is_stopped)
        turns.end(turn)

    lease = InboundLease(id="1", attempt=1, stored_at=office.clock.now(), message=message)
    turns.start(lease, answer)
    assert await turns.stop_work_for(message.session_key, with_own=True)
    assert (stopped, len(turns)) == ([True], 0)
    await owner.close()


async def test_it_ends_work_that_has_not_begun(office: Desk) -> None:
    office.settings["agents.max_concurrent_turns"] = 1
    async with office.open():
        access = await gateway(office)
        await office.say("hang", "2")
        await office.until(lambda: hanging(office) == 1)
        for number in range(6):  # two without a slot, the others still stored behind them
            name = f"w{number}"
            await access.assign(work(name, session_key=f"work:{number % 2}"), "hang")
        await office.say("/stop")
        await office.until(lambda: "Stopped." in office.texts())
        found = await ended(office, 6)
        assert {end["stop_reason"] for end in found} == {"cancelled"}
        assert (await access.status()).depth.inbound == 1
    assert hanging(office) == 1


async def test_it_ends_work_whose_giver_was_cancelled_while_it_was_being_stored(
    office: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, storable = asyncio.Event(), asyncio.Event()
    publish = SqliteBus.publish_inbound

    async def store_late(bus: SqliteBus, message: InboundMessage) -> bool:
        async def store() -> bool:
            await storable.wait()
            return await publish(bus, message)

        if message.assignment is None:
            return await publish(bus, message)
        begun.set()
        # As the queue does, which cannot take back what it has handed over to its thread.
        return await asyncio.shield(asyncio.ensure_future(store()))

    monkeypatch.setattr(SqliteBus, "publish_inbound", store_late)
    async with office.open():
        access = await gateway(office)
        giving = asyncio.create_task(access.assign(work("late"), "hang"))
        await begun.wait()
        await office.say("/stop")
        await office.until(lambda: "Stopped." in office.texts())
        giving.cancel()
        await asyncio.wait({giving})
        storable.set()
        (end,) = await ended(office)
        assert (end["id"], end["stop_reason"]) == ("late", "cancelled")
    assert hanging(office) == 0


async def test_work_after_a_stop_is_done(office: Desk) -> None:
    async with office.open():
        await office.say("/stop")
        await office.replies(1)
        await office.say(assign("a", "say it"))
        (end,) = await ended(office)
        assert end["reply"] == "re: say it"


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_plugin_stops_its_work(office: Desk, is_running: bool) -> None:
    office.settings["agents.max_concurrent_turns"] = 1
    async with office.open():
        access = await gateway(office)
        if not is_running:
            await office.say("hang", "2")
            await office.until(lambda: hanging(office) == 1)
        given = work("a")
        await access.assign(given, "hang")
        await office.until(lambda: hanging(office) == 1)
        assert await access.stop_work(given.plugin, "a")
        (end,) = await ended(office)
        assert (end["id"], end["stop_reason"]) == ("a", "cancelled")
        assert not await access.stop_work(given.plugin, "other")


async def test_parents_in_a_circle_are_stopped(office: Desk) -> None:
    async with office.open():
        access = await gateway(office)
        await access.assign(work("a", parent="work:b"), "hang")
        await access.assign(work("b", parent="work:a"), "hang")
        await office.until(lambda: hanging(office) == 2)
        assert await access.stop_work(delegator.plugin_id(), "a")
        await ended(office, 2)


async def test_a_question_of_work_in_a_stopped_call_is_closed(office: Desk) -> None:
    office.settings["tools.approval"] = [{"tool": "assign", "action": "ask"}]
    async with office.open():
        wish = "call assign " + json.dumps({"name": "b", "content": "c"})
        await office.say(assign("a", wish, "work"))
        await office.until(lambda: office.texts(kind="notice"))
        await office.say("/stop")
        await office.until(lambda: "Stopped." in office.texts())
        (question,) = office.texts(kind="notice")
        await office.say("/approve " + question.split("/approve ")[1].split()[0])
        await office.replies(2)
    assert json.loads((office.home / "gateway" / "approvals.json").read_text()) == []
    assert ends(office) == []
