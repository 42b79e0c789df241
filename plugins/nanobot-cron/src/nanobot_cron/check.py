"""The check of ``nanobot doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import CheckResult, shorten
from nanobot_cron.job import Job, On
from nanobot_cron.jobs import Jobs, JobsUnavailable
from nanobot_cron.store import JobStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nanobot_core import PluginContext
    from nanobot_cron.job import JobState

_MAX_NAMED = 5
_MAX_ERROR = 160


async def check_jobs(ctx: PluginContext) -> CheckResult:
    """Report jobs that do not run or fail, such as those of people who are no longer admitted.

    Damaged files that were set aside are reported by the core, for all plugins.
    """
    jobs = ctx.shared(Jobs)
    try:
        own, system = await jobs.all(), await jobs.system()
        unreadable = len((await ctx.shared(JobStore).read()).unreadable)
    except JobsUnavailable as error:
        return CheckResult(status="error", message=str(error), remedy="no job runs until then")
    states = [
        *((job.id, job.state) for job in own),
        *((each.job.id, each.state) for each in system),
    ]
    found = [*_without_trigger(own, set(await jobs.triggers())), *_failing(states)]
    if unreadable:
        found.append(f"invalid entries in jobs.json: {unreadable}")
    if not found:
        return CheckResult(status="ok", message=f"{len(own)} jobs, and {len(system)} of plugins")
    more = [f"and {len(found) - _MAX_NAMED} more"] if len(found) > _MAX_NAMED else []
    return CheckResult(
        status="warning",
        message="; ".join([*found[:_MAX_NAMED], *more]),
        remedy="see: nanobot cron list, and: nanobot cron history ID",
    )


def _without_trigger(jobs: Iterable[Job], known: set[str]) -> list[str]:
    return [
        f"job '{job.id}' waits for the event '{job.schedule.trigger}', whose plugin is missing"
        for job in jobs
        if job.enabled and isinstance(job.schedule, On) and job.schedule.trigger not in known
    ]


def _failing(states: Iterable[tuple[str, JobState]]) -> list[str]:
    return [
        f"job '{job_id}' fails: {shorten(state.runs[-1].error, _MAX_ERROR).rstrip('.')}"
        for job_id, state in states
        if state.failures and state.runs
    ]
