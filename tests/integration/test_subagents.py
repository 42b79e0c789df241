"""Subagents in whole agents: done once, within their limits, and with no more rights."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import Nanobot, Usage
from nanobot_core.testing import FakeReply
from nanobot_core.tools import tool
from tests.gateways import REPOSITORY, GatewayProcess, Platform, running, until, write_config
from tests.integration.conftest import Start, call, history
from tests.scripted_provider import ScriptedPlugin

pytest.importorskip("nanobot_subagents")
from nanobot_subagents import delegate
from nanobot_subagents.plugin import SubagentsPlugin

pytestmark = pytest.mark.anyio
HEARD = "this to the user"
"""Of what the chatty model answers to the result of a subagent."""


def calls(tool: str, *tasks: str, **facts: Any) -> str:
    """Return words on which the chatty model calls a tool, once for each task."""
    return "call " + ";;".join(f"{tool} {json.dumps({'task': task, **facts})}" for task in tasks)


async def texts(bot: Nanobot, key: str) -> str:
    return "\n".join(message.text for message in await history(bot, key))


def runs_of(home: Path) -> list[dict[str, Any]]:
    folder = home / "plugins" / "subagents" / "runs"
    return [json.loads(file.read_text()) for file in folder.glob("*.json")]


async def test_a_result_in_the_background_reaches_the_chat_once(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform, plugins=["subagents"])
        async with running(tmp_path) as bot:
            await platform.say(calls("spawn", "say 42 is it", label="sums"))
            await platform.shows("The tool said: Subagent")
            await platform.shows(HEARD)
            assert (await texts(bot, "chatty:1")).count("The subagent 'sums'") == 1
        assert [each["kind"] for each in platform.sent].count("final") == 2


async def test_five_tasks_at_once_have_their_answers_in_order(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform, plugins=["subagents"])
        async with running(tmp_path):
            await platform.say(calls("delegate", *(f"say part {number}" for number in range(5))))
            parts = " | ".join(f"part {number}" for number in range(5))
            await platform.shows(f"The tool said: {parts}")


async def test_stop_ends_running_and_waiting_subagents_of_the_chat(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform, plugins=["subagents"], subagents={"max_running": 1})
        async with running(tmp_path) as bot:
            await platform.say(calls("spawn", "hang", "hang"))
            await platform.shows("waits for a place")
            await platform.shows("The tool said")
            await until(lambda: len(bot.plugins.table.active) > 0)
            await platform.say("/stop")
            await platform.shows("Stopped.")
            await until(lambda: {run["state"] for run in runs_of(tmp_path)} == {"stopped"})
            await platform.say("say and now")
            await platform.shows("and now")
        assert not [text for text in platform.texts() if HEARD in text]


async def test_one_that_never_ends_is_stopped_by_command_or_at_its_limit(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform, plugins=["subagents"], subagents={"timeout_s": 1})
        async with running(tmp_path):
            await platform.say(calls("spawn", "hang", label="first"))
            await until(lambda: len(runs_of(tmp_path)) == 1)
            await platform.say(f"/subagents stop {runs_of(tmp_path)[0]['id']}")
            await platform.shows("Stopped: first")
            await platform.say(calls("spawn", "hang", label="second"))
            await platform.shows(HEARD)
            states = {run["label"]: (run["state"], run["cause"]) for run in runs_of(tmp_path)}
        assert states == {
            "first": ("stopped", "a person stopped it"),
            "second": ("failed", "it did not finish within its time limit"),
        }


async def kill_and_restart(home: Path, delay_s: float) -> None:
    """Kill a gateway some time after it was asked for two tasks; each is then done once."""
    async with Platform() as platform:
        write_config(home, platform, plugins=["subagents"], subagents={"max_running": 1})
        wait = 'call wait_beside {"seconds": 0.2}'
        async with GatewayProcess(home) as gateway:
            both = [calls("spawn", wait, label=name) for name in "ab"]
            await platform.say(f"{both[0]};;{both[1].removeprefix('call ')}")
            await until(lambda: len(runs_of(home)) > 0)
            await asyncio.sleep(delay_s)
            gateway.send(signal.SIGKILL)
            await gateway.ended()
        async with running(home) as bot:
            await until(lambda: all(run["is_reported"] for run in runs_of(home)))
            count = len(runs_of(home))
            await platform.say("say the last word")
            await platform.shows("the last word")
            said = await texts(bot, "chatty:1")
            for name in "ab"[:count]:
                assert said.count(f"The subagent '{name}'") == 1
        assert {(run["state"], run["result"]) for run in runs_of(home)} == {
            ("complete", "The tool said: waited 0.2")
        }


async def test_a_killed_gateway_continues_what_was_spawned(tmp_path: Path) -> None:
    await kill_and_restart(tmp_path, 0)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_forty_killed_gateways_do_each_task_once(tmp_path: Path) -> None:
    rng = random.Random(13)
    for number in range(40):
        await kill_and_restart(tmp_path / str(number), rng.random())


async def test_a_guest_delegates_with_the_rights_of_a_guest(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(
            tmp_path,
            platform,
            plugins=["subagents"],
            tools={"guests": {"allow": ["spawn", "delegate"]}},
        )
        async with running(tmp_path):
            await platform.say(calls("delegate", 'call note {"word": "x"}'), chat="2", sender="8")
            await platform.shows("The tool said", chat="2")
            assert not list(tmp_path.rglob("notes.txt"))
            (run,) = runs_of(tmp_path)
            assert run["requester"]["authority"] == "guest"
            assert "guest" in run["workspace"]


async def test_a_task_of_a_guest_who_was_removed_is_not_done(tmp_path: Path) -> None:
    config = {"tools": {"guests": {"allow": ["spawn"]}}, "subagents": {"max_running": 1}}
    async with Platform() as platform:
        write_config(tmp_path, platform, plugins=["subagents"], **config)
        async with GatewayProcess(tmp_path) as gateway:
            await platform.say(
                calls("spawn", "hang", "say secret", label="x"), chat="2", sender="8"
            )
            await platform.shows("The tool said", chat="2")
            gateway.send(signal.SIGKILL)
            await gateway.ended()
        write_config(
            tmp_path, platform, plugins=["subagents"], chatty={"allow_from": ["7"]}, **config
        )
        async with running(tmp_path):
            await until(lambda: {run["state"] for run in runs_of(tmp_path)} == {"failed"})
            await platform.say("say still here")
            await platform.shows("still here")
        assert not [text for text in platform.texts("2") if HEARD in text or "secret" in text]


async def test_what_a_subagent_asks_for_waits_for_the_owner(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(
            tmp_path,
            platform,
            plugins=["subagents"],
            tools={"approval": [{"tool": "note", "action": "ask"}]},
        )
        async with running(tmp_path):
            await platform.say(calls("spawn", 'call note {"word": "asked"}', label="notes"))
            question = await platform.shows("'notes' (subagent)")
            allow = next(each for each in question["buttons"] if each.startswith("/approve"))
            await platform.say(allow)
            await until(lambda: {run["state"] for run in runs_of(tmp_path)} == {"complete"})
            assert (tmp_path / "workspace" / "notes.txt").read_text() == "asked\n"


@tool
async def count_one(number: int = 0) -> str:
    """Count.

    Args:
        number: any number.
    """
    return f"counted {number}"


async def test_a_subagent_that_loops_ends_at_its_limit_and_says_so(start: Start) -> None:
    script = ScriptedPlugin(
        call("delegate", task="work for ever"),
        *(call("count_one", f"c{number}", number=number) for number in range(3)),
        "I got this far.",
        "It is partly done.",
    )
    options = {"subagents__max_iterations": 3}
    async with start(script, **options) as bot:
        bot.tools.register(count_one)
        await bot.plugins.register(SubagentsPlugin(), "subagents")
        outcome = await bot.run("go")
        assert outcome.reply == "It is partly done."
        (result,) = [each.text for each in await history(bot) if each.role == "tool"]
        assert "partial, because it reached its limit of model calls" in result
        assert "I got this far." in result
        first = script.provider.requests[1]
        assert first.messages[0].text.startswith("You are a subagent")
        assert not {"delegate", "spawn"} & {each.name for each in first.tools}


async def test_a_subagent_over_its_tokens_gives_what_it_has(start: Start) -> None:
    used = Usage(prompt_tokens=900, completion_tokens=200)
    script = ScriptedPlugin(
        FakeReply(tool_calls=(call("count_one"),), usage=used), FakeReply(pieces=("so far",))
    )
    async with start(script, subagents__max_tokens=1_000) as bot:
        bot.tools.register(count_one)
        await bot.plugins.register(SubagentsPlugin(), "subagents")
        outcome = await delegate(bot, "research")
        assert outcome.reply == "so far"
        assert script.provider.requests[-1].tools == ()
        reply = await bot.run("/subagents list --json")
        (run,) = json.loads(reply.reply or "")
        assert (run["state"], run["tokens"]) == ("partial", 1_100)
        assert run["last_step"] == "count_one()"


async def test_subagents_of_subagents_do_not_wait_for_their_own_place(start: Start) -> None:
    script = ScriptedPlugin(
        call("delegate", task="outer"), call("delegate", task="inner"), "deep", "middle", "top"
    )
    async with start(script, subagents__max_depth=2, subagents__max_running=1) as bot:
        await bot.plugins.register(SubagentsPlugin(), "subagents")
        assert (await bot.run("go")).reply == "top"
        offered = [{each.name for each in one.tools} for one in script.provider.requests]
        assert ["delegate" in each for each in offered] == [True, True, False, True, True]


async def test_a_profile_gives_its_prompt_and_takes_tools_away(
    start: Start, tmp_path: Path
) -> None:
    profile = tmp_path / "workspace" / "agents" / "poet.md"
    profile.parent.mkdir(parents=True)
    profile.write_text("---\ndescription: Writes verse.\ntools: []\n---\nAnswer in verse.\n")
    script = ScriptedPlugin("Roses.", "Hello.", "Hello again.")
    async with start(script) as bot:
        await bot.plugins.register(SubagentsPlugin(), "subagents")
        outcome = await delegate(bot, "a poem", agent="poet")
        assert outcome.reply == "Roses."
        child = script.provider.requests[0]
        assert "Answer in verse." in child.messages[0].text
        assert child.tools == ()

        await bot.run("hi")
        await bot.run("hi")
        prompts = [each.messages[0].text for each in script.provider.requests[1:]]
        assert "- poet: Writes verse." in prompts[0]
        assert prompts[0] == prompts[1]


def test_the_program_of_the_readme_runs(tmp_path: Path) -> None:
    pytest.importorskip("nanobot_offline")
    readme = REPOSITORY / "plugins" / "nanobot-subagents" / "README.md"
    (program,) = re.findall(r"^```python\n(.*?)^```$", readme.read_text(), re.MULTILINE | re.DOTALL)
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.count("completed ") == 2


async def test_a_program_gets_the_error_of_a_failed_task(start: Start) -> None:
    async with start(ScriptedPlugin()) as bot:
        await bot.plugins.register(SubagentsPlugin(), "subagents")
        outcome = await delegate(bot, "anything")
        assert outcome.stop_reason == "failed"
        assert outcome.error is not None
