"""What work may do: at most what its requester could do when they asked, and can do now."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import (
    OWNERS_MEMORY,
    Assignment,
    Authority,
    InboundMessage,
    Requester,
    ToolContext,
    ToolRule,
    tool,
)
from nanobot_core.app.client import CHANGE_LIMIT_S, ControlClient
from nanobot_core.bus.sqlite import SqliteBus
from tests.gateways import Platform, running, until, write_config
from tests.strangers import delegator
from tests.unit.turns.conftest import Desk
from tests.unit.turns.test_assigned_work import assign, ended, ends, gateway, obey

pytestmark = pytest.mark.anyio
SENDER = "8|eve"
NOW: Mapping[str, Mapping[str, Any]] = {
    "the owner": {"owner": ["8"], "channels.desk.allow_from": ["8"]},
    "a guest": {"owner": ["1"], "channels.desk.allow_from": ["8"]},
    "a guest by name": {"owner": ["1"], "channels.desk.allow_from": ["@Eve"]},
    "no one": {"owner": ["1"], "channels.desk.allow_from": ["1"]},
    "an owner who is not admitted": {"owner": ["8"], "channels.desk.allow_from": ["1"]},
    "in a group that is denied": {
        "owner": ["1"],
        "channels.desk.allow_from": ["8"],
        "channels.desk.groups": {"1": {"policy": "deny"}},
    },
    "not in the list of the group": {
        "owner": ["8"],
        "channels.desk.allow_from": ["8"],
        "channels.desk.groups": {"1": {"allow_from": ["1"]}},
    },
}
REVOKED = NOW.keys() - {"the owner", "a guest", "a guest by name"}
AUTHORITIES: tuple[Authority, ...] = ("machine", "owner", "guest")
WHERE = "call where {};; owners_own {}"


@tool(for_guests=True)
async def where(context: ToolContext) -> str:
    """Say where the call may work."""
    folder = context.workspace.name
    return f"{'owner' if context.is_owner else 'guest'} in {folder}, memory {context.memory}"


@tool
async def owners_own(context: ToolContext) -> str:
    """Do what only the owner may."""
    return "done for the owner"


@pytest.fixture
def office(desk: Desk) -> Desk:
    desk.answer, desk.tools, desk.plugins = obey, (where, owners_own), (delegator,)
    return desk


def requester(authority: Authority, **more: Any) -> Requester:
    fields: dict[str, Any] = {
        "channel": "desk",
        "chat_id": "1",
        "sender_id": SENDER,
        "session_key": "desk:1",
    }
    return Requester(**(fields | {"authority": authority} | more))


def job(asked_by: Requester, name: str = "a", **more: Any) -> Assignment:
    fields: dict[str, Any] = {
        "plugin": delegator.plugin_id(),
        "source": "cron",
        "session_key": f"work:{name}",
    }
    return Assignment(id=name, requester=asked_by, **(fields | more))


def lesser(then: Authority, now: str) -> str:
    """Return the rights of work, by what its requester was then and is now."""
    if then == "machine":
        return "owner"
    if now in REVOKED:
        return "none"
    return "owner" if (then, now) == ("owner", "the owner") else "guest"


@pytest.mark.parametrize("now", NOW)
async def test_rights_are_the_lesser_of_then_and_now(office: Desk, now: str) -> None:
    office.settings |= NOW[now]
    wanted = {then: lesser(then, now) for then in AUTHORITIES}
    async with office.open():
        access = await gateway(office)
        for then in AUTHORITIES:
            asked_by = requester(then, is_group="group" in now)
            await access.assign(job(asked_by, then), WHERE)
        found = {end["id"]: end for end in await ended(office, len(AUTHORITIES))}
    for then, rights in wanted.items():
        error, reply = found[then]["error"], found[then]["reply"]
        if rights == "none":
            assert "longer write" in error
            assert reply is None
            continue
        place = "owner in workspace" if rights == "owner" else "guest in desk_8"
        assert error is None
        assert reply.startswith(place)
        assert ("done for the owner" in reply) == (rights == "owner")
    offers = [
        {each.name for each in request.tools}
        for request in office.requests
        if request.messages[-1].role == "user"
    ]
    rights_done = [rights for rights in wanted.values() if rights != "none"]
    assert len(offers) == len(rights_done)
    assert all("where" in names for names in offers)
    assert sum("owners_own" in names for names in offers) == rights_done.count("owner")


@pytest.mark.parametrize(
    ("sender", "is_group", "memory"),
    [
        ("1", False, OWNERS_MEMORY),
        ("1", True, "chat/desk:1"),
        ("8", False, "sender/desk:8"),
        ("8", True, "chat/desk:1"),
    ],
)
async def test_work_has_the_memory_of_its_chat(
    office: Desk, sender: str, is_group: bool, memory: str
) -> None:
    office.settings["owner"] = ["1"]
    async with office.open():
        wish = assign("a", "call where {}")
        await office.say(wish, sender=sender, is_group=is_group, is_addressed=True)
        (end,) = await ended(office)
    assert end["reply"].endswith(f", memory {memory}")


async def test_the_authority_of_a_child_is_never_more_than_that_of_its_parent(office: Desk) -> None:
    office.settings |= {"owner": ["8"], "channels.desk.allow_from": ["8", "9"]}
    child = assign("child", "call where {}")
    async with office.open():
        assert office.bot is not None
        access = await gateway(office)
        await access.assign(job(requester("guest"), "of a former guest"), child)
        first = {end["id"]: end for end in await ended(office, 2)}
        assert (first["child"]["authority"], first["child"]["is_owner"]) == ("guest", False)
        grandchild = assign("grandchild", "call where {}")
        await office.say(assign("own", grandchild), sender="8")
        await office.say(assign("guests", "call where {}"), sender="9")
        await office.bot.run(assign("terminals", "call where {}"))
        found = {end["id"]: end["authority"] for end in await ended(office, 6)}
    assert found["own"] == found["grandchild"] == "owner"
    assert (found["guests"], found["terminals"]) == ("guest", "machine")


async def test_rules_of_the_requester_bind_the_work(office: Desk) -> None:
    rules = (ToolRule(allow=("w*", "owners_own")), ToolRule(deny=("owners_own",)))
    office.settings |= NOW["the owner"]
    async with office.open():
        access = await gateway(office)
        await access.assign(job(requester("owner", tools=rules)), WHERE)
        await ended(office)
    assert [each.name for each in office.requests[0].tools] == ["where", "work"]


@pytest.mark.parametrize(
    "damage",
    [
        {"requester": None},
        {"requester": {"authority": "root"}},
        {"delivery": "loudly"},
        {"tools": [{"allow": "*"}, 3]},
        "owner",
        [],
        False,
    ],
)
async def test_a_damaged_assignment_is_a_dead_letter_and_no_message(
    office: Desk, damage: object
) -> None:
    path = office.home / "gateway" / "bus.sqlite"
    path.parent.mkdir(parents=True)
    bus = await SqliteBus.open(path, clock=office.clock)
    given = Assignment(plugin="x", id="a", source="cron", requester=requester("guest"))
    await bus.publish_inbound(InboundMessage.of(given, "say it"))
    await bus.aclose()
    with closing(sqlite3.connect(path)) as opened:
        ((text,),) = opened.execute("SELECT payload FROM message").fetchall()
        payload = json.loads(text)
        whole = payload["assignment"]
        payload["assignment"] = whole | damage if isinstance(damage, dict) else damage
        opened.execute("UPDATE message SET payload = ?", (json.dumps(payload),))
        opened.commit()
    async with office.open():
        access = await gateway(office)
        await office.say("hello")
        await office.replies(1)
        depth = (await access.status()).depth
    assert (depth.inbound, depth.dead, len(office.requests), ends(office)) == (0, 1, 1, [])


async def test_who_loses_the_right_to_write_loses_the_work_at_once(tmp_path: Path) -> None:
    async def rights(authority: Authority, name: str) -> str:
        sender = "7" if authority == "owner" else "8"
        asked_by = requester(authority, channel="chatty", sender_id=sender)
        ctx = delegator.context()
        assert ctx.gateway is not None
        await ctx.gateway.assign(job(asked_by, name), "say it")
        await until(lambda: name in {end["id"] for end in delegator.records(ctx.workspace, "ends")})
        end = next(end for end in delegator.records(ctx.workspace, "ends") if end["id"] == name)
        return "none" if end["error"] else "owner" if end["is_owner"] else "guest"

    async def configure(allow_from: list[str], owner: str) -> None:
        chatty = {"allow_from": allow_from, "pairing": True}
        write_config(tmp_path, platform, chatty=chatty, owner=[owner])
        await ControlClient(tmp_path / "gateway").call("reload", limit_s=CHANGE_LIMIT_S)

    async with Platform() as platform:
        write_config(tmp_path, platform, chatty={"allow_from": ["7"], "pairing": True})
        async with running(tmp_path, None, delegator):
            await platform.say("say hello", chat="8", sender="8", waits=False)
            offer = await platform.shows("nanobot pairing approve", chat="8")
            code = offer["text"].split("approve ")[1].split("`")[0]
            assert await rights("guest", "stranger's") == "none"
            await platform.say(f"/pairing approve {code}")
            await platform.shows("8 can now write")
            assert await rights("guest", "paired") == "guest"
            await platform.say("/pairing revoke chatty 8")
            await platform.shows("8 can no longer write")
            assert await rights("guest", "revoked") == "none"
            await configure(["7", "8"], owner="8")
            assert await rights("guest", "made owner") == "guest"
            assert await rights("owner", "made guest") == "guest"
            await configure(["8"], owner="7")
            assert await rights("owner", "owner who is not admitted") == "none"
            await configure(["7"], owner="7")
            assert await rights("guest", "removed") == "none"
            assert await rights("owner", "owner again") == "owner"
