"""What ``nanobot doctor`` reports about jobs."""

from __future__ import annotations

import json

from nanobot_core import Requester
from nanobot_core.testing import FakePluginContext
from nanobot_cron.check import check_jobs
from nanobot_cron.job import Every, Job, On, Run
from nanobot_cron.jobs import Jobs
from nanobot_cron.store import Book, JobStore


async def added(ctx: FakePluginContext, trigger: str = "") -> Job:
    every = Every(seconds=600, anchor=ctx.clock.now())
    schedule = On(trigger=trigger) if trigger else every
    return await ctx.shared(Jobs).add(message="x", schedule=schedule, requester=Requester())


async def change(ctx: FakePluginContext, job: Job) -> None:
    def edit(book: Book) -> tuple[Book, None]:
        return book.with_job(job), None

    await ctx.shared(JobStore).change(edit)


async def test_jobs_that_work_are_counted(ctx: FakePluginContext) -> None:
    await added(ctx)
    await added(ctx, "file")
    found = await check_jobs(ctx)

    assert (found.status, found.message) == ("ok", "2 jobs, and 1 of plugins")


async def test_jobs_that_fail_or_cannot_start_are_named(ctx: FakePluginContext) -> None:
    missing = await added(ctx, "dryness")
    job = await added(ctx)
    reason = "The person who asked for this may no longer write to the agent, so it was not done."
    run = Run(slot=ctx.clock.now(), status="error", error=reason)
    state = job.state.model_copy(update={"runs": (run,), "failures": 1})
    await change(ctx, job.model_copy(update={"state": state}))
    found = await check_jobs(ctx)

    assert found.status == "warning"
    assert f"job '{missing.id}' waits for the event 'dryness', whose plugin" in found.message
    assert f"job '{job.id}' fails: The person who asked for this may no longer" in found.message
    assert "nanobot cron history" in found.remedy


async def test_entries_that_are_no_jobs_are_counted(ctx: FakePluginContext) -> None:
    (ctx.data_dir / "jobs.json").write_text(json.dumps({"version": 1, "jobs": [{"id": 7}]}))

    assert "invalid entries in jobs.json: 1" in (await check_jobs(ctx)).message


async def test_a_file_of_a_newer_release_is_an_error(ctx: FakePluginContext) -> None:
    (ctx.data_dir / "jobs.json").write_text(json.dumps({"version": 99, "jobs": []}))
    found = await check_jobs(ctx)

    assert found.status == "error"
    assert "upgrade nanobot-cron" in found.message
