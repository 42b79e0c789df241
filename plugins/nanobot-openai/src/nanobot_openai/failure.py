"""Refusals of a service: status, headers and error objects → typed errors.

Decisions follow the status and the vendor's codes. Where a vendor gives neither for a prompt that
is too long, its documented sentence decides; those sentences are in one table here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from nanobot_core import (
    AuthenticationFailed,
    BadRequest,
    Clock,
    ContextTooLong,
    Overloaded,
    ProviderError,
    ProviderProtocolError,
    ProviderTimeout,
    RateLimited,
    shorten,
)

_MESSAGE_LIMIT_CHARS = 300
_SHOULD_RETRY = {"true": True, "false": False}
_TOO_LONG_CODES = frozenset(
    {
        "context_length_exceeded",  # OpenAI, Groq, DeepSeek, Azure
        "exceed_context_size_error",  # llama.cpp
        "1261",  # Zhipu
        "1039",  # MiniMax
    }
)
_TOO_LONG_SENTENCES = (
    ("vllm, openrouter, siliconflow", "maximum context length"),
    ("moonshot", "exceeded model token limit"),
    ("gemini", "exceeds the maximum number of tokens"),
    ("xai", "maximum prompt length"),
    ("mistral", "too large for model with"),
    ("dashscope", "range of input length"),
    ("ollama", "exceeds the context length"),
    ("minimax", "context window exceeds limit"),
)
"""(vendor, part of its message in lower case) where no code says that a prompt is too long."""

_NO_CREDIT_CODES = frozenset({"insufficient_quota", "insufficient_balance", "1113", "1008"})
"""OpenAI and others, DeepSeek, Zhipu, MiniMax: waiting does not help, the owner must pay."""

_CLASS_BY_CODE: Mapping[str, type[ProviderError]] = {
    "invalid_api_key": AuthenticationFailed,
    "authentication_error": AuthenticationFailed,
    "permission_error": AuthenticationFailed,
    "1004": AuthenticationFailed,  # MiniMax
    "rate_limit_exceeded": RateLimited,
    "rate_limit_error": RateLimited,
    "rate_limit_reached_error": RateLimited,
    "resource_exhausted": RateLimited,
    "1002": RateLimited,  # MiniMax
    "1302": RateLimited,  # Zhipu
    "invalid_request_error": BadRequest,
    "invalid_argument": BadRequest,
    "2013": BadRequest,  # MiniMax
    "timeout": ProviderTimeout,
}
"""For errors that come with a status of 200; what is not named is a failure of the service."""


@dataclass(frozen=True, slots=True)
class _Told:
    """The content of an error body."""

    message: str = ""
    codes: frozenset[str] = frozenset()
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReader:
    """Turns what one service says into typed errors without any secret in them.

    Attributes:
        provider: name of the provider.
        key_hint: where its key is set, for the error about credentials.
        secrets: texts that must not appear in an error.
        clock: for dates in ``Retry-After``.
    """

    provider: str
    key_hint: str
    secrets: tuple[str, ...]
    clock: Clock

    def from_status(self, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """Return the error for a response with `status`, which is not 200.

        Args:
            headers: names in lower case.
            body: its beginning; it may be cut or be no JSON.
        """
        told = replace(_read(_parse(body)), status=status)
        found = _class_of_status(status, told)
        reason = f"HTTP {status}{self._quote(told)}"
        if found is AuthenticationFailed:
            reason = self._refused_credentials(f"HTTP {status}", told)
        elif status == 404:
            reason += "; check the model's name and api_base"
        elif 300 <= status < 400:
            reason += ": it answers from another address; correct api_base"
        return found(
            self.provider,
            reason,
            status=status,
            retry_after_s=retry_after_s(headers, self.clock.now()),
            # OpenAI's own clients obey it.
            retryable=_SHOULD_RETRY.get(headers.get("x-should-retry", "").strip().lower()),
        )

    def from_payload(self, payload: object) -> ProviderError | None:
        """Return the error that a JSON answer of status 200 reports, or ``None``."""
        if not isinstance(payload, dict) or not (
            payload.get("error") or _base_status(payload) or payload.get("object") == "error"
        ):
            return None
        return self.from_error(payload)

    def from_error(self, payload: object) -> ProviderError:
        """Return the error for an error object in an answer of status 200."""
        told = _read(payload)
        if told.status is not None:
            found = _class_of_status(told.status, told)
        else:
            found = _class_of_codes(told) or Overloaded
        if found is AuthenticationFailed:
            reason = self._refused_credentials("an error in its answer", told)
        else:
            reason = f"an error in its answer{self._quote(told)}"
        return found(self.provider, reason, status=told.status)

    def clean(self, text: str) -> str:
        """Return `text` on one line, without secrets, of bounded length."""
        for secret in self.secrets:
            text = text.replace(secret, "[secret]")
        return shorten(text, _MESSAGE_LIMIT_CHARS)

    def _quote(self, told: _Told) -> str:
        codes = ", ".join(sorted(told.codes))
        parts = [self.clean(part) for part in (codes, told.message) if part]
        return f": {': '.join(parts)}" if parts else ""

    def _refused_credentials(self, where: str, told: _Told) -> str:
        """Vendors quote parts of the key in this message, so it is not repeated."""
        codes = self.clean(", ".join(sorted(told.codes)))
        said = f"{where} ({codes})" if codes else where
        if told.status == 402 or told.codes & _NO_CREDIT_CODES:
            return f"{said}: the account has no credit; top it up or choose another provider"
        return f"{said}: the key is missing or not accepted; {self.key_hint}"


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds that a response asks to wait, or ``None``.

    ``Retry-After`` holds seconds or a date (RFC 9110, 10.2.3); ``retry-after-ms`` is OpenAI's.
    """
    # With httpx, which has sent the response.
    from nanobot_core.net import retry_after_s as parse_retry_after

    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if (value := headers.get(name)) is not None:
            waits = parse_retry_after(value, now)
            if waits is not None:
                return waits * unit_s
    return None


