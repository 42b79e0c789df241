"""The ASGI application that receives messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nanobot_core import BusError, BusFull, MediaTooLarge
from nanobot_webhook.endpoint import Endpoint, count_as_proven, refuse
from nanobot_webhook.hook_intake import HookIntake, is_hook
from nanobot_webhook.payload import MessagePayload, PayloadRefused, build_inbound, parse_message
from nanobot_webhook.settings import WebhookSettings
from nanobot_webhook.signature import (
    SignatureRefused,
    SignedHead,
    decode_key,
    read_head,
    verify_body,
)

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from nanobot_core import AsgiApp, InboundMessage, Inbox, PluginContext


class Door:
    """Open while the channel receives.

    Attributes:
        inbox: where messages go; ``None`` while the channel does not run.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self.inbox: Inbox | None = None

    def close(self, inbox: Inbox) -> None:
        """Accept no more messages for `inbox`; an inbox that was opened later stays open."""
        if self.inbox is inbox:
            self.inbox = None


_FULL_WAIT_S = 30
_DOWN_WAIT_S = 5
_WARNING_INTERVAL_S = 60.0
"""Minimum seconds between two log lines about unknown callers, of whom there may be many."""


def build_app(ctx: PluginContext) -> AsgiApp:
    """Return the application for the mount."""
    settings = ctx.settings(WebhookSettings)
    messages = RequestBodyLimitMiddleware(Intake(ctx), max_body_size=settings.max_body_bytes)
    events = RequestBodyLimitMiddleware(HookIntake(ctx), max_body_size=settings.max_event_bytes)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (events if is_hook(scope) else messages)(scope, receive, send)

    return app


class Intake(Endpoint):
    """Answers 200 when a message is stored or was stored before, and never earlier."""

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._settings = ctx.settings(WebhookSettings)
        self._door = ctx.shared(Door)
        self._unsigned = 0
        self._quiet_until_s = 0.0

    async def answer(self, request: Request) -> Response:
        """Store the message of one request."""
        if request.scope["path"].rstrip("/") != request.scope.get("root_path", ""):
            return refuse(404, "not found")
        if request.method != "POST":
            return refuse(405, "use POST", {"allow": "POST"})
        inbox, secret = self._door.inbox, self._settings.secret
        if inbox is None or secret is None:
            return _later(503, "messages are not accepted at the moment", _DOWN_WAIT_S)
        try:
            head = read_head(
                request.headers,
                now_s=self._ctx.clock.now().timestamp(),
                tolerance_s=self._settings.tolerance_s,
            )
            body = await request.body()
            key = decode_key(secret.get_secret_value())
            # Decoding megabytes of base64 would delay every other chat.
            payload = await asyncio.to_thread(_read, key, head, body)
        except SignatureRefused as error:
            self._warn(error)
            return refuse(401, str(error))
        except PayloadRefused as error:
            return refuse(400, str(error))
        count_as_proven(request.scope)
        return await self._publish(inbox, head, payload)

    def _warn(self, error: SignatureRefused) -> None:
        self._unsigned += 1
        now_s = self._ctx.clock.monotonic_s()
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + _WARNING_INTERVAL_S
            self._log.warning(
                "refused without a signature: {}; the last: {}", self._unsigned, error
            )
            self._unsigned = 0

    async def _publish(self, inbox: Inbox, head: SignedHead, payload: MessagePayload) -> Response:
        message = build_inbound(payload, head.id, datetime.fromtimestamp(head.timestamp, UTC))

        async def complete(admitted: InboundMessage) -> InboundMessage:
            media = [
                str(await self._ctx.media.save(file.name, _pieces(file.content)))
                for file in payload.data.files
            ]
            return replace(admitted, media=(*admitted.media, *media))

        inbox.alive()
        try:
            is_stored = await inbox.publish(message, complete)
        except BusFull as error:
            return _later(429, str(error), _FULL_WAIT_S)
        except MediaTooLarge as error:
            return refuse(413, str(error))
        except (BusError, OSError) as error:
            self._log.warning("message {} is not stored: {}", head.id, error)
            return _later(503, "the message is not stored", _DOWN_WAIT_S)
        return JSONResponse({"stored": is_stored})


def _read(key: bytes, head: SignedHead, body: bytes) -> MessagePayload:
    verify_body(key, head, body)
    return parse_message(body)


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _later(status: int, reason: str, wait_s: int) -> Response:
    return refuse(status, reason, {"retry-after": str(wait_s)})
