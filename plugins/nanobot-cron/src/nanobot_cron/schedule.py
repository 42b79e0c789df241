"""When a job is due: pure functions of schedules and instants."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from nanobot_cron.expression import (
    ScheduleInvalid as ScheduleInvalid,
    check_cron,
    expand,
    find_zone as find_zone,
    next_match,
)
from nanobot_cron.job import At, Cron, Every, On, Schedule
from nanobot_cron.wording import describe_cron

LAST_YEAR = 9_000
"""Instants beyond it are not computed: local times near the year 9999 overflow."""
_MICROSECOND = timedelta(microseconds=1)


def parse_cron(expression: str, timezone: str = "") -> Cron:
    """Return the schedule of an expression.

    Args:
        expression: five fields, or a name such as ``@daily``, which is expanded.
        timezone: IANA name; empty means the owner's zone.

    Raises:
        ScheduleInvalid: it has no five fields, never matches, or the zone is unknown.
    """
    text = expand(" ".join(expression.split()))
    check_cron(text, timezone)
    return Cron(expression=text, timezone=timezone)


def next_slot(schedule: Schedule, after: datetime, *, timezone: ZoneInfo) -> datetime | None:
    """Return when a job is due next, later than `after`, in UTC; ``None`` if never.

    Args:
        schedule: of the job.
        after: an aware instant.
        timezone: the owner's, for expressions without one.
    """
    if isinstance(schedule, At):
        return schedule.at if schedule.at > after else None
    if isinstance(schedule, On) or after.year > LAST_YEAR:
        return None
    if isinstance(schedule, Every):
        # In both directions from the anchor: a clock that is set back must not stop the job.
        interval = timedelta(seconds=schedule.seconds)
        return schedule.anchor + interval * ((after - schedule.anchor) // interval + 1)
    zone = ZoneInfo(schedule.timezone) if schedule.timezone else timezone
    return next_match(schedule.expression, after, zone)


def upcoming(schedule: Schedule, after: datetime, n: int, *, timezone: ZoneInfo) -> list[datetime]:
    """Return the next `n` times at which a job is due, in UTC."""
    found: list[datetime] = []
    while len(found) < n and (slot := next_slot(schedule, after, timezone=timezone)):
        found.append(slot)
        after = slot
    return found


def last_slot(
    schedule: Schedule, since: datetime, until: datetime, *, timezone: ZoneInfo
) -> datetime | None:
    """Return the last time from `since` to `until`, both included, at which a job is due."""
    span = timedelta(minutes=2)
    while True:  # a longer span is searched only if the shorter one before the end is empty
        start = max(since, until - span)
        slot = next_slot(schedule, start - _MICROSECOND, timezone=timezone)
        if slot is not None and slot <= until:
            break
        if start == since:
            return None
        span *= 2
    while (later := next_slot(schedule, slot, timezone=timezone)) and later <= until:
        slot = later
    return slot


def describe(schedule: Schedule, timezone: ZoneInfo) -> str:
    """Return a schedule in words, such as ``every weekday at 07:00 (Europe/Berlin)``."""
    if isinstance(schedule, At):
        local = schedule.at.astimezone(timezone)
        return f"once on {local:%a %d %b %Y at %H:%M} ({timezone.key})"
    if isinstance(schedule, Every):
        return f"every {describe_interval(schedule.seconds)}"
    if isinstance(schedule, On):
        return f"on '{schedule.trigger}'"
    return f"{describe_cron(schedule.expression)} ({schedule.timezone or timezone.key})"


def describe_interval(seconds: float) -> str:
    """Return a time in words that follow "every", such as ``2 hours`` or ``minute``."""
    for unit, length in (("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length and seconds % length == 0:
            count = int(seconds // length)
            return unit if count == 1 else f"{count} {unit}s"
    return "second" if seconds == 1 else f"{seconds:g} seconds"
