"""``python -m tests.month``: simulate months and print their reports.

The home of a month in which something was wrong is kept.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.month.month import live
from tests.month.report import Report


def main() -> int:
    """Print a line for each day and a report for each seed; 1 if something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.month", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--days", type=int, default=30)
    asked = parser.parse_args()
    wrong = 0
    for seed in range(asked.seed, asked.seed + asked.seeds):
        began_s = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="month-"))
        report = asyncio.run(live(folder, seed, asked.days, _progress))
        took_s = time.monotonic() - began_s
        sys.stdout.write(f"{report}\n  real time: {took_s:.0f} s\n")
        if report.findings:
            wrong += 1
            sys.stdout.write(f"  kept: {folder}\n")
        else:
            shutil.rmtree(folder)
        sys.stdout.flush()
    return int(wrong > 0)


def _progress(report: Report) -> None:
    found = f", {len(report.findings)} findings" if report.findings else ""
    sys.stderr.write(f"seed {report.seed}, day {report.days}{found}\n")


if __name__ == "__main__":
    sys.exit(main())
