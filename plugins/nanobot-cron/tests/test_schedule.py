"""When jobs are due: expressions, zones, clock changes."""

from __future__ import annotations

import string
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from nanobot_cron.job import At, Cron, Every
from nanobot_cron.schedule import (
    ScheduleInvalid,
    describe,
    find_zone,
    last_slot,
    next_slot,
    parse_cron,
    upcoming,
)

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
NOW = datetime(2026, 11, 23, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("0 7 * *", "has 4 fields; write five"),
        ("* * * * * *", "seconds are not supported"),
        ("0 0 31 2 *", "no month has such a day"),
        ("0 0 30 2 *", "no month has such a day"),
        ("61 * * * *", "invalid in the field minute"),
        ("0 24 * * *", "invalid in the field hour"),
        ("0 0 * * 8", "invalid in the field day of the week"),
        ("0 0 * 13 *", "invalid in the field month"),
        ("*/0 * * * *", "invalid in the field minute"),
        ("5-1 * * * *", "invalid in the field minute"),
        ("0 0 ? * *", "invalid"),
        ("0 0 1W * *", "invalid"),
        ("0 0 L-2 * *", "invalid"),
        ("0 0 ² * *", "invalid"),
        ("", "has 0 fields"),
        ("@dialy", "write one of @annually"),
        ("@reboot", "is not supported"),
        ("@every 5m", "give it as seconds"),
        (f"{'1,' * 5_000}1 * * * *", "too long"),
        (f"{'9' * 150} * * * *", "invalid in the field minute"),
    ],
)
def test_an_expression_that_cannot_work_is_refused_with_the_reason(
    expression: str, reason: str
) -> None:
    with pytest.raises(ScheduleInvalid) as caught:
        parse_cron(expression)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("berlin", "Europe/Berlin"),
        ("", "such as Europe/Berlin"),
        ("../../etc/passwd", "such as Europe/Berlin"),
        ("x" * 5_000, "such as Europe/Berlin"),
        ("Europe\0Berlin", "Europe/Berlin"),
    ],
)
def test_an_unknown_zone_names_near_ones(name: str, hint: str) -> None:
    with pytest.raises(ScheduleInvalid) as caught:
        find_zone(name)
    assert hint in str(caught.value)
    assert len(str(caught.value)) < 300


@given(st.text(alphabet=string.printable + "²½ÄL", max_size=30))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        schedule = parse_cron(text)
    except ScheduleInvalid:
        return
    assert next_slot(schedule, NOW, timezone=BERLIN) is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 7 * * mon-fri", "every weekday at 07:00 (Europe/Berlin)"),
        ("@daily", "every day at 00:00 (Europe/Berlin)"),
        ("30 7,19 * * sat,sun", "every Saturday and Sunday at 07:30 and 19:30 (Europe/Berlin)"),
        ("0 9 * * 7", "every Sunday at 09:00 (Europe/Berlin)"),
        ("*/5 * * * *", "every 5 minutes (Europe/Berlin)"),
        ("*/5 * * * mon", "every 5 minutes, every Monday (Europe/Berlin)"),
        ("*/7 * * * *", "at '*/7 * * * *' (Europe/Berlin)"),
        ("15 * * * *", "every hour at minute 15 (Europe/Berlin)"),
        ("0 */6 * * *", "every 6 hours (Europe/Berlin)"),
        ("0 0 1,15 * *", "on day 1 and 15 of each month at 00:00 (Europe/Berlin)"),
        ("0 0 25 dec *", "on 25 December at 00:00 (Europe/Berlin)"),
        ("0 0 L * *", "at '0 0 L * *' (Europe/Berlin)"),
        ("0 9 * * mon#1", "at '0 9 * * mon#1' (Europe/Berlin)"),
    ],
)
def test_expressions_are_described_in_words(text: str, words: str) -> None:
    assert describe(parse_cron(text), BERLIN) == words


def test_times_and_intervals_are_described_in_words() -> None:
    assert describe(At(at=NOW), BERLIN) == "once on Mon 23 Nov 2026 at 10:00 (Europe/Berlin)"
    lengths = {60: "minute", 5_400: "90 minutes", 86_400: "day", 90: "90 seconds"}
    for seconds, words in lengths.items():
        assert describe(Every(seconds=seconds, anchor=NOW), BERLIN) == f"every {words}"


