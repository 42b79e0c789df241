"""Runner: starts runs that are claimed, and records how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias
from zlib import crc32

from pydantic import ValidationError

from nanobot_core import BusError, CronExpression, SessionError
from nanobot_cron.errors import JobsUnavailable
from nanobot_cron.job import At, Cron, Every, Job, On, Run, SystemRecord, person_of_guest
from nanobot_cron.plan import NEVER_REPORTED, Rules, close, correct
from nanobot_cron.run_queue import RunQueue
from nanobot_cron.settings import CronSettings
from nanobot_cron.store import Book, JobStore
from nanobot_cron.task import build_assignment, render_task

if TYPE_CHECKING:
    from nanobot_core import AssignmentFinished, PluginContext, SystemJob, TurnOutcome
    from nanobot_cron.job import Claim, RunStatus, Schedule

RETRY_S = 5.0
"""Seconds until something that could not be stored is tried again."""
INTERRUPTED = "the process ended during it"
STOPPED = "stopped by a person"
_ALREADY_DONE = "it was done before the clock was set back"
_NO_CHAT = "(No chat got this answer, because the owner's is not known yet.)\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended.

    Attributes:
        run_id: which run.
        status: see `nanobot_cron.job.RunStatus`.
        error: why it failed.
        answer: the result, where no chat got it.
    """

    run_id: str
    status: RunStatus
    error: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Followup:
    """What to do after an end is stored: notify the owner, delete a session.

    Attributes:
        key: of notices with the same key, the owner gets one; empty means a key of the run.
    """

    notice: str = ""
    key: str = ""
    done_session: str = ""


_Edit: TypeAlias = Callable[[Book], tuple[Book, _Followup]]
_NOTHING = _Followup()


