"""Finds the smallest part of a set with which something fails, by delta debugging (ddmin).

Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE Transactions on
Software Engineering 28 (2002).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum

Names = tuple[str, ...]


class Verdict(Enum):
    """What a try has shown."""

    PASSES = "passes"
    FAILS = "fails"
    SKIPPED = "cannot be tested"


def smallest_failing(names: Sequence[str], judge: Callable[[Names], Verdict]) -> Names:
    """Return a part of `names` with which the failure remains, and without any of which it goes.

    A part that cannot be tested counts as one that passes. With one cause, the number of tries is
    about twice the logarithm of the number of names.

    Args:
        names: all of them fail together, and none of them passes; neither is tried again.
        judge: tries a part.
    """
    known: dict[Names, Verdict] = {tuple(names): Verdict.FAILS, (): Verdict.PASSES}

    def fails(part: Names) -> bool:
        if part not in known:
            known[part] = judge(part)
        return known[part] is Verdict.FAILS

    failing, pieces = tuple(names), 2
    while len(failing) > 1:
        parts = list(_divide(failing, pieces))
        others = [tuple(name for name in failing if name not in part) for part in parts]
        smaller = next(filter(fails, (*parts, *others)), None)
        if smaller is not None:
            pieces = 2 if smaller in parts else max(pieces - 1, 2)
            failing = smaller
        elif pieces == len(failing):
            break
        else:
            pieces = min(pieces * 2, len(failing))
    return failing


def _divide(names: Names, pieces: int) -> Iterator[Names]:
    """Yield `names` in parts of about equal size."""
    for number in range(pieces):
        yield names[len(names) * number // pieces : len(names) * (number + 1) // pieces]
