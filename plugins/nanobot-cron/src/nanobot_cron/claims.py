"""Claims: which runs start now, decided from the stored jobs under the lock of their file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from nanobot_cron.job import Job, SystemRecord
from nanobot_cron.plan import claim_due, is_set_back, plan

if TYPE_CHECKING:
    from nanobot_core import SystemJob
    from nanobot_cron.runner import Runner
    from nanobot_cron.store import Book

BATCH = 500
"""Runs that one write of the file claims."""
LATE = timedelta(seconds=60)
"""A run that starts later than this is a catch-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What was claimed.

    Attributes:
        jobs: jobs of people whose runs start now, with their claims.
        system: jobs of plugins, each with the id of its run.
        missed: jobs that run once, and whose time was missed.
        is_more: more runs are due than were claimed.
        catch_ups: number of `jobs` that start late.
        waiting_catch_ups: number of late runs that have to wait.
    """

    jobs: Sequence[Job] = ()
    system: Sequence[tuple[SystemJob, str]] = ()
    missed: Sequence[Job] = ()
    is_more: bool = False
    catch_ups: int = 0
    waiting_catch_ups: int = 0


class Claims:
    """Finds the runs that are due, and remembers which jobs have a planned run."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._planned: Mapping[str, Job] = {}

    def take(
        self, book: Book, system: Mapping[str, SystemJob], now: datetime, max_catch_ups: int
    ) -> tuple[Book, Claimed]:
        """Plan new and changed jobs, and claim the runs that are due, earliest first.

        Args:
            book: the stored jobs.
            system: the jobs of plugins, by id.
            now: the current time.
            max_catch_ups: how many late runs may start.
        """
        replan = book.written_at is not None and is_set_back(book.written_at, now)
        changed = self._plan_jobs(book.jobs, now, replan=replan)
        records = self._plan_system(book, system, now, replan=replan)
        jobs = {**book.jobs, **changed}
        on_time, late = _due(jobs.values(), now)
        claimed, missed = list[Job](), list[Job]()
        for job in (*on_time[:BATCH], *late[:max_catch_ups]):
            state = claim_due(self._runner.rules(job), job.state, now)
            changed[job.id] = after = job.model_copy(update={"state": state})
            if state.claim is not None and state.claim is not job.state.claim:
                claimed.append(after)
            elif job.schedule.kind == "at" and state.next_at is None:
                missed.append(after)
        started = self._claim_system({**book.system, **records}, records, system, now)
        book = book.with_entries(changed, records) if changed or records else book
        self._planned = book.jobs
        return book, Claimed(
            jobs=claimed,
            system=started,
            missed=missed,
            is_more=len(on_time) > BATCH,
            catch_ups=min(len(late), max_catch_ups),
            waiting_catch_ups=max(len(late) - max_catch_ups, 0),
        )

    def _plan_jobs(self, jobs: Mapping[str, Job], now: datetime, *, replan: bool) -> dict[str, Job]:
        changed: dict[str, Job] = {}
        for job in jobs.values():
            if self._planned.get(job.id) is job and not replan:
                continue
            rules, state = self._runner.rules(job), job.state
            if not job.enabled:
                if state.next_at is not None:
                    state = state.model_copy(update={"next_at": None, "planned_for": ""})
            elif replan or state.planned_for != rules.key:
                state = plan(rules, state, now)
            if state is not job.state:
                changed[job.id] = job.model_copy(update={"state": state})
        return changed

    def _plan_system(
        self, book: Book, system: Mapping[str, SystemJob], now: datetime, *, replan: bool
    ) -> dict[str, SystemRecord]:
        changed: dict[str, SystemRecord] = {}
        for job in system.values():
            known = book.system.get(job.id)
            record = known or SystemRecord(id=job.id, anchor=now)
            rules = self._runner.system_rules(job, record)
            if replan or record.state.planned_for != rules.key:
                state = plan(rules, record.state, now)
                record = record.model_copy(update={"state": state})
            if record is not known:
                changed[job.id] = record
        return changed

    def _claim_system(
        self,
        records: Mapping[str, SystemRecord],
        changed: dict[str, SystemRecord],
        system: Mapping[str, SystemJob],
        now: datetime,
    ) -> list[tuple[SystemJob, str]]:
        started: list[tuple[SystemJob, str]] = []
        for job in system.values():
            record = records[job.id]
            state = claim_due(self._runner.system_rules(job, record), record.state, now)
            if state is record.state:
                continue
            changed[job.id] = record.model_copy(update={"state": state})
            if state.claim is not None and state.claim is not record.state.claim:
                started.append((job, state.claim.run_id))
        return started


def _due(jobs: Iterable[Job], now: datetime) -> tuple[list[Job], list[Job]]:
    """Return the jobs that are due, on time and late, earliest first."""
    due = [(at, job) for job in jobs if (at := job.state.next_at) is not None and at <= now]
    due.sort(key=lambda pair: pair[0])
    on_time = [job for at, job in due if now - at <= LATE]
    return on_time, [job for at, job in due if now - at > LATE]