class Runner:
    """Starts and ends runs; get it with ``ctx.shared(Runner)``.

    Attributes:
        store: the jobs.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self.store: JobStore = ctx.shared(JobStore)
        self._queue = ctx.shared(RunQueue)
        self._ctx = ctx
        self._settings = ctx.settings(CronSettings)
        self._unsaved: dict[str, _Edit] = {}
        self._done_sessions: set[str] = set()
        self._invalid: set[str] = set()

    @property
    def has_unsaved(self) -> bool:
        """Whether ends of runs wait for the disk."""
        return bool(self._unsaved)

    def rules(self, job: Job) -> Rules:
        """Return the rules of a person's job."""
        return Rules(
            id=job.id,
            schedule=job.schedule,
            timezone=self._ctx.timezone,
            missed=job.missed,
            grace_s=job.grace_s,
            event_pause_s=self._settings.min_trigger_interval_s,
        )

    def system_rules(self, job: SystemJob | None, record: SystemRecord) -> Rules:
        """Return the rules of a plugin's job; it never runs if it is switched off or missing."""
        schedule: Schedule = On(trigger="")
        if job is not None and record.enabled:
            try:
                schedule = _schedule_of(job, record) or schedule
            except ValidationError as error:
                if job.id not in self._invalid:
                    self._invalid.add(job.id)
                    bound = self._ctx.logger.bind(job=job.id)
                    bound.warning("the schedule of job {} is invalid: {}", job.id, error)
        return Rules(id=record.id, schedule=schedule, timezone=self._ctx.timezone)

    async def assign(self, job: Job, *, is_first: bool, waits: bool = True) -> None:
        """Give a claimed run to the gateway.

        Args:
            job: with the claim.
            is_first: the claim was just made; otherwise the run may have been given before.
            waits: whether to try again if it cannot be stored.

        Raises:
            BusError: it was not stored, and `waits` is false.
        """
        gateway, claim = self._ctx.gateway, job.state.claim
        if gateway is None or claim is None:
            return
        content = await asyncio.to_thread(render_task, self._ctx, job, claim)
        assignment = build_assignment(self._ctx, job, claim)
        while True:
            try:
                is_new = await gateway.assign(assignment, content)
                break
            except BusError as error:
                if not waits:
                    raise
                bound = self._ctx.logger.bind(job=job.id)
                bound.warning("job {} cannot start yet: {}", job.id, error)
                is_first = False  # it may have been stored nevertheless
                await self._ctx.clock.sleep(RETRY_S)
        if not is_new:
            self._queue.end(claim.run_id)  # it is under way already, or long done
        if is_first and not is_new:
            end = RunEnd(run_id=claim.run_id, status="skipped", error=_ALREADY_DONE)
            await self.end_job(job.id, end)

    async def finish(self, event: AssignmentFinished) -> None:
        """Record the end of a run; that of an unknown one is ignored."""
        run_id, outcome = event.assignment.id, event.outcome
        self._queue.end(run_id)
        job_id = run_id.rpartition("@")[0]
        status, error = _result_of(outcome)
        answer = (outcome.reply or "") if event.assignment.delivery == "never" else ""
        if answer and self._ctx.gateway is not None and self._ctx.gateway.owners_chat is None:
            answer = _NO_CHAT + answer
        await self.end_job(job_id, RunEnd(run_id=run_id, status=status, error=error, answer=answer))
        self.store.changed.set()  # the scheduler gives the next run, or stores the end again

    async def run_here(self, job: Job, claim: Claim) -> Run:
        """Do a run in this process, without a gateway, and record it.

        Raises:
            JobsUnavailable: it was done, and could not be recorded.
        """
        content = await asyncio.to_thread(render_task, self._ctx, job, claim)
        # In a session of its own also if it has another: that may be the one of the caller.
        assignment = replace(
            build_assignment(self._ctx, job, claim), session_key=f"cron:{job.id}", parent=None
        )
        outcome = await self._ctx.agent.work(assignment, content)
        status, error = _result_of(outcome)

        def edit(book: Book) -> tuple[Book, Run]:
            current = book.jobs.get(job.id, job)
            former, now = current.state, self._ctx.clock.now()
            state = former.model_copy(update={"claim": claim})
            answer = outcome.reply or ""
            state = close(self.rules(current), state, status, now, error=error, answer=answer)
            kept = {"claim": former.claim, "next_at": former.next_at}
            current = current.model_copy(update={"state": state.model_copy(update=kept)})
            entry = state.runs[-1]
            return (book.with_job(current) if job.id in book.jobs else book), entry

        return await self.store.change(edit)

    async def give_up(self, job: Job) -> None:
        """Record that the end of a claimed run is no longer expected."""
        if claim := job.state.claim:
            self._queue.end(claim.run_id)
            end = RunEnd(run_id=claim.run_id, status="unknown", error=NEVER_REPORTED)
            await self.end_job(job.id, end)

    async def stop_waiting(self, session_key: str) -> None:
        """Record as stopped the runs of a session that are due and have not started."""
        for job in self._queue.drop(session_key):
            if claim := job.state.claim:
                end = RunEnd(run_id=claim.run_id, status="stopped", error=STOPPED)
                await self.end_job(job.id, end)

    async def end_job(self, job_id: str, end: RunEnd) -> None:
        """Record the end of a run of a person's job."""

        def edit(book: Book) -> tuple[Book, _Followup]:
            job = book.jobs.get(job_id)
            if job is None:
                return book, _NOTHING
            if job.state.claim is None or job.state.claim.run_id != end.run_id:
                fields = {"status": end.status, "error": end.error, "answer": end.answer}
                state = correct(job_id, job.state, end.run_id, **fields)
                is_same = state is job.state
                job = job.model_copy(update={"state": state})
                return (book if is_same else book.with_job(job)), _NOTHING
            by_hand, now = job.state.claim.by_hand, self._ctx.clock.now()
            state = close(
                self.rules(job), job.state, end.status, now, error=end.error, answer=end.answer
            )
            update: dict[str, object] = {"state": state}
            will_be_tried = isinstance(job.schedule, At) and state.next_at is not None
            if isinstance(job.schedule, At) and not by_hand and not will_be_tried:
                is_kept = end.answer and job.delivery != "never"  # nobody has seen it
                if end.status == "ok" and not is_kept:
                    return book.without(job_id), _Followup(done_session=f"cron:{job_id}")
                update["enabled"] = False
            notice = _notice(job.title, job_id, state.failures, end, is_last="enabled" in update)
            book = book.with_job(job.model_copy(update=update))
            about = person_of_guest(job.requester)
            key = ""
            if about:  # fifty jobs of one guest fail together, when the guest is no longer admitted
                cause = f"{crc32(end.error.encode()):08x}-{state.failures}"
                key = f"cron-failed-{about}-{cause}"
            return book, _Followup(notice="" if will_be_tried else notice, key=key)

        await self._save(end.run_id, edit)

    async def run_system(self, job: SystemJob, run_id: str) -> None:
        """Do a claimed run of a plugin's job and record it."""
        try:
            line = await job.run()
            end = RunEnd(run_id=run_id, status="ok", answer=str(line or ""))
        except Exception as error:  # noqa: BLE001 - isolation point: the code of another plugin
            bound = self._ctx.logger.bind(job=job.id)
            bound.opt(exception=error).error("job {} failed", job.id)
            text = f"{type(error).__name__}: {error}"
            end = RunEnd(run_id=run_id, status="error", error=text)
        await self.end_system(job.id, job, end)
        if self._unsaved:
            self.store.changed.set()

    async def end_system(self, job_id: str, job: SystemJob | None, end: RunEnd) -> None:
        """Record the end of a run of a plugin's job; `job` is ``None`` if it is missing."""

        def edit(book: Book) -> tuple[Book, _Followup]:
            record = book.system.get(job_id)
            if record is None or record.state.claim is None:
                return book, _NOTHING
            if record.state.claim.run_id != end.run_id:
                return book, _NOTHING
            rules, now = self.system_rules(job, record), self._ctx.clock.now()
            state = close(rules, record.state, end.status, now, error=end.error, answer=end.answer)
            notice = _notice(job_id, job_id, state.failures, end)
            record = record.model_copy(update={"state": state})
            return book.with_entries({}, {job_id: record}), _Followup(notice=notice)

        await self._save(end.run_id, edit)

    async def flush(self) -> None:
        """Store ends of runs that could not be stored."""
        for run_id, edit in list(self._unsaved.items()):
            await self._save(run_id, edit)

    async def delete_sessions(self, *more: str) -> None:
        """Delete the sessions of jobs that are gone; one with a turn under way stays until later.

        Args:
            more: ids of jobs that were removed.
        """
        self._done_sessions.update(f"cron:{job_id}" for job_id in more)
        for key in list(self._done_sessions):
            try:
                await self._ctx.agent.delete_session(key)
            except SessionError:
                continue
            self._done_sessions.discard(key)

    async def _save(self, run_id: str, edit: _Edit) -> None:
        # Kept until it is stored: if the caller is cancelled, the message is acknowledged.
        self._unsaved[run_id] = edit
        try:
            followup = await self.store.change(edit)
        except JobsUnavailable as error:
            bound = self._ctx.logger.bind(run=run_id)
            bound.warning("the end of run {} is not stored yet: {}", run_id, error)
            return
        self._unsaved.pop(run_id, None)
        if followup.done_session:
            self._done_sessions.add(followup.done_session)
        if followup.notice and self._ctx.gateway is not None:
            key = followup.key or f"cron-failed-{run_id}"
            await self._ctx.gateway.notify_owner(followup.notice, key)


