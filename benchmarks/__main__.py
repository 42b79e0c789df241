"""``python -m benchmarks [names]``: run benchmarks and print a table, or JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points

from benchmarks.measure import Row, render_heading, render_row

NAMES = (
    "startup",
    "imports",
    "discovery",
    "hooks",
    "one_shot",
    "warm_turn",
    "sessions",
    "throughput",
    "bus",
    "gateway",
    "api",
    "tokens",
)
SCALE_OF_LONG = 5


def main() -> None:
    """Run the benchmarks that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--long", action="store_true", help=f"{SCALE_OF_LONG} times the rounds")
    parser.add_argument("--peer", action="store_true", help="install nanobot-ai and measure it too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    unknown = sorted({*options.names} - {*NAMES})
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    names = [*(options.names or NAMES), *(["peer"] if options.peer else [])]
    scale = SCALE_OF_LONG if options.long else 1
    if options.json:
        results = {name: [row.to_json() for row in rows_of(name, scale)] for name in names}
        json.dump({"machine": machine(), "benchmarks": results}, sys.stdout, indent=2)
        print()
        return
    print("; ".join(f"{key}: {value}" for key, value in machine().items()))
    print(render_heading())
    for name in names:
        print(f"\n{name}", flush=True)
        for row in rows_of(name, scale):
            print(render_row(row), flush=True)


def rows_of(name: str, scale: int) -> Iterator[Row]:
    """Run one benchmark.

    Args:
        name: name of its module.
        scale: multiple of the usual number of rounds.
    """
    rows: Iterator[Row] = importlib.import_module(f"benchmarks.{name}").rows(scale)
    yield from rows


def machine() -> dict[str, str]:
    """Return the conditions of the measurement."""
    plugins = sorted(entry.name for entry in entry_points(group="nanobot"))
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "plugins": " ".join(plugins) or "none",
    }


if __name__ == "__main__":
    main()
