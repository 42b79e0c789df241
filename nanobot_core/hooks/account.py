"""The cost of each implementation of a hook, and the circuit that leaves out a failing one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

FAILURES_TO_OPEN = 3
"""Failures in a row, or calls that never ended, after which an implementation is left out."""
FIRST_PAUSE_S = 30.0
LONGEST_PAUSE_S = 600.0

CircuitState: TypeAlias = Literal["closed", "open", "half-open"]


@dataclass(slots=True)
class PluginCosts:
    """What a plugin costs besides the calls of its hooks. Times are in seconds.

    Attributes:
        start_s: time from its import to the end of its ``start``.
        import_cpu_s: processor time of its import.
        memory_bytes: memory that the process took meanwhile, about.
        blocked_s: time in which its code blocked the event loop.
        passage_tokens: estimated tokens of its passages in the last request.
        cache_misses: how often a tool or a stable passage of it changed within a session.
        lost_tokens: estimated tokens that providers had to read again because of that.
    """

    start_s: float = 0.0
    import_cpu_s: float = 0.0
    memory_bytes: int = 0
    blocked_s: float = 0.0
    passage_tokens: int = 0
    cache_misses: int = 0
    lost_tokens: int = 0


@dataclass(slots=True)
class Account:
    """Running totals of one plugin and hook. Times are in seconds."""

    calls: int = 0
    errors: int = 0
    timeouts: int = 0
    skipped: int = 0
    dropped: int = 0
    total_s: float = 0.0
    worst_s: float = 0.0
    blocked_s: float = 0.0
    last_error: str = ""

    def add(self, elapsed_s: float) -> None:
        """Count a call that took `elapsed_s`."""
        self.calls += 1
        self.total_s += elapsed_s
        self.worst_s = max(self.worst_s, elapsed_s)


@dataclass(slots=True)
class Circuit:
    """Three failures in a row open it; after a pause one trial call decides.

    The pause doubles from 30 seconds to 10 minutes while trials fail. Three calls that continue
    after their limit open it as well, and no trial begins until one of them has ended, so that
    calls that cannot be stopped do not accumulate.
    """

    now_s: Callable[[], float]
    on_open: Callable[[], None] = lambda: None
    failures: int = 0
    pause_s: float = FIRST_PAUSE_S
    opened_at_s: float | None = None
    trial_running: bool = field(default=False)
    left_behind: int = 0

    @property
    def state(self) -> CircuitState:
        """Whether calls go through, are left out, or one may try."""
        if self.opened_at_s is None:
            return "closed"
        if self.left_behind >= FAILURES_TO_OPEN:
            return "open"
        return "half-open" if self.now_s() >= self.opened_at_s + self.pause_s else "open"

    def admits(self) -> bool:
        """Whether a call may be made now; in the half-open state only the first one may."""
        if self.opened_at_s is None:
            return True
        if self.trial_running or self.state == "open":
            return False
        self.trial_running = True
        return True

    def succeeded(self) -> None:
        """Count a successful call; the circuit closes.

        A call that began before the circuit opened does not count: only a trial closes it.
        """
        if self.opened_at_s is not None and not self.trial_running:
            return
        if self.failures or self.opened_at_s is not None:
            self.failures = 0
            self.opened_at_s = None
            self.pause_s = FIRST_PAUSE_S
            self.trial_running = False

    def failed(self) -> None:
        """Count a failed call."""
        self.failures += 1
        if self.trial_running:
            self.trial_running = False
            self.pause_s = min(self.pause_s * 2, LONGEST_PAUSE_S)
        elif self.failures < FAILURES_TO_OPEN or self.opened_at_s is not None:
            return
        self._open()

    def leave_behind(self, call: asyncio.Future[Any]) -> None:
        """Count a call that continues after its limit, until it ends."""
        self.left_behind += 1
        call.add_done_callback(self._ended)
        if self.left_behind >= FAILURES_TO_OPEN and self.opened_at_s is None:
            self._open()

    def _ended(self, call: asyncio.Future[Any]) -> None:
        self.left_behind -= 1

    def _open(self) -> None:
        self.opened_at_s = self.now_s()
        self.on_open()

    def released(self) -> None:
        """Ignore a call that the host itself cancelled: it says nothing about the plugin."""
        self.trial_running = False
