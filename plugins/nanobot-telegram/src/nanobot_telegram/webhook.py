"""Webhook mode: Telegram calls the gateway with each update."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from nanobot_core.chat import WebhookRoute, header_of
from nanobot_telegram.settings import TelegramSettings

if TYPE_CHECKING:
    from nanobot_core import AsgiApp, PluginContext

_SECRET_HEADER = b"x-telegram-bot-api-secret-token"
_MAX_BYTES = 1_000_000
"""Updates contain texts and ids, but no files; they are much shorter."""

Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]


def build_route(ctx: PluginContext) -> WebhookRoute:
    """Return a route that the channel does not use yet, for ``ctx.shared``."""
    return WebhookRoute()


def build_app(ctx: PluginContext) -> AsgiApp:
    """Return the application that Telegram calls."""
    route = ctx.shared(build_route)
    secret = ctx.settings(TelegramSettings).webhook.secret.get_secret_value().encode()

    async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        sent = header_of(scope, _SECRET_HEADER)
        knows = bool(secret) and sent is not None and hmac.compare_digest(secret, sent)
        status = await route.status_of(scope, receive, lambda _: knows, max_bytes=_MAX_BYTES)
        headers = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    return app
