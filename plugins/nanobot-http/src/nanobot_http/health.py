"""The server's own routes: whether the gateway lives and works."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from nanobot_http.metrics import CONTENT_TYPE, RequestCounts, render_metrics

if TYPE_CHECKING:
    from starlette.requests import Request

    from nanobot_core import Clock, GatewayAccess
    from nanobot_http.access import Access

OWN_SEGMENTS = frozenset({"health", "metrics"})
"""First segments of paths that belong to no plugin."""
UNAUTHORIZED_HEADERS = {"www-authenticate": "Bearer"}
_NO_STORE = {"cache-control": "no-store"}


class HealthRoutes:
    """``/health``, ``/health/ready`` and ``/metrics``.

    Args:
        gateway: knows how it is.
        access: who may see more than yes or no.
        counts: the answers so far.
        clock: source of time.
    """

    def __init__(
        self, gateway: GatewayAccess, access: Access, counts: RequestCounts, clock: Clock
    ) -> None:
        self._gateway = gateway
        self._access = access
        self._counts = counts
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return them for an application."""
        return [
            Route("/health", self._live, methods=["GET"]),
            Route("/health/ready", self._ready, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
        ]

    async def _live(self, request: Request) -> Response:
        return JSONResponse({"status": "alive"}, headers=_NO_STORE)

    async def _ready(self, request: Request) -> Response:
        status = await self._gateway.status()
        failed = [run for run in status.running if run.kind == "channel" and run.state == "failed"]
        is_ready = status.ready and not failed
        answer: dict[str, object] = {"ready": is_ready}
        if self._access.may_look(request.scope):
            # Reasons are left out: what a service wrote into an error is not known here.
            answer["running"] = [
                {"kind": run.kind, "name": run.name, "state": run.state, "restarts": run.restarts}
                for run in status.running
            ]
        return JSONResponse(answer, 200 if is_ready else 503, headers=_NO_STORE)

    async def _metrics(self, request: Request) -> Response:
        if not self._access.may_look(request.scope):
            return PlainTextResponse("the secret is missing or wrong", 401, UNAUTHORIZED_HEADERS)
        status = await self._gateway.status()
        text = render_metrics(status, self._counts, self._clock.now())
        return Response(text, headers=_NO_STORE, media_type=CONTENT_TYPE)
