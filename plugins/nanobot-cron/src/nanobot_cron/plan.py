"""Decisions about the runs of one job: pure functions from one state to the next.

A run is due at a stored instant, the slot, and never merely "now": so a restart or a late wake-up
knows which run it is about, and does each of them once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from nanobot_cron.job import (
    MAX_EVENTS,
    MAX_RUNS,
    MAX_TEXT_CHARS,
    At,
    Claim,
    Cron,
    Event,
    JobState,
    Run,
)
from nanobot_cron.schedule import last_slot, next_slot

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from nanobot_cron.job import Missed, RunStatus, Schedule

MIN_GRACE_S = 120.0
MAX_GRACE_S = 7_200.0
AT_GRACE_S = 86_400.0
SKIP_LATE_S = 60.0
"""How late a run may start if missed runs are skipped."""
MAX_CLAIM_S = 86_400.0
"""After this time without an end, the result of a run counts as unknown."""
AT_ATTEMPTS = 3
_FIRST_PAUSE_S = 60.0
_LONGEST_PAUSE_S = 3_600.0
_SEEN = 100
_ADJUSTED_S = 2.0

OVERLAP = "the previous run had not ended"
NOT_RUNNING = "no gateway was running then, or the clock was changed"
NEVER_REPORTED = "it started, and its end was never reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What decides when a job runs.

    Attributes:
        id: of the job.
        schedule: of the job.
        timezone: the owner's.
        missed: see `Job`.
        grace_s: see `Job`.
        event_pause_s: shortest time between two starts on events.
    """

    id: str
    schedule: Schedule
    timezone: ZoneInfo
    missed: Missed = "once"
    grace_s: float | None = None
    event_pause_s: float = 60.0

    @property
    def key(self) -> str:
        """The schedule as text, for `JobState.planned_for`."""
        schedule = self.schedule
        if isinstance(schedule, At):
            return f"at {schedule.at.isoformat()}"
        if isinstance(schedule, Cron):
            return f"cron {schedule.expression} {schedule.timezone or self.timezone.key}"
        if schedule.kind == "every":
            return f"every {schedule.seconds} {schedule.anchor.isoformat()}"
        return f"on {schedule.trigger}"

    def next(self, after: datetime) -> datetime | None:
        """Return when the job is due next, later than `after`."""
        return next_slot(self.schedule, after, timezone=self.timezone)

    def grace(self, slot: datetime) -> timedelta:
        """Return how late the run of `slot` may start."""
        if self.missed == "skip":
            return timedelta(seconds=SKIP_LATE_S)
        if self.grace_s is not None:
            return timedelta(seconds=min(self.grace_s, 366 * 86_400))
        if isinstance(self.schedule, At):
            return timedelta(seconds=AT_GRACE_S)
        following = self.next(slot)
        half_s = (following - slot).total_seconds() / 2 if following else MAX_GRACE_S
        return timedelta(seconds=min(max(half_s, MIN_GRACE_S), MAX_GRACE_S))


def plan(rules: Rules, state: JobState, now: datetime) -> JobState:
    """Return the state with the next run planned from now on."""
    if state.claim is not None and state.claim.at > now:  # the clock was set back
        claim = state.claim.model_copy(update={"at": now})
        state = state.model_copy(update={"claim": claim})
    if rules.schedule.kind == "on":
        return plan_event(rules, state, now)
    done = {run.slot for run in state.runs if run.started_at is not None}
    if state.claim:
        done.add(state.claim.slot)
    slot = rules.next(now)
    while slot in done:
        slot = rules.next(slot)
    if isinstance(rules.schedule, At) and slot is None and 0 < state.failures < AT_ATTEMPTS:
        slot = now + pause_after(state.failures)
    return state.model_copy(update={"next_at": slot, "planned_for": rules.key})


def plan_event(rules: Rules, state: JobState, now: datetime) -> JobState:
    """Return the state of a job on events with its next run planned, if an event waits."""
    due = None
    if state.events and state.claim is None:
        due, pause = now, timedelta(seconds=rules.event_pause_s)
        # If the clock was set back, the last start lies in the future and says nothing.
        if state.started_at is not None and state.started_at <= now:
            due = max(now, state.started_at + pause)
    return state.model_copy(update={"next_at": due, "planned_for": rules.key})


def take_event(rules: Rules, state: JobState, event: Event, now: datetime) -> JobState:
    """Return the state with another event; the same state if the event is known."""
    if event.id in state.seen:
        return state
    seen = (*state.seen, event.id)[-_SEEN:]
    if len(state.events) >= MAX_EVENTS:
        dropped = state.dropped_events + 1
        return state.model_copy(update={"seen": seen, "dropped_events": dropped})
    kept = event.model_copy(update={"text": event.text[:MAX_TEXT_CHARS]})
    state = state.model_copy(update={"seen": seen, "events": (*state.events, kept)})
    return state if state.next_at else plan_event(rules, state, now)


