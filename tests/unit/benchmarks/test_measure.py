"""The statistics behind every benchmark's table."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from benchmarks.measure import (
    Goal,
    Spread,
    compare,
    interleave,
    interleave_async,
    render_heading,
    render_row,
    single,
)

figures = st.lists(st.floats(min_value=0.001, max_value=1e9), min_size=1)


def test_the_spread_of_one_value_is_that_value() -> None:
    assert Spread.of([3.0]) == Spread(median=3.0, low=3.0, high=3.0)


def test_the_spread_is_the_median_between_the_quartiles() -> None:
    assert Spread.of([5.0, 1.0, 3.0, 2.0, 4.0]) == Spread(median=3.0, low=2.0, high=4.0)


@given(figures)
def test_the_spread_lies_within_the_values(values: list[float]) -> None:
    spread = Spread.of(values)

    slack = 1e-9 * max(values)
    assert min(values) - slack <= spread.low <= spread.median + slack
    assert spread.median - slack <= spread.high <= max(values) + slack


def test_no_values_have_no_spread() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        Spread.of([])


def test_a_ratio_is_the_median_of_the_rounds_so_that_drift_cancels_out() -> None:
    # The machine becomes ten times slower half way; ours takes twice the floor all the time.
    row = compare("drift", "ms", [2.0, 2.0, 20.0, 20.0], [1.0, 1.0, 10.0, 10.0])

    assert row.ratio == 2.0


def test_one_disturbed_round_does_not_move_the_ratio() -> None:
    row = compare("noise", "ms", [2.0, 900.0, 2.0], [1.0, 1.0, 1.0])

    assert row.ratio == 2.0


def test_a_floor_of_nothing_gives_no_ratio_and_no_verdict() -> None:
    row = compare("count", "", [1.0], [0.0], Goal(2))

    assert row.ratio is None
    assert row.is_met is None


def test_sides_with_different_numbers_of_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare("uneven", "ms", [1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (Goal(2.0), True),
        (Goal(1.9), False),
        (Goal(4.0, "value"), True),
        (Goal(3.9, "value"), False),
        (Goal(2.0, at_least=True), True),
        (Goal(4.1, "value", at_least=True), False),
    ],
)
def test_a_goal_bounds_the_ratio_or_the_value_from_either_side(goal: Goal, met: bool) -> None:
    assert compare("row", "ms", [4.0], [2.0], goal).is_met is met


def test_a_row_without_a_goal_has_no_verdict() -> None:
    assert single("row", "ms", [1.0]).is_met is None


def test_sides_take_turns_and_the_first_round_is_thrown_away() -> None:
    calls: list[str] = []

    def side(name: str) -> str:
        calls.append(name)
        return f"{name}{len(calls)}"

    found = interleave(2, lambda: side("a"), lambda: side("b"))

    assert calls == ["a", "b"] * 3
    assert found == (["a3", "a5"], ["b4", "b6"])


@pytest.mark.anyio
async def test_awaited_sides_take_turns_as_well() -> None:
    calls: list[str] = []

    async def side(name: str) -> int:
        calls.append(name)
        return len(calls)

    found = await interleave_async(1, lambda: side("a"), lambda: side("b"))

    assert calls == ["a", "b", "a", "b"]
    assert found == ([3], [4])


def test_the_table_says_whether_a_goal_is_met() -> None:
    met = render_row(compare("quick", "ms", [2.0], [1.0], Goal(2)))
    missed = render_row(single("slow", "/s", [1_234.0], Goal(2_000, "value", at_least=True)))

    assert re.sub(" +", " ", met) == "quick 2 ms 2..2 1 1..1 2.00 x <= 2 x met"
    assert re.sub(" +", " ", missed) == "slow 1,234 /s 1,234..1,234 >= 2000 /s MISSED"


def test_columns_stand_below_their_headings() -> None:
    heading = render_heading()
    row = render_row(compare("name", "ms", [2.0], [1.0], Goal(2)))

    assert heading.index("ours") + len("ours") == row.index("2 ms") + len("2 ms")
    assert heading.index("ratio") + len("ratio") == row.index("2.00 x") + len("2.00 x")


def test_a_row_as_json_holds_figures_and_verdict() -> None:
    record = compare("row", "ms", [4.0], [2.0], Goal(2)).to_json()

    assert record["ours"] == {"median": 4.0, "low": 4.0, "high": 4.0}
    assert record["goal"] == {"limit": 2, "of": "ratio", "at_least": False}
    assert record["met"] is True
