"""Refusals of a service, as typed errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from nanobot_core import (
    AuthenticationFailed,
    BadRequest,
    Overloaded,
    ProviderError,
    ProviderProtocolError,
    ProviderTimeout,
    RateLimited,
    shorten,
)
from nanobot_core.net import retry_after_s
from nanobot_transcription.endpoint import Endpoint, key_hint

_MESSAGE_CHARS = 200
_CLASS_OF_STATUS: Mapping[int, type[ProviderError]] = {
    401: AuthenticationFailed,
    402: AuthenticationFailed,
    403: AuthenticationFailed,
    408: ProviderTimeout,
    429: RateLimited,
}
_NO_CREDIT = "insufficient_quota"
"""OpenAI's code for an account without credit, sent with status 429: waiting does not help."""


def failure_of_status(
    endpoint: Endpoint, status: int, headers: Mapping[str, str], body: bytes, now: datetime
) -> ProviderError:
    """Return the error for a response with `status`, which is not 200.

    Args:
        headers: names in any case.
        body: its beginning; it may be cut or be no JSON.
    """
    message, code = _read(body)
    waits = headers.get("retry-after")
    kind = _CLASS_OF_STATUS.get(status) or _class_of_range(status)
    if code == _NO_CREDIT:
        kind, reason = AuthenticationFailed, "the account has no credit; top it up"
    elif kind is AuthenticationFailed:
        # Services quote parts of the key here, so the message is not repeated.
        reason = f"the key is missing or not accepted; {key_hint(endpoint.provider)}"
    elif status == 413:
        reason = "the recording is too large for the service; lower transcription.max_bytes"
    elif 300 <= status < 400:
        reason = "it answers from another address; correct transcription.api_base"
    elif status == 404:
        reason = _quote(endpoint, message) or "the address or the model does not exist"
        reason += "; check transcription.api_base and transcription.model"
    else:
        reason = _quote(endpoint, message) or "it gave no reason"
    return kind(
        endpoint.provider,
        f"HTTP {status}: {reason}",
        status=status,
        retry_after_s=retry_after_s(waits, now) if waits is not None else None,
    )


def text_of(endpoint: Endpoint, body: bytes) -> str:
    """Return the text in the body of a response with status 200.

    Raises:
        ProviderProtocolError: it has no text.
    """
    try:
        parsed: object = json.loads(body)
    except (ValueError, RecursionError):
        reason = f"its answer of {len(body):,} bytes is not JSON"
        raise ProviderProtocolError(endpoint.provider, reason) from None
    text = parsed.get("text") if isinstance(parsed, dict) else None
    if not isinstance(text, str):
        reason_given = _quote(endpoint, _read(body)[0])
        reason = f"its answer has no text{f': {reason_given}' if reason_given else ''}"
        raise ProviderProtocolError(endpoint.provider, reason)
    return text.strip()


def _class_of_range(status: int) -> type[ProviderError]:
    if status >= 500:
        return Overloaded
    return BadRequest if status >= 300 else ProviderProtocolError


def _read(body: bytes) -> tuple[str, str]:
    """Return message and code of OpenAI's error object, a bare text, or FastAPI's ``detail``."""
    try:
        parsed: object = json.loads(body)
    except (ValueError, RecursionError):
        return "", ""
    error = (parsed.get("error") or parsed) if isinstance(parsed, dict) else None
    if isinstance(error, str):
        return error, ""
    if not isinstance(error, dict):
        return "", ""
    message, code = error.get("message") or error.get("detail"), error.get("code")
    return message if isinstance(message, str) else "", code if isinstance(code, str) else ""


def _quote(endpoint: Endpoint, message: str) -> str:
    plain = message.replace(endpoint.key, "[secret]") if endpoint.key else message
    return shorten("".join(c if c.isprintable() else " " for c in plain), _MESSAGE_CHARS)
