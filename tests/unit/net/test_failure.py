"""What httpx raises becomes an error of ours; how long a service asks to wait is read."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest

from nanobot_core import ProviderError
from nanobot_core.net import HTTPX_ERRORS, failure_of, retry_after_s

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _tree(kind: type[Exception]) -> list[type[Exception]]:
    return [kind, *(found for below in kind.__subclasses__() for found in _tree(below))]


@pytest.mark.parametrize(
    "kind",
    [*_tree(httpx.HTTPError), *_tree(httpx.StreamError), httpx.InvalidURL, httpx.CookieConflict],
)
def test_every_error_of_the_http_library_has_one_of_ours(kind: type[Exception]) -> None:
    error = kind.__new__(kind, "canary")
    Exception.__init__(error, "canary")

    ours, reason = failure_of(error)

    assert issubclass(kind, HTTPX_ERRORS)
    assert issubclass(ours, ProviderError)
    assert kind.__name__ in reason
    assert "canary" not in reason


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("1.5", 1.5),
        ("-3", 0.0),
        ("1e9", 1e9),
        ("inf", None),
        ("nan", None),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60.0),
        ("Thu, 01 Jan 2026 00:01:00 -0000", 60.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Thu, 99 Foo", None),
        ("Thu, 01 Jan 2026 00:01:00 +99999999999999", None),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_is_read_in_both_forms(value: str, seconds: float | None) -> None:
    assert retry_after_s(value, NOW) == seconds
