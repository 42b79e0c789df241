"""Decisions about runs, over any sequence of wake-ups, ends and pauses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from nanobot_cron.job import Cron, Every, JobState, Missed
from nanobot_cron.plan import Rules, claim_due, close, is_set_back, pause_after, plan

START = datetime(2026, 3, 28, 12, tzinfo=UTC)  # the clocks change in the next night
BERLIN = ZoneInfo("Europe/Berlin")
schedules = st.sampled_from(
    [
        Every(seconds=600, anchor=START),
        Every(seconds=86_400, anchor=START + timedelta(hours=5)),
        Cron(expression="*/10 * * * *"),
        Cron(expression="30 2 * * *"),
        Cron(expression="0 7,19 * * *"),
    ]
)
steps = st.lists(
    st.tuples(
        st.floats(0.001, 200_000),
        st.sampled_from(["end", "fail", "run on", "end", "end"]),
    ),
    min_size=1,
    max_size=30,
)


@settings(deadline=None, max_examples=150)
@given(schedules, st.sampled_from(["once", "skip"]), st.none() | st.floats(0, 10_000), steps)
def test_each_slot_runs_once_or_is_recorded_as_left_out(
    schedule: Every | Cron, missed: Missed, grace_s: float | None, steps: list[tuple[float, str]]
) -> None:
    rules = Rules(id="a", schedule=schedule, timezone=BERLIN, missed=missed, grace_s=grace_s)
    now, ran = START, list[datetime]()
    state = plan(rules, JobState(), now)
    for pause_s, end in steps:
        now += timedelta(seconds=pause_s)
        due, claim = state.next_at, state.claim
        state = claim_due(rules, state, now)
        if state.claim is not None and state.claim is not claim:
            assert due is not None
            assert due <= state.claim.slot <= now
            assert rules.next(state.claim.slot - timedelta(seconds=1)) == state.claim.slot
            ran.append(state.claim.slot)
        elif due is not None and due <= now:
            assert state.runs[-1].status in ("missed", "skipped")
        assert state.next_at is not None
        assert state.next_at > now
        if state.claim is not None and end != "run on":
            status = "ok" if end == "end" else "error"
            state = close(rules, state, "ok" if end == "end" else "error", now, error="", answer="")
            assert state.runs[-1].status == status or state.runs[-2].status == status
    assert ran == sorted(set(ran))
    assert len(state.runs) <= 20


@pytest.mark.parametrize("days", [-365, -1, 1, 365])
def test_a_job_is_planned_within_its_period_after_any_jump(days: int) -> None:
    rules = Rules(id="a", schedule=Every(seconds=3_600, anchor=START), timezone=BERLIN)
    now = START + timedelta(days=days, minutes=10)
    assert plan(rules, JobState(), now).next_at == now + timedelta(minutes=50)


def test_small_adjustments_of_the_clock_are_no_jump() -> None:
    assert not is_set_back(START, START - timedelta(seconds=1))
    assert is_set_back(START, START - timedelta(seconds=3))


def test_pauses_after_failures_grow_to_an_hour() -> None:
    minutes = [pause_after(failures).total_seconds() / 60 for failures in range(1, 9)]
    assert minutes == [1, 2, 4, 8, 16, 32, 60, 60]
