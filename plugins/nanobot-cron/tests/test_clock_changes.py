"""Ten years of clock changes: each planned local time has one run.

The expected instants come from the rules of the zones alone, without the library that computes
them in the program: a time that exists, or its first pass, is itself; a time in a gap is the end
of the gap. The long form (``-m long``) takes 30 zones and all of 2016 to 2025, and compares the
table in the README with `render_table`; print a new one with
``python plugins/nanobot-cron/tests/test_clock_changes.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from nanobot_cron.job import Cron
from nanobot_cron.schedule import next_slot

FEW = (
    *("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Nuuk"),
    *("Africa/Cairo", "America/Havana", "Asia/Kolkata", "Africa/Casablanca"),
)
MORE = (
    *("Africa/Johannesburg", "America/Asuncion", "America/Caracas", "America/Los_Angeles"),
    *("America/Mexico_City", "America/Santiago", "America/Sao_Paulo", "America/Scoresbysund"),
    *("America/St_Johns", "Antarctica/Troll", "Asia/Amman", "Asia/Beirut", "Asia/Gaza"),
    *("Asia/Pyongyang", "Asia/Tehran", "Asia/Tokyo", "Atlantic/Azores", "Europe/Dublin"),
    *("Europe/Istanbul", "Europe/London", "Pacific/Apia", "Pacific/Auckland", "Pacific/Chatham"),
    "UTC",
)
ZONES = (*FEW, *MORE)
FIRST, LAST = date(2016, 1, 1), date(2025, 12, 31)
DAY = timedelta(days=1)
README = Path(__file__).parents[1] / "README.md"
LONG_TIMES = (time(0, 0), time(2, 30), time(12, 0), time(23, 30))


@dataclass(frozen=True)
class Change:
    """A clock change: the local times before and after it."""

    at: datetime
    before: datetime
    after: datetime

    @property
    def is_gap(self) -> bool:
        return self.after > self.before


def clock_changes(zone: ZoneInfo, first: date, last: date) -> Iterator[Change]:
    """Yield the clock changes of a zone."""
    start = datetime.combine(first, time(), UTC)
    noons = [start + DAY * number for number in range((last - first).days + 2)]
    for sooner, later in pairwise(noons):
        if offset(zone, sooner) == offset(zone, later):
            continue
        at = first_change(zone, sooner, later)
        local = at.replace(tzinfo=None)
        yield Change(at, local + offset(zone, sooner), local + offset(zone, at))


def offset(zone: ZoneInfo, instant: datetime) -> timedelta:
    found = instant.astimezone(zone).utcoffset()
    assert found is not None
    return found


def first_change(zone: ZoneInfo, sooner: datetime, later: datetime) -> datetime:
    """Return the first instant with another offset than `sooner`."""
    old = offset(zone, sooner)
    while later - sooner > timedelta(seconds=1):
        middle = sooner + (later - sooner) // 2
        middle = middle.replace(microsecond=0)
        if offset(zone, middle) == old:
            sooner = middle
        else:
            later = middle
    return later


def expected(zone: ZoneInfo, day: date, at: time) -> datetime:
    """Return when a job for a local time runs on a day, by the rules of the zone."""
    planned = datetime.combine(day, at)
    instant = planned.replace(tzinfo=zone).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == planned:
        return instant
    return first_change(zone, planned.replace(tzinfo=zone, fold=1).astimezone(UTC), instant)


def check(zone: ZoneInfo, first: date, last: date, at: time) -> None:
    """Compare each run of a daily job from one day to another."""
    schedule = Cron(expression=f"{at.minute} {at.hour} * * *", timezone=zone.key)
    days = [first + DAY * number for number in range((last - first).days + 1)]
    wanted = sorted({expected(zone, day, at) for day in days})
    found = [wanted[0]]
    while len(found) < len(wanted):
        slot = next_slot(schedule, found[-1], timezone=zone)
        assert slot is not None
        found.append(slot)
    assert found == wanted, (zone.key, at)
    before = next_slot(schedule, wanted[0] - timedelta(seconds=1), timezone=zone)
    assert before == wanted[0]


@pytest.mark.parametrize("key", FEW)
def test_each_half_hour_has_one_run_on_the_days_around_each_change(key: str) -> None:
    zone = ZoneInfo(key)
    for change in clock_changes(zone, date(2023, 6, 1), date(2024, 12, 31)):
        day = change.before.date()
        for minutes in range(0, 24 * 60, 30):
            check(zone, day - DAY, day + DAY, time(minutes // 60, minutes % 60))


@pytest.mark.parametrize("key", FEW)
def test_each_day_of_a_year_has_one_run(key: str) -> None:
    check(ZoneInfo(key), date(2024, 1, 1), date(2024, 12, 31), time(2, 30))


def test_a_date_that_a_zone_skips_runs_at_the_beginning_of_the_next(  # nothing else is left of it
) -> None:
    zone = ZoneInfo("Pacific/Apia")  # has no 30 December 2011
    assert expected(zone, date(2011, 12, 30), time(10)) == datetime(2011, 12, 30, 10, tzinfo=UTC)
    check(zone, date(2011, 12, 28), date(2012, 1, 2), time(10))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("key", ZONES)
def test_each_planned_time_of_ten_years_has_one_run(key: str) -> None:
    zone = ZoneInfo(key)
    for at in LONG_TIMES:
        check(zone, FIRST, LAST, at)
    for change in clock_changes(zone, FIRST, LAST):
        day = change.before.date()
        for minutes in range(0, 24 * 60, 15):
            check(zone, day - DAY, day + DAY, time(minutes // 60, minutes % 60))


@pytest.mark.long
def test_the_table_in_the_readme_is_that_of_the_simulation() -> None:
    assert render_table() in README.read_text("utf-8")


def render_table() -> str:
    """Return the clock changes of all zones, and a job on the last of each kind."""
    rows = [
        "| zone | changes | last gap | a job at | runs at | last repetition | a job at | runs at |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for key in sorted(ZONES):
        zone = ZoneInfo(key)
        changes = list(clock_changes(zone, FIRST, LAST))
        gaps = [change for change in changes if change.is_gap]
        repetitions = [change for change in changes if not change.is_gap]
        cells = [*_example(zone, gaps), *_example(zone, repetitions)]
        rows.append(f"| {key} | {len(changes)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _example(zone: ZoneInfo, changes: list[Change]) -> tuple[str, str, str]:
    if not changes:
        return "none", "", ""
    change = changes[-1]
    first, last = sorted((change.before, change.after))
    planned = first + (last - first) / 2
    run = expected(zone, planned.date(), planned.time()).astimezone(zone)
    when = f"{run:%H:%M}" if run.date() == planned.date() else f"{run:%H:%M on %d %b}"
    if not change.is_gap:
        when += ", the first time"
    return f"{planned:%d %b %Y}, {first:%H:%M} to {last:%H:%M}", f"{planned:%H:%M}", when


if __name__ == "__main__":
    print(render_table())  # noqa: T201 - for the README
