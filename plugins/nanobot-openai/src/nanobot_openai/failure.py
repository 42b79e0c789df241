"""Turns status codes, headers and error objects of a service into typed errors.

The status and the vendor's codes decide. Some vendors have no code for a prompt that is too long;
for these, one table lists the documented sentences.
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
"""Vendors without a code for prompts that are too long, and a part of their message."""

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
"""For errors with status 200; any other code is a failure of the service."""


@dataclass(frozen=True, slots=True)
class _ErrorBody:
    """The content of an error body."""

    message: str = ""
    codes: frozenset[str] = frozenset()
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReader:
    """Turns the errors of one service into typed errors without secrets.

    Attributes:
        provider: name of the provider.
        key_hint: how to set its key, for errors about credentials.
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
            body: its beginning; it may be truncated or not JSON.
        """
        error = replace(_read(_parse(body)), status=status)
        found = _class_of_status(status, error)
        reason = f"HTTP {status}{self._quote(error)}"
        if found is AuthenticationFailed:
            reason = self._refused_credentials(f"HTTP {status}", error)
        elif status == 404:
            reason += "; check the model's name and api_base"
        elif 300 <= status < 400:
            reason += ": it redirects to another address; correct api_base"
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
        error = _read(payload)
        if error.status is not None:
            found = _class_of_status(error.status, error)
        else:
            found = _class_of_codes(error) or Overloaded
        if found is AuthenticationFailed:
            reason = self._refused_credentials("an error in its answer", error)
        else:
            reason = f"an error in its answer{self._quote(error)}"
        return found(self.provider, reason, status=error.status)

    def clean(self, text: str) -> str:
        """Return `text` on one line, without secrets, of bounded length."""
        for secret in self.secrets:
            text = text.replace(secret, "[secret]")
        return shorten(text, _MESSAGE_LIMIT_CHARS)

    def _quote(self, error: _ErrorBody) -> str:
        codes = ", ".join(sorted(error.codes))
        parts = [self.clean(part) for part in (codes, error.message) if part]
        return f": {': '.join(parts)}" if parts else ""

    def _refused_credentials(self, where: str, error: _ErrorBody) -> str:
        """Vendors quote parts of the key in this message, so it is not repeated."""
        codes = self.clean(", ".join(sorted(error.codes)))
        said = f"{where} ({codes})" if codes else where
        if error.status == 402 or error.codes & _NO_CREDIT_CODES:
            return f"{said}: the account has no credit; top it up or choose another provider"
        return f"{said}: the key is missing or not accepted; {self.key_hint}"


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return how many seconds a response asks to wait, or ``None``.

    ``Retry-After`` holds seconds or a date (RFC 9110, 10.2.3); ``retry-after-ms`` is OpenAI's.
    """
    # Imported with httpx, after the first response.
    from nanobot_core.net import retry_after_s as parse_retry_after

    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if (value := headers.get(name)) is not None:
            waits = parse_retry_after(value, now)
            if waits is not None:
                return waits * unit_s
    return None


def _class_of_status(status: int, error: _ErrorBody) -> type[ProviderError]:
    if status in (400, 413, 422) and _is_too_long(error):
        return ContextTooLong
    if status in (401, 402, 403) or error.codes & _NO_CREDIT_CODES:
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


def _class_of_codes(error: _ErrorBody) -> type[ProviderError] | None:
    if _is_too_long(error):
        return ContextTooLong
    if error.codes & _NO_CREDIT_CODES:
        return AuthenticationFailed
    found = (_CLASS_BY_CODE.get(code.lower()) for code in sorted(error.codes))
    return next((kind for kind in found if kind is not None), None)


def _is_too_long(error: _ErrorBody) -> bool:
    message = error.message.lower()
    return bool(error.codes & _TOO_LONG_CODES) or any(
        sentence in message for _, sentence in _TOO_LONG_SENTENCES
    )


def _parse(body: bytes) -> object:
    try:
        parsed: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return parsed


def _read(payload: object) -> _ErrorBody:
    """Read the error forms in use.

    These are OpenAI's object, a list of one (Gemini), a bare text (Ollama), fields at the top
    (Mistral, vLLM), ``base_resp`` (MiniMax) and ``detail`` (FastAPI).
    """
    if isinstance(payload, list):
        payload = payload[0] if payload else None
    if not isinstance(payload, dict):
        return _ErrorBody()
    error = payload.get("error") or payload.get("base_resp") or payload
    if isinstance(error, str):
        return _ErrorBody(message=error)
    if not isinstance(error, dict):
        return _ErrorBody()
    message = error.get("message") or error.get("status_msg") or error.get("detail")
    values = [error.get(key) for key in ("code", "type", "status", "status_code")]
    numbers = [value for value in values if isinstance(value, int) and 400 <= value < 600]
    return _ErrorBody(
        message=message if isinstance(message, str) else "",
        codes=frozenset(str(value) for value in values if isinstance(value, (str, int)) and value),
        status=numbers[0] if numbers else None,
    )


def _base_status(payload: dict[str, Any]) -> object:
    base = payload.get("base_resp")
    return base.get("status_code") if isinstance(base, dict) else None
