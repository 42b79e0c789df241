"""``/cron``: in words for people, as JSON for the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import CommandCall, TurnInfo
from nanobot_core.testing import FakeGateway, FakePluginContext
from nanobot_cron import report
from nanobot_cron.job import On
from nanobot_cron.jobs import Jobs
from nanobot_cron.replies import answer_cron


async def ask(ctx: FakePluginContext, text: str, **facts: Any) -> str:
    given: dict[str, Any] = {
        "id": "t",
        "session_key": "cli:commands",
        "channel": "cli",
        "chat_id": "direct",
        "sender_id": "user",
        "source": "cli",
        "is_owner": True,
    }
    turn = TurnInfo(**given | facts)
    return await answer_cron(ctx, CommandCall(turn=turn, name="cron", text=text, is_owner=True))


async def ask_json(ctx: FakePluginContext, text: str, **facts: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await ask(ctx, text, **facts))
    return found


CHAT = {"source": "chat", "channel": "telegram", "chat_id": "42", "sender_id": "7"}


async def test_a_person_adds_looks_and_removes(ctx: FakePluginContext) -> None:
    text = await ask(ctx, 'add Say hello --cron "0 7 * * *" --name Hello', **CHAT)
    job_id = text.split()[2]

    assert "every day at 07:00 (Europe/Berlin)" in text
    assert f"`{job_id}`" in await ask(ctx, "")
    assert await ask(ctx, f"history {job_id}") == f"Job {job_id} has not run."
    assert await ask(ctx, f"remove {job_id}") == f"Removed job {job_id} 'Hello'."
    assert await ask(ctx, f"remove {job_id}") == f"Error: There is no job '{job_id}'"


async def test_a_program_gets_objects(ctx: FakePluginContext) -> None:
    fields = {"message": 'Say "hi"\n--json', "every_seconds": 600, "name": "", "tz": None}
    found = await ask_json(ctx, f"add --json {json.dumps(fields)}")
    job = found["job"]
    listed = await ask_json(ctx, "list --json")

    assert (job["message"], job["chat"], job["plugin"]) == (fields["message"], "the owner", None)
    assert job["by"] == {"authority": "machine", "sender": "user"}
    assert job["next"] == "2026-11-23T09:40:00+00:00"
    assert [(each["id"], each["plugin"]) for each in listed["jobs"]] == [
        (job["id"], None),
        ("tidy", "acme"),
    ]
    assert await ask_json(ctx, f"history --json {job['id']}") == {
        "text": f"Job {job['id']} has not run.",
        "id": job["id"],
        "runs": [],
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("add x --every 10", "--every is 10; it must be 60"),
        ("add x --every 1h --deliver often", "deliver must be one of"),
        ("add x --every 1h --to telegram", "CHANNEL:CHAT"),
        ("add --every 1h", "message is missing"),
        ("add x", "exactly one of --at, --every, --cron, --on; found none"),
        ("remove tidy", "managed by plugin 'acme'"),
        ("rum x", "did you mean run"),
        ('add {"message": "x", "shell": "y"}', "not allowed ('shell')"),
    ],
)
async def test_an_error_is_a_sentence_for_people_and_a_field_for_programs(
    ctx: FakePluginContext, text: str, reason: str
) -> None:
    sentence = await ask(ctx, text)
    assert reason in sentence
    assert sentence.startswith("Error: ")

    verb, _, rest = text.partition(" ")
    if verb != "rum":
        assert reason in (await ask_json(ctx, f"{verb} --json {rest}"))["error"]


@pytest.mark.parametrize(
    ("owners_chat", "is_group"),
    [(("telegram", "42"), False), (("telegram", "1"), True), (None, True)],
)
async def test_answers_can_go_to_a_chat_that_is_private_only_if_it_is_the_owners(
    ctx: FakePluginContext, owners_chat: tuple[str, str] | None, is_group: bool
) -> None:
    assert isinstance(ctx.gateway, FakeGateway)
    ctx.gateway.owners_chat = owners_chat
    text = await ask(ctx, "add Hello --every 1h --to telegram:42")
    (job,) = await ctx.shared(Jobs).all()

    assert "The answer goes to telegram:42." in text
    assert (job.requester.is_group, job.requester.authority) == (is_group, "machine")
    assert job.requester.session_key == "telegram:42"


async def test_an_owner_in_a_chat_names_chats_of_the_same_channel_only(
    ctx: FakePluginContext,
) -> None:
    refused = await ask(ctx, "add Hello --every 1h --to webhook:42", **CHAT)
    accepted = await ask(ctx, "add Hello --every 1h --to telegram:43", **CHAT)
    (job,) = await ctx.shared(Jobs).all()

    assert "only at the terminal" in refused
    assert "telegram:43" in accepted
    assert (job.requester.sender_id, job.requester.authority) == ("7", "owner")


@pytest.mark.parametrize(
    ("owners_chat", "expected"),
    [(None, "until the owner has written in one"), (("telegram", "7"), "telegram:7")],
)
async def test_answers_of_the_terminal_go_to_the_owners_chat(
    ctx: FakePluginContext, owners_chat: tuple[str, str] | None, expected: str
) -> None:
    assert isinstance(ctx.gateway, FakeGateway)
    ctx.gateway.owners_chat = owners_chat
    assert expected in await ask(ctx, "add Hello --every 1h")


async def test_a_path_that_the_owner_types_needs_no_approval(
    ctx: FakePluginContext, tmp_path: Path
) -> None:
    text = await ask(ctx, f"add Look --on file --option path={tmp_path} --option recursive=true")
    (job,) = await ctx.shared(Jobs).all()

    assert f"in `{tmp_path}` or a folder below it" in text
    assert isinstance(job.schedule, On)


async def test_without_a_gateway_a_run_is_done_here(ctx: FakePluginContext) -> None:
    ctx.gateway = None
    added = await ask_json(ctx, 'add --json {"message": "Say hello", "at": "+1h"}')
    job_id = added["job"]["id"]
    assert "No gateway is running" in added["text"]

    assert "Say hello" in await ask(ctx, f"run {job_id}")
    assert await ask(ctx, "run tidy") == "removed 3 files"
    assert "ok" in await ask(ctx, f"history {job_id}")
    assert len(ctx.agent.assignments) == 1


async def test_the_job_of_a_plugin_can_be_switched_and_looked_at(ctx: FakePluginContext) -> None:
    assert await ask(ctx, "disable tidy") == "Disabled job tidy."
    assert "disabled; of plugin acme" in await ask(ctx, "list")
    assert "next run Tue 24 Nov 03:30" in await ask(ctx, "enable tidy")
    assert await ask(ctx, "history tidy") == "Job tidy has not run."


async def test_a_long_list_is_cut_for_people_and_whole_for_programs(
    ctx: FakePluginContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "MAX_LISTED", 2)
    for number in range(3):
        await ask(ctx, f"add Task {number} --every 1h")

    assert "and 1 more" in await ask(ctx, "list")
    assert len((await ask_json(ctx, "list --json"))["jobs"]) == 4
