"""The ASGI application that receives the requests of triggers."""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from typing import TYPE_CHECKING
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nanobot_core import NanobotError, TriggerEvent
from nanobot_webhook.endpoint import Endpoint, count_as_proven, refuse
from nanobot_webhook.settings import WebhookSettings
from nanobot_webhook.signature import SignatureRefused, decode_key, read_head, verify_body
from nanobot_webhook.trigger import Hooks

if TYPE_CHECKING:
    from starlette.types import Scope

    from nanobot_core import Fire, PluginContext

_PREFIX = "/hooks/"
_IDS = ("webhook-id", "x-github-delivery", "x-gitlab-event-uuid", "idempotency-key")
"""Headers in which a sender names a delivery, the same when it sends it again."""
_KINDS = ("x-github-event", "x-gitlab-event", "content-type")
_MAX_SHOWN = 20_000
_MINUTE_S = 60.0


class HookIntake(Endpoint):
    """Answers 200 when the event is stored.

    The sender proves itself with the secret of the job: as a bearer, as GitLab sends it, or with
    a signature over the body as GitHub or Standard Webhooks make it. An unknown name and a wrong
    secret get the same answer, so that names cannot be guessed.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._clock = ctx.clock
        self._log = ctx.logger
        self._settings = ctx.settings(WebhookSettings)
        self._hooks = ctx.shared(Hooks)
        self._minute = 0
        self._taken: Counter[str] = Counter()

    async def answer(self, request: Request) -> Response:
        """Store the event of one request."""
        if request.method != "POST":
            return refuse(405, "use POST", {"allow": "POST"})
        path: str = request.scope["path"]
        name = path.removeprefix(request.scope.get("root_path", "")).removeprefix(_PREFIX)
        body = await request.body()
        fire = next(
            (
                fire
                for secret, fire in self._hooks.named(name)
                if self._proves(request, secret, body)
            ),
            None,
        )
        if fire is None:
            return refuse(401, "unknown address, or wrong secret")
        count_as_proven(request.scope)
        if not self._has_room(name):
            return refuse(429, "too many events", {"retry-after": f"{_MINUTE_S:.0f}"})
        return await self._store(fire, _event(request, name, body))

    def _proves(self, request: Request, secret: str, body: bytes) -> bool:
        headers, known = request.headers, secret.encode()
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(bearer.strip().encode(), known):
            return True
        if hmac.compare_digest(headers.get("x-gitlab-token", "").encode(), known):
            return True
        digest = f"sha256={hmac.digest(known, body, hashlib.sha256).hex()}".encode()
        if hmac.compare_digest(headers.get("x-hub-signature-256", "").encode(), digest):
            return True
        try:
            head = read_head(
                headers,
                now_s=self._clock.now().timestamp(),
                tolerance_s=self._settings.tolerance_s,
            )
            verify_body(decode_key(secret), head, body)
        except SignatureRefused:
            return False
        return True

    def _has_room(self, name: str) -> bool:
        minute = int(self._clock.monotonic_s() // _MINUTE_S)
        if minute != self._minute:
            self._minute, self._taken = minute, Counter()
        self._taken[name] += 1
        return self._taken[name] <= self._settings.max_events_per_minute

    async def _store(self, fire: Fire, event: TriggerEvent) -> Response:
        try:
            await fire(event)
        except (NanobotError, OSError) as error:
            self._log.warning("event {} is not stored: {}", event.id, error)
            return refuse(503, "the event is not stored", {"retry-after": "5"})
        return JSONResponse({"stored": True})


def is_hook(scope: Scope) -> bool:
    """Whether a request goes to the address of a job."""
    path: str = scope.get("path", "")
    return path.startswith(f"{scope.get('root_path', '')}{_PREFIX}")


def _event(request: Request, name: str, body: bytes) -> TriggerEvent:
    given = next((request.headers[key] for key in _IDS if request.headers.get(key)), None)
    own_id = hashlib.blake2b((given or uuid4().hex).encode(), digest_size=16).hexdigest()
    kind = ", ".join(request.headers[key] for key in _KINDS if key in request.headers)
    text = body.decode(errors="replace")
    if len(text) > _MAX_SHOWN:
        text = f"{text[:_MAX_SHOWN]}\n(and {len(text) - _MAX_SHOWN:,} more characters)"
    return TriggerEvent(
        id=f"webhook:{name}:{own_id}",
        text=f"POST to hook '{name}' ({kind or 'no type'}):\n\n{text}",
    )
