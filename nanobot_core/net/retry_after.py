"""``Retry-After``: how long a service asks to wait."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def retry_after_s(value: str, now: datetime) -> float | None:
    """Return the seconds that a ``Retry-After`` asks for, or ``None`` where it makes no sense.

    Args:
        value: of the header: seconds or a date (RFC 9110, section 10.2.3).
        now: the current instant, aware.
    """
    try:
        seconds = float(value)
    except ValueError:
        seconds = _seconds_until(value, now)
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _seconds_until(date: str, now: datetime) -> float:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return math.nan
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - now).total_seconds()
