"""Work that a plugin gives to the agent, outside of any conversation."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from nanobot_core import (
    AgentTask,
    LimitError,
    LLMResponse,
    Message,
    ModelCallRequested,
    PluginContext,
    ToolCallProposed,
    ToolContext,
    UsageRecorded,
    on,
    tool,
)
from nanobot_core.agent.structured import ANSWER_TOOL
from nanobot_core.contracts.plugin import Deny
from tests.integration.conftest import Start, agent, call
from tests.scripted_provider import ScriptedPlugin

pytestmark = pytest.mark.anyio

REQUEST = (Message(role="system", content="be brief"), Message(role="user", content="sum up"))


class Worker:
    """A plugin that keeps its context, and watches what the agent does."""

    def __init__(self) -> None:
        self.context: PluginContext | None = None
        self.usage: list[UsageRecorded] = []
        self.denies = False
        self.is_spent = False

    @on.start
    def start(self, ctx: PluginContext) -> None:
        self.context = ctx

    @on.on_usage
    def on_usage(self, event: UsageRecorded) -> None:
        self.usage.append(event)

    @on.authorize_tool_call
    def authorize(self, event: ToolCallProposed) -> Deny | None:
        return Deny("not today") if self.denies else None

    @on.wrap_model_call
    async def wrap(self, event: ModelCallRequested, call_next: object) -> LLMResponse:
        if self.is_spent:
            raise LimitError("the budget is used up")
        response: LLMResponse = await call_next(event.request)  # type: ignore[operator]  # checked by the host
        return response

    @property
    def ctx(self) -> PluginContext:
        assert self.context is not None
        return self.context


def noting(notes: list[str]) -> object:
    @tool
    async def note(context: ToolContext, text: str) -> str:
        """Note a text."""
        notes.append(text)
        return "noted"

    return note


async def test_one_answer_is_counted_under_the_plugin_and_stored_nowhere(start: Start) -> None:
    worker = Worker()
    async with start(ScriptedPlugin("short")) as bot:
        await bot.plugins.register(worker, "worker")
        done = await worker.ctx.agent.run(AgentTask(purpose="summary", messages=REQUEST))
        await bot.plugins.hooks.on_usage.settle()
        assert (done.content, done.stop_reason) == ("short", "completed")
        assert [(each.session_key, each.source) for each in worker.usage] == [
            ("worker:summary", "plugin")
        ]
        assert await bot.sessions.summaries() == []


@pytest.mark.promise(44)
@pytest.mark.parametrize("denies", [False, True])
async def test_its_tools_are_those_of_the_task_and_policies_decide(
    start: Start, denies: bool
) -> None:
    worker, notes = Worker(), list[str]()
    worker.denies = denies
    script = ScriptedPlugin(call("note", text="x"), "done")
    async with start(script) as bot:
        await bot.plugins.register(worker, "worker")
        task = AgentTask(purpose="dream", messages=REQUEST, tools=(noting(notes),))  # type: ignore[arg-type]  # a tool
        done = await worker.ctx.agent.run(task)
    assert [each.name for each in script.provider.requests[0].tools] == ["note"]
    assert (done.content, done.tools_used, notes) == ("done", ("note",), [] if denies else ["x"])


async def test_a_budget_ends_it(start: Start) -> None:
    worker = Worker()
    worker.is_spent = True
    async with start(ScriptedPlugin()) as bot:
        await bot.plugins.register(worker, "worker")
        done = await worker.ctx.agent.run(AgentTask(purpose="dream", messages=REQUEST))
        assert done.stop_reason == "budget"


async def test_a_closed_agent_refuses_it(tmp_path: Path) -> None:
    worker = Worker()
    bot = agent(tmp_path, ScriptedPlugin())
    await bot.plugins.register(worker, "worker")
    with pytest.raises(RuntimeError, match="not started"):
        await worker.ctx.agent.run(AgentTask(purpose="dream", messages=REQUEST))


class Summary(BaseModel):
    text: str


async def test_a_task_can_end_with_an_object(start: Start) -> None:
    worker = Worker()
    script = ScriptedPlugin(call(ANSWER_TOOL, text="short"), "no", "no")
    async with start(script, plugins=(worker,)) as _:
        task = AgentTask(purpose="sum", messages=REQUEST, output=Summary)
        done = await worker.ctx.agent.run(task)
        failed = await worker.ctx.agent.run(task)
    assert done.output == Summary(text="short")
    assert (failed.output, failed.stop_reason) == (None, "failed")
