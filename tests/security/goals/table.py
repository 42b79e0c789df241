"""The outcomes as a table, for a terminal and for `docs/security.md`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tests.security.goals.catalogue import AREAS
from tests.security.goals.goal import SPEAKERS, Goal, Speaker
from tests.security.goals.trying import Outcome, Verdict
from tests.security.goals.walls import WALLS, WallName, missing

_LETTERS: Final[dict[Verdict, str]] = {
    "refused": "–",
    "asked": "?",
    "open": "open",
    "REACHED": "REACHED",
    "STUCK": "STUCK",
    "UNTRIED": "UNTRIED",
}
_HEADS: Final[dict[WallName, str]] = {
    "off": "sandbox: none",
    "none": "no sandbox",
    "landlock": "Landlock",
    "bwrap": "bubblewrap",
}
LEGEND: Final = (
    "– refused, ? the owner is asked and nothing happens without a yes, open: possible and "
    "documented. The four signs of a cell: terminal, chat of the owner, chat of a guest, no one to "
    "ask."
)


def render_table(outcomes: Sequence[Outcome], areas: dict[str, tuple[Goal, ...]] = AREAS) -> str:
    """Return the table in Markdown, what is open with its reason, and what could not be tried."""
    return "\n".join([LEGEND, "", *_rows(outcomes, areas), *_reasons(outcomes, areas), *_gaps()])


def _rows(outcomes: Sequence[Outcome], areas: dict[str, tuple[Goal, ...]]) -> Iterator[str]:
    found = {(one.goal, one.wall, one.speaker): one.verdict for one in outcomes}
    goals = {one.goal for one in outcomes}
    heads = [_HEADS[name] for name in WALLS]
    yield f"| an attacker would like to | {' | '.join(heads)} |"
    yield f"| --- |{' --- |' * len(heads)}"
    for area, members in areas.items():
        tried = [goal for goal in members if goal.id in goals]
        if tried:
            yield f"| **{area}** |{' |' * len(heads)}"
        for goal in tried:
            cells = [_cell(found, goal, name) for name in WALLS]
            yield f"| {goal.power} | {' | '.join(cells)} |"


def _cell(found: dict[tuple[str, WallName, Speaker], Verdict], goal: Goal, name: WallName) -> str:
    verdicts = [found.get((goal.id, name, speaker)) for speaker in SPEAKERS]
    return " ".join(_LETTERS[one] if one else "·" for one in verdicts)


def _reasons(outcomes: Sequence[Outcome], areas: dict[str, tuple[Goal, ...]]) -> Iterator[str]:
    open_goals = {one.goal for one in outcomes if one.verdict == "open"}
    for goal in (goal for members in areas.values() for goal in members):
        if goal.id in open_goals:
            reasons = sorted({*goal.documented.values()})
            yield f"\nOpen: {goal.power}, because {'; '.join(reasons)}."


def _gaps() -> Iterator[str]:
    for name in WALLS:
        if reason := missing(name):
            yield f"\nNot tried: {_HEADS[name]}, because {reason}."


def render_sums(outcomes: Sequence[Outcome]) -> str:
    """Return how often each verdict came, by combination."""
    lines = []
    for name in WALLS:
        for speaker in SPEAKERS:
            verdicts = [
                one.verdict for one in outcomes if (one.wall, one.speaker) == (name, speaker)
            ]
            sums = {verdict: verdicts.count(verdict) for verdict in _LETTERS}
            counts = ", ".join(f"{number} {verdict}" for verdict, number in sums.items() if number)
            lines.append(f"{_HEADS[name]}, {speaker}: {counts or 'not tried'}")
    return "\n".join(lines)
