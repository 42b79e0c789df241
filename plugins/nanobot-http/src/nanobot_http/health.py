"""The server's own routes: health and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.requests import Request

    from nanobot_core import Clock, GatewayAccess, GatewayStatus
    from nanobot_http.caller import Access


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class RequestCounts:
    """Responses by HTTP status; 0 counts requests without a response."""

    def __init__(self) -> None:
        self._answers: Counter[int] = Counter()

    def add(self, status: int) -> None:
        """Count a response."""
        self._answers[status] += 1

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(sorted(self._answers.items()))


def render_metrics(status: GatewayStatus, requests: RequestCounts, now: datetime) -> bytes:
    """Return the metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(
        _Families([*_gateway(status, now), *_totals(status), *_runs(status), _requests(requests)])
    )
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def _gateway(status: GatewayStatus, now: datetime) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "nanobot_ready", "Everything is started and messages are admitted.", value=status.ready
    )
    uptime_s = (now - status.started_at).total_seconds()
    yield GaugeMetricFamily("nanobot_uptime_seconds", "Seconds since the start.", value=uptime_s)
    yield GaugeMetricFamily("nanobot_turns", "Turns under way.", value=status.turns)
    depth = GaugeMetricFamily("nanobot_queue_messages", "Messages that wait.", labels=["queue"])
    depth.add_metric(["inbound"], status.depth.inbound)
    depth.add_metric(["outbound"], status.depth.outbound)
    depth.add_metric(["dead"], status.depth.dead)
    yield depth


def _totals(status: GatewayStatus) -> Iterator[Metric]:
    totals = status.totals
    yield SummaryMetricFamily(
        "nanobot_turn_seconds", "Ended turns.", count_value=totals.turns, sum_value=totals.turns_s
    )
    for name, text, value in (
        ("failed_turns", "Turns that ended with an error.", totals.failed_turns),
        ("tool_calls", "Ended tool calls.", totals.tool_calls),
        ("failed_tool_calls", "Tool calls whose result is an error.", totals.failed_tool_calls),
        ("model_calls", "Model calls.", totals.model_calls),
        ("prompt_tokens", "Tokens sent to models.", totals.usage.prompt_tokens),
        ("completion_tokens", "Tokens received.", totals.usage.completion_tokens),
        ("cost_usd", "Price of model calls, as far as known.", totals.usage.cost_usd or 0),
    ):
        yield CounterMetricFamily(f"nanobot_{name}", text, value=value)


def _runs(status: GatewayStatus) -> Iterator[Metric]:
    labels = ["kind", "name"]
    up = GaugeMetricFamily("nanobot_up", "1 for what is running.", labels=labels)
    restarts = CounterMetricFamily("nanobot_restarts", "Starts after the first.", labels=labels)
    for run in status.running:
        up.add_metric([run.kind, run.name], run.state == "running")
        restarts.add_metric([run.kind, run.name], run.restarts)
    yield up
    yield restarts


def _requests(requests: RequestCounts) -> Metric:
    family = CounterMetricFamily("nanobot_http_requests", "HTTP answers.", labels=["status"])
    for status, count in requests:
        family.add_metric([str(status)], count)
    return family


OWN_SEGMENTS = frozenset({"health", "metrics"})
"""First segments of paths that plugins cannot have."""
UNAUTHORIZED_HEADERS = {"www-authenticate": "Bearer"}
_NO_STORE = {"cache-control": "no-store"}


class HealthRoutes:
    """``/health``, ``/health/ready`` and ``/metrics``.

    Args:
        access: who may see more than yes or no.
        counts: the answers so far.
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
            # Reasons are left out: an error may contain anything that a service wrote.
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
