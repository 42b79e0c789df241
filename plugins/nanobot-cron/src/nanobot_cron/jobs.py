"""Jobs: what the tool, the commands and the terminal do with jobs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pydantic import ValidationError

from nanobot_core import BusError, on
from nanobot_cron.errors import (
    JobRefused as JobRefused,
    JobsError as JobsError,
    JobsUnavailable as JobsUnavailable,
    ProtectedJob as ProtectedJob,
    UnknownJob as UnknownJob,
)
from nanobot_cron.job import At, Cron, Every, Job, JobState, On, Run, SystemRecord, person_of
from nanobot_cron.plan import OVERLAP, claim_by_hand, plan
from nanobot_cron.runner import Runner
from nanobot_cron.schedule import describe_interval, next_slot
from nanobot_cron.settings import CronSettings

if TYPE_CHECKING:
    from nanobot_core import Contributed, Delivery, PluginContext, Requester, SystemJob, Trigger
    from nanobot_cron.job import Claim, Missed, Schedule
    from nanobot_cron.store import Book

_ID_BYTES = 4
_CHECKED_SLOTS = 10
"""Times of an expression whose distance is compared with the shortest interval."""
_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemEntry:
    """A job of a plugin, and its state.

    Attributes:
        plugin: id of the plugin.
        job: as the plugin contributes it.
        enabled: whether people left it switched on.
        state: its history and its next run.
    """

    plugin: str
    job: SystemJob
    enabled: bool
    state: JobState


class Jobs:
    """All jobs; get it with ``ctx.shared(Jobs)``.

    Every method raises `JobsUnavailable` if the file with the jobs cannot be used.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._runner = ctx.shared(Runner)
        self._store = self._runner.store
        self._settings = ctx.settings(CronSettings)

    async def all(self) -> list[Job]:
        """Return the jobs of people, the next one first, those without a next run last."""
        book = await self._store.read()
        return sorted(book.jobs.values(), key=lambda job: (job.state.next_at or _LAST, job.id))

    async def get(self, job_id: str) -> Job:
        """Return a job of a person.

        Raises:
            UnknownJob: no job has this id.
        """
        return _find(await self._store.read(), job_id)

    async def system(self) -> list[SystemEntry]:
        """Return the jobs of plugins."""
        contributed = await self._system_jobs()
        book, now = await self._store.read(), self._ctx.clock.now()
        return [self._entry(each, book, now) for each in contributed.values()]

    async def triggers(self) -> Mapping[str, Contributed[Trigger]]:
        """Return what can start a job `On` an event, by name."""
        contributed = await self._ctx.contributed(on.contribute_triggers)
        return {each.value.name: each for each in contributed}

    async def add(
        self,
        *,
        message: str,
        schedule: Schedule,
        requester: Requester,
        name: str = "",
        delivery: Delivery = "always",
        session_key: str = "",
        missed: Missed = "once",
        grace_s: float | None = None,
    ) -> Job:
        """Store a new job and return it, with its id and its next run.

        Args:
            message: the task, for the model.
            schedule: when it runs; it is checked again.
            requester: who asks, with what rights.
            name: a few words for people.
            delivery: whether the chat of the requester gets the answers.
            session_key: session of the runs; empty means one of the job's own.
            missed: what happens to runs that are missed.
            grace_s: how late a run may start; ``None`` means by the schedule.

        Raises:
            JobRefused: it would never run, breaks a limit, or has invalid fields.
        """
        now = self._ctx.clock.now()
        self._check_schedule(schedule, now)
        try:
            job = Job(
                id=secrets.token_hex(_ID_BYTES),
                name=name,
                schedule=schedule,
                message=message,
                requester=requester,
                delivery=delivery,
                session_key=session_key,
                missed=missed,
                grace_s=grace_s,
                created_at=now,
                updated_at=now,
            )
        except ValidationError as error:
            raise JobRefused(_fault(error)) from error

        def edit(book: Book) -> tuple[Book, Job]:
            self._check_room(book, requester)
            added = job
            while added.id in book.jobs or added.id in book.system:
                added = added.model_copy(update={"id": secrets.token_hex(_ID_BYTES)})
            state = plan(self._runner.rules(added), added.state, now)
            added = added.model_copy(update={"state": state})
            return book.with_job(added), added

        added = await self._store.change(edit)
        if isinstance(schedule, On):  # the first event after the reply counts
            await self._store.wait_for_scheduler()
        return added

    async def remove(self, job_id: str) -> Job:
        """Remove a job with its own session, and return it; a run under way continues.

        Raises:
            UnknownJob: no job has this id.
            ProtectedJob: it belongs to a plugin.
        """
        system = await self._system_jobs()

        def edit(book: Book) -> tuple[Book, Job]:
            if job_id not in book.jobs and job_id in system:
                raise ProtectedJob(job_id, system[job_id].plugin)
            job = _find(book, job_id, system)
            return book.without(job_id), job

        removed = await self._store.change(edit)
        await self._runner.delete_sessions(job_id)
        return removed

    async def enable(self, job_id: str, enabled: bool) -> Job | SystemEntry:
        """Switch a job on or off, also one of a plugin, and return it.

        Raises:
            UnknownJob: no job has this id.
            JobRefused: its time has passed.
        """
        system = await self._system_jobs()

        def edit(book: Book) -> tuple[Book, Job | SystemEntry]:
            now = self._ctx.clock.now()
            if job_id not in book.jobs and job_id in system:
                record = self._record(system[job_id].value, book, now)
                record = record.model_copy(update={"enabled": enabled})
                rules = self._runner.system_rules(system[job_id].value, record)
                record = record.model_copy(update={"state": plan(rules, record.state, now)})
                changed = book.with_entries({}, {job_id: record})
                return changed, self._entry(system[job_id], changed, now)
            job = self._switched(_find(book, job_id, system), now, enabled=enabled)
            return book.with_job(job), job

        switched = await self._store.change(edit)
        if isinstance(switched, Job) and isinstance(switched.schedule, On):
            await self._store.wait_for_scheduler()
        return switched

    async def run_now(self, job_id: str) -> Run | None:
        """Run a job now, besides its schedule.

        Returns:
            The result with the answer; ``None`` in a gateway, where the run continues by itself.

        Raises:
            UnknownJob: no job has this id.
            JobRefused: it is already running, or the queue is full.
        """
        system = await self._system_jobs()
        book = await self._store.read()
        if job_id not in book.jobs and job_id in system:
            return await self._run_system(system[job_id].value)
        job = _find(book, job_id, system)
        if self._ctx.gateway is None:
            _, claim = claim_by_hand(job.id, _free(job.id, job.state), self._ctx.clock.now())
            return await self._runner.run_here(job, claim)

        def edit(book: Book) -> tuple[Book, Job]:
            job = _find(book, job_id, system)
            state, _ = claim_by_hand(job.id, _free(job.id, job.state), self._ctx.clock.now())
            claimed = job.model_copy(update={"state": state})
            return book.with_job(claimed), claimed

        job = await self._store.change(edit)
        try:
            await self._runner.assign(job, is_first=True, waits=False)
        except BusError as error:
            await self._store.change(lambda book: (_unclaimed(book, job), None))
            msg = f"job {job_id!r} cannot be started now: {error}"
            raise JobRefused(msg) from error
        return None

    async def history(self, job_id: str) -> tuple[Run, ...]:
        """Return the last runs of a job, also of one of a plugin, oldest first.

        Raises:
            UnknownJob: no job has this id.
        """
        book = await self._store.read()
        if job_id not in book.jobs and job_id in (system := await self._system_jobs()):
            now = self._ctx.clock.now()
            return self._record(system[job_id].value, book, now).state.runs
        return _find(book, job_id, await self._system_jobs()).state.runs

    # --- parts -------------------------------------------------------------------------------

    async def _run_system(self, job: SystemJob) -> Run | None:
        def edit(book: Book) -> tuple[Book, Claim]:
            now = self._ctx.clock.now()
            record = self._record(job, book, now)
            state, claim = claim_by_hand(job.id, _free(job.id, record.state), now)
            record = record.model_copy(update={"state": state})
            return book.with_entries({}, {job.id: record}), claim

        claim = await self._store.change(edit)
        if self._ctx.gateway is not None:
            self._ctx.spawn(self._runner.run_system(job, claim.run_id), name=f"job {job.id}")
            return None
        await self._runner.run_system(job, claim.run_id)
        return (await self.history(job.id))[-1]

    async def _system_jobs(self) -> Mapping[str, Contributed[SystemJob]]:
        contributed = await self._ctx.contributed(on.contribute_jobs)
        return {each.value.id: each for each in contributed}

    def _record(self, job: SystemJob, book: Book, now: datetime) -> SystemRecord:
        return book.system.get(job.id) or SystemRecord(id=job.id, anchor=now)

    def _entry(self, each: Contributed[SystemJob], book: Book, now: datetime) -> SystemEntry:
        record = self._record(each.value, book, now)
        rules = self._runner.system_rules(each.value, record)
        state = record.state
        if state.planned_for != rules.key:
            state = plan(rules, state, now)
        return SystemEntry(plugin=each.plugin, job=each.value, enabled=record.enabled, state=state)

    def _switched(self, job: Job, now: datetime, *, enabled: bool) -> Job:
        state = job.state.model_copy(update={"next_at": None, "planned_for": ""})
        if enabled:
            state = state.model_copy(update={"failures": 0})
            state = plan(self._runner.rules(job), state, now)
            if isinstance(job.schedule, At) and state.next_at is None:
                msg = f"job {job.id!r} cannot be enabled: its time has passed; add a new job"
                raise JobRefused(msg)
        update = {"enabled": enabled, "state": state, "updated_at": now}
        return job.model_copy(update=update)

    def _check_schedule(self, schedule: Schedule, now: datetime) -> None:
        shortest_s = self._settings.min_interval_s
        if isinstance(schedule, On):
            return
        if isinstance(schedule, Every) and schedule.seconds < shortest_s:
            self._refuse_interval(schedule.seconds)
        slot = next_slot(schedule, now, timezone=self._ctx.timezone)
        if slot is None:
            msg = "it would never run: that time has passed, or never comes"
            raise JobRefused(msg)
        if not isinstance(schedule, Cron):
            return
        for _ in range(_CHECKED_SLOTS):
            following = next_slot(schedule, slot, timezone=self._ctx.timezone)
            if following is None:
                return
            if (distance_s := (following - slot).total_seconds()) < shortest_s:
                self._refuse_interval(distance_s)
            slot = following

    def _refuse_interval(self, seconds: float) -> None:
        found, shortest = map(describe_interval, (seconds, self._settings.min_interval_s))
        msg = f"it would run every {found}, and at most every {shortest} is allowed"
        raise JobRefused(msg)

    def _check_room(self, book: Book, requester: Requester) -> None:
        if len(book.jobs) >= self._settings.max_jobs:
            msg = f"there are {len(book.jobs)} jobs already (cron.max_jobs); remove one first"
            raise JobRefused(msg)
        if requester.authority != "guest":
            return
        who, most = _person(requester), self._settings.max_jobs_per_guest
        own = sum(_person(job.requester) == who for job in book.jobs.values())
        if own >= most:
            msg = f"you have {own} jobs, and at most {most} are allowed; remove one first"
            raise JobRefused(msg)


def _person(requester: Requester) -> tuple[str, str, str]:
    return requester.authority, requester.channel, person_of(requester.sender_id)


def _find(book: Book, job_id: str, system: Sequence[str] | Mapping[str, object] = ()) -> Job:
    if job_id not in book.jobs:
        raise UnknownJob(job_id, [*book.jobs, *system])
    return book.jobs[job_id]


def _free(job_id: str, state: JobState) -> JobState:
    if state.claim is not None:
        msg = f"job {job_id!r} cannot be started now: {OVERLAP}"
        raise JobRefused(msg)
    return state


def _unclaimed(book: Book, job: Job) -> Book:
    current = book.jobs.get(job.id)
    if current is None or current.state.claim != job.state.claim:
        return book
    state = current.state.model_copy(update={"claim": None})
    return book.with_job(current.model_copy(update={"state": state}))


def _fault(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
