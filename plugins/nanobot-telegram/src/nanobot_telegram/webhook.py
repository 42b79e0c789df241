"""Webhook mode: Telegram calls the gateway with each update."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from nanobot_telegram.settings import TelegramSettings

if TYPE_CHECKING:
    from nanobot_core import AsgiApp, PluginContext

_SECRET_HEADER = b"x-telegram-bot-api-secret-token"
_MAX_BYTES = 1_000_000
"""Updates contain texts and ids, but no files; they are much shorter."""
_ANSWER_LIMIT_S = 50.0
"""Telegram repeats a call after about a minute."""

Handler: TypeAlias = Callable[[object], Awaitable[bool]]
"""Receives an update and returns whether it is stored."""
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]


class UpdateRoute:
    """Connects the route with the channel.

    Attributes:
        handler: receives updates; ``None`` if the channel does not receive by webhook.
    """

    def __init__(self) -> None:
        self.handler: Handler | None = None


def build_route(ctx: PluginContext) -> UpdateRoute:
    """Return a route without a handler, for ``ctx.shared``."""
    return UpdateRoute()


def build_app(ctx: PluginContext) -> AsgiApp:
    """Return the application that Telegram calls.

    It responds with 200 when the update is stored, with 503 if Telegram should call again, and with
    404 to callers without the secret.
    """
    route = ctx.shared(build_route)
    secret = ctx.settings(TelegramSettings).webhook.secret.get_secret_value().encode()

    async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status = 404
        if _knows(secret, scope):
            # nanobot-http counts authenticated callers separately.
            if caller := (scope.get("extensions") or {}).get("nanobot.caller"):
                caller["proven"]()
            status = await _status_of(route, scope, receive)
        headers = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    return app


def _knows(secret: bytes, scope: dict[str, Any]) -> bool:
    sent = [value for name, value in scope["headers"] if name.lower() == _SECRET_HEADER]
    return bool(secret) and len(sent) == 1 and hmac.compare_digest(secret, sent[0])


async def _status_of(route: UpdateRoute, scope: dict[str, Any], receive: Receive) -> int:
    if scope["method"] != "POST":
        return 405
    if route.handler is None:
        return 503
    try:
        async with asyncio.timeout(_ANSWER_LIMIT_S):
            body = await _read_body(receive)
            if body is None:
                return 413
            try:
                update = json.loads(body)
            except (ValueError, RecursionError):
                return 400
            return 200 if await route.handler(update) else 503
    except TimeoutError:
        return 503


async def _read_body(receive: Receive) -> bytes | None:
    """Return the body, or ``None`` if it is too long or the caller has disconnected."""
    body = bytearray()
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None
        body += event.get("body", b"")
        if len(body) > _MAX_BYTES:
            return None
        if not event.get("more_body", False):
            return bytes(body)
