"""Supervisor: keeps a channel or service running, and reports its state."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Literal

from nanobot_core.contracts.service import RunState, RunStatus
from nanobot_core.errors import FOREIGN_ERRORS, ChannelError, NanobotError
from nanobot_core.tasks import TURN_END_S, growing_delay_s

if TYPE_CHECKING:
    from datetime import datetime

    from nanobot_core.clock import Clock
    from nanobot_core.plugins.manifest import Declaration
    from nanobot_core.tasks import Spawn

LONGEST_DELAY_S = 10.0
MAX_RESTARTS = 30
RESTART_WINDOW_S = 600.0
PROBE_INTERVAL_S = 120.0
"""Seconds between attempts after too many failures: a platform may come back after hours."""
REFUSED_PROBE_S = 3_600.0
"""Seconds between attempts with refused credentials: platforms refuse valid ones now and then."""
STABLE_S = 60.0
"""Seconds after which an attempt that was alive counts as recovered."""
SETTLED_S = 2.0
"""Seconds after which a channel that cannot report itself alive counts as running."""
WATCH_S = 15.0
"""Longest interval between checks for silence."""


class Supervisor:
    """Runs something for as long as the gateway, in attempts.

    Args:
        name: its name.
        kind: what it is.
        plugin: id of the plugin that contributes it.
        attempt: one attempt, from creation to end; must release everything when cancelled.
        spawn: starts tasks that the application owns.
        clock: source of time.
        on_failed: called once when it has failed too often.
    """

    def __init__(
        self,
        name: str,
        kind: Literal["channel", "service"],
        plugin: str,
        attempt: Callable[[], Awaitable[None]],
        *,
        spawn: Spawn,
        clock: Clock,
        on_failed: Callable[[RunStatus], Awaitable[None]],
    ) -> None:
        self.name = name
        self.plugin = plugin
        self.silence_limit_s: float | None = None
        """Set by the attempt: most seconds without `alive`."""
        self._kind: Literal["channel", "service"] = kind
        self._attempt = attempt
        self._spawn = spawn
        self._clock = clock
        self._on_failed = on_failed
        self._state: RunState = "stopped"
        self._since: datetime = clock.now()
        self._restarts = 0
        self._recent: deque[float] = deque(maxlen=MAX_RESTARTS)
        self._failures_in_a_row = 0
        self._last_error: str | None = None
        self._last_contact: datetime | None = None
        self._heard_s = 0.0
        self._was_heard = False
        self._given_up = False
        self._needs_owner = False
        self._task: asyncio.Task[None] | None = None

    @property
    def status(self) -> RunStatus:
        """The present state."""
        state = self._state
        if state == "running" and self._is_silent():
            state = "waiting"
        return RunStatus(
            name=self.name,
            kind=self._kind,
            plugin=self.plugin,
            state=state,
            since=self._since,
            restarts=self._restarts,
            last_error=self._last_error,
            last_contact=self._last_contact,
        )

    def alive(self) -> None:
        """Note that it works."""
        self._heard_s = self._clock.monotonic_s()
        self._last_contact = self._clock.now()
        self._was_heard = True
        if self._state in {"starting", "failed"}:
            self._enter("running")

    def lost(self) -> None:
        """Note that it no longer works, though it has not ended yet."""
        if self._state in {"starting", "running"}:
            self._enter("failed" if self._given_up else "waiting")

    def start(self) -> None:
        """Start; does nothing while it runs."""
        if self._task is None or self._task.done():
            self._task = self._spawn(self._run(), name=f"{self._kind}:{self.name}")

    async def stop(self) -> None:
        """Stop it within a limit; the owner of tasks takes over one that does not end."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            _, stuck = await asyncio.wait({task}, timeout=TURN_END_S)
            if stuck:
                from loguru import logger

                logger.bind(plugin=self.plugin).warning(
                    "{} {} did not stop in time", self._kind, self.name
                )
        self._enter("stopped")

    async def _run(self) -> None:
        while True:
            await self._live()
            await self._clock.sleep(await self._delay_s())
            self._restarts += 1
            self._recent.append(self._clock.monotonic_s())

    async def _live(self) -> None:
        """Run one attempt to its end, and note how it ended."""
        if not self._given_up:
            self._enter("starting")
        started = self._heard_s = self._clock.monotonic_s()
        self._was_heard = self._needs_owner = False
        self.silence_limit_s = None
        attempt = self._spawn(self._contained(), name=f"{self._kind}:{self.name}:attempt")
        watch = self._spawn(self._watch(), name=f"{self._kind}:{self.name}:watch")
        try:
            await asyncio.wait({attempt, watch}, return_when=asyncio.FIRST_COMPLETED)
            self._last_error = _reason(attempt) or (
                f"no answer from its platform for {self.silence_limit_s:g} seconds"
            )
            self.lost()
        finally:
            watch.cancel()
            attempt.cancel()
            await asyncio.wait({attempt, watch}, timeout=TURN_END_S)
        if self._was_heard and self._clock.monotonic_s() - started >= STABLE_S:
            self._failures_in_a_row = 0
            self._given_up = False
            self._recent.clear()
        self._failures_in_a_row += 1
        from loguru import logger

        logger.bind(plugin=self.plugin).warning(
            "{} {} ended: {}", self._kind, self.name, self._last_error
        )

    async def _contained(self) -> str:
        """Run one attempt; return why it ended."""
        try:
            await self._attempt()
        except NanobotError as error:
            self._needs_owner = isinstance(error, ChannelError) and error.needs_owner
            return str(error)
        except FOREIGN_ERRORS as error:
            return f"{type(error).__name__}: {error}"
        return "it ended by itself"

    async def _watch(self) -> None:
        """Return when it was silent for too long."""
        while not self._is_silent():
            limit_s = self.silence_limit_s
            await self._clock.sleep(WATCH_S if limit_s is None else min(limit_s / 4, WATCH_S))

    async def _delay_s(self) -> float:
        """Return the seconds until the next attempt; fail after too many."""
        now = self._clock.monotonic_s()
        worn_out = len(self._recent) == MAX_RESTARTS and now - self._recent[0] < RESTART_WINDOW_S
        if (worn_out or self._needs_owner) and not self._given_up:
            self._given_up = True
            self._enter("failed")
            await self._on_failed(self.status)
        if self._given_up:
            self._enter("failed")
            if self._needs_owner or not self._recent:
                return REFUSED_PROBE_S
            return max(PROBE_INTERVAL_S, self._recent[0] + RESTART_WINDOW_S - now)
        self._enter("waiting")
        return growing_delay_s(self._failures_in_a_row, LONGEST_DELAY_S)

    def _is_silent(self) -> bool:
        limit_s = self.silence_limit_s
        return limit_s is not None and self._clock.monotonic_s() - self._heard_s > limit_s

    def _enter(self, state: RunState) -> None:
        if state != self._state:
            self._state, self._since = state, self._clock.now()


def uncontested(
    kind: str, declared: Iterable[tuple[str, Declaration]]
) -> dict[str, tuple[str, Declaration]]:
    """Return plugin and declaration by name; a name that several plugins provide is left out.

    Args:
        kind: what it is, for the log.
        declared: plugins with a declaration of theirs.
    """
    from loguru import logger

    found = list(declared)
    claims = Counter(declaration.name for _, declaration in found)
    for name in sorted(name for name, count in claims.items() if count > 1):
        logger.error("several plugins provide {} '{}'; disable all but one", kind, name)
    return {each.name: (plugin, each) for plugin, each in found if claims[each.name] == 1}


def _reason(attempt: asyncio.Task[str]) -> str | None:
    """Return why an attempt ended; ``None`` if it has not."""
    if not attempt.done():
        return None
    return "it was cancelled" if attempt.cancelled() else attempt.result()
