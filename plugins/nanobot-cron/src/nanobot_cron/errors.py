"""Errors about jobs."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from nanobot_core import NanobotError


class JobsError(NanobotError):
    """A request about jobs cannot be met."""


class JobsUnavailable(JobsError):
    """The file with the jobs cannot be read or written; nothing was changed."""


class JobRefused(JobsError):
    """The job breaks a limit, or cannot be run now."""


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
