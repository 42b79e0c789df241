"""A hundred concurrent sessions, ten messages each; the model answers after 50 ms."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.child import ChildRun, environment_of, program, run_child
from benchmarks.measure import Goal, Row, compare, single
from benchmarks.server import model_server, nanobot_home

SESSIONS = 100
MESSAGES = 10
DELAY_S = 0.05
PROGRAMS = ("many_nanobot", "many_asyncio", "many_httpx")


def rows(scale: int) -> Iterator[Row]:
    """Compare nanobot, a raw asyncio client and one httpx client, each in a process of its own."""
    reply = {"text": "Done.", "delay_s": DELAY_S}
    with model_server(default=reply) as server, nanobot_home(server.url) as home:
        arguments = (server.url, str(SESSIONS), str(MESSAGES))

        def run(name: str) -> ChildRun:
            return run_child(program(name, *arguments), environment_of(home))

        run("many_nanobot")  # writes byte code; the others need none
        found = [[run(name) for name in PROGRAMS] for _ in range(scale)]
    ours, raw, pooled = (list(runs) for runs in zip(*found, strict=True))
    title = f"{SESSIONS} sessions x {MESSAGES}"
    rates = [float(each.output) for each in ours]
    yield single(f"{title}, messages a second", "/s", rates, Goal(400, "value", at_least=True))
    yield compare(
        f"{title} / one httpx client",
        "/s",
        rates,
        [float(each.output) for each in pooled],
        Goal(2.0, at_least=True),
    )
    yield compare(f"{title} / raw asyncio", "/s", rates, [float(each.output) for each in raw])
    yield single(
        f"{title}, cpu a message", "ms", [each.cpu_ms / SESSIONS / MESSAGES for each in ours]
    )
    yield single(f"{title}, resident", "MB", [each.rss_mb for each in ours], Goal(120, "value"))
