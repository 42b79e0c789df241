"""``python -m tests.security.goals``: try the goals and print the table."""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import replace

from tests.security.goals.catalogue import AREAS, GOALS
from tests.security.goals.goal import SPEAKERS
from tests.security.goals.table import render_sums, render_table
from tests.security.goals.trying import SAFE, Outcome, try_goals
from tests.security.goals.walls import WALLS


def main() -> int:
    """Print each outcome as it comes, then the table; 1 when a goal was reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.security.goals", description=__doc__)
    parser.add_argument("--wall", action="append", choices=WALLS, help="only this wall")
    parser.add_argument("--speaker", action="append", choices=SPEAKERS, help="only this speaker")
    parser.add_argument("goal", nargs="*", help="only goals whose names have this in them")
    parser.add_argument("--strict", action="store_true", help="try all in the strict setting")
    asked = parser.parse_args()
    goals = [
        replace(goal, setting="strict") if asked.strict else goal
        for goal in GOALS
        if not asked.goal or any(word in goal.id for word in asked.goal)
    ]
    outcomes = asyncio.run(
        try_goals(goals, asked.wall or WALLS, asked.speaker or SPEAKERS, _report)
    )
    sys.stdout.write(f"{render_table(outcomes, AREAS)}\n\n{render_sums(outcomes)}\n")
    return int(any(one.verdict not in SAFE for one in outcomes))


def _report(one: Outcome) -> None:
    sys.stderr.write(f"{one.verdict:8} {one.wall:9} {one.speaker:11} {one.goal}\n")


if __name__ == "__main__":
    sys.exit(main())
