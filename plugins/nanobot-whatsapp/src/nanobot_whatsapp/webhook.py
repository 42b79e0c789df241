"""The route that the Cloud API calls, with messages and statuses."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs

from nanobot_core.chat import WebhookRoute, header_of, report_proven
from nanobot_whatsapp.settings import WhatsAppSettings

if TYPE_CHECKING:
    from nanobot_core import AsgiApp, PluginContext

_SIGNATURE_HEADER = b"x-hub-signature-256"
_MAX_BYTES = 3_000_000
"""WhatsApp's own limit of a call."""
_MAX_CHALLENGE_CHARS = 200

Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]


def build_route(ctx: PluginContext) -> WebhookRoute:
    """Return a route that the channel does not use yet, for ``ctx.shared``."""
    return WebhookRoute()


def build_app(ctx: PluginContext) -> AsgiApp:
    """Return the application that WhatsApp calls.

    It responds with 200 when every message of the call is stored, with 503 if WhatsApp should call
    again, and with 404 to callers who do not know a secret.
    """
    route = ctx.shared(build_route)
    settings = ctx.settings(WhatsAppSettings)
    secret = settings.app_secret.get_secret_value().encode()
    verify_token = settings.verify_token.get_secret_value().encode()

    async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, content = 405, b""
        if scope["method"] == "GET":
            status, content = _verified(verify_token, scope)
        elif scope["method"] == "POST":
            status = await route.status_of(
                scope, receive, partial(_is_signed, secret, scope), max_bytes=_MAX_BYTES
            )
        # WhatsApp sends the challenge, and a browser must not show it as a page.
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"x-content-type-options", b"nosniff"),
            (b"content-length", str(len(content)).encode()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    return app


def signature_of(secret: bytes, body: bytes) -> bytes:
    """Return the value of the header with which WhatsApp signs a body."""
    return b"sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest().encode()


def _verified(token: bytes, scope: dict[str, Any]) -> tuple[int, bytes]:
    """Return the answer to the call that verifies the address."""
    try:
        query = parse_qs(scope["query_string"].decode(), max_num_fields=20)
    except ValueError:
        return 404, b""
    sent = query.get("hub.verify_token", [""])[0].encode("utf-8", "replace")
    challenge = query.get("hub.challenge", [""])[0]
    if query.get("hub.mode") != ["subscribe"] or not token:
        return 404, b""
    if not hmac.compare_digest(token, sent) or len(challenge) > _MAX_CHALLENGE_CHARS:
        return 404, b""
    report_proven(scope)
    return 200, challenge.encode("utf-8", "replace")


def _is_signed(secret: bytes, scope: dict[str, Any], body: bytes) -> bool:
    sent = header_of(scope, _SIGNATURE_HEADER)
    return (
        bool(secret) and sent is not None and hmac.compare_digest(signature_of(secret, body), sent)
    )
