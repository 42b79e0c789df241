"""``/subagents``, and the check for ``nanobot doctor``."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

from nanobot_core import CheckResult, JsonObject, shorten
from nanobot_subagents.profile import FOLDER, ProfileFolder
from nanobot_subagents.runs import Runs

if TYPE_CHECKING:
    from nanobot_core import CommandCall, PluginContext
    from nanobot_subagents.run import Run

USAGE = (
    "Usage: /subagents [list] [--json], /subagents show ID, /subagents stop ID, /subagents profiles"
)
_MAX_LISTED = 20
_SHOWN_TASK_CHARS = 1_000


async def answer_subagents(ctx: PluginContext, call: CommandCall) -> str:
    """Return the reply to ``/subagents``, in Markdown."""
    runs = ctx.shared(Runs)
    found = [run for run in await runs.all() if _may_see(run, call)]
    match call.text.split():
        case [] | ["list"]:
            return _list(found, ctx.clock.now())
        case ["--json"] | ["list", "--json"]:
            return json.dumps([as_json(run) for run in found], indent=2, ensure_ascii=False)
        case ["profiles"]:
            return await _profiles(ctx, is_owner=call.is_owner)
        case ["show" | "stop" as verb, run_id]:
            run = next((each for each in found if each.id == run_id), None)
            if run is None:
                return f"There is no run '{shorten(run_id, 40)}'. /subagents lists them."
            return _show(run) if verb == "show" else await _stop(runs, run)
        case _:
            return USAGE


def _may_see(run: Run, call: CommandCall) -> bool:
    """Whether the answer may show a run.

    In a group, which others read, it shows only the runs of that group. A guest sees only runs that
    they asked for.
    """
    reader, asked = call.turn.requester, run.requester
    is_here = asked.session_key == reader.session_key
    if call.is_owner:
        return is_here or not reader.is_group
    people = {each.sender_id.partition("|")[0] for each in (reader, asked)}
    return is_here and asked.authority == "guest" and len(people) == 1


async def check_profiles(ctx: PluginContext) -> CheckResult:
    """Report profiles that cannot be used."""
    profiles = await ctx.shared(ProfileFolder).load()
    if profiles.notes:
        return CheckResult(
            status="warning",
            message="; ".join(profiles.notes[:5]),
            remedy="see: nanobot subagents profiles",
        )
    return CheckResult(status="ok", message=f"{len(profiles.usable)} profiles")


def as_json(run: Run) -> JsonObject:
    """Return a run for programs."""
    return {
        "id": run.id,
        "state": run.state,
        "label": run.title,
        "kind": run.kind,
        "agent": run.agent,
        "session": run.parent,
        "created_at": run.created_at.isoformat(),
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
        "tokens": run.tokens,
        "last_step": run.steps[-1] if run.steps else "",
        "cause": run.cause,
    }


def _list(runs: list[Run], now: datetime) -> str:
    if not runs:
        return "There are no subagents."
    active = [run for run in runs if not run.has_ended]
    ended = [run for run in runs if run.has_ended][:_MAX_LISTED]
    lines = [_line(run, now) for run in (*active, *ended)]
    return "Subagents:\n\n" + "\n".join(lines)


def _line(run: Run, now: datetime) -> str:
    step = f", {_code(run.steps[-1])}" if run.steps and not run.has_ended else ""
    agent = f" as {run.agent}" if run.agent else ""
    until = run.ended_at or now
    age = _duration((until - (run.started_at or run.created_at)).total_seconds())
    return f"- `{run.id}` **{run.state}**: {run.title}{agent}, {age}, {run.tokens:,} tokens{step}"


def _show(run: Run) -> str:
    parts = [f"Subagent `{run.id}`: **{run.state}**", f"Task: {run.task[:_SHOWN_TASK_CHARS]}"]
    if run.cause:
        parts.append(f"Because {run.cause}.")
    if run.steps:
        parts.append("Last steps:\n" + "\n".join(f"- {_code(step)}" for step in run.steps))
    if run.result:
        parts.append(f"Result:\n\n{run.result}")
    if run.result_file:
        parts.append(f"The whole result: {_code(run.result_file)}")
    return "\n\n".join(parts)


async def _stop(runs: Runs, run: Run) -> str:
    if not await runs.stop(run.id):
        return f"Run {run.id} has already ended."
    return f"Stopped: {run.title}"


async def _profiles(ctx: PluginContext, *, is_owner: bool) -> str:
    profiles = await ctx.shared(ProfileFolder).load()
    lines = [f"- **{each.name}**: {each.description}" for each in profiles.usable.values()]
    if is_owner:
        lines += [f"- {note}" for note in profiles.notes]
    if not lines:
        return f"There are no profiles. Add a file {FOLDER}/NAME.md to the workspace."
    return "Profiles:\n\n" + "\n".join(lines)


def _code(text: str) -> str:
    return f"`{text.replace('`', chr(39))}`"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{max(seconds, 0):.0f} s"
    if seconds < 3_600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h"
