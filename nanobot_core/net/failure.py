"""For plugins that call a service: httpx's exceptions as our errors, and ``Retry-After``."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from nanobot_core.errors import (
    BadRequest,
    ProviderError,
    ProviderProtocolError,
    ProviderTimeout,
    Unreachable,
)

# From the special to the general; the first match counts. httpx.HTTPStatusError comes only from
# `raise_for_status`, and httpx.StreamError means that the client was closed during a call.
_KINDS: tuple[tuple[type[Exception], type[ProviderError], str], ...] = (
    (httpx.TimeoutException, ProviderTimeout, "it did not answer within its time"),
    (httpx.ConnectError, Unreachable, "no connection could be made"),
    (httpx.ProxyError, Unreachable, "the proxy gave no connection"),
    (httpx.NetworkError, Unreachable, "the connection broke"),
    (httpx.RemoteProtocolError, Unreachable, "the connection ended early or does not speak HTTP"),
    (httpx.LocalProtocolError, BadRequest, "the request cannot be sent as HTTP"),
    (httpx.UnsupportedProtocol, BadRequest, "the address is not http or https; correct api_base"),
    (httpx.InvalidURL, BadRequest, "the address is not valid; correct api_base"),
    (httpx.StreamError, Unreachable, "the connection was closed during the call"),
    (httpx.HTTPError, ProviderProtocolError, "the answer cannot be read"),
    (httpx.CookieConflict, ProviderProtocolError, "the answer cannot be read"),
)

HTTPX_ERRORS: tuple[type[Exception], ...] = tuple(kind for kind, _, _ in _KINDS)
"""All exceptions that a request through httpx may raise."""


def failure_of(error: Exception) -> tuple[type[ProviderError], str]:
    """Return the class of our error for one of `HTTPX_ERRORS`, and what happened in a few words."""
    kind, reason = next((ours, said) for theirs, ours, said in _KINDS if isinstance(error, theirs))
    return kind, f"{reason} ({type(error).__name__})"


def retry_after_s(value: str, now: datetime) -> float | None:
    """Return the seconds that a ``Retry-After`` asks for, or ``None`` if it is not valid.

    Args:
        value: of the header: seconds or a date (RFC 9110, section 10.2.3).
        now: aware.
    """
    try:
        seconds = float(value)
    except ValueError:
        seconds = _seconds_until(value, now)
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _seconds_until(date: str, now: datetime) -> float:
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, OverflowError):  # the offset from UTC can be any number
        return math.nan
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - now).total_seconds()
