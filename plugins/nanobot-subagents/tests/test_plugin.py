"""The contracts of plugin and tools, the slash command, and the terminal."""

# ruff: noqa: RUF012 - the suite declares these attributes, not as class variables

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nanobot_core import (
    CommandCall,
    ContextRequested,
    Requester,
    Tool,
    ToolsOffered,
    TurnInfo,
    TurnSource,
)
from nanobot_core.testing import FakeClock, FakePluginContext, PluginContract, ToolContract
from nanobot_subagents.chat import USAGE, answer_subagents
from nanobot_subagents.commands import app
from nanobot_subagents.plugin import SubagentsPlugin
from nanobot_subagents.tools import DelegateTool, SpawnTool

OpenBench = Callable[..., AbstractAsyncContextManager[Any]]


class TestSubagentsPlugin(PluginContract):
    plugin_id = "subagents"

    def make_plugin(self) -> object:
        return SubagentsPlugin()


class TestDelegate(ToolContract):
    sample_arguments = {"task": "count the files", "label": "files"}

    def make_tool(self, context: FakePluginContext) -> Tool:
        return DelegateTool(context)


def test_importing_the_entry_module_loads_no_library() -> None:
    program = (
        "import sys, json; import nanobot_subagents.plugin; "
        "print(json.dumps([m for m in sys.modules if m in ('pydantic', 'yaml', 'typer')]))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=30
    ).stdout
    assert json.loads(output) == []


def turn(session: str = "chat:1", source: TurnSource = "chat") -> TurnInfo:
    return TurnInfo(
        id="t", session_key=session, channel="chat", chat_id="1", sender_id="7", source=source
    )


@pytest.mark.anyio
@pytest.mark.parametrize("source", ["chat", "cron", "subagent", "cli", "sdk"])
async def test_spawn_is_offered_only_in_chats_of_a_gateway(
    bench: OpenBench, source: TurnSource
) -> None:
    async with bench() as it:
        plugin = SubagentsPlugin()
        await plugin.start(it.ctx)
        tools = tuple(each(it.ctx).definition for each in (DelegateTool, SpawnTool))
        event = ToolsOffered(turn=turn(source=source), tools=tools)
        assert plugin.rewrite_tools(event) == (None if source == "chat" else tools[:1])
        it.ctx.gateway = None
        assert plugin.rewrite_tools(event) == tools[:1]


@pytest.mark.anyio
async def test_the_first_profile_is_listed_after_two_seconds_at_most(tmp_path: Path) -> None:
    clock = FakeClock()
    ctx = FakePluginContext(tmp_path, clock=clock)
    plugin = SubagentsPlugin()
    await plugin.start(ctx)
    event = ContextRequested(turn=turn(), model="m", history=(), tools=("delegate",))

    async def listed() -> str:
        found = plugin.gather_context(event)
        blocks = await found if isinstance(found, Awaitable) else found
        return "".join(block.text for block in blocks or ())

    assert await listed() == ""
    (ctx.workspace / "agents").mkdir()
    profile = "---\ndescription: Counts.\n---\nYou count."
    (ctx.workspace / "agents" / "counter.md").write_text(profile)
    assert plugin.gather_context(event) == ()
    await clock.advance(2)

    assert "- counter: Counts." in await listed()


@pytest.mark.anyio
async def test_the_command_lists_shows_and_stops(bench: OpenBench) -> None:
    async def say(
        text: str,
        *,
        session: str = "chat:1",
        sender: str = "7",
        is_owner: bool = True,
        is_group: bool = False,
    ) -> str:
        asking = replace(turn(session), sender_id=sender, is_group=is_group)
        call = CommandCall(turn=asking, name="subagents", text=text, is_owner=is_owner)
        return await answer_subagents(it.ctx, call)

    async with bench(max_running=1) as it:
        assert await say("") == "There are no subagents."
        first, second = await it.spawn("read `it`", label="one"), await it.spawn(label="two")
        it.runs.note_step(first, "read_file(`x`)")
        listed = await say("")
        assert f"`{first}` **running**: one" in listed
        assert "`read_file('x')`" in listed
        assert f"`{second}` **queued**: two" in listed
        assert [each["id"] for each in json.loads(await say("list --json"))] == [first, second]
        assert "Task: read" in await say(f"show {first}")

        assert await say("", session="chat:2", is_owner=False) == "There are no subagents."
        assert "There is no run" in await say(f"stop {first}", session="chat:2", is_owner=False)
        assert "There are no subagents." in await say("", session="chat:2", is_group=True)
        assert "one" in await say("", is_group=True)
        assert "There are no subagents." in await say("", is_owner=False)  # in the same group
        guest = Requester(channel="chat", chat_id="1", sender_id="8|bo", session_key="chat:1")
        theirs = await it.spawn(requester=guest, label="theirs")
        assert "theirs" in await say("", sender="8|other name", is_owner=False)
        assert "one" not in await say("", sender="8", is_owner=False)
        assert await say(f"stop {theirs}", sender="8", is_owner=False) == "Stopped: theirs"

        assert await say(f"stop {second}") == "Stopped: two"
        assert await say(f"stop {first}") == "Stopped: one"
        assert it.gateway.stopped == [("subagents", first)]
        await it.end(first, "it came too far", "completed")
        assert [it.state(each) for each in (first, second)] == ["stopped", "stopped"]
        assert it.reports == []
        assert await say(f"stop {first}") == f"Run {first} has already ended."
        assert "There are no profiles" in await say("profiles")
        assert await say("what") == USAGE


def test_the_terminal_gives_the_slash_command() -> None:
    class Line:
        def slash(self, text: str) -> str:
            return f"answer to {text}"

    for arguments, slash in (
        (["list"], "list"),
        (["list", "--json"], "list --json"),
        (["show", "1a"], "show 1a"),
        (["stop", "1a"], "stop 1a"),
        (["profiles"], "profiles"),
    ):
        result = CliRunner().invoke(app, arguments, obj=Line())
        assert result.output == f"answer to /subagents {slash}\n"
