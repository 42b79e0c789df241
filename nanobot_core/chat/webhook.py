"""WebhookRoute: calls of a platform to the gateway, answered when their messages are stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

_ANSWER_LIMIT_S = 50.0
"""Platforms repeat a call after about a minute."""

TakeCall: TypeAlias = Callable[[object], Awaitable[bool]]
"""Receives the JSON of a call, and returns whether everything in it is stored."""
Receive: TypeAlias = Callable[[], Awaitable[Any]]


class WebhookRoute:
    """Connects a route of the gateway with the channel; both get it from ``ctx.shared``.

    Attributes:
        take: receives calls; ``None`` while the channel does not receive.
    """

    def __init__(self) -> None:
        self.take: TakeCall | None = None

    async def status_of(
        self,
        scope: dict[str, Any],
        receive: Receive,
        is_authentic: Callable[[bytes], bool],
        *,
        max_bytes: int,
    ) -> int:
        """Take a call, and return the HTTP status of the answer.

        It is 200 when everything in the call is stored, 503 if the platform should call again, and
        404 to callers who do not know the secret.

        Args:
            scope: of the request (ASGI).
            receive: of the request (ASGI).
            is_authentic: whether a body comes from the platform; it also knows the headers.
            max_bytes: of the body.
        """
        if scope["method"] != "POST":
            return 405
        try:
            async with asyncio.timeout(_ANSWER_LIMIT_S):
                body = await _read_body(receive, max_bytes)
                if body is None:
                    return 413
                if not is_authentic(body):
                    return 404
                report_proven(scope)
                if self.take is None:
                    return 503
                try:
                    content = json.loads(body)
                except (ValueError, RecursionError):
                    return 400
                return 200 if await self.take(content) else 503
        except TimeoutError:
            return 503


def header_of(scope: dict[str, Any], name: bytes) -> bytes | None:
    """Return the value of a header, or ``None`` if the request does not have exactly one.

    Args:
        scope: of the request (ASGI).
        name: in lower case.
    """
    found = [value for key, value in scope["headers"] if key.lower() == name]
    return found[0] if len(found) == 1 else None


def report_proven(scope: dict[str, Any]) -> None:
    """Report an authenticated caller, whom nanobot-http counts separately."""
    if caller := (scope.get("extensions") or {}).get("nanobot.caller"):
        caller["proven"]()


async def _read_body(receive: Receive, max_bytes: int) -> bytes | None:
    """Return the body, or ``None`` if it is too long or the caller has disconnected."""
    body = bytearray()
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None
        body += event.get("body", b"")
        if len(body) > max_bytes:
            return None
        if not event.get("more_body", False):
            return bytes(body)
