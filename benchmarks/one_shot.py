"""``nanobot agent -m``: from the start of the process to the request at the model service."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.child import (
    ChildRun,
    child_rows,
    environment_of,
    nanobot_command,
    program,
    run_child,
)
from benchmarks.measure import Goal, Row, compare, interleave, single
from benchmarks.server import ModelServer, model_server, nanobot_home

ROUNDS = 9
GOAL = Goal(1.5)
RESIDENT_MB = Goal(60, "value")


@dataclass(frozen=True, slots=True)
class Shot:
    """One process, and the time from its start to its request.

    Attributes:
        child: the process.
        to_request_ms: milliseconds until its last request was complete at the service, or ``None``.
    """

    child: ChildRun
    to_request_ms: float | None


def rows(scale: int) -> Iterator[Row]:
    """Compare the command and the Python SDK with a bare httpx script."""
    with model_server() as server, nanobot_home(server.url) as home:
        environment = environment_of(home)

        def shot_of(command: list[str]) -> Callable[[], Shot]:
            return lambda: shoot(command, environment, server)

        command, sdk, floor = interleave(
            ROUNDS * scale,
            shot_of(nanobot_command("agent", "-m", "hello")),
            shot_of(program("sdk_once")),
            shot_of(program("httpx_once", server.url)),
        )
    for name, ours in (("agent -m", command), ("Python SDK", sdk)):
        yield to_request_row(f"{name} / bare httpx", ours, floor, GOAL)
        yield from child_rows(
            f"{name} / bare httpx, whole process",
            [shot.child for shot in ours],
            [shot.child for shot in floor],
            GOAL,
        )
        yield single(f"{name}, resident", "MB", [shot.child.rss_mb for shot in ours], RESIDENT_MB)


def shoot(command: Sequence[str], environment: Mapping[str, str], server: ModelServer) -> Shot:
    """Run a command that may send a request to the service."""
    child = run_child(command, environment)
    received_s = [request["received_at_s"] for request in server.requests()[-1:]]
    to_request_ms = [(s - child.started_s) * 1e3 for s in received_s if s > child.started_s]
    return Shot(child, to_request_ms[0] if to_request_ms else None)


def to_request_row(
    title: str, ours: Sequence[Shot], floor: Sequence[Shot], goal: Goal | None = None
) -> Row:
    """Compare the time from the start to the request."""
    return compare(
        f"{title}, to request, wall", "ms", _to_request_ms(ours), _to_request_ms(floor), goal
    )


def _to_request_ms(shots: Sequence[Shot]) -> list[float]:
    """Return the times of shots that all made a request.

    Raises:
        ValueError: one of them made none.
    """
    found = [shot.to_request_ms for shot in shots if shot.to_request_ms is not None]
    if len(found) != len(shots):
        msg = f"{len(shots) - len(found)} of {len(shots)} processes sent no request"
        raise ValueError(msg)
    return found
