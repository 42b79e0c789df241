"""Requests of a sign-in: small JSON answers of a server that people sign in to."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from contextvars import Context
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from nanobot_core import (
    AuthenticationFailed,
    ConfigError,
    Overloaded,
    ProviderError,
    ProviderProtocolError,
    ProviderTimeout,
    RateLimited,
)
from nanobot_core.providers import resolve_endpoint

if TYPE_CHECKING:
    import ssl

    import httpx

    from nanobot_core import PluginContext, ProviderSettings, ProviderSpec

REQUEST_LIMIT_S: Final = 20.0
_MAX_BYTES: Final = 262_144
_MAX_SHOWN_CHARS: Final = 500
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_CODE: Final = re.compile(r"[A-Za-z0-9_.-]{1,60}")
"""Codes of errors; longer texts may quote what was sent."""


@dataclass(frozen=True, slots=True)
class AuthAnswer:
    """An answer of the server.

    Attributes:
        status: HTTP status.
        payload: the JSON object; empty if the answer is none.
    """

    status: int
    payload: Mapping[str, Any] = field(repr=False)

    @property
    def error(self) -> str:
        """The code of the error that it reports, or an empty string."""
        found = self.payload.get("error")
        if isinstance(found, dict):
            found = found.get("code") or found.get("type")
        found = found or self.payload.get("code")
        return found if isinstance(found, str) and _CODE.fullmatch(found) else ""

    @property
    def summary(self) -> str:
        """Its status and its error, for a message."""
        return f"HTTP {self.status}" + (f", {self.error}" if self.error else "")

    def text(self, name: str) -> str:
        """Return a field that is a text on one line, or an empty string."""
        return text_of(self.payload, name)

    def shown(self, name: str) -> str:
        """Return the same if a person can be asked to read it, or an empty string."""
        found = self.text(name)
        return found if len(found) <= _MAX_SHOWN_CHARS else ""

    def seconds(self, name: str) -> float | None:
        """Return a field that is a positive number, also as a text; otherwise ``None``."""
        return seconds_of(self.payload, name)


def text_of(payload: Mapping[str, Any], name: str) -> str:
    """Return a field that is a text which terminals can show, or an empty string."""
    found = payload.get(name)
    return found if isinstance(found, str) and found.isprintable() else ""


def seconds_of(payload: Mapping[str, Any], name: str) -> float | None:
    """Return a field that is a positive number, also as a text; otherwise ``None``."""
    found = payload.get(name)
    try:
        number = float(found) if isinstance(found, str | int | float) else 0.0
    except (ValueError, OverflowError):
        return None
    return number if 0 < number < float("inf") else None


def token_of(payload: Mapping[str, Any], name: str) -> str:
    """Return a field that can be sent in a header, or an empty string."""
    found = text_of(payload, name)
    return found if found.isascii() else ""


class AuthServer:
    """One server of a sign-in.

    Args:
        provider: name of the provider, for errors.
        base: base URL without a slash at its end.
        proxy: URL of the proxy, or ``None``.
    """

    def __init__(self, provider: str, base: str, proxy: str | None) -> None:
        self.provider: str = provider
        self.base: str = base
        self._proxy = proxy

    async def post_form(self, path: str, form: Mapping[str, str]) -> AuthAnswer:
        """Post a form; errors as `get`."""
        return await self._send("POST", path, {}, data=dict(form))

    async def post_json(self, path: str, body: Mapping[str, str]) -> AuthAnswer:
        """Post JSON; errors as `get`."""
        return await self._send("POST", path, {}, json=dict(body))

    async def get(self, path: str, headers: Mapping[str, str]) -> AuthAnswer:
        """Return the answer of the server, also one that refuses the request.

        Raises:
            ProviderError: the server cannot be reached, is overloaded, or does not answer in time.
        """
        return await self._send("GET", path, headers)

    def failure(self, reason: str) -> AuthenticationFailed:
        """Return the error for a sign-in that did not succeed."""
        return AuthenticationFailed(self.provider, reason)

    def unusable(self, answer: AuthAnswer) -> ProviderError:
        """Return the error for an answer that is not one of the protocol."""
        host = urlsplit(self.base).netloc
        return ProviderProtocolError(
            self.provider, f"{host} sent no usable answer", status=answer.status
        )

    async def _send(
        self, method: str, path: str, headers: Mapping[str, str], **content: dict[str, str]
    ) -> AuthAnswer:
        from nanobot_core.net import HTTPX_ERRORS, failure_of

        host = urlsplit(self.base).netloc
        try:
            async with asyncio.timeout(REQUEST_LIMIT_S):
                # Loading the certificates takes tens of milliseconds.
                client = await asyncio.to_thread(Context().run, partial(_client, self._proxy))
                async with (
                    client,
                    client.stream(
                        method,
                        self.base + path,
                        headers={"accept": "application/json", **headers},
                        **content,  # type: ignore[arg-type]  # data or json
                    ) as response,
                ):
                    answer = AuthAnswer(response.status_code, await _read(response))
        except TimeoutError as error:
            reason = f"{host} did not answer within {REQUEST_LIMIT_S:g} seconds"
            raise ProviderTimeout(self.provider, reason) from error
        except HTTPX_ERRORS as error:
            kind, reason = failure_of(error)
            raise kind(self.provider, f"{host}: {reason}") from error
        if answer.status == 429:
            raise RateLimited(self.provider, f"{host} refuses more requests for now", status=429)
        if answer.status >= 500:
            raise Overloaded(self.provider, f"{host} failed (HTTP {answer.status})")
        return answer


def auth_server(
    ctx: PluginContext, spec: ProviderSpec, settings: ProviderSettings, key: str
) -> AuthServer:
    """Return the server whose base URL is the setting `key`.

    Raises:
        ConfigError: it is not an ``https`` address; ``http`` is allowed on the loopback only.
    """
    base = str(getattr(settings, key)).strip().rstrip("/")
    parts = urlsplit(base)
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    if not is_safe or not parts.hostname or parts.query or parts.username:
        msg = f"providers.{spec.name}.{key} must be an address such as https://host"
        raise ConfigError(msg)
    there = settings.model_copy(update={"api_base": base, "api_key": None, "extra_headers": {}})
    return AuthServer(spec.name, base, resolve_endpoint(ctx, spec, there).proxy)


def is_https(address: str, like: str) -> bool:
    """Whether `address` is ``https``, or ``http`` on the loopback as `like` is."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    if parts.scheme == "https":
        return bool(parts.hostname) and not parts.username
    return parts.scheme == "http" and {parts.hostname, urlsplit(like).hostname} <= set(_LOOPBACK)


def _client(proxy: str | None) -> httpx.AsyncClient:
    import httpx

    return httpx.AsyncClient(
        trust_env=False,
        verify=_tls(),
        proxy=proxy,
        follow_redirects=False,
        timeout=REQUEST_LIMIT_S,
        headers={"user-agent": "nanobot"},
    )


@cache
def _tls() -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context(trust_env=False)


async def _read(response: httpx.Response) -> dict[str, Any]:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > _MAX_BYTES:
            return {}
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}
