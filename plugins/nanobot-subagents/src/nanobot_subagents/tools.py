"""The tools ``delegate`` and ``spawn``."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from nanobot_core import ModelTool, ToolContext, ToolFailed, ToolOutput, ToolResult
from nanobot_subagents.order import ID_BYTES, Order, run_for
from nanobot_subagents.result import lead_of
from nanobot_subagents.runs import Runs

if TYPE_CHECKING:
    from nanobot_core import PluginContext, TurnOutcome
    from nanobot_subagents.run import Run

MAX_TASK_CHARS: Final = 50_000
_SLACK_S = 30.0
"""Seconds that a call may take beyond the time limit of its run, which ends it first."""


class SubagentParams(BaseModel):
    """Arguments of both tools."""

    model_config = ConfigDict(extra="forbid")

    task: str = Field(
        min_length=1,
        max_length=MAX_TASK_CHARS,
        description="The whole task: goal, what is known, files, form of the result. The subagent "
        "sees nothing else of this conversation.",
    )
    agent: str | None = Field(
        default=None,
        max_length=100,
        description="Name of a listed subagent; without it, a general one.",
    )
    label: str | None = Field(
        default=None, max_length=200, description="Two to five words that people see."
    )


class DelegateTool(ModelTool[SubagentParams]):
    """Has a subagent do a task, and waits for it."""

    name = "delegate"
    description = (
        "Have a subagent do a task with its own context and tools, and wait for its result. Use it "
        "for self-contained work that needs many steps or much reading, of which you need only the "
        "result. Several calls in one response run at the same time: use that for independent "
        "parts. Do short tasks yourself."
    )
    parameters_model = SubagentParams

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._runs = ctx.shared(Runs)
        self.timeout_s = self._runs.settings.timeout_s + _SLACK_S

    @property
    def concurrency_safe(self) -> bool:
        """True, though a call may have effects: each works in a session of its own."""
        return True

    async def run(self, context: ToolContext, params: SubagentParams) -> ToolOutput:
        """Do the task, and return the result."""
        run = await run_for(self._ctx, _order("delegate", context, params))

        async def show_start() -> None:
            await context.progress(f"Subagent started: {run.title}")

        ended, outcome = await self._runs.delegate(run, show_start)
        return await self._result(context, ended, outcome)

    async def _result(self, context: ToolContext, run: Run, outcome: TurnOutcome) -> ToolOutput:
        await context.progress(f"Subagent ended ({run.state}): {run.title}")
        if run.state in {"failed", "stopped"}:
            raise ToolFailed(" ".join(filter(None, (lead_of(run), run.result))))
        text = outcome.reply or ""
        if run.state == "partial":
            text = f"[{lead_of(run)}]\n\n{text}"
        return ToolResult(text, data={"run": run.id, "state": run.state})


class SpawnTool(ModelTool[SubagentParams]):
    """Has a subagent do a task in the background."""

    name = "spawn"
    description = (
        "Start a subagent in the background and continue at once; its id is returned. When it has "
        "ended, its result arrives in this conversation as a message, and you report it. Use it "
        "for long tasks that the user need not wait for. To get a result in this answer, use "
        "delegate. Do not wait or ask for the result."
    )
    parameters_model = SubagentParams
    idempotent = True

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._runs = ctx.shared(Runs)

    async def run(self, context: ToolContext, params: SubagentParams) -> ToolOutput:
        """Store the task, and return its id."""
        if self._ctx.gateway is None or context.requester.authority == "machine":
            raise ToolFailed(
                "a background task needs a chat in a gateway that gets its result; use delegate, "
                "which waits for it"
            )
        if context.assignment is not None:
            raise ToolFailed("scheduled and delegated work cannot spawn; use delegate")
        await self._runs.load()
        run_id = _id_of(context)
        known = self._runs.get(run_id)
        run = known or await self._runs.spawn(
            await run_for(self._ctx, _order("spawn", context, params, run_id))
        )
        state = "waits for a place" if run.state == "queued" else "started"
        if run.state == "queued":
            await context.progress(f"Subagent {state}: {run.title}")
        return ToolResult(
            f"Subagent {run.id} {state}. Its result will arrive as a message; tell the user "
            "briefly that it is under way.",
            data={"run": run.id, "state": run.state},
        )


def _id_of(context: ToolContext) -> str:
    """Return the id of the run of a call: the same when it is made again after a crash."""
    if context.message_id is None:
        return secrets.token_hex(ID_BYTES)
    call = f"{context.session_key}\n{context.message_id}\n{context.call_id}"
    return hashlib.sha256(call.encode()).hexdigest()[: 2 * ID_BYTES]


def _order(
    kind: Literal["spawn", "delegate"],
    context: ToolContext,
    params: SubagentParams,
    run_id: str = "",
) -> Order:
    return Order(
        kind=kind,
        task=params.task,
        requester=context.requester,
        workspace=context.workspace,
        agent=(params.agent or "").strip(),
        label=params.label or "",
        within=context.assignment,
        run_id=run_id,
    )
