"""Order: a task for a subagent, and the run that is made for it."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nanobot_core import Requester, ToolFailed, ToolRule, prompt, shorten
from nanobot_subagents.profile import ProfileFolder, render_profiles
from nanobot_subagents.run import MAX_TITLE_CHARS, Run, run_of
from nanobot_subagents.runs import Runs

if TYPE_CHECKING:
    from nanobot_core import Assignment, PluginContext
    from nanobot_subagents.profile import Profile

ID_BYTES = 5
"""Of the id of a run: short enough to copy, and unique for a week."""
_GENERAL = "Decide yourself how to do the task."


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A task for a subagent.

    Attributes:
        kind: see `Run`.
        task: what to do.
        requester: who asks.
        workspace: folder in which the work is done.
        agent: name of a profile, or an empty string.
        label: a few words for people.
        within: the work that asks, or ``None`` for a conversation.
        run_id: id of the run; by default a new one.
    """

    kind: Literal["spawn", "delegate"]
    task: str
    requester: Requester
    workspace: Path
    agent: str = ""
    label: str = ""
    within: Assignment | None = None
    run_id: str = ""


async def run_for(ctx: PluginContext, order: Order) -> Run:
    """Return a new run for an order.

    Raises:
        ToolInputError: the profile is unknown.
        ToolFailed: ``max_depth`` is reached.
    """
    runs = ctx.shared(Runs)
    await runs.load()
    settings = runs.settings
    above = runs.get(run_of(order.within))
    depth = above.depth + 1 if above else 1
    if depth > settings.max_depth:
        raise ToolFailed("a subagent cannot delegate; do the task yourself")
    profiles = await ctx.shared(ProfileFolder).load()
    profile = profiles.get(order.agent) if order.agent else None
    listed = render_profiles(profiles.usable.values()) if depth < settings.max_depth else ""
    own_calls = ("spawn",) if depth < settings.max_depth else ("spawn", "delegate")
    rule = ToolRule(settings.tools.allow, (*settings.tools.deny, *own_calls))
    turns = profile.max_turns if profile else None
    return Run(
        id=order.run_id or secrets.token_hex(ID_BYTES),
        kind=order.kind,
        task=order.task,
        label=shorten(order.label, MAX_TITLE_CHARS),
        agent=order.agent,
        requester=order.requester,
        parent=order.requester.session_key,
        instructions=await asyncio.to_thread(_instructions, ctx, order, profile, listed),
        tools=(rule, *([profile.rule] if profile else [])),
        model=(profile.model if profile else None) or settings.model,
        max_iterations=min(turns or settings.max_iterations, settings.max_iterations),
        depth=depth,
        created_at=ctx.clock.now(),
        workspace=str(order.workspace),
    )


def _instructions(ctx: PluginContext, order: Order, profile: Profile | None, listed: str) -> str:
    text = prompt(
        ctx,
        "nanobot_subagents:subagent",
        profile=profile.instructions if profile else _GENERAL,
        workspace=str(order.workspace),
    )
    return f"{text}\n\n{listed_profiles(listed)}" if listed else text


def listed_profiles(listed: str) -> str:
    """Return the passage of the prompt that names the profiles."""
    return f"Subagents that you can choose with the parameter `agent`:\n\n{listed}"
