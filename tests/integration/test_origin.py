"""The history names the plugins that made a result, changed an answer or added to a request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from nanobot_core import (
    ContentReady,
    ContextBlock,
    ContextRequested,
    PluginContext,
    Tool,
    ToolContext,
    ToolOutcome,
    ToolResultReady,
    on,
    tool,
)
from nanobot_core.messages import CHANGED_BY, PASSAGES
from tests.integration.conftest import Start, call, history
from tests.scripted_provider import ScriptedPlugin

pytestmark = pytest.mark.anyio


@tool
async def look(context: ToolContext) -> str:
    """Look."""
    return "a card"


class Maker:
    @on.contribute_tools
    def contribute_tools(self, ctx: PluginContext) -> Iterable[Tool]:
        yield look

    @on.gather_context
    def gather(self, event: ContextRequested) -> Iterable[ContextBlock]:
        yield ContextBlock(name="Hours", text="9 to 17")


class Editor:
    @on.rewrite_tool_result
    def redact(self, event: ToolResultReady) -> ToolOutcome | None:
        return replace(event.result, text="a [card]")

    @on.finalize_content
    def sign(self, event: ContentReady) -> str | None:
        return f"{event.content} -- me" if event.content == "done" else event.content


@pytest.mark.promise(28)
async def test_who_made_and_who_changed_a_message_is_stored_with_it(start: Start) -> None:
    script = ScriptedPlugin(call("look"), "done", "as it was")
    async with start(script, plugins=[Maker(), Editor()]) as bot:
        await bot.run("look")
        await bot.run("again")
        stored = await history(bot)

    result, first, second = [each for each in stored if each.role == "tool"] + [
        each for each in stored if each.role == "assistant" and not each.tool_calls
    ]
    assert (result.origin, result.extra[CHANGED_BY]) == ("kit0", ["kit1"])
    assert (first.text, first.extra[CHANGED_BY]) == ("done -- me", ["kit1"])
    assert first.extra[PASSAGES] == ["kit0/Hours"]
    assert CHANGED_BY not in second.extra, "an answer that stayed the same was not changed"


@pytest.mark.promise(28)
async def test_a_message_that_no_plugin_touched_names_none(start: Start) -> None:
    async with start(ScriptedPlugin("done")) as bot:
        await bot.run("hello")
        stored = await history(bot)

    assert not {CHANGED_BY, PASSAGES}.intersection(*[each.extra for each in stored])
