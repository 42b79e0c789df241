"""Jobs in a gateway: made in a chat, at the terminal or for an event, answered in the chat."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import (
    Fire,
    JsonObject,
    PluginContext,
    ToolCall,
    ToolContext,
    Trigger,
    TriggerEvent,
    on,
)
from nanobot_core.testing.fake_provider import FakeStep
from tests.gateways import LIMIT_S, OWNER, Platform, environment, running, until, write_config
from tests.scripted_provider import ScriptedPlugin

pytest.importorskip("nanobot_cron")
pytestmark = pytest.mark.anyio


async def nanobot(home: Path, *words: str, code: int = 0) -> str:
    """Run a command of the terminal, and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nanobot_core", *words),
        env=environment(home),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(2 * LIMIT_S):
        out, errors = await process.communicate()
    assert process.returncode == code, (out, errors)
    return (errors if code else out).decode()


def configure(home: Path, platform: Platform | None, script: ScriptedPlugin, **more: Any) -> None:
    defaults = {"model": script.model, "workspace": str(home / "workspace")}
    plugins = ["cron", *more.pop("plugins", [])]
    write_config(home, platform, plugins=plugins, agents={"defaults": defaults}, **more)
    (home / "workspace").mkdir()


async def test_a_job_made_in_a_chat_is_done_once_and_answered_there(tmp_path: Path) -> None:
    home = tmp_path / "home"
    add: JsonObject = {
        "action": "add",
        "message": "Say good morning",
        "name": "Morning",
        "at": "+1s",
    }
    script = ScriptedPlugin(ToolCall("1", "cron", add), "I will.", "Good morning!", "No idea.")
    async with Platform() as platform:
        configure(home, platform, script)
        async with running(home, None, script) as bot:
            await platform.say("wish me a good morning in a second")
            await platform.shows("I will.")
            await platform.shows("Good morning!")
            async with asyncio.timeout(LIMIT_S):
                while "Morning" in ((await bot.run("/cron list")).reply or ""):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await platform.say("may I use cron?", chat="2", sender="8")
            await platform.shows("No idea.", chat="2")

    assert platform.texts() == ["I will.", "Good morning!"]
    asked, understood, scheduled, guest = script.provider.requests
    offered = [{tool.name for tool in request.tools} for request in script.provider.requests]
    assert ["cron" in names for names in offered] == [True, True, False, False]
    assert "Added job" in understood.messages[-1].text
    assert "Say good morning" in scheduled.messages[-1].text
    assert asked.messages[0].text != "", guest


async def test_a_job_of_a_guest_has_the_rights_of_a_guest(tmp_path: Path) -> None:
    home = tmp_path / "home"
    add: JsonObject = {"action": "add", "message": "Look around", "at": "+1s"}
    remove: JsonObject = {"action": "remove", "job_id": "tidy"}
    steps = (ToolCall("1", "cron", add), "I will.", ToolCall("2", "note", {"word": "x"}), "Done.")
    script = ScriptedPlugin("Hello.", *steps, ToolCall("3", "cron", remove), "Not yours.")
    async with Platform() as platform:
        configure(home, platform, script, tools={"guests": {"allow": ["cron"]}})
        async with running(home, None, script):
            await platform.say("hello")
            await platform.shows("Hello.")
            await platform.say("look around in a second", chat="2", sender="8")
            await platform.shows("Done.", chat="2")
            await platform.say("remove the job tidy", chat="2", sender="8")
            await platform.shows("Not yours.", chat="2")

    owner, guest, _, scheduled, denied, *_, refused = script.provider.requests
    names = [{tool.name for tool in each.tools} for each in (owner, guest, scheduled)]
    assert {"cron", "note"} <= names[0]
    assert names[1] - names[2] == {"cron"}
    assert "note" not in names[1]
    assert "note" in denied.messages[-1].text
    assert "noted" not in denied.messages[-1].text
    assert "no job 'tidy'" in refused.messages[-1].text
    assert not (home / "workspace" / "notes.txt").exists()
    assert platform.texts() == ["Hello."]


async def test_events_start_jobs_whose_answers_reach_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nanobot_cron.file_trigger.POLL_S", 0.05)
    home = tmp_path / "home"
    script = ScriptedPlugin("Hello.", "One of two.", "One of two.", "A file came.")
    async with Platform() as platform:
        configure(home, platform, script)
        (home / "workspace" / "inbox").mkdir()
        async with running(home, None, script) as bot:
            await platform.say("hello")
            await platform.shows("Hello.")
            await platform.say('/cron add "Look who calls" --on message --option text=alarm')
            await platform.shows("contains `alarm`")
            await platform.say("an alarm in the kitchen")
            await platform.until(lambda: platform.texts().count("One of two.") == 2)
            added = await bot.run("/cron add File it --on file --option path=inbox")
            assert "a file in `inbox`" in (added.reply or "")
            await asyncio.to_thread((home / "workspace/inbox/new.txt").write_text, "new")
            await platform.shows("A file came.")

    texts = [request.messages[-1].text for request in script.provider.requests]
    (called,) = [text for text in texts[1:3] if "Look who calls" in text]
    assert f"{OWNER} wrote in chatty:1" in called
    assert "created: new.txt" in texts[3]


