"""CronService: starts what is due."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nanobot_core import Service, on
from nanobot_cron.claims import Claims
from nanobot_cron.errors import JobsUnavailable
from nanobot_cron.job import person_of_guest
from nanobot_cron.plan import is_stale
from nanobot_cron.run_queue import RunQueue
from nanobot_cron.runner import INTERRUPTED, RETRY_S, RunEnd, Runner
from nanobot_cron.settings import CronSettings
from nanobot_cron.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nanobot_core import PluginContext, SystemJob
    from nanobot_cron.claims import Claimed
    from nanobot_cron.job import Job
    from nanobot_cron.store import Book

LONGEST_SLEEP_S = 3_600.0
"""After it, the clock, the file and the jobs of plugins are read again."""
UNREADABLE_S = 60.0
"""Seconds until a file that could not be read at the start is read again."""


class CronService(Service):
    """Starts the runs of jobs: sleeps until the next one is due or a job changes."""

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._runner = ctx.shared(Runner)
        self._store = self._runner.store
        self._queue = ctx.shared(RunQueue)
        self._claims = Claims(self._runner)
        self._per_second = ctx.settings(CronSettings).catch_ups_per_s
        self._catch_ups_from_s = ctx.clock.monotonic_s()
        self._is_unavailable = False

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            watcher = Watcher(self._ctx, self._runner, tasks)
            with self._store.followed() as caught_up:
                await self._begin()
                while True:
                    self._store.changed.clear()
                    delay_s = await self._start_due(watcher)
                    if not self._store.changed.is_set():
                        caught_up.set()
                    await self._wait(delay_s)

    async def _begin(self) -> None:
        """Continue the runs of the previous process: they are given again under the same ids."""
        book = await self._read()
        for record in book.system.values():
            if claim := record.state.claim:
                end = RunEnd(run_id=claim.run_id, status="unknown", error=INTERRUPTED)
                await self._runner.end_system(record.id, None, end)
        now = self._ctx.clock.now()
        claimed = [job for job in book.jobs.values() if job.state.claim]
        self._queue.add((job for job in claimed if not is_stale(job.state, now)), is_first=False)

    async def _read(self) -> Book:
        """Return the jobs as soon as they can be read."""
        while True:
            try:
                return await self._store.read()
            except JobsUnavailable as error:
                await self._report_unavailable(error)
            await self._ctx.clock.sleep(UNREADABLE_S)

    async def _start_due(self, watcher: Watcher) -> float:
        """Start what is due; return the seconds until something is due again."""
        system = await self._system_jobs()
        try:
            await self._runner.flush()
            claimed = await self._claim(system)
            book = await self._store.read()
        except JobsUnavailable as error:
            await self._report_unavailable(error)
            return RETRY_S
        self._is_unavailable = False
        while item := self._queue.take(book):
            job, is_first = item
            await self._runner.assign(job, is_first=is_first)
        now = self._ctx.clock.now()
        for job in [job for job in book.jobs.values() if is_stale(job.state, now)]:
            await self._runner.give_up(job)
        await self._runner.delete_sessions()
        await watcher.follow(book.jobs.values())
        return self._delay_s(book, system, claimed)

    async def _claim(self, system: Mapping[str, SystemJob]) -> Claimed:
        monotonic_s = self._ctx.clock.monotonic_s()
        allowed = self._per_second if monotonic_s >= self._catch_ups_from_s else 0
        now = self._ctx.clock.now()
        claimed = await self._store.change(
            lambda book: self._claims.take(book, system, now, allowed)
        )
        # From here on, the file says that these runs have started.
        self._queue.add(claimed.jobs, is_first=True)
        for job, run_id in claimed.system:
            self._ctx.spawn(self._runner.run_system(job, run_id), name=f"job {job.id}")
        if claimed.catch_ups:
            self._catch_ups_from_s = monotonic_s + 1.0
        for missed in claimed.missed:
            await self._report_missed(missed)
        return claimed

    async def _system_jobs(self) -> dict[str, SystemJob]:
        contributed = await self._ctx.contributed(on.contribute_jobs)
        return {each.value.id: each.value for each in contributed}

    def _delay_s(self, book: Book, system: Mapping[str, SystemJob], claimed: Claimed) -> float:
        if claimed.is_more:
            return 0.0
        if claimed.waiting_catch_ups:
            return max(self._catch_ups_from_s - self._ctx.clock.monotonic_s(), 0.0)
        if self._runner.has_unsaved:
            return RETRY_S
        slots = [job.state.next_at for job in book.jobs.values()]
        slots += [record.state.next_at for key, record in book.system.items() if key in system]
        due = min((slot for slot in slots if slot is not None), default=None)
        if due is None:
            return LONGEST_SLEEP_S
        return min(max((due - self._ctx.clock.now()).total_seconds(), 0.0), LONGEST_SLEEP_S)

    async def _wait(self, delay_s: float) -> None:
        """Wait until a job is due or the jobs have changed."""
        async with asyncio.TaskGroup() as tasks:
            sleeping = tasks.create_task(self._ctx.clock.sleep(delay_s))
            changing = tasks.create_task(self._store.changed.wait())
            await asyncio.wait({sleeping, changing}, return_when=asyncio.FIRST_COMPLETED)
            sleeping.cancel()
            changing.cancel()

    async def _report_missed(self, job: Job) -> None:
        """Report a job whose only run was missed."""
        entry = job.state.runs[-1]
        due = entry.slot.astimezone(self._ctx.timezone)
        text = (
            f"The scheduled job '{job.title}' ({job.id}) was due on {due:%a %d %b %Y at %H:%M} and "
            f"did not run: {entry.error}. `/cron run {job.id}` runs it now."
        )
        # For the jobs of a guest, one a day is enough.
        guest = person_of_guest(job.requester)
        key = f"{guest}-{due:%Y-%m-%d}" if guest else job.id
        await self._notify(text, f"cron-missed-{key}")

    async def _report_unavailable(self, error: JobsUnavailable) -> None:
        """Report that no jobs run, once until they run again."""
        if not self._is_unavailable:
            self._is_unavailable = True
            key = f"cron-unavailable-{self._ctx.clock.now().isoformat()}"
            await self._notify(f"Scheduled jobs do not run: {error}", key)

    async def _notify(self, text: str, key: str) -> None:
        if self._ctx.gateway is not None:
            await self._ctx.gateway.notify_owner(text, key)
