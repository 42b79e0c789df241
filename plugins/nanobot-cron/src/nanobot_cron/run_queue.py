"""RunQueue: claimed runs that wait, so that people do not wait for a hundred jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from nanobot_cron.settings import CronSettings

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_cron.job import Job
    from nanobot_cron.store import Book


class RunQueue:
    """Runs that are given to the gateway, a few at a time; get it with ``ctx.shared(RunQueue)``.

    It is in memory only: after a restart, the claims in the file are added again.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._most = ctx.settings(CronSettings).max_runs
        self._waiting: deque[tuple[Job, bool]] = deque()
        self._given: set[str] = set()

    def add(self, jobs: Iterable[Job], *, is_first: bool) -> None:
        """Add claimed runs at the end; see `Runner.assign` for `is_first`."""
        self._waiting.extend((job, is_first) for job in jobs)

    def take(self, book: Book) -> tuple[Job, bool] | None:
        """Return the next run to give, ``None`` if none waits or enough are under way.

        Args:
            book: the stored jobs; a run that has ended meanwhile is left out.
        """
        while self._waiting and len(self._given) < self._most:
            job, is_first = self._waiting.popleft()
            current, claim = book.jobs.get(job.id), job.state.claim
            if current is None or claim is None or current.state.claim != claim:
                continue
            self._given.add(claim.run_id)
            return current, is_first
        return None

    def end(self, run_id: str) -> None:
        """Make room: a run has ended."""
        self._given.discard(run_id)

    def drop(self, session_key: str) -> list[Job]:
        """Remove the waiting runs of jobs from a session, and return them."""
        dropped = [job for job, _ in self._waiting if job.requester.session_key == session_key]
        if dropped:
            ids = {job.id for job in dropped}
            self._waiting = deque(item for item in self._waiting if item[0].id not in ids)
        return dropped
