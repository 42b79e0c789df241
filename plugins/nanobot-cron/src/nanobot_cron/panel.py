"""Panel ``jobs``: the jobs, their next runs and their history, for the owner."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nanobot_core import (
    Panel,
    PanelAction,
    PanelError,
    PanelLink,
    PanelRow,
    PanelTable,
    PanelText,
    PanelView,
)
from nanobot_cron.jobs import Jobs
from nanobot_cron.report import Reporter
from nanobot_cron.schedule import upcoming
from nanobot_cron.tool import change_job

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_cron.job import Job, JobState
    from nanobot_cron.jobs import SystemEntry

MAX_SHOWN = 500
"""Jobs of people in the table; `nanobot cron list` shows all."""
NEXT_RUNS = 5
_ACTIONS = frozenset({"run", "enable", "disable", "remove"})
_COLUMNS = ("Job", "When", "Next run", "Last run", "Answers to")


def jobs_panel(ctx: PluginContext) -> Panel:
    """Return the panel."""

    async def show(view: str) -> PanelView:
        return await (_show_job(ctx, view) if view else _show_jobs(ctx))

    async def act(name: str, subject: str) -> str:
        if name not in _ACTIONS:
            raise PanelError(f"the jobs have no action {name!r}")
        return await change_job(ctx, name, subject)

    return Panel(
        id="jobs",
        title="Jobs",
        show=show,
        act=act,
        summary="What the agent does at a time, at intervals or on events.",
    )


async def _show_jobs(ctx: PluginContext) -> PanelView:
    jobs, report = ctx.shared(Jobs), await Reporter.of(ctx)
    own, system = await jobs.all(), await jobs.system()
    zone = PanelText(text=f"Times are those of {report.zone.key}.")
    left = len(own) - MAX_SHOWN
    more = f"{left:,} more jobs are not shown; nanobot cron list prints all."

    def build() -> PanelView:
        people = PanelTable(
            title="Your jobs",
            columns=_COLUMNS,
            rows=tuple(_row(report, job) for job in own[:MAX_SHOWN]),
            empty="No jobs. Ask the agent to remind you of something, or use nanobot cron add.",
        )
        plugins = PanelTable(
            title="Jobs of plugins",
            columns=(*_COLUMNS[:-1], "Plugin"),
            rows=tuple(_system_row(report, entry) for entry in system),
            empty="No plugin has jobs.",
        )
        rest = (PanelText(text=more),) if left > 0 else ()
        return PanelView(parts=(zone, people, *rest, plugins))

    return await asyncio.to_thread(build)


async def _show_job(ctx: PluginContext, job_id: str) -> PanelView:
    jobs, report = ctx.shared(Jobs), await Reporter.of(ctx)
    runs = await jobs.history(job_id)  # raises if there is no such job
    own = next((job for job in await jobs.all() if job.id == job_id), None)
    parts: list[PanelText | PanelTable] = []
    actions: tuple[PanelAction, ...] = ()
    if own is not None:
        actions = _actions(own.id, own.title, own.state, enabled=own.enabled, is_removable=True)
        due = upcoming(own.schedule, report.now, NEXT_RUNS, timezone=report.zone)
        planned = ", ".join(map(report.local, due)) if own.enabled else ""
        parts += [
            PanelText(title=own.title, text=f"{report.when(own.schedule)}."),
            *([PanelText(title="Next runs", text=planned)] if planned else []),
            PanelText(title="Task", text=own.message, preformatted=True),
        ]
    for entry in await jobs.system():
        if own is None and entry.job.id == job_id:
            actions = _actions(job_id, entry.job.summary, entry.state, enabled=entry.enabled)
            parts.append(PanelText(title=entry.job.summary, text=f"{report.system_when(entry)}."))
    history = PanelTable(
        title="History",
        columns=("Due", "Result", "Seconds", "Answer or reason"),
        rows=tuple(PanelRow(cells=report.run_cells(run)) for run in reversed(runs)),
        empty="It has not run.",
    )
    back = PanelLink(label="All jobs", view="")
    return PanelView(parts=(*parts, history), actions=actions, links=(back,))


def _row(report: Reporter, job: Job) -> PanelRow:
    return PanelRow(
        cells=(
            job.title,
            report.when(job.schedule),
            *_times(report, job.state, enabled=job.enabled),
            "none" if job.delivery == "never" else report.recipient(job.requester),
        ),
        actions=_actions(job.id, job.title, job.state, enabled=job.enabled, is_removable=True),
        links=(PanelLink(label="History", view=job.id),),
    )


def _system_row(report: Reporter, entry: SystemEntry) -> PanelRow:
    job_id, title = entry.job.id, entry.job.summary
    times = _times(report, entry.state, enabled=entry.enabled)
    return PanelRow(
        cells=(title, report.system_when(entry), *times, entry.plugin),
        actions=_actions(job_id, title, entry.state, enabled=entry.enabled),
        links=(PanelLink(label="History", view=job_id),),
    )


def _times(report: Reporter, state: JobState, *, enabled: bool) -> tuple[str, str]:
    due = report.local(state.next_at) if state.next_at else "none"
    due = "running" if state.claim else due if enabled else "paused"
    if not state.runs:
        return due, "never"
    last = state.runs[-1]
    return due, f"{last.status}, {report.local(last.started_at or last.slot)}"


def _actions(
    job_id: str, title: str, state: JobState, *, enabled: bool, is_removable: bool = False
) -> tuple[PanelAction, ...]:
    found = []
    if state.claim is None:
        question = f"Run '{title}' now?"
        found.append(PanelAction(name="run", label="Run now", subject=job_id, question=question))
    if enabled:
        found.append(PanelAction(name="disable", label="Pause", subject=job_id))
    else:
        found.append(PanelAction(name="enable", label="Resume", subject=job_id))
    if is_removable:
        question = f"Remove the job '{title}' with its history and its session?"
        found.append(
            PanelAction(
                name="remove", label="Remove", subject=job_id, question=question, danger=True
            )
        )
    return tuple(found)