def _class_of_status(status: int, told: _Told) -> type[ProviderError]:
    if status in (400, 413, 422) and _is_too_long(told):
        return ContextTooLong
    if status in (401, 402, 403) or told.codes & _NO_CREDIT_CODES:
        return AuthenticationFailed
    by_status: dict[int, type[ProviderError]] = {
        408: ProviderTimeout,
        413: ContextTooLong,
        429: RateLimited,
    }
    if status in by_status:
        return by_status[status]
    if status >= 500:
        return Overloaded
    return BadRequest if status >= 300 else ProviderProtocolError


def _class_of_codes(told: _Told) -> type[ProviderError] | None:
    if _is_too_long(told):
        return ContextTooLong
    if told.codes & _NO_CREDIT_CODES:
        return AuthenticationFailed
    found = (_CLASS_BY_CODE.get(code.lower()) for code in sorted(told.codes))
    return next((error for error in found if error is not None), None)


def _is_too_long(told: _Told) -> bool:
    message = told.message.lower()
    return bool(told.codes & _TOO_LONG_CODES) or any(
        sentence in message for _, sentence in _TOO_LONG_SENTENCES
    )


def _parse(body: bytes) -> object:
    try:
        parsed: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return parsed


def _read(payload: object) -> _Told:
    """Read the error forms in use.

    These are OpenAI's object, a list of one (Gemini), a bare text (Ollama), fields at the top
    (Mistral, vLLM), ``base_resp`` (MiniMax) and ``detail`` (FastAPI).
    """
    if isinstance(payload, list):
        payload = payload[0] if payload else None
    if not isinstance(payload, dict):
        return _Told()
    error = payload.get("error") or payload.get("base_resp") or payload
    if isinstance(error, str):
        return _Told(message=error)
    if not isinstance(error, dict):
        return _Told()
    message = error.get("message") or error.get("status_msg") or error.get("detail")
    values = [error.get(key) for key in ("code", "type", "status", "status_code")]
    numbers = [value for value in values if isinstance(value, int) and 400 <= value < 600]
    return _Told(
        message=message if isinstance(message, str) else "",
        codes=frozenset(str(value) for value in values if isinstance(value, (str, int)) and value),
        status=numbers[0] if numbers else None,
    )


def _base_status(payload: dict[str, Any]) -> object:
    base = payload.get("base_resp")
    return base.get("status_code") if isinstance(base, dict) else None
