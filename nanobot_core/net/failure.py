"""What httpx raises, as our errors: for plugins that call a model service themselves."""

from __future__ import annotations

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
    (httpx.RemoteProtocolError, Unreachable, "the connection ended early or speaks no HTTP"),
    (httpx.LocalProtocolError, BadRequest, "the request cannot be sent as HTTP"),
    (httpx.UnsupportedProtocol, BadRequest, "the address is not http or https; correct api_base"),
    (httpx.InvalidURL, BadRequest, "the address is not valid; correct api_base"),
    (httpx.StreamError, Unreachable, "the connection was closed during the call"),
    (httpx.HTTPError, ProviderProtocolError, "the answer cannot be read"),
    (httpx.CookieConflict, ProviderProtocolError, "the answer cannot be read"),
)

HTTPX_ERRORS: tuple[type[Exception], ...] = tuple(kind for kind, _, _ in _KINDS)
"""Everything that a request through httpx may raise."""


def failure_of(error: Exception) -> tuple[type[ProviderError], str]:
    """Return the class of our error for one of `HTTPX_ERRORS`, and what happened in a few words."""
    kind, reason = next((ours, said) for theirs, ours, said in _KINDS if isinstance(error, theirs))
    return kind, f"{reason} ({type(error).__name__})"
