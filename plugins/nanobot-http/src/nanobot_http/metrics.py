"""What Prometheus is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from datetime import datetime

    from nanobot_core import GatewayStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class RequestCounts:
    """Answers by HTTP status; 0 stands for those that never came."""

    def __init__(self) -> None:
        self._answers: Counter[int] = Counter()

    def add(self, status: int) -> None:
        """Count an answer."""
        self._answers[status] += 1

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(sorted(self._answers.items()))


def render_metrics(status: GatewayStatus, requests: RequestCounts, now: datetime) -> bytes:
    """Return the metrics in Prometheus' text format, with names and numbers and nothing else."""
    registry = CollectorRegistry()
    registry.register(_Families([*_gateway(status, now), *_runs(status), _requests(requests)]))
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
