"""When a job is due: pure functions of schedules and instants."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from nanobot_cron.job import Cron, Schedule


class ScheduleInvalid(ValueError):
    """A time, an expression or a zone that cannot be used; the message says what to write."""


def parse_cron(expression: str, timezone: str = "") -> Cron:
    """Return the schedule of an expression.

    Args:
        expression: five fields, or a name such as ``@daily``, which is expanded.
        timezone: IANA name; empty means the owner's zone.

    Raises:
        ScheduleInvalid: it has no five fields, never matches, or the zone is unknown.
    """
    raise NotImplementedError


def find_zone(name: str) -> ZoneInfo:
    """Return the time zone of an IANA name.

    Raises:
        ScheduleInvalid: it is unknown; the message lists near names.
    """
    raise NotImplementedError


def next_slot(schedule: Schedule, after: datetime, *, timezone: ZoneInfo) -> datetime | None:
    """Return when a job is due next, later than `after`, in UTC; ``None`` if never.

    Args:
        schedule: of the job.
        after: an aware instant.
        timezone: the owner's, for expressions without one.
    """
    raise NotImplementedError


def upcoming(schedule: Schedule, after: datetime, n: int, *, timezone: ZoneInfo) -> list[datetime]:
    """Return the next `n` times at which a job is due, in UTC."""
    raise NotImplementedError


def describe(schedule: Schedule, timezone: ZoneInfo) -> str:
    """Return a schedule in words, such as ``every weekday at 07:00 (Europe/Berlin)``."""
    raise NotImplementedError
