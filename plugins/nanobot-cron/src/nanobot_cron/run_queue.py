"""RunQueue: claimed runs that wait, so that people do not wait for a hundred jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from nanobot_cron.job import Job, person_of_guest
from nanobot_cron.settings import CronSettings

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_cron.store import Book

_Waiting: TypeAlias = deque[tuple[Job, bool]]


class RunQueue:
    """Runs that are given to the gateway, a few at a time; get it with ``ctx.shared(RunQueue)``.

    It is in memory only: after a restart, the claims in the file are added again.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._most = ctx.settings(CronSettings).max_runs
        self._waiting: _Waiting = deque()
        self._guests: _Waiting = deque()
        self._given: dict[str, bool] = {}
        """Runs under way, and whether they are a guest's."""

    def add(self, jobs: Iterable[Job], *, is_first: bool) -> None:
        """Add claimed runs at the end; see `Runner.assign` for `is_first`."""
        for job in jobs:
            waiting = self._guests if person_of_guest(job.requester) else self._waiting
            waiting.append((job, is_first))

    def take(self, book: Book) -> tuple[Job, bool] | None:
        """Return the next run to give, ``None`` if none waits or enough are under way.

        The owner's come first, and those of guests take at most half of the places.

        Args:
            book: the stored jobs; a run that has ended meanwhile is left out.
        """
        while waiting := self._next_queue():
            job, is_first = waiting.popleft()
            current, claim = book.jobs.get(job.id), job.state.claim
            if current is None or claim is None or current.state.claim != claim:
                continue
            self._given[claim.run_id] = waiting is self._guests
            return current, is_first
        return None

    def _next_queue(self) -> _Waiting | None:
        if len(self._given) >= self._most:
            return None
        if self._waiting:
            return self._waiting
        return self._guests if sum(self._given.values()) < max(self._most // 2, 1) else None

    def end(self, run_id: str) -> None:
        """Make room: a run has ended."""
        self._given.pop(run_id, None)

    def drop(self, session_key: str) -> list[Job]:
        """Remove the waiting runs of jobs from a session, and return them."""
        waiting = (*self._waiting, *self._guests)
        dropped = [job for job, _ in waiting if job.requester.session_key == session_key]
        ids = {job.id for job in dropped}
        for queue in (self._waiting, self._guests):
            left = [item for item in queue if item[0].id not in ids]
            queue.clear()
            queue.extend(left)
        return dropped
