"""Watcher: waits for the events that start jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from nanobot_core import on
from nanobot_cron.job import Event, Job, On
from nanobot_cron.plan import take_event

if TYPE_CHECKING:
    from nanobot_core import PluginContext, Trigger, TriggerEvent
    from nanobot_cron.runner import Runner
    from nanobot_cron.store import Book

LONGEST_PAUSE_S = 3_600.0
_REPORTED_FAILURE = 3
_DOUBLINGS = 20
_ID_CHARS = 200


class Watcher:
    """Runs a task for each job on events, which restarts its trigger whenever that ends.

    Args:
        ctx: the plugin's context.
        runner: knows the jobs.
        tasks: owns the tasks.
    """

    def __init__(self, ctx: PluginContext, runner: Runner, tasks: asyncio.TaskGroup) -> None:
        self._ctx = ctx
        self._runner = runner
        self._group = tasks
        self._tasks: dict[str, tuple[On, Trigger, asyncio.Task[None]]] = {}

    async def follow(self, jobs: Iterable[Job]) -> None:
        """Watch for the events of these jobs, and of no others; each watch has begun."""
        wanted = {
            job.id: job.schedule for job in jobs if job.enabled and isinstance(job.schedule, On)
        }
        contributed = await self._ctx.contributed(on.contribute_triggers) if wanted else ()
        triggers = {each.value.name: each.value for each in contributed}
        for job_id, (schedule, trigger, task) in list(self._tasks.items()):
            is_same = triggers.get(schedule.trigger) is trigger
            if wanted.get(job_id) != schedule or not is_same:
                del self._tasks[job_id]
                task.cancel()
        for job_id, wanted_schedule in wanted.items():
            found = triggers.get(wanted_schedule.trigger)
            if found is not None and job_id not in self._tasks:
                task = self._group.create_task(self._watch(job_id, wanted_schedule, found))
                self._tasks[job_id] = (wanted_schedule, found, task)
        await asyncio.sleep(0)  # a task begins at the next turn of the event loop

    async def _watch(self, job_id: str, schedule: On, trigger: Trigger) -> None:
        failures = 0
        while True:
            reason = "it ended"
            started_s = self._ctx.clock.monotonic_s()
            try:
                await trigger.watch(
                    job_id, dict(schedule.options), lambda event: self._fire(job_id, event)
                )
            except Exception as error:  # noqa: BLE001 - isolation point: the code of another plugin
                reason = f"{type(error).__name__}: {error}"
            if self._ctx.clock.monotonic_s() - started_s > LONGEST_PAUSE_S:
                failures = 0
            failures += 1
            bound = self._ctx.logger.bind(job=job_id)
            bound.warning("trigger {} of job {} is restarted: {}", trigger.name, job_id, reason)
            if failures == _REPORTED_FAILURE and self._ctx.gateway is not None:
                text = (
                    f"The scheduled job '{job_id}' may miss events: its trigger '{trigger.name}' "
                    f"failed {failures} times. {reason[:500]}"
                )
                # Many jobs with the same reason are one notice.
                await self._ctx.gateway.notify_owner(text, f"cron-trigger-{reason[:100]}")
            await self._ctx.clock.sleep(min(2.0 ** min(failures, _DOUBLINGS), LONGEST_PAUSE_S))

    async def _fire(self, job_id: str, event: TriggerEvent) -> None:
        def edit(book: Book) -> tuple[Book, None]:
            job = book.jobs.get(job_id)
            if job is None or not job.enabled:
                return book, None
            kept = Event(id=event.id[:_ID_CHARS], text=event.text)
            state = take_event(self._runner.rules(job), job.state, kept, self._ctx.clock.now())
            if state is job.state:
                return book, None
            return book.with_job(job.model_copy(update={"state": state})), None

        await self._runner.store.change(edit)