async def test_a_request_with_the_secret_of_a_job_starts_it(tmp_path: Path) -> None:
    pytest.importorskip("nanobot_http")
    pytest.importorskip("nanobot_webhook")
    httpx = pytest.importorskip("httpx")
    home = tmp_path / "home"
    script = ScriptedPlugin("Hello.", "It is deployed.")
    async with Platform() as platform:
        configure(home, platform, script, plugins=["http", "webhook"])
        async with running(home, None, script) as bot:
            await platform.say("hello")
            await platform.shows("Hello.")
            added = await bot.run("/cron add Say what is new --on webhook --option name=deploy")
            secret = (added.reply or "").partition("Bearer ")[2].partition("`")[0]
            address = home / "plugins" / "http" / "address"
            await until(address.exists)
            async with httpx.AsyncClient(
                base_url=address.read_text().strip(), trust_env=False
            ) as to:

                async def post(given: str, key: int = 0) -> int:
                    headers = {"authorization": f"Bearer {given}", "idempotency-key": str(key)}
                    path = "/webhook/hooks/deploy"
                    return int(
                        (await to.post(path, content=b"version 7", headers=headers)).status_code
                    )

                async with asyncio.timeout(LIMIT_S):
                    while await _tried(post(secret), httpx.TransportError) != 200:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
                # The first is a repetition; each of the others changes the state of the job.
                assert [await post(secret, key) for key in range(20)] == [200] * 20
                assert await post("wrong") == 401
            await platform.shows("It is deployed.")

    assert secret.startswith("whsec_")
    assert "version 7" in script.provider.requests[1].messages[-1].text
    assert secret not in (home / "plugins" / "cron" / "jobs.json").read_text()


class Bell(Trigger):
    """Rings when the test says so, and counts how often each job began to wait for it."""

    name = "bell"
    description = "a bell rings"
    parameters: JsonObject

    def __init__(self, ringing: dict[str, list[Fire]]) -> None:
        self.parameters = {"type": "object"}
        self._ringing = ringing

    async def check(self, context: ToolContext, options: JsonObject) -> JsonObject:
        return options

    async def watch(self, job_id: str, options: JsonObject, fire: Fire) -> None:
        self._ringing.setdefault(job_id, []).append(fire)
        await asyncio.Event().wait()

    def describe(self, options: JsonObject) -> str:
        return self.description


class BellPlugin(ScriptedPlugin):
    """Contributes another object whenever it is asked."""

    def __init__(self, *steps: FakeStep) -> None:
        super().__init__(*steps)
        self.ringing: dict[str, list[Fire]] = {}

    @on.contribute_triggers
    def contribute_triggers(self, ctx: PluginContext) -> Iterable[Trigger]:
        yield Bell(self.ringing)


async def test_an_added_job_waits_for_its_event_before_the_reply_and_while_others_change(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    script = BellPlugin("Hello.", "It rang.")
    async with Platform() as platform:
        configure(home, platform, script)
        async with running(home, None, script) as bot:
            await platform.say("hello")
            await platform.shows("Hello.")
            for number in (1, 2):
                await bot.run(f"/cron add Open the door {number} --on bell")
                assert len(script.ringing) == number
            first, second = script.ringing
            await script.ringing[first][0](TriggerEvent(id="1", text="ring"))
            await platform.shows("It rang.")
            await bot.run(f"/cron disable {first}")

    assert {job: len(starts) for job, starts in script.ringing.items()} == {first: 1, second: 1}


async def test_the_terminal_uses_the_gateway_or_a_new_agent(tmp_path: Path) -> None:
    home = tmp_path / "home"
    script = ScriptedPlugin("Hello.")
    message = 'Say "hi", \\ and\n{"a": 1}'
    async with Platform() as platform:
        configure(home, platform, script)
        async with running(home, None, script) as bot:
            await platform.say("hello")
            await platform.shows("Hello.")
            options = ("--cron", "0 7 * * *", "--tz", "Europe/Berlin", "--to", "chatty:1")
            shown = await nanobot(home, "cron", "add", message, *options, "--name", "Hi")
            assert "every day at 07:00 (Europe/Berlin)" in shown
            assert "Hi" in ((await bot.run("/cron list")).reply or "")
    job = json.loads(await nanobot(home, "cron", "list", "--json"))[0]
    refused = await nanobot(home, "cron", "remove", "unknown", code=1)

    assert (job["message"], job["chat"], job["by"]["authority"]) == (message, "chatty:1", "machine")
    assert "no job 'unknown'" in refused


async def _tried(request: Awaitable[int], refusal: type[Exception]) -> int | None:
    """Return the status, or ``None`` while the server does not listen yet."""
    try:
        return await request
    except refusal:
        return None
