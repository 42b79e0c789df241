"""What tool and commands do with jobs: limits, protection, runs by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeAlias

import pytest

from nanobot_core import Every as Interval, Requester, SystemJob
from nanobot_cron.job import At, Cron, Every, On, Schedule
from nanobot_cron.jobs import JobRefused, ProtectedJob, UnknownJob
from nanobot_cron.settings import CronSettings

Home: TypeAlias = Any
HOURLY = Cron(expression="0 * * * *")


async def nothing() -> str:
    return "nothing to do"


DREAM = SystemJob(id="dream", summary="dreams", schedule=Interval(3_600), run=nothing)


async def test_an_unknown_id_names_near_ones(home: Home, chat: Requester) -> None:
    home.system = [DREAM]
    async with home.process() as process:
        for action in (process.jobs.remove, process.jobs.history, process.jobs.run_now):
            with pytest.raises(UnknownJob, match="did you mean 'dream'"):
                await action("draem")


async def test_a_job_of_a_plugin_cannot_be_removed(home: Home) -> None:
    home.system = [DREAM]
    async with home.process() as process:
        with pytest.raises(ProtectedJob) as caught:
            await process.jobs.remove("dream")
        assert str(caught.value) == "Cannot remove job 'dream': it is managed by plugin 'maker'"
        await process.jobs.enable("dream", False)
    async with home.process() as process:
        (entry,) = await process.jobs.system()
        assert (entry.enabled, entry.state.next_at) == (False, None)


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        (Every(seconds=59, anchor="2026-01-01T00:00:00Z"), "at most every minute"),  # type: ignore[arg-type]
        (At(at="2025-12-31T23:59:59Z"), "never run"),  # type: ignore[arg-type]
    ],
)
async def test_schedules_that_cannot_work_are_refused(
    home: Home, chat: Requester, schedule: Schedule, reason: str
) -> None:
    async with home.process() as process:
        with pytest.raises(JobRefused, match=reason):
            await process.jobs.add(message="x", schedule=schedule, requester=chat)
        assert await process.jobs.all() == []


async def test_expressions_obey_the_shortest_interval(home: Home, chat: Requester) -> None:
    home.settings = CronSettings(min_interval_s=1_800)
    async with home.process() as process:
        with pytest.raises(JobRefused, match="every 10 minutes, and at most every 30 min"):
            await process.jobs.add(
                message="x", schedule=Cron(expression="0,10 7 * * *"), requester=chat
            )


async def test_an_empty_task_is_refused(home: Home, chat: Requester) -> None:
    async with home.process() as process:
        with pytest.raises(JobRefused, match="message"):
            await process.jobs.add(message="", schedule=HOURLY, requester=chat)


async def test_the_number_of_jobs_is_limited_in_total_and_for_each_guest(
    home: Home, chat: Requester
) -> None:
    home.settings = CronSettings(max_jobs=5, max_jobs_per_guest=2)
    guest = Requester(channel="chatty", chat_id="c2", sender_id="bo")
    renamed = replace(guest, sender_id="bo|another name")
    other = Requester(channel="chatty", chat_id="c2", sender_id="cy")
    async with home.process() as process:
        for requester in (guest, guest, other, chat):
            await process.jobs.add(message="x", schedule=HOURLY, requester=requester)
        with pytest.raises(JobRefused, match="at most 2 are allowed"):
            await process.jobs.add(message="x", schedule=HOURLY, requester=renamed)
        await process.jobs.add(message="x", schedule=HOURLY, requester=chat)
        with pytest.raises(JobRefused, match="max_jobs"):
            await process.jobs.add(message="x", schedule=HOURLY, requester=chat)


async def test_a_job_runs_by_hand_besides_its_schedule(home: Home, chat: Requester) -> None:
    async with home.process() as process:
        at = home.clock.now() + timedelta(hours=1)
        job = await process.jobs.add(message="x", schedule=At(at=at), requester=chat)
        assert await process.jobs.run_now(job.id) is None
        with pytest.raises(JobRefused, match="had not ended"):
            await process.jobs.run_now(job.id)
        await process.finish(home.gateway.assigned[0], error="no key")
        (run,) = await process.jobs.history(job.id)
        assert run.status == "error"
        kept = await process.jobs.get(job.id)
        assert (kept.enabled, kept.state.next_at) == (True, at)
        await process.advance(3_600)
        assert len(home.gateway.assigned) == 2


async def test_a_full_queue_refuses_a_run_by_hand(home: Home, chat: Requester) -> None:
    async with home.process() as process:
        job = await process.jobs.add(message="x", schedule=HOURLY, requester=chat)
        home.gateway.is_full = True
        with pytest.raises(JobRefused, match="try again later"):
            await process.jobs.run_now(job.id)
        assert (await process.state(job.id)).claim is None


async def test_without_a_gateway_a_run_by_hand_happens_in_this_process(
    home: Home, chat: Requester
) -> None:
    home.system = [DREAM]
    async with home.process(has_gateway=False) as process:
        job = await process.jobs.add(message="Say hello", schedule=HOURLY, requester=chat)
        run = await process.jobs.run_now(job.id)
        assert run.status == "ok"
        assert "Say hello" in run.answer
        assert (await process.state(job.id)).runs == (run,)
        ((assignment, _),) = process.ctx.agent.assignments
        assert assignment.session_key == f"cron:{job.id}"
        assert (await process.jobs.run_now("dream")).answer == "nothing to do"


async def test_a_disabled_job_does_not_run_until_it_is_enabled(home: Home, chat: Requester) -> None:
    async with home.process() as process:
        job = await process.jobs.add(message="x", schedule=HOURLY, requester=chat)
        await process.jobs.enable(job.id, False)
        await process.advance(7_200)
        assert home.gateway.assigned == []
        enabled = await process.jobs.enable(job.id, True)
        assert enabled.state.next_at == home.clock.now() + timedelta(hours=1)


async def test_a_job_in_the_past_cannot_be_enabled(home: Home, chat: Requester) -> None:
    async with home.process() as process:
        at = home.clock.now() + timedelta(hours=1)
        job = await process.jobs.add(message="x", schedule=At(at=at), requester=chat)
        await process.jobs.enable(job.id, False)
        await process.advance(7_200)
        with pytest.raises(JobRefused, match="has passed"):
            await process.jobs.enable(job.id, True)


async def test_jobs_are_listed_by_their_next_run(home: Home, chat: Requester) -> None:
    async with home.process() as process:
        for message, schedule in (
            ("event", On(trigger="spy")),
            ("later", Cron(expression="0 5 * * *")),
            ("soon", HOURLY),
        ):
            await process.jobs.add(message=message, schedule=schedule, requester=chat)
        found = [job.message for job in await process.jobs.all()]
        assert found == ["soon", "later", "event"]


async def test_the_session_of_a_removed_job_is_deleted(home: Home, chat: Requester) -> None:
    async with home.process(has_gateway=False) as process:
        job = await process.jobs.add(message="x", schedule=HOURLY, requester=chat)
        await process.jobs.remove(job.id)
        assert process.ctx.agent.deleted == [f"cron:{job.id}"]
