"""Jobs: what the tool, the commands and the terminal do with jobs."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from nanobot_core import NanobotError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nanobot_core import Contributed, Delivery, PluginContext, Requester, SystemJob, Trigger
    from nanobot_cron.job import Job, JobState, Missed, Run, Schedule


class JobsError(NanobotError):
    """Something about jobs that the person or the model can change."""


class UnknownJob(JobsError):
    """There is no job with this id."""

    def __init__(self, job_id: str, known: Iterable[str]) -> None:
        self.job_id: str = job_id
        self.near: list[str] = get_close_matches(job_id, list(known), n=3)
        hint = f"; did you mean {' or '.join(map(repr, self.near))}?" if self.near else ""
        super().__init__(f"There is no job {job_id!r}{hint}")


class ProtectedJob(JobsError):
    """The job belongs to a plugin."""

    def __init__(self, job_id: str, plugin: str) -> None:
        self.job_id: str = job_id
        self.plugin: str = plugin
        super().__init__(f"Cannot remove job {job_id!r}: it is managed by plugin {plugin!r}")


class JobRefused(JobsError):
    """The job breaks a limit, or cannot be run now."""


class JobsUnavailable(JobsError):
    """The file with the jobs cannot be read or written; nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemEntry:
    """A job of a plugin, and its state.

    Attributes:
        plugin: id of the plugin.
        job: as the plugin contributes it.
        enabled: whether people left it switched on.
        state: its history and its next run.
    """

    plugin: str
    job: SystemJob
    enabled: bool
    state: JobState


class Jobs:
    """All jobs; get it with ``ctx.shared(Jobs)``.

    Every method raises `JobsUnavailable` if the file with the jobs cannot be used.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx

    async def all(self) -> list[Job]:
        """Return the jobs of people, the next one first, those without a next run last."""
        raise NotImplementedError

    async def get(self, job_id: str) -> Job:
        """Return a job of a person.

        Raises:
            UnknownJob: there is none.
        """
        raise NotImplementedError

    async def system(self) -> list[SystemEntry]:
        """Return the jobs of plugins."""
        raise NotImplementedError

    async def triggers(self) -> Mapping[str, Contributed[Trigger]]:
        """Return what can start a job `On` an event, by name."""
        raise NotImplementedError

    async def add(
        self,
        *,
        message: str,
        schedule: Schedule,
        requester: Requester,
        name: str = "",
        delivery: Delivery = "always",
        session_key: str = "",
        missed: Missed = "once",
        grace_s: float | None = None,
    ) -> Job:
        """Store a new job and return it, with its id and its next run.

        Args:
            message: the task, for the model.
            schedule: when; it is checked here once more.
            requester: who asks, with what rights.
            name: a few words for people.
            delivery: whether the chat of the requester gets the answers.
            session_key: session of the runs; empty means one of the job's own.
            missed: what happens to runs that are missed.
            grace_s: how late a run may start; ``None`` means by the schedule.

        Raises:
            JobRefused: it would never run, breaks a limit, or has invalid fields.
        """
        raise NotImplementedError

    async def remove(self, job_id: str) -> Job:
        """Remove a job and return it; a run under way continues.

        Raises:
            UnknownJob: there is none.
            ProtectedJob: it belongs to a plugin.
        """
        raise NotImplementedError

    async def enable(self, job_id: str, enabled: bool) -> Job | SystemEntry:
        """Switch a job on or off, also one of a plugin, and return it.

        Raises:
            UnknownJob: there is none.
            JobRefused: it lies in the past.
        """
        raise NotImplementedError

    async def run_now(self, job_id: str) -> Run | None:
        """Run a job now, besides its schedule.

        Returns:
            The result with the answer; ``None`` in a gateway, where the run continues by itself.

        Raises:
            UnknownJob: there is none.
            JobRefused: a run of it is under way, or too many messages wait.
        """
        raise NotImplementedError

    async def history(self, job_id: str) -> tuple[Run, ...]:
        """Return the last runs of a job, also of one of a plugin, oldest first.

        Raises:
            UnknownJob: there is none.
        """
        raise NotImplementedError
