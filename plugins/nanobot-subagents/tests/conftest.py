"""The plugin on a temporary folder, with a gateway and an agent that only record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import (
    Assignment,
    AssignmentFinished,
    InboundMessage,
    Requester,
    StopReason,
    ToolContext,
    ToolResult,
    TurnInfo,
    TurnOutcome,
)
from nanobot_core.testing import FakeClock, FakeGateway, FakePluginContext
from nanobot_subagents.runs import Runs
from nanobot_subagents.tools import DelegateTool, SpawnTool, SubagentParams

REQUESTER = Requester(
    channel="chat", chat_id="1", sender_id="7", session_key="chat:1", authority="owner"
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def outcome_of(assignment: Assignment, reply: str | None = "done", **facts: Any) -> TurnOutcome:
    """Return the outcome of the turn of an assignment."""
    requester = assignment.requester
    turn = TurnInfo(
        id="t",
        session_key=assignment.session_key,
        channel=requester.channel,
        chat_id=requester.chat_id,
        sender_id=requester.sender_id,
        source="subagent",
        assignment=assignment,
    )
    return TurnOutcome(turn=turn, reply=reply, **facts)


class Bench:
    """The plugin in a gateway.

    Attributes:
        ctx: its context.
        gateway: has the assignments, see `given` and `reports`.
        runs: the runs.
        progress: lines that tools have shown.
    """

    def __init__(self, folder: Path, gateway: FakeGateway | None = None, **settings: Any) -> None:
        self.gateway: FakeGateway = gateway or FakeGateway()
        self.clock: FakeClock = FakeClock()
        self.ctx: FakePluginContext = FakePluginContext(
            folder,
            plugin_id="subagents",
            settings=settings,
            gateway=self.gateway,
            clock=self.clock,
        )
        self.runs: Runs = self.ctx.shared(Runs)
        self.progress: list[str] = []

    @property
    def given(self) -> list[InboundMessage]:
        """The runs that the agent was assigned, in order."""
        return [each for each in self.gateway.assigned if each.session_key != "chat:1"]

    @property
    def reports(self) -> list[str]:
        """The results that entered the session, in order."""
        return [each.content for each in self.gateway.assigned if each.session_key == "chat:1"]

    def context(self, requester: Requester = REQUESTER, **facts: Any) -> ToolContext:
        """Return the context of a tool call."""

        async def progress(text: str) -> None:
            self.progress.append(text)

        return ToolContext(
            session_key=requester.session_key,
            turn_id="t",
            call_id=facts.pop("call_id", "c"),
            workspace=self.ctx.workspace,
            files=self.ctx.files,
            requester=requester,
            progress=progress,
            **facts,
        )

    async def spawn(
        self, task: str = "look it up", requester: Requester = REQUESTER, **facts: Any
    ) -> str:
        """Spawn a run and return its id."""
        of_call = {"assignment", "message_id", "call_id"} & facts.keys()
        context = self.context(requester, **{name: facts.pop(name) for name in of_call})
        result = await SpawnTool(self.ctx).run(context, SubagentParams(task=task, **facts))
        assert isinstance(result, ToolResult)
        assert result.data is not None
        return str(result.data["run"])

    async def delegate(self, task: str = "look it up", **facts: Any) -> str:
        """Delegate a task and return what the model reads."""
        context = self.context(assignment=facts.pop("assignment", None))
        result = await DelegateTool(self.ctx).run(context, SubagentParams(task=task, **facts))
        assert isinstance(result, ToolResult)
        return str(result.content)

    async def end(
        self, run_id: str, reply: str | None = "done", stop: StopReason = "completed", **facts: Any
    ) -> None:
        """Play the end of a run."""
        assignment = next(
            each.assignment
            for each in self.given
            if each.assignment and each.assignment.id == run_id
        )
        outcome = replace(outcome_of(assignment, reply, **facts), stop_reason=stop)
        await self.runs.finish(AssignmentFinished(assignment=assignment, outcome=outcome))
        await self.ctx.settle()

    def state(self, run_id: str) -> str:
        """Return the state of a run."""
        run = self.runs.get(run_id)
        assert run is not None
        return run.state


OpenBench = Callable[..., AbstractAsyncContextManager[Bench]]


@asynccontextmanager
async def opened(
    folder: Path, gateway: FakeGateway | None = None, **settings: Any
) -> AsyncIterator[Bench]:
    bench = Bench(folder, gateway, **settings)
    async with bench.ctx:
        yield bench


@pytest.fixture
def bench(tmp_path: Path) -> OpenBench:
    """Opens the plugin on the folder of the test; again, it is the next process."""
    return partial(opened, tmp_path)
