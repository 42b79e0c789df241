"""What happened in a month, and what is wrong with the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from tests.reliability.samples import Sample

LEAST_DAYS: Final = 15
"""Days of which the first third can be compared with the last."""
MAY_GROW: Final = {"rss_mb": 60.0, "tasks": 6, "threads": 4, "handles": 6}
"""How much more a gateway may hold in the last third of a month than in the first; the histories of
its chats are in memory."""


@dataclass
class Report:
    """What happened in a month.

    Attributes:
        seed: of all that was chosen.
        days: how many have passed.
        counts: what was done, and how often.
        faults: name to how often it happened.
        samples: what the gateway held at the end of each day.
        findings: what must not be.
    """

    seed: int
    days: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def sum_up(self, chats: int) -> None:
        """Add what is wrong with the whole.

        Args:
            chats: how many there are.
        """
        self.findings += [*self._jobs(), *self._shown_twice(chats), *self._growth()]

    def _jobs(self) -> Iterator[str]:
        ran = self.counts["jobs at nine"]
        if not self.days - self.faults["clock_forward"] <= ran <= self.days:
            yield f"{ran} of {self.days} jobs at nine have run"

    def _shown_twice(self, chats: int) -> Iterator[str]:
        # A kill can come between sending and its record.
        if self.counts["shown twice"] > (self.faults["kill"] + self.faults["disk_full"]) * chats:
            yield f"{self.counts['shown twice']} answers are shown twice"

    def _growth(self) -> Iterator[str]:
        """Yield what the gateway holds more of in the last third than in the first."""
        if self.days < LEAST_DAYS:
            return
        third = len(self.samples) // 3
        for name, may_grow in MAY_GROW.items():
            values = [getattr(sample, name) for sample in self.samples]
            before, after = median(values[:third]), median(values[-third:])
            if after > before + may_grow:
                yield f"{name} grew from {before:g} to {after:g}: {values}"

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {self.days} days",
            "  " + ", ".join(f"{name} {count:,}" for name, count in sorted(self.counts.items())),
            "  faults: " + ", ".join(f"{name} {n}" for name, n in sorted(self.faults.items())),
            *(f"  {sample}" for sample in (self.samples[:1] + self.samples[-1:])),
            f"  findings: {len(self.findings)}",
            *(f"  - {finding}" for finding in self.findings),
        ]
        return "\n".join(lines)
