"""Time as a parameter: what waits or stamps takes a clock, so that tests need no sleeping."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Source of time."""

    def now(self) -> datetime:
        """Return the current instant, aware, in UTC."""

    def monotonic_s(self) -> float:
        """Return seconds from an arbitrary start that never go back."""

    async def sleep(self, delay_s: float) -> None:
        """Wait for `delay_s` seconds; zero or less yields to other tasks once."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the current instant, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        """Return the machine's monotonic seconds."""
        return time.monotonic()

    async def sleep(self, delay_s: float) -> None:
        """Wait for `delay_s` seconds of real time."""
        await asyncio.sleep(max(delay_s, 0))
