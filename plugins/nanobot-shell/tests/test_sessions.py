"""Background commands: started, looked after, and gone with the plugin."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nanobot_core import (
    Allow,
    Ask,
    Deny,
    JsonObject,
    JsonValue,
    ToolContext,
    ToolFailed,
    ToolInputError,
    ToolResult,
)
from nanobot_core.testing import FakePluginContext, ToolContract, call_in, output_text
from nanobot_shell.exec_tool import ExecTool
from nanobot_shell.runs import MARKER
from nanobot_shell.session_tool import ExecSessionTool

MakeContext = Callable[..., FakePluginContext]
pytestmark = pytest.mark.anyio


class TestExecSessionContract(ToolContract):
    sample_arguments = {"action": "list"}  # noqa: RUF012  # the suite's attribute

    def make_tool(self, context: FakePluginContext) -> ExecSessionTool:
        return ExecSessionTool(context)


async def test_background_command_answers_at_once_and_is_polled_piece_by_piece(
    context: FakePluginContext,
) -> None:
    session = await _start(context, "echo one; read line; echo got $line; exit 4")
    first = await _poll_until(context, session, "one")
    await _do(context, "write", session, text="two\n")
    second = await _poll_until(context, session, "exit code 4")

    assert f"{session} is running" in first
    assert "got two" in second
    assert "one" not in second


async def test_kill_ends_the_tree_and_reports(context: FakePluginContext) -> None:
    session = await _start(context, "trap '' TERM; sleep 1000 & setsid sleep 1000 & wait; wait")

    shown = output_text(await _do(context, "kill", session))

    assert re.search(r"ended with exit code -?\d+", shown)
    assert _marked(context) == 0


async def test_list_shows_only_the_commands_of_the_same_chat(context: FakePluginContext) -> None:
    session = await _start(context, "sleep 1000", chat="a")

    mine = output_text(await _do(context, "list", chat="a"))
    others = output_text(await _do(context, "list", chat="b"))

    assert mine == f"{session} (running): sleep 1000"
    assert others == "No background commands"
    with pytest.raises(ToolInputError, match="known: none"):
        await _do(context, "kill", session, chat="b")


async def test_unknown_and_missing_ids_are_reported(context: FakePluginContext) -> None:
    with pytest.raises(ToolInputError, match="unknown background command 'bg9'"):
        await _do(context, "poll", "bg9")
    with pytest.raises(ToolInputError, match="id is required"):
        await _do(context, "poll")


async def test_writing_to_an_ended_command_fails(context: FakePluginContext) -> None:
    session = await _start(context, "exit 0")
    await _poll_until(context, session, "exit code 0")

    with pytest.raises(ToolFailed, match="no longer accepts input"):
        await _do(context, "write", session, text="x")


async def test_writing_more_than_is_read_says_how_much_went(context: FakePluginContext) -> None:
    session = await _start(context, "sleep 1000")

    await _do(context, "write", session, text="x" * 32_000)
    await _do(context, "write", session, text="x" * 32_000)

    with pytest.raises(ToolFailed, match=r"took \d+ of 32000 bytes"):
        await _do(context, "write", session, text="x" * 32_000)
    with pytest.raises(ToolFailed, match="took 0 of 32000 bytes"):
        await _do(context, "write", session, text="x" * 32_000)


async def test_number_of_running_commands_is_limited(make_context: MakeContext) -> None:
    async with make_context(sandbox="none", max_background=1) as context:
        session = await _start(context, "sleep 1000")
        with pytest.raises(ToolFailed, match="1 background commands are running"):
            await _start(context, "sleep 1000")
        await _do(context, "kill", session)

        assert await _start(context, "sleep 1000") == "bg2"


async def test_old_finished_commands_are_forgotten(make_context: MakeContext) -> None:
    async with make_context(sandbox="none") as context:
        for _ in range(40):
            session = await _start(context, "true")
            await _do(context, "kill", session)

        assert len(output_text(await _do(context, "list")).splitlines()) <= 34


@pytest.mark.parametrize("mode", ["none", "bwrap", "landlock"])
async def test_background_commands_die_with_the_plugin(
    make_context: MakeContext, require: Callable[[str], None], mode: str
) -> None:
    require(mode)
    async with make_context(sandbox=mode) as context:
        for command in ("trap '' TERM; (setsid sleep 1000 &); echo up; sleep 1000", "echo up; cat"):
            await _poll_until(context, await _start(context, command), "up")

    assert _marked(context) == 0


@pytest.mark.usefixtures("no_sandbox")
async def test_each_write_to_a_command_without_a_sandbox_is_asked_about(
    make_context: MakeContext,
) -> None:
    async with make_context() as context:
        session = await _start(context, "cat")
        asked = await _decide(context, "write", session, text="rm -rf /\n")
        polled = await _decide(context, "poll", session)

    assert isinstance(asked, Ask)
    assert asked.subject == "rm -rf /\n\nto cat"
    assert isinstance(polled, Allow)


async def test_writes_are_not_asked_about_where_the_owner_or_a_sandbox_answers(
    context: FakePluginContext,
) -> None:
    session = await _start(context, "cat")

    assert isinstance(await _decide(context, "write", session, text="x"), Allow)


async def test_a_guest_writes_to_no_command_without_a_sandbox(make_context: MakeContext) -> None:
    async with make_context(sandbox="none") as context:
        session = await _start(context, "cat")
        call = replace(_call(context, "a"), is_owner=False)
        arguments: JsonObject = {"action": "write", "id": session, "text": "x"}

        review = await ExecSessionTool(context).review(call, arguments)

    assert isinstance(review.decision, Deny)


async def _start(context: FakePluginContext, command: str, *, chat: str = "a") -> str:
    arguments: dict[str, JsonValue] = {"command": command, "background": True}
    result = await ExecTool(context).execute(_call(context, chat), arguments)
    assert isinstance(result, ToolResult)
    assert isinstance(result.data, dict)
    return str(result.data["id"])


async def _do(
    context: FakePluginContext,
    action: str,
    session: str | None = None,
    *,
    text: str = "",
    chat: str = "a",
) -> ToolResult:
    arguments: dict[str, JsonValue] = {"action": action, "id": session, "text": text}
    result = await ExecSessionTool(context).execute(_call(context, chat), arguments)
    assert isinstance(result, ToolResult)
    return result


async def _decide(
    context: FakePluginContext, action: str, session: str, *, text: str = ""
) -> Allow | Ask | Deny:
    arguments: JsonObject = {"action": action, "id": session, "text": text}
    return (await ExecSessionTool(context).review(_call(context, "a"), arguments)).decision


async def _poll_until(context: FakePluginContext, session: str, wanted: str) -> str:
    shown = ""
    async with asyncio.timeout(10):
        while wanted not in shown:
            shown += output_text(await _do(context, "poll", session))
            await asyncio.sleep(0.01)
    return shown


def _call(context: FakePluginContext, chat: str) -> ToolContext:
    return replace(call_in(context.workspace, context.files), session_key=chat)


def _marked(context: FakePluginContext) -> int:
    folder = str(context.workspace.parent).encode()
    count = 0
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes()
            count += MARKER.encode() in environment and folder in environment
        except OSError:
            continue
    return count
