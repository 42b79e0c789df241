"""Answers to ``/heartbeat``, and the check of ``nanobot doctor``."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from nanobot_core import CheckResult
from nanobot_heartbeat.checklist import FILE, ChecklistTooLong, read_checklist
from nanobot_heartbeat.heart import NO_GATEWAY, Heart
from nanobot_heartbeat.journal import Beat

if TYPE_CHECKING:
    from nanobot_core import CommandCall, PluginContext


class State(BaseModel):
    """What ``/heartbeat`` shows.

    Attributes:
        enabled: whether beats happen by themselves.
        interval_s: seconds between two beats.
        quiet_hours: as in the settings.
        is_quiet: whether it is quiet now.
        target: channel and chat that get the answers, or ``None`` if unknown.
        has_open_tasks: whether the checklist has; ``None`` if it cannot be read.
        beats: the newest ones that did something, oldest first.
    """

    model_config = ConfigDict(frozen=True)

    enabled: bool
    interval_s: int
    quiet_hours: str | None
    is_quiet: bool
    target: str | None
    has_open_tasks: bool | None
    beats: tuple[Beat, ...]


_USE = "Use `/heartbeat` or `/heartbeat trigger`."


async def answer_heartbeat(ctx: PluginContext, call: CommandCall) -> str:
    """Show the state, or beat now; with ``--json``, answer for a program."""
    words = call.text.split()
    is_json = "--json" in words
    heart = ctx.shared(Heart)
    match [word for word in words if word != "--json"]:
        case [] | ["status"]:
            state = await _state(ctx, heart)
            return state.model_dump_json() if is_json else _render(state)
        case ["trigger"]:
            line = await heart.trigger()
            done = {"text": line, "has_gateway": line != NO_GATEWAY}
            return json.dumps(done, ensure_ascii=False) if is_json else line
        case unknown:
            return f"`/heartbeat {' '.join(unknown)}` is unknown. {_USE}"


async def check_heartbeat(ctx: PluginContext) -> CheckResult:
    """Check that the checklist can be read, and that its answers can reach someone."""
    heart = ctx.shared(Heart)
    if not heart.settings.enabled:
        return CheckResult(status="ok", message="switched off by gateway.heartbeat.enabled")
    try:
        checklist = await asyncio.to_thread(read_checklist, ctx.workspace)
    except (OSError, ChecklistTooLong) as error:
        return CheckResult(status="error", message=f"the checklist cannot be used: {error}")
    if not checklist:
        return CheckResult(status="ok", message="HEARTBEAT.md has no open task")
    if heart.settings.target is None and not (await heart.journal.read()).has_chat:
        return CheckResult(
            status="warning",
            message="the last beat asked no model, because the owner's private chat is unknown",
            remedy="write to the agent in a private chat, or set gateway.heartbeat.target",
        )
    return CheckResult(status="ok", message="HEARTBEAT.md has open tasks")


async def _state(ctx: PluginContext, heart: Heart) -> State:
    settings, target = heart.settings, heart.target()
    try:
        has_tasks = bool(await asyncio.to_thread(read_checklist, ctx.workspace))
    except (OSError, ChecklistTooLong):
        has_tasks = None
    return State(
        enabled=settings.enabled,
        interval_s=settings.interval_s,
        quiet_hours=settings.quiet_hours,
        is_quiet=heart.is_quiet(),
        target=":".join(target) if target else None,
        has_open_tasks=has_tasks,
        beats=(await heart.journal.read()).beats,
    )


def _interval(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"every {seconds} seconds" if rest else f"every {minutes} minutes"


def _render(state: State) -> str:
    quiet = f", quiet hours {state.quiet_hours}" if state.quiet_hours else ""
    tasks = {True: "has open tasks", False: "has no open task", None: "cannot be read"}
    beats = (
        f"- {each.at:%Y-%m-%d %H:%M}: {each.tasks} ({each.result or 'under way'})"
        for each in state.beats
    )
    lines = [
        f"- Heartbeat: {f'{_interval(state.interval_s)}{quiet}' if state.enabled else 'off'}",
        f"- Answers go to: {state.target or 'no chat, because none is known yet'}",
        f"- Checklist: {FILE} {tasks[state.has_open_tasks]}",
        *beats,
    ]
    return "\n".join(lines)
