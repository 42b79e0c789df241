"""Figures of a benchmark: interleaved rounds, medians with their spread, ratios, goals, the table.

Processors are shared and their speed changes, so the sides of a comparison alternate, and a ratio
is the median of the ratios of the rounds.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of some values."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the median and the quartiles of at least one value.

        Raises:
            ValueError: there are no values.
        """
        if not values:
            msg = "a spread needs at least one value"
            raise ValueError(msg)
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure should reach.

    Attributes:
        limit: in the unit of the row, or as a multiple of the floor.
        of: what is limited.
        at_least: whether the limit is a lower one.
    """

    limit: float
    of: Literal["ratio", "value"] = "ratio"
    at_least: bool = False

    def is_met(self, value: float) -> bool:
        """Whether `value` meets the goal."""
        return value >= self.limit if self.at_least else value <= self.limit

    def render(self, unit: str) -> str:
        """Return the goal as the table shows it."""
        sign = ">=" if self.at_least else "<="
        return f"{sign} {self.limit:g} {'x' if self.of == 'ratio' else unit}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        name: what was measured.
        unit: unit of `ours` and `floor`.
        ours: our figure.
        floor: what it is compared with.
        ratio: median of ours to floor, round by round.
        goal: the goal, or ``None`` for a figure that has none.
    """

    name: str
    unit: str
    ours: Spread
    floor: Spread | None = None
    ratio: float | None = None
    goal: Goal | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is reached; ``None`` without a goal."""
        if self.goal is None:
            return None
        value = self.ratio if self.goal.of == "ratio" else self.ours.median
        return None if value is None else self.goal.is_met(value)

    def to_json(self) -> dict[str, object]:
        """Return the row as plain data."""
        return {**dataclasses.asdict(self), "met": self.is_met}


def single(name: str, unit: str, values: Sequence[float], goal: Goal | None = None) -> Row:
    """Return a row without a floor."""
    return Row(name=name, unit=unit, ours=Spread.of(values), goal=goal)


def compare(
    name: str,
    unit: str,
    ours: Sequence[float],
    floor: Sequence[float],
    goal: Goal | None = None,
) -> Row:
    """Return a row that compares values with the floor, round by round.

    Raises:
        ValueError: the two have different numbers of rounds, or none.
    """
    ratios = [mine / its for mine, its in zip(ours, floor, strict=True) if its > 0]
    return Row(
        name=name,
        unit=unit,
        ours=Spread.of(ours),
        floor=Spread.of(floor),
        ratio=statistics.median(ratios) if ratios else None,
        goal=goal,
    )


def interleave(rounds: int, *sides: Callable[[], T]) -> tuple[list[T], ...]:
    """Call every side once in each round, and return the results of all sides.

    A first round is discarded: it writes byte code and fills caches.
    """
    played = [[side() for side in sides] for _ in range(rounds + 1)]
    return tuple(list(results) for results in zip(*played[1:], strict=True))


async def interleave_async(rounds: int, *sides: Callable[[], Awaitable[T]]) -> tuple[list[T], ...]:
    """Do as `interleave` for sides that are awaited."""
    played = [[await side() for side in sides] for _ in range(rounds + 1)]
    return tuple(list(results) for results in zip(*played[1:], strict=True))


@dataclass(frozen=True, slots=True)
class Cost:
    """Time that something took in this process, all threads included. Milliseconds."""

    wall_ms: float
    cpu_ms: float


async def cost_of(work: Awaitable[object]) -> Cost:
    """Await `work` and return the time that it took."""
    started_s, cpu_s = time.perf_counter(), time.process_time()
    await work
    return Cost(
        (time.perf_counter() - started_s) * 1e3,
        (time.process_time() - cpu_s) * 1e3,
    )


def cost_rows(
    name: str, ours: Sequence[Cost], floor: Sequence[Cost], goal: Goal | None = None
) -> tuple[Row, Row]:
    """Return wall time, which carries the goal, and CPU time."""
    return (
        compare(f"{name}, wall", "ms", [c.wall_ms for c in ours], [c.wall_ms for c in floor], goal),
        compare(f"{name}, cpu", "ms", [c.cpu_ms for c in ours], [c.cpu_ms for c in floor]),
    )


_HEADINGS = ("", "ours", "quartiles", "floor", "quartiles", "ratio", "goal", "")
_TITLE_WIDTH = 58


def render_heading() -> str:
    """Return the headings of the table."""
    return _line(_HEADINGS)


def render_row(row: Row) -> str:
    """Return one line of the table."""
    goal = row.goal.render(row.unit) if row.goal else ""
    verdict = {True: "met", False: "MISSED", None: ""}[row.is_met]
    floor = ("", "") if row.floor is None else (_number(row.floor.median), _range(row.floor))
    ratio = "" if row.ratio is None else f"{row.ratio:.2f} x"
    ours = f"{_number(row.ours.median)} {row.unit}"
    return _line((row.name, ours, _range(row.ours), *floor, ratio, goal, verdict))


def _line(cells: Iterable[str]) -> str:
    title, *rest = cells
    widths = (14, 17, 9, 17, 9, 14, 6)
    return " ".join(
        [title.ljust(_TITLE_WIDTH), *(f"{cell:>{n}}" for cell, n in zip(rest, widths, strict=True))]
    ).rstrip()


def _range(spread: Spread) -> str:
    return f"{_number(spread.low)}..{_number(spread.high)}"


def _number(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
