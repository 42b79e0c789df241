"""The first step of a beat: the model decides whether a task is due."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from nanobot_core import AgentTask, Message, prompt

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_heartbeat.settings import HeartbeatSettings

LIMIT_S: Final = 120.0
"""Seconds for the decision."""
_ITERATIONS = 2
"""An answer that is not valid can be corrected once."""


class Undecided(Exception):
    """The model gave no usable answer, so nothing is done."""


class Heartbeat(BaseModel):
    """What to do about the checklist now."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Literal["skip", "run"] = Field(description="skip: nothing is due; run: do the tasks.")
    tasks: str = Field(default="", max_length=8_000, description="For run: what has to be done.")


async def decide(ctx: PluginContext, settings: HeartbeatSettings, request: str) -> str:
    """Return the tasks that are due, or an empty string.

    Args:
        ctx: the plugin's context.
        settings: its settings.
        request: the time, the earlier beats and the checklist.

    Raises:
        NanobotError: the model could not be asked.
        Undecided: it gave no answer in time, or an ambiguous one.
    """
    system = await asyncio.to_thread(prompt, ctx, "nanobot_heartbeat:decide")
    task = AgentTask(
        purpose="decide",
        messages=(Message(role="system", content=system), Message(role="user", content=request)),
        model=settings.model,
        max_iterations=_ITERATIONS,
        output=Heartbeat,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            outcome = await ctx.agent.run(task)
    except TimeoutError as error:
        msg = f"the model took more than {LIMIT_S:g} seconds"
        raise Undecided(msg) from error
    answer = outcome.output
    if outcome.stop_reason != "completed" or not isinstance(answer, Heartbeat):
        msg = f"the model gave no decision ({outcome.stop_reason})"
        raise Undecided(msg)
    tasks = answer.tasks.strip()
    if answer.action == "run" and not tasks:
        msg = "the model wants to run, and names no task"
        raise Undecided(msg)
    return tasks if answer.action == "run" else ""