def claim_due(rules: Rules, state: JobState, now: datetime) -> JobState:
    """Return the state after the due slot: with a claim if a run is to start."""
    slot = state.next_at
    if slot is None or slot > now:
        return state
    if rules.schedule.kind == "on":
        # With a run under way, its end plans the next one.
        unplanned = state.model_copy(update={"next_at": None})
        return unplanned if state.claim else _claimed(rules, unplanned, slot, now)
    state = state.model_copy(update={"next_at": rules.next(now)})
    if state.claim is not None:
        return _left_out(state, slot, OVERLAP)
    since = max(slot, now - rules.grace(slot))
    if isinstance(rules.schedule, At):  # another attempt lies beside the schedule
        latest = slot if since == slot else None
    else:
        latest = last_slot(rules.schedule, since, now, timezone=rules.timezone)
    if latest is None:
        entry = Run(slot=slot, status="missed", error=NOT_RUNNING, until=now)
        return with_run(state, entry)
    if latest > slot:
        entry = Run(slot=slot, status="missed", error=NOT_RUNNING, until=latest)
        state = with_run(state, entry)
    return _claimed(rules, state, latest, now)


def claim_by_hand(job_id: str, state: JobState, now: datetime) -> tuple[JobState, Claim]:
    """Return the state with the claim of a run that a person starts, and that claim."""
    claim = Claim(run_id=f"{job_id}@{slot_text(now)}+", slot=now, at=now, by_hand=True)
    return state.model_copy(update={"claim": claim, "started_at": now}), claim


def close(
    rules: Rules, state: JobState, status: RunStatus, now: datetime, *, error: str, answer: str
) -> JobState:
    """Return the state after the end of the claimed run; a failure delays the next one.

    A job `At` has another run planned as long as `AT_ATTEMPTS` allow.
    """
    claim = state.claim
    if claim is None:
        return state
    entry = Run(
        slot=claim.slot,
        started_at=claim.at,
        status=status,
        duration_s=max((now - claim.at).total_seconds(), 0.0),
        error=error[:MAX_TEXT_CHARS],
        answer=answer[:MAX_TEXT_CHARS],
    )
    state = with_run(state.model_copy(update={"claim": None}), entry)
    if rules.schedule.kind == "on":
        state = plan_event(rules, state, now)
    if status == "ok":
        return state.model_copy(update={"failures": 0})
    return _after_failure(rules, state, now, claim) if status == "error" else state


def correct(job_id: str, state: JobState, run_id: str, **fields: str) -> JobState:
    """Return the state with the end of a run that was recorded as unknown; see `Run` for fields."""
    for number, run in enumerate(state.runs):
        if run.status == "unknown" and run_id == f"{job_id}@{slot_text(run.slot)}":
            entry = Run.model_validate({**run.model_dump(), **fields})
            runs = (*state.runs[:number], entry, *state.runs[number + 1 :])
            return state.model_copy(update={"runs": runs})
    return state


def is_set_back(planned_at: datetime, now: datetime) -> bool:
    """Whether the clock was set back since runs were planned, by more than it is adjusted."""
    return now < planned_at - timedelta(seconds=_ADJUSTED_S)


def is_stale(state: JobState, now: datetime) -> bool:
    """Whether the claimed run started so long ago that its end is no longer expected."""
    return state.claim is not None and (now - state.claim.at).total_seconds() > MAX_CLAIM_S


def with_run(state: JobState, entry: Run) -> JobState:
    """Return the state with another entry in its history."""
    return state.model_copy(update={"runs": (*state.runs, entry)[-MAX_RUNS:]})


def slot_text(slot: datetime) -> str:
    """Return an instant, in UTC, as it appears in the id of a run."""
    return slot.isoformat().replace("+00:00", "Z")


def pause_after(failures: int) -> timedelta:
    """Return the time without runs after so many failures in a row."""
    return timedelta(seconds=min(_FIRST_PAUSE_S * 2.0 ** min(failures - 1, 10), _LONGEST_PAUSE_S))


def _claimed(rules: Rules, state: JobState, slot: datetime, now: datetime) -> JobState:
    events = state.events
    if state.dropped_events:
        events += (Event(id="", text=f"({state.dropped_events} further events left out)"),)
    claim = Claim(run_id=f"{rules.id}@{slot_text(slot)}", slot=slot, at=now, events=events)
    update = {"claim": claim, "started_at": now, "events": (), "dropped_events": 0}
    return state.model_copy(update=update)


def _left_out(state: JobState, slot: datetime, reason: str) -> JobState:
    """Return the state with a slot left out; slots left out in a row are one entry."""
    last = state.runs[-1] if state.runs else None
    if last is not None and last.status == "skipped" and last.error == reason:
        entry = last.model_copy(update={"until": slot})
        return state.model_copy(update={"runs": (*state.runs[:-1], entry)})
    return with_run(state, Run(slot=slot, status="skipped", error=reason))


def _after_failure(rules: Rules, state: JobState, now: datetime, claim: Claim) -> JobState:
    failures = state.failures + 1
    state = state.model_copy(update={"failures": failures})
    until = now + pause_after(failures)
    if isinstance(rules.schedule, At):
        is_over = claim.by_hand or failures >= AT_ATTEMPTS
        return state if is_over else state.model_copy(update={"next_at": until})
    if state.next_at is None or state.next_at >= until:
        return state
    if rules.schedule.kind == "on":
        return state.model_copy(update={"next_at": until})
    runs = "a failed run" if failures == 1 else f"{failures} failed runs in a row"
    entry = Run(slot=state.next_at, status="skipped", error=f"left out after {runs}", until=until)
    return with_run(state.model_copy(update={"next_at": rules.next(until)}), entry)