def _schedule_of(job: SystemJob, record: SystemRecord) -> Schedule | None:
    schedule = job.schedule
    if isinstance(schedule, CronExpression):
        return Cron(expression=schedule.expression, timezone=schedule.timezone)
    return None if schedule is None else Every(seconds=schedule.seconds, anchor=record.anchor)


def _result_of(outcome: TurnOutcome) -> tuple[RunStatus, str]:
    if outcome.stop_reason == "cancelled":
        return "stopped", outcome.error or STOPPED
    if outcome.error is not None:
        return "error", outcome.error
    if outcome.stop_reason != "completed":
        return "error", f"it ended before it was complete: {outcome.stop_reason.replace('_', ' ')}"
    return "ok", ""


def _notice(title: str, job_id: str, failures: int, end: RunEnd, *, is_last: bool = False) -> str:
    """Return the message to the owner about the first failure, the 4th, the 16th and so on."""
    is_power = failures & (failures - 1) == 0 and failures.bit_length() % 2 == 1
    if end.status != "error" or not (is_last or is_power):
        return ""
    times = "" if failures <= 1 else f" {failures} times in a row"
    name = f"'{title}' ({job_id})" if title != job_id else f"'{job_id}'"
    last = " It is switched off now." if is_last else ""
    return (
        f"The scheduled job {name} failed{times}: {end.error[:500]}{last}\n"
        f"`/cron history {job_id}` shows its runs."
    )
