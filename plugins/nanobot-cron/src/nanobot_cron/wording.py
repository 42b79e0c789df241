"""Expressions in words, for the shapes that people use most."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nanobot_core import shorten

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
_DAY_NAMES = {name[:3].upper(): number for number, name in enumerate(_DAYS)}
_MONTH_NAMES = {name[:3].upper(): number for number, name in enumerate(_MONTHS, start=1)}
_WEEKDAYS = {1, 2, 3, 4, 5}
_MAX_TIMES = 4
_MAX_DAY = 7
_MAX_CODE_CHARS = 200


def join(words: Sequence[str], last: str) -> str:
    """Return words as an enumeration: ``a, b or c``."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def as_code(text: str) -> str:
    """Return what a person wrote as code, on one line, so that it cannot look like other text."""
    line = shorten(text.replace("`", "'"), _MAX_CODE_CHARS)
    return f"`{''.join(filter(str.isprintable, line))}`"


def describe_cron(expression: str) -> str:
    """Return an expression in words, or itself if words would be longer than useful."""
    minute, hour, day, month, weekday = expression.upper().split()
    when = _describe_time(minute, hour)
    days = _describe_days(day, month, weekday)
    if when is None or days is None:
        return f"at '{expression}'"
    if when.startswith("every"):
        return when if days == "every day" else f"{when}, {days}"
    return f"{days} {when}"


def _describe_time(minute: str, hour: str) -> str | None:
    if hour == "*":
        if minute == "*":
            return "every minute"
        if step := re.fullmatch(r"\*/(\d{1,2})", minute):
            return f"every {step[1]} minutes" if 60 % int(step[1]) == 0 else None
        if minute == "0":
            return "every hour"
        return f"every hour at minute {minute}" if minute.isdigit() else None
    if minute == "0" and (step := re.fullmatch(r"\*/(\d{1,2})", hour)):
        return f"every {step[1]} hours" if 24 % int(step[1]) == 0 else None
    minutes, hours = _numbers(minute), _numbers(hour)
    if not minutes or not hours or len(minutes) * len(hours) > _MAX_TIMES:
        return None
    times = [f"{each:02}:{minute:02}" for each in hours for minute in minutes]
    return f"at {join(times, 'and')}"


def _describe_days(day: str, month: str, weekday: str) -> str | None:
    if day == month == weekday == "*":
        return "every day"
    if day == month == "*":
        return _describe_weekdays(weekday)
    if weekday != "*" or not (days := _numbers(day)) or len(days) > _MAX_TIMES:
        return None
    if month == "*":
        return f"on day {join([str(each) for each in days], 'and')} of each month"
    months = _numbers(month, _MONTH_NAMES)
    if not months or len(days) > 1:
        return None
    return f"on {days[0]} {join([_MONTHS[each - 1] for each in months], 'and')}"


def _describe_weekdays(field: str) -> str | None:
    days = {each % _MAX_DAY for each in _numbers(field, _DAY_NAMES)}
    if not days:
        return None
    if days == _WEEKDAYS:
        return "every weekday"
    # Weeks begin on Monday in words, and on Sunday in expressions.
    ordered = sorted(days, key=lambda each: (each - 1) % _MAX_DAY)
    return f"every {join([_DAYS[each] for each in ordered], 'and')}"


def _numbers(field: str, names: dict[str, int] | None = None) -> list[int]:
    """Return the numbers of a list of numbers and ranges; nothing if it has other parts."""
    found: list[int] = []
    for part in field.split(","):
        first, _, last = part.partition("-")
        ends = [_number(end, names or {}) for end in (first, last or first)]
        if min(ends) < 0:
            return []
        found += range(ends[0], ends[1] + 1)
    return sorted(set(found))


def _number(text: str, names: dict[str, int]) -> int:
    return int(text) if text.isdecimal() else names.get(text, -1)
