"""What all conformance suites have in common."""

from __future__ import annotations

from typing import Any


class ConformanceSuite:
    """Base of the suites. A subclass supplies what is tested and may add tests of its own.

    It may neither rewrite nor drop an inherited test, because then its name would promise what
    was not looked at.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherited = {name for base in cls.__mro__[1:] for name in vars(base)}
        changed = sorted(
            name for name in vars(cls) if name.startswith("test_") and name in inherited
        )
        if changed:
            msg = f"{cls.__name__} changes tests of its contract: {', '.join(changed)}"
            raise TypeError(msg)
