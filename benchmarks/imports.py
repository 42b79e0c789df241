"""What the entry module of each installed plugin imports, and how long that takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from importlib.metadata import entry_points
from typing import Any

from benchmarks.child import environment_of, program, run_child
from benchmarks.measure import Goal, Row, interleave, single

ROUNDS = 3


def rows(scale: int) -> Iterator[Row]:
    """Import each entry module in new processes that have imported the host."""
    entries = sorted(entry_points(group="nanobot"), key=lambda entry: entry.name)
    found = interleave(ROUNDS * scale, *(partial(_import, entry.module) for entry in entries))
    for entry, runs in zip(entries, found, strict=True):
        foreign = sorted({name.partition(".")[0] for run in runs for name in run["foreign"]})
        note = f" ({', '.join(foreign)})" if foreign else ""
        times_ms = [run["elapsed_ms"] for run in runs]
        yield single(f"{entry.name}: import", "ms", times_ms, Goal(2.0, "value"))
        counts = [float(len(run["foreign"])) for run in runs]
        yield single(f"{entry.name}: foreign modules{note}", "", counts, Goal(0, "value"))


def _import(module: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        run_child(program("import_entry", module), environment_of()).output
    )
    return found
