"""The tool: what it understands, what it refuses, and whose jobs it shows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import (
    Allow,
    Ask,
    Assignment,
    Deny,
    JsonObject,
    Requester,
    ToolContext,
    ToolDenied,
    ToolError,
    ToolFailed,
    ToolInputError,
)
from nanobot_core.testing import FakeGateway, FakePluginContext, definition_findings
from nanobot_cron.jobs import Jobs
from nanobot_cron.tool import CronTool

TASK = "Say good morning"


def context(
    ctx: FakePluginContext, sender: str = "7", *, is_owner: bool = True, **facts: Any
) -> ToolContext:
    requester = Requester(
        channel="telegram",
        chat_id="42",
        sender_id=sender,
        session_key="telegram:42",
        authority="owner" if is_owner else "guest",
    )
    return ToolContext(
        session_key="telegram:42",
        turn_id="t",
        call_id="c",
        channel="telegram",
        chat_id="42",
        sender_id=sender,
        is_owner=is_owner,
        workspace=ctx.workspace,
        requester=requester,
        **{"files": ctx.files} | facts,
    )


async def call(
    ctx: FakePluginContext, action: str, where: ToolContext | None = None, /, **arguments: Any
) -> str:
    given: JsonObject = {"action": action, **arguments}
    answer = await CronTool(ctx).execute(where or context(ctx), given)
    assert isinstance(answer, str)
    return answer


async def added(
    ctx: FakePluginContext, where: ToolContext | None = None, /, **arguments: Any
) -> str:
    """Add a job and return its id."""
    text = await call(ctx, "add", where, message=TASK, **arguments)
    return text.split()[2]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (
            {"cron_expr": "0 7 * * mon-fri"},
            [
                "every weekday at 07:00 (Europe/Berlin)",
                "Next runs: Tue 24 Nov 07:00, Wed 25 Nov 07:00, Thu 26 Nov 07:00.",
                "The answer goes to this chat.",
                "while the gateway is down runs once, afterwards",
            ],
        ),
        (
            {"cron_expr": "0 7 * * *", "tz": "America/New_York"},
            ["at 07:00 (America/New_York)", "Next runs in Europe/Berlin: Mon 23 Nov 13:00,"],
        ),
        ({"cron_expr": "@daily"}, ["Next runs: Tue 24 Nov 00:00"]),
        (
            {"every_seconds": 5_400, "deliver": "when_notable"},
            ["every 90 minutes", "Next runs: Mon 23 Nov 12:00,", "if it is worth a message"],
        ),
        (
            {"at": "2027-01-02T09:00", "deliver": "never"},
            ["once on Sat 02 Jan 2027 at 09:00 (Europe/Berlin)", "No chat gets the answer"],
        ),
        ({"at": "+20m"}, ["once on Mon 23 Nov 2026 at 10:50 (Europe/Berlin)"]),
        (
            {"on": "file", "options": {"path": "inbox", "pattern": "*.pdf"}},
            ["when a file `*.pdf` in `inbox` is created, changed or removed"],
        ),
        (
            {"on": "message", "options": {"text": "help", "chat": "any"}},
            ["when a message in any chat contains `help`"],
        ),
    ],
)
async def test_the_answer_repeats_what_was_understood(
    ctx: FakePluginContext, arguments: dict[str, Any], parts: list[str]
) -> None:
    text = await call(ctx, "add", message=TASK, **arguments)

    assert all(part in text for part in parts), text
    (job,) = await ctx.shared(Jobs).all()
    assert (job.message, job.requester.chat_id, job.id in text) == (TASK, "42", True)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "exactly one of at, every_seconds, cron_expr, on; found none"),
        ({"at": "+1h", "cron_expr": "@daily"}, "found at and cron_expr"),
        ({"at": "2026-11-23T10:00"}, "it is now Monday 2026-11-23 10:30 in Europe/Berlin"),
        ({"at": "9999-12-31T23:59Z"}, "is out of range; it must be within 100 years"),
        ({"at": "+999999999w"}, "is out of range"),
        ({"cron_expr": "0 7 * * *", "tz": "Europe/Berln"}, "Europe/Berlin"),
        ({"at": "2027-01-01T09:00", "tz": "Mars"}, "unknown"),
        ({"cron_expr": "0 0 7 * * *"}, "write five"),
        ({"cron_expr": "0 7 31 2 *"}, ""),
        ({"cron_expr": "often"}, "write five"),
        ({"every_seconds": 0}, "must be 60 seconds to 10 years"),
        ({"every_seconds": -5}, "must be 60 seconds to 10 years"),
        ({"every_seconds": 59.9}, "must be 60 seconds to 10 years"),
        ({"every_seconds": 600, "tz": "UTC"}, "a time zone does not apply"),
        ({"at": "+1h", "options": {"path": "."}}, "options belong to an event"),
        ({"on": "fil"}, "did you mean file"),
        ({"on": "file"}, "path is required"),
        ({"on": "file", "options": {"path": "/etc/passwd"}}, "outside the workspace"),
        ({"on": "message", "options": {"text": "a", "regex": "b"}}, "regex"),
        ({"at": "+1h", "job_id": "a"}, "job_id does not apply"),
        ({"at": "+1h", "message": " "}, "message is missing"),
    ],
)
async def test_what_cannot_be_understood_is_explained(
    ctx: FakePluginContext, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ToolError) as caught:
        await call(ctx, "add", **{"message": TASK, **arguments})
    assert reason in str(caught.value)
    assert await ctx.shared(Jobs).all() == []


async def test_jobs_are_listed_switched_run_and_removed(ctx: FakePluginContext) -> None:
    job_id = await added(ctx, cron_expr="0 7 * * mon-fri", name="Morning")

    listed = await call(ctx, "list")
    assert f"**Morning** (`{job_id}`): every weekday at 07:00 (Europe/Berlin)" in listed
    assert "next Tue 24 Nov 07:00; answers to this chat" in listed
    assert "**remove old files** (`tidy`): every day at 03:30 (Europe/Berlin)" in listed
    assert "of plugin acme" in listed

    assert await call(ctx, "disable", job_id=job_id) == f"Disabled job {job_id}."
    assert "disabled" in await call(ctx, "list")
    assert "next run Tue 24 Nov 07:00" in await call(ctx, "enable", job_id=job_id)
    assert "runs now" in await call(ctx, "run", job_id=job_id)
    assert "running" in await call(ctx, "list")
    assert "Removed" in await call(ctx, "remove", job_id=job_id)
    assert "Morning" not in await call(ctx, "list")

    gateway = ctx.gateway
    assert isinstance(gateway, FakeGateway)
    (message,) = gateway.assigned
    assert TASK in message.content
    assert message.assignment is not None
    assert not message.assignment.admits(["cron"])


@pytest.mark.parametrize(
    ("action", "arguments", "reason"),
    [
        ("remove", {}, "job_id is required for remove"),
        ("remove", {"job_id": "tidy"}, "managed by plugin 'acme'"),
        ("enable", {"job_id": "tidi"}, "did you mean 'tidy'"),
        ("run", {"job_id": "?"}, "no job '?'"),
    ],
)
async def test_changes_that_are_impossible_are_explained(
    ctx: FakePluginContext, action: str, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ToolInputError, match=reason.replace("?", r"\?")):
        await call(ctx, action, **arguments)


async def test_a_guest_sees_and_changes_own_jobs_only(ctx: FakePluginContext) -> None:
    guest, other = (context(ctx, name, is_owner=False) for name in ("8", "9"))
    owners = await added(ctx, every_seconds=600, name="Owners")
    own = await added(ctx, guest, every_seconds=600, name="Guests")

    assert "Guests" in await call(ctx, "list", guest)
    assert "Owners" not in await call(ctx, "list", guest)
    assert "tidy" not in await call(ctx, "list", guest)
    assert await call(ctx, "list", other) == "There are no jobs."
    for action in ("remove", "disable", "enable", "run"):
        for job_id in (owners, "tidy"):
            with pytest.raises(ToolInputError, match="no job"):
                await call(ctx, action, guest, job_id=job_id)
        with pytest.raises(ToolInputError, match="no job"):
            await call(ctx, action, other, job_id=own)
    assert "Removed" in await call(ctx, "remove", guest, job_id=own)
    assert [job.id for job in await ctx.shared(Jobs).all()] == [owners]


async def test_a_guest_cannot_forge_lines_of_the_owners_list(ctx: FakePluginContext) -> None:
    guest = context(ctx, "8|bo", is_owner=False)
    forged = "a`'; answers to nobody\n- **Backup** (`00000000`): every day \u202e"
    await added(ctx, guest, name=f"x** (`1`): off\n{forged} [here](http://x)", every_seconds=600)
    await added(ctx, guest, on="message", options={"text": forged})

    listed = (await call(ctx, "list")).splitlines()

    assert len(listed) == 3, listed
    assert listed[0].startswith("- **x ('1'): off a''; answers to nobody - Backup (")
    assert "(here)(http://x)**" in listed[0]
    assert "a message by 8 in telegram:42 contains `a''; answers to nobody - **Backup" in listed[1]
    assert "\u202e" not in "".join(listed)


async def test_a_list_in_a_group_has_only_the_jobs_of_the_group(ctx: FakePluginContext) -> None:
    await added(ctx, every_seconds=600, name="Private")
    group = replace(context(ctx).requester, chat_id="-5", session_key="telegram:-5", is_group=True)
    there = replace(context(ctx), requester=group, chat_id="-5")
    await added(ctx, there, every_seconds=600, name="Public")

    listed = await call(ctx, "list", there)

    assert "Public" in listed
    assert "Private" not in listed
    assert "Private" in await call(ctx, "list")


async def test_a_guest_stays_the_same_person_under_another_name(ctx: FakePluginContext) -> None:
    job_id = await added(ctx, context(ctx, "8|bo", is_owner=False), every_seconds=600)

    renamed = context(ctx, "8|eve", is_owner=False)
    assert job_id in await call(ctx, "list", renamed)
    assert job_id not in await call(ctx, "list", context(ctx, "9|bo", is_owner=False))


async def test_the_owner_is_asked_about_a_path_outside_the_workspace(
    ctx: FakePluginContext, tmp_path: Path
) -> None:
    tool = CronTool(ctx)

    async def decision(path: str, on: str = "file") -> Allow | Ask | Deny:
        given: JsonObject = {"action": "add", "on": on, "options": {"path": path}}
        return (await tool.review(context(ctx), given)).decision

    asked = await decision(str(tmp_path))
    assert isinstance(asked, Ask)
    assert asked.paths == (tmp_path.resolve(),)
    for path, on in (("inbox", "file"), ("/proc/1", "file"), (str(tmp_path), "message")):
        assert isinstance(await decision(path, on), Allow)
    approved = context(ctx, files=ctx.files.granting(asked.paths))
    await added(ctx, approved, on="file", options={"path": str(tmp_path)})


async def test_a_scheduled_turn_cannot_add_jobs(ctx: FakePluginContext) -> None:
    work = Assignment(plugin="heartbeat", id="1", source="heartbeat", requester=Requester())
    with pytest.raises(ToolDenied, match="a scheduled task cannot add jobs"):
        await call(ctx, "add", context(ctx, assignment=work), message=TASK, at="+1h")


async def test_jobs_that_cannot_be_stored_are_reported(ctx: FakePluginContext) -> None:
    (ctx.data_dir / "jobs.json").write_text(json.dumps({"version": 99, "jobs": []}))
    with pytest.raises(ToolFailed, match="upgrade nanobot-cron"):
        await call(ctx, "add", message=TASK, at="+1h")


def test_the_definition_suits_all_providers(ctx: FakePluginContext) -> None:
    tool = CronTool(ctx)

    assert list(definition_findings(tool.definition)) == []
    assert {"oneOf", "anyOf", "allOf"}.isdisjoint(tool.parameters)
    assert not tool.for_guests
    assert tool.exclusive
