"""Expressions as in crontab(5): checked, expanded, and their next time."""

from __future__ import annotations

from datetime import UTC, datetime
from difflib import get_close_matches
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from nanobot_cron.wording import join

MAX_EXPRESSION_CHARS = 200
_NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = "minute, hour, day of the month, month, day of the week"
_SYNTAX_ERRORS = (CronSimError, ValueError, AssertionError, KeyError)
"""What the library raises for texts that are not expressions."""


class ScheduleInvalid(ValueError):
    """A time, an expression or a zone that cannot be used; the message says what to write."""


@lru_cache(maxsize=4_096)
def check_cron(expression: str, timezone: str) -> None:
    """Check an expression of five fields, and the name of a time zone.

    Raises:
        ScheduleInvalid: see `parse_cron`.
    """
    if len(expression) > MAX_EXPRESSION_CHARS:
        msg = f"the expression is too long: at most {MAX_EXPRESSION_CHARS} characters are used"
        raise ScheduleInvalid(msg)
    count = len(expression.split())
    if count != 5:
        fields = f"{count} field" + ("s" if count != 1 else "")
        extra = "; seconds are not supported" if count == 6 else ""
        msg = (
            f"'{expression}' has {fields}; write five: {_FIELDS}, for example "
            f"'0 7 * * mon-fri'{extra}"
        )
        raise ScheduleInvalid(msg)
    if timezone:
        find_zone(timezone)
    _check_syntax(expression)


def find_zone(name: str) -> ZoneInfo:
    """Return the time zone of an IANA name.

    Raises:
        ScheduleInvalid: it is unknown; the message lists near names.
    """
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # which one depends on the text
        pass
    known = available_timezones()
    near = get_close_matches(name, known, n=3) or sorted(
        zone for zone in known if name.casefold() in zone.casefold() and name
    )
    hint = f"did you mean {join(near[:3], 'or')}?" if near else "write one such as Europe/Berlin"
    msg = f"the time zone '{name[:100]}' is unknown; {hint}"
    raise ScheduleInvalid(msg)


def expand(text: str) -> str:
    """Return the expression for a name such as ``@daily``, and any other text as it is.

    Raises:
        ScheduleInvalid: it begins with an at sign and is unknown.
    """
    if not text.startswith("@"):
        return text
    if expression := _NAMES.get(text.lower()):
        return expression
    if text.lower() == "@reboot":
        msg = "'@reboot' is not supported; use a time, an interval or an event"
    elif text.lower().startswith("@every"):
        msg = f"'{text[:50]}' is an interval; give it as seconds instead of an expression"
    else:
        msg = f"'{text[:50]}' is unknown; write one of {join(sorted(_NAMES), 'or')}"
    raise ScheduleInvalid(msg)


def next_match(expression: str, after: datetime, zone: ZoneInfo) -> datetime | None:
    """Return the first time later than `after` that matches, in UTC; ``None`` if none does."""
    times = CronSim(_with_fixed_minutes(expression), after.astimezone(zone))
    try:
        while True:
            found = next(times).astimezone(UTC)
            # In the second pass of a repeated hour, the library begins with times of the first.
            if found > after:
                return found
    except (StopIteration, OverflowError):
        return None


def _check_syntax(text: str) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    try:
        next(CronSim(text, start))
    except (StopIteration, OverflowError):
        msg = f"'{text}' never matches: no such date exists"
        raise ScheduleInvalid(msg) from None
    except _SYNTAX_ERRORS as error:
        reason = str(error).removeprefix("Bad ")
        field = reason if reason in _FIELDS.replace(" of the ", "-of-") else ""
        raise ScheduleInvalid(_syntax_message(text, field)) from None


def _syntax_message(text: str, field: str) -> str:
    where = f"in the field {field.replace('-of-', ' of the ')}" if field else "in the expression"
    if field == "day-of-month":
        where += ", or no month has such a day"
    return (
        f"'{text}' is invalid {where}; use numbers, names (mon, jan), '*', ranges (1-5), lists "
        "(1,15) and steps (*/10)"
    )


def _with_fixed_minutes(expression: str) -> str:
    """Return the expression with a list of minutes if it has fixed hours.

    The library moves times that do not exist, and leaves out those that occur twice, only if
    neither minute nor hour begins with a star. In a fixed hour, ``*/30`` means two fixed times.
    """
    minute, hour, *rest = expression.split()
    if not minute.startswith("*") or hour.startswith("*"):
        return expression
    probe = CronSim(f"{minute} * * * *", datetime(2024, 1, 1, tzinfo=UTC))
    minutes = ",".join(map(str, sorted(probe.minutes)))
    return " ".join((minutes, hour, *rest))
