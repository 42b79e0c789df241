"""What a service reports as a failure: status, headers and error objects → typed errors.

The status and the vendor's codes decide. Where a vendor gives neither for a prompt that is too
long, its documented sentence decides; these words are data that a provider supplies.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import SplitResult, urlsplit

from nanobot_core.clock import Clock
from nanobot_core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextTooLong,
    Overloaded,
    ProviderError,
    ProviderProtocolError,
    ProviderTimeout,
    RateLimited,
)
from nanobot_core.record import dataclass
from nanobot_core.text import shorten

_MESSAGE_LIMIT_CHARS = 300
_SHOULD_RETRY = {"true": True, "false": False}
_COMMON_CLASSES: Mapping[str, type[ProviderError]] = {
    "authentication_error": AuthenticationFailed,
    "permission_error": AuthenticationFailed,
    "rate_limit_error": RateLimited,
    "overloaded_error": Overloaded,
    "invalid_request_error": BadRequest,
    "not_found_error": BadRequest,
    "timeout": ProviderTimeout,
    "timeout_error": ProviderTimeout,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureWords:
    """How services report what their HTTP status does not say.

    Attributes:
        too_long: codes of a prompt that exceeds the context window.
        too_long_sentences: parts of the messages of services without such a code, in lower case.
        no_credit: codes of an account without credit: waiting does not help.
        no_credit_sentences: parts of the messages of services without such a code, in lower case.
        classes: code in lower case to the error, for errors within an answer of status 200; the
            usual codes are built in, and an unknown code means that the service failed.
        status_object: field of a successful answer whose ``status_code``, if not 0, reports an
            error.
        reset_headers: headers with the time at which a limit ends, as a date of RFC 3339; used
            where ``Retry-After`` is absent.
    """

    too_long: frozenset[str] = frozenset()
    too_long_sentences: tuple[str, ...] = ()
    no_credit: frozenset[str] = frozenset()
    no_credit_sentences: tuple[str, ...] = ()
    classes: Mapping[str, type[ProviderError]] = field(default_factory=dict)
    status_object: str | None = None
    reset_headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Report:
    """The content of an error body."""

    message: str = ""
    codes: frozenset[str] = frozenset()
    status: int | None = None

    def matches(self, codes: frozenset[str], sentences: Sequence[str]) -> bool:
        """Whether it has one of `codes`, or one of `sentences` in its message."""
        message = self.message.lower()
        return bool(self.codes & codes) or any(sentence in message for sentence in sentences)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReader:
    """Turns what one service reports into typed errors without any secret in them.

    Attributes:
        provider: name of the provider.
        key_hint: where its key is set, for the error about credentials.
        secrets: texts that must not appear in an error.
        clock: for dates in ``Retry-After``.
        words: the vocabulary of the service.
    """

    provider: str
    key_hint: str
    secrets: tuple[str, ...]
    clock: Clock
    words: FailureWords = field(default_factory=FailureWords)

    def from_status(self, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """Return the error for a response with `status`, which is not 200.

        Args:
            headers: names in lower case.
            body: its beginning; it may be cut or be no JSON.
        """
        report = replace(self._read(_parse(body)), status=status)
        found = self._class_of_status(status, report)
        reason = f"HTTP {status}{self._quote(report)}"
        if found is AuthenticationFailed:
            reason = self._refused_credentials(f"HTTP {status}", report)
        elif status == 404:
            reason += "; check the model's name and api_base"
        elif 300 <= status < 400:
            reason += ": it answers from another address; correct api_base"
        return found(
            self.provider,
            reason,
            status=status,
            retry_after_s=self._wait_s(headers),
            # OpenAI's own clients obey it.
            retryable=_SHOULD_RETRY.get(headers.get("x-should-retry", "").strip().lower()),
        )

    def from_httpx(self, error: Exception, base: str, proxy: str | None) -> ProviderError:
        """Return the error for one of `HTTPX_ERRORS`.

        Args:
            base: address of the service.
            proxy: address of the proxy on the way to it, if any.
        """
        import httpx

        from nanobot_core.net import failure_of

        kind, reason = failure_of(error)
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            setting = f"providers.{self.provider}.{'api_base' if proxy is None else 'proxy'}"
            reason = _not_connected(error, urlsplit(proxy or base), setting)
        return kind(self.provider, self.clean(reason))

    def from_payload(self, payload: object) -> ProviderError | None:
        """Return the error that a JSON answer of status 200 reports, or ``None``."""
        if not isinstance(payload, dict) or not (
            payload.get("error")
            or self._has_failed_status(payload)
            or "error" in (payload.get("object"), payload.get("type"))
        ):
            return None
        return self.from_error(payload)

    def from_error(self, payload: object) -> ProviderError:
        """Return the error for an error object in an answer of status 200."""
        report = self._read(payload)
        if report.status is not None:
            found = self._class_of_status(report.status, report)
        else:
            found = self._class_of_codes(report) or Overloaded
        if found is AuthenticationFailed:
            reason = self._refused_credentials("an error in its answer", report)
        else:
            reason = f"an error in its answer{self._quote(report)}"
        return found(self.provider, reason, status=report.status)

    def clean(self, text: str) -> str:
        """Return `text` on one line, without secrets and control characters, of bounded length."""
        for secret in self.secrets:
            text = text.replace(secret, "[secret]")
        line = shorten(text, _MESSAGE_LIMIT_CHARS)
        return "".join(char if char.isprintable() else " " for char in line)

    def _quote(self, report: _Report) -> str:
        codes = ", ".join(sorted(report.codes))
        parts = [self.clean(part) for part in (codes, report.message) if part]
        return f": {': '.join(parts)}" if parts else ""

    def _refused_credentials(self, where: str, report: _Report) -> str:
        """Vendors quote parts of the key in this message, so it is not repeated."""
        codes = self.clean(", ".join(sorted(report.codes)))
        said = f"{where} ({codes})" if codes else where
        if report.status == 402 or self._has_no_credit(report):
            return f"{said}: the account has no credit; top it up or choose another provider"
        return f"{said}: the key is missing or not accepted; {self.key_hint}"

    def _wait_s(self, headers: Mapping[str, str]) -> float | None:
        """Return the seconds that a response asks to wait, or ``None``.

        ``Retry-After`` contains seconds or a date (RFC 9110, 10.2.3); ``retry-after-ms`` is
        OpenAI's.
        """
        # With httpx, which has sent the response.
        from nanobot_core.net import retry_after_s

        now = self.clock.now()
        for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
            if (value := headers.get(name)) is not None:
                waits = retry_after_s(value, now)
                if waits is not None:
                    return waits * unit_s
        resets = (_seconds_until(headers.get(name, ""), now) for name in self.words.reset_headers)
        return max((seconds for seconds in resets if seconds is not None), default=None)

    def _class_of_status(self, status: int, report: _Report) -> type[ProviderError]:
        if status in (400, 413, 422) and self._is_too_long(report):
            return ContextTooLong
        if status in (401, 402, 403) or self._has_no_credit(report):
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

    def _class_of_codes(self, report: _Report) -> type[ProviderError] | None:
        if self._is_too_long(report):
            return ContextTooLong
        if self._has_no_credit(report):
            return AuthenticationFailed
        classes = {**_COMMON_CLASSES, **self.words.classes}
        found = (classes.get(code.lower()) for code in sorted(report.codes))
        return next((error for error in found if error is not None), None)

    def _is_too_long(self, report: _Report) -> bool:
        return report.matches(self.words.too_long, self.words.too_long_sentences)

    def _has_no_credit(self, report: _Report) -> bool:
        return report.matches(self.words.no_credit, self.words.no_credit_sentences)

    def _has_failed_status(self, payload: dict[str, Any]) -> bool:
        status = payload.get(self.words.status_object or "")
        return isinstance(status, dict) and bool(status.get("status_code"))

    def _read(self, payload: object) -> _Report:
        """Read the error forms in use.

        These are OpenAI's and Anthropic's object, a list of one (Gemini), a bare text (Ollama),
        fields at the top (Mistral, vLLM), the status object, and ``detail`` (FastAPI).
        """
        if isinstance(payload, list):
            payload = payload[0] if payload else None
        if not isinstance(payload, dict):
            return _Report()
        status = payload.get(self.words.status_object or "")
        error = payload.get("error") or status or payload
        if isinstance(error, str):
            return _Report(message=error)
        if not isinstance(error, dict):
            return _Report()
        message = error.get("message") or error.get("status_msg") or error.get("detail")
        values = [error.get(key) for key in ("code", "type", "status", "status_code")]
        numbers = [value for value in values if isinstance(value, int) and 400 <= value < 600]
        return _Report(
            message=message if isinstance(message, str) else "",
            codes=frozenset(
                str(value) for value in values if isinstance(value, (str, int)) and value
            ),
            status=numbers[0] if numbers else None,
        )


def _not_connected(error: Exception, place: SplitResult, setting: str) -> str:
    """Return why there is no connection, with the host by its name, and what to do."""
    host = f"{place.hostname}:{place.port}" if place.port else place.hostname
    why = type(error).__name__
    for cause in _causes(error):
        match cause:
            case socket.gaierror():
                return f"the host '{place.hostname}' is not found; check the network and {setting}"
            case ConnectionRefusedError():
                return f"{host} refuses the connection; start the service there or set {setting}"
            case TimeoutError():
                return f"{host} does not answer in time; check the network and {setting}"
            case ssl.SSLError():
                return f"no secure connection to {host}: {cause}; check {setting}"
            case OSError(strerror=str(text)):
                why = text
    return f"no connection to {host} ({why}); check the network and {setting}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and what caused it; the attempts for the addresses of a host are a group."""
    found: BaseException | None = error
    while found is not None:
        yield found
        if isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        else:
            found = found.__cause__ or found.__context__


def _parse(body: bytes) -> object:
    try:
        parsed: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return parsed


def _seconds_until(date: str, now: datetime) -> float | None:
    try:
        moment = datetime.fromisoformat(date)
    except ValueError:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - now).total_seconds())
