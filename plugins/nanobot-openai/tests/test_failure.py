"""What services say when they refuse, as typed errors."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from nanobot_core import (
    AuthenticationFailed,
    BadRequest,
    ContextTooLong,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
)
from nanobot_core.providers import FailureReader
from nanobot_core.testing import FakeClock
from nanobot_openai.words import WORDS

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READER = FailureReader(
    provider="vendor",
    key_hint="set the key",
    secrets=("sk-canary",),
    clock=FakeClock(NOW),
    words=WORDS,
)


def _error(status: int, body: object = None, **headers: str) -> ProviderError:
    return READER.from_status(status, headers, json.dumps(body).encode() if body else b"")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (301, BadRequest),
        (400, BadRequest),
        (401, AuthenticationFailed),
        (402, AuthenticationFailed),
        (403, AuthenticationFailed),
        (404, BadRequest),
        (408, ProviderTimeout),
        (413, ContextTooLong),
        (422, BadRequest),
        (429, RateLimited),
        (500, Overloaded),
        (502, Overloaded),
        (503, Overloaded),
        (529, Overloaded),
    ],
)
def test_each_status_has_its_type(status: int, expected: type[ProviderError]) -> None:
    error = _error(status)
    assert type(error) is expected
    assert error.status == status


@given(st.integers(201, 599), st.binary(max_size=60))
def test_no_status_or_body_raises(status: int, body: bytes) -> None:
    assert READER.from_status(status, {}, body).provider == "vendor"


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "m", "code": "context_length_exceeded"}},
        {"error": {"message": "m", "type": "exceed_context_size_error", "code": 400}},
        {"error": {"message": "Prompt too long", "code": "1261"}},
        {"object": "error", "message": "This model's maximum context length is 8 tokens."},
        [{"error": {"message": "The input token count exceeds the maximum number of tokens"}}],
        {"message": "Prompt contains 9 tokens, too large for model with 8 maximum context"},
        {"error": "the input length exceeds the context length"},
    ],
)
def test_a_prompt_that_is_too_long_is_reported_in_every_vendors_form(body: object) -> None:
    assert type(_error(400, body)) is ContextTooLong


def test_the_words_for_a_long_prompt_decide_nothing_about_other_statuses() -> None:
    body = {"error": {"message": "see maximum context length in the guide"}}
    assert type(_error(429, body)) is RateLimited
    assert type(_error(500, body)) is Overloaded


def test_an_account_without_credit_is_not_waited_for() -> None:
    error = _error(429, {"error": {"message": "quota", "code": "insufficient_quota"}})
    assert type(error) is AuthenticationFailed
    assert "no credit" in str(error)
    assert "no credit" in str(_error(402, {"error": {"message": "Insufficient Balance"}}))


def test_refused_credentials_name_the_setting_and_repeat_nothing_of_the_key() -> None:
    body = {
        "error": {"message": "Incorrect API key provided: sk-can***", "code": "invalid_api_key"}
    }
    text = str(_error(401, body))
    assert "set the key" in text
    assert "invalid_api_key" in text
    assert "sk-can" not in text


def test_a_missing_path_points_to_model_and_base() -> None:
    text = str(_error(404, {"error": {"message": "The model `x` does not exist"}}))
    assert "The model `x` does not exist" in text
    assert "api_base" in text


def test_the_services_message_is_shortened_and_free_of_secrets() -> None:
    text = str(_error(400, {"error": {"message": f"sent sk-canary {'x' * 1_000}"}}))
    assert "sk-canary" not in text
    assert "[secret]" in text
    assert len(text) < 500


def test_the_services_message_cannot_control_a_terminal() -> None:
    text = str(_error(400, {"error": {"message": "a\x1b]0;b\x07\r\nc\u202e"}}))
    assert text.isprintable()


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"error": {"code": 502, "message": "upstream"}}, Overloaded),
        ({"error": {"code": 429, "message": "slow down"}}, RateLimited),
        ({"error": {"code": 401}}, AuthenticationFailed),
        ({"error": {"code": "rate_limit_exceeded"}}, RateLimited),
        ({"error": {"type": "invalid_request_error"}}, BadRequest),
        ({"error": {"type": "invalid_request_error", "code": "1261"}}, ContextTooLong),
        ({"error": {"code": "insufficient_quota"}}, AuthenticationFailed),
        ({"error": {"status": "RESOURCE_EXHAUSTED"}}, RateLimited),
        ({"error": {"type": "server_error"}}, Overloaded),
        ({"error": "unknown"}, Overloaded),
        ({"error": ["unknown"]}, Overloaded),
        ({"base_resp": {"status_code": 1004, "status_msg": "login fail"}}, AuthenticationFailed),
        ({"base_resp": {"status_code": 1002}}, RateLimited),
        ({"object": "error", "message": "m", "code": 400}, BadRequest),
    ],
)
def test_errors_inside_an_answer_have_their_type(
    payload: object, expected: type[ProviderError]
) -> None:
    assert type(READER.from_payload(payload)) is expected


@pytest.mark.parametrize(
    "payload",
    [{"choices": []}, {"error": None}, {"base_resp": {"status_code": 0}}, [], None, "error"],
)
def test_what_reports_no_error_is_none(payload: object) -> None:
    assert READER.from_payload(payload) is None


def test_an_error_event_without_content_is_a_failure_of_the_service() -> None:
    assert type(READER.from_error(None)) is Overloaded


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:20 GMT"}, 20.0),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:20 -0000"}, 20.0),
        ({"retry-after": "Wed, 31 Dec 2025 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
    ],
)
def test_the_time_to_wait_is_read_in_every_form(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert _error(503, None, **headers).retry_after_s == seconds


@pytest.mark.parametrize(
    ("status", "header", "retryable"),
    [
        (500, None, True),
        (500, "false", False),
        (429, " False ", False),
        (409, "true", True),
        (400, "maybe", False),
        (400, "", False),
    ],
)
def test_the_service_may_say_whether_to_try_again(
    status: int, header: str | None, retryable: bool
) -> None:
    headers = {} if header is None else {"x-should-retry": header}
    assert READER.from_status(status, headers, b"").retryable is retryable