@pytest.mark.parametrize(
    ("expression", "day", "times"),
    [
        ("30 2 * * *", "2026-03-08", ["03:00 EDT"]),
        ("15,45 2 * * *", "2026-03-08", ["03:00 EDT"]),
        ("*/30 2 * * *", "2026-03-08", ["03:00 EDT"]),
        ("30 2,3 * * *", "2026-03-08", ["03:00 EDT", "03:30 EDT"]),
        ("30 1 * * *", "2026-11-01", ["01:30 EDT"]),
        ("*/30 1 * * *", "2026-11-01", ["01:00 EDT", "01:30 EDT"]),
        ("* 1 * * *", "2026-11-01", [f"01:{minute:02} EDT" for minute in range(60)]),
        ("0 0-3 * * *", "2026-11-01", ["00:00 EDT", "01:00 EDT", "02:00 EST", "03:00 EST"]),
    ],
)
def test_a_fixed_time_runs_once_on_a_day_with_a_clock_change(
    expression: str, day: str, times: list[str]
) -> None:
    start = datetime.fromisoformat(day).replace(tzinfo=NEW_YORK)
    end, found = start + timedelta(days=1), list[str]()
    schedule, after = parse_cron(expression), start - timedelta(seconds=1)
    while (slot := next_slot(schedule, after, timezone=NEW_YORK)) and slot < end:
        assert slot > after
        found.append(f"{slot.astimezone(NEW_YORK):%H:%M %Z}")
        after = slot
    assert found == times


def test_an_interval_runs_by_elapsed_time_on_such_a_day() -> None:
    start = datetime(2026, 11, 1, tzinfo=NEW_YORK)
    hourly = upcoming(parse_cron("0 * * * *"), start, 25, timezone=NEW_YORK)
    assert {later - sooner for sooner, later in pairwise(hourly)} == {timedelta(hours=1)}


def test_no_time_in_the_past_is_returned_in_the_second_pass_of_an_hour() -> None:
    schedule = parse_cron("30 1 * * *")
    for minutes in range(0, 36 * 60, 7):
        after = datetime(2026, 10, 31, 20, tzinfo=UTC) + timedelta(minutes=minutes)
        slot = next_slot(schedule, after, timezone=NEW_YORK)
        assert slot is not None
        assert after < slot <= after + timedelta(hours=25)


def test_a_date_that_exists_every_four_years_is_found() -> None:
    (first, second) = upcoming(parse_cron("0 0 29 2 *"), NOW, 2, timezone=BERLIN)
    assert (first.year, second.year) == (2028, 2032)


zones = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Nuuk"]
).map(ZoneInfo)
instants = st.datetimes(
    min_value=datetime.fromisoformat("2020-01-01"),
    max_value=datetime.fromisoformat("2030-01-01"),
    timezones=st.just(UTC),
)
minutes = st.sampled_from(["*", "*/5", "0", "30", "7,19", "10-20"])
hours = st.sampled_from(["*", "*/2", "1", "2", "0,12", "22-23"])
days = st.sampled_from(["*", "1", "*/3", "31"])
weekdays = st.sampled_from(["*", "mon-fri", "7"])
expressions = st.builds("{} {} {} * {}".format, minutes, hours, days, weekdays)
schedules = st.one_of(
    st.builds(Every, seconds=st.floats(1, 1e7), anchor=instants),
    expressions.map(lambda text: Cron(expression=text)),
    st.builds(At, at=instants),
)


@settings(deadline=None)
@given(schedules, instants, zones)
def test_the_next_time_is_later_and_none_lies_between(
    schedule: Cron | Every | At, after: datetime, zone: ZoneInfo
) -> None:
    slot = next_slot(schedule, after, timezone=zone)
    if slot is None:
        assert isinstance(schedule, At)
        return
    assert slot > after
    middle = after + (slot - after) / 2
    assert next_slot(schedule, middle, timezone=zone) == slot
    assert next_slot(schedule, slot - timedelta(microseconds=1), timezone=zone) == slot


@settings(deadline=None)
@given(schedules, instants, st.integers(0, 20_000), zones)
def test_the_last_time_of_a_span_is_the_one_that_steps_find(
    schedule: Cron | Every | At, since: datetime, seconds: int, zone: ZoneInfo
) -> None:
    until = since + timedelta(seconds=seconds)
    expected, after = None, since - timedelta(microseconds=1)
    while (slot := next_slot(schedule, after, timezone=zone)) and slot <= until:
        expected = after = slot
    assert last_slot(schedule, since, until, timezone=zone) == expected
