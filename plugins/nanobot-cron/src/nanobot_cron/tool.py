"""The tool ``cron``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from nanobot_core import (
    Ask,
    Delivery,
    ModelTool,
    Review,
    ToolContext,
    ToolDenied,
    ToolError,
    ToolFailed,
    ToolInputError,
)
from nanobot_cron.job import MAX_MESSAGE_CHARS, Job, person_of
from nanobot_cron.jobs import Jobs, JobsError, JobsUnavailable, UnknownJob
from nanobot_cron.report import Reporter
from nanobot_cron.request import NewJob, add_job

if TYPE_CHECKING:
    from nanobot_core import JsonObject, PluginContext, Requester

_NOT_OF_A_JOB = ("action", "job_id")
_UNATTENDED = frozenset({"cron", "heartbeat"})


class CronParams(BaseModel):
    """Parameters of `CronTool`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Literal["add", "list", "remove", "enable", "disable", "run"] = Field(
        description="add needs message and one of at, every_seconds, cron_expr, on. "
        "remove, enable, disable and run need job_id."
    )
    message: str | None = Field(
        default=None,
        max_length=MAX_MESSAGE_CHARS,
        description="The task. It is done later, without the history of this conversation: "
        "write everything that is needed.",
    )
    name: str | None = Field(default=None, max_length=200, description="A few words for the user.")
    at: str | None = Field(
        default=None,
        description="Once, at a time in ISO 8601 such as 2026-03-01T09:00, in the user's time zone "
        "unless it has an offset; or from now, such as +20m, +2h or +1d.",
    )
    every_seconds: float | None = Field(default=None, description="Repeatedly, at an interval.")
    cron_expr: str | None = Field(
        default=None,
        description="By five fields: minute, hour, day of the month, month, day of the week, such "
        "as '0 8 * * mon-fri'; or @daily and similar.",
    )
    tz: str | None = Field(
        default=None,
        description="IANA time zone for at or cron_expr if it is not the user's.",
    )
    on: str | None = Field(
        default=None,
        description="On an event: file, message, or another that an error lists.",
    )
    options: dict[str, JsonValue] | None = Field(
        default=None,
        description="Of the event: for file {path, pattern, recursive, events}, for message "
        "{text, chat}.",
    )
    deliver: Delivery | None = Field(
        default=None,
        description="Whether this chat gets the answer: always (default); when_notable, for checks "
        "that usually find nothing; never.",
    )
    job_id: str | None = Field(default=None, max_length=64)


class CronTool(ModelTool[CronParams]):
    """Adds, lists and changes jobs of the sender."""

    name = "cron"
    description = (
        "Do something later, at intervals or on an event: reminders, regular checks and reports. "
        "Also lists, removes, enables, disables and runs such jobs. Use it whenever the user asks "
        "for something at a later time; you cannot wait yourself."
    )
    parameters_model = CronParams
    exclusive = True

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._jobs = ctx.shared(Jobs)

    async def review(self, context: ToolContext, arguments: JsonObject) -> Review:
        """Ask the owner about a path outside the workspace that a job would watch."""
        options = arguments.get("options")
        if arguments.get("on") != "file" or not isinstance(options, dict):
            return Review()
        text = str(options.get("path") or ".")
        try:
            path, needs_approval = await asyncio.to_thread(context.files.judge, "read", text)
        except ToolError:  # the call reports it
            return Review()
        if not needs_approval:
            return Review()
        return Review(decision=Ask(f"Watch {path} for a scheduled job?", str(path), (path,)))

    async def run(self, context: ToolContext, params: CronParams) -> str:
        """Do one action.

        Raises:
            ToolInputError: the job is unknown, or cannot be made from these arguments.
            ToolDenied: a scheduled turn adds a job, or the sender may not wait for this event.
            ToolFailed: the jobs cannot be read or stored.
        """
        try:
            if params.action == "list":
                return await self._list(context)
            if params.action == "add":
                return await self._add(context, params)
            if not params.job_id:
                msg = f"job_id is required for {params.action}; action=list shows the ids"
                raise ToolInputError(msg)
            return await self._change(context, params.action, params.job_id)
        except JobsUnavailable as error:
            raise ToolFailed(str(error)) from error
        except JobsError as error:
            raise ToolInputError(str(error)) from error

    async def _add(self, context: ToolContext, params: CronParams) -> str:
        if context.assignment is not None and context.assignment.source in _UNATTENDED:
            msg = "a scheduled task cannot add jobs; do the task now, or tell the user what to add"
            raise ToolDenied(msg)
        if params.job_id:
            msg = "job_id does not apply to add; to change a job, remove it and add another"
            raise ToolInputError(msg)
        given = params.model_dump(exclude=set(_NOT_OF_A_JOB), exclude_none=True)
        job = await add_job(self._ctx, NewJob(**given), context)
        return (await Reporter.of(self._ctx, _here(context))).added(job)

    async def _list(self, context: ToolContext) -> str:
        jobs = jobs_shown_in(context.requester, await self._own_jobs(context))
        system = await self._jobs.system() if context.is_owner else []
        return (await Reporter.of(self._ctx, _here(context))).listed(jobs, system)

    async def _change(self, context: ToolContext, action: str, job_id: str) -> str:
        if not context.is_owner:
            own = [job.id for job in await self._own_jobs(context)]
            if job_id not in own:
                raise UnknownJob(job_id, own)
        return await change_job(self._ctx, action, job_id)

    async def _own_jobs(self, context: ToolContext) -> list[Job]:
        jobs = await self._jobs.all()
        return jobs if context.is_owner else [job for job in jobs if _is_own(job, context)]


def jobs_shown_in(reader: Requester, jobs: list[Job]) -> list[Job]:
    """Return the jobs that a list in a chat shows: in a group, only those of that group."""
    if not reader.is_group:
        return jobs
    here = (reader.channel, reader.chat_id)
    return [job for job in jobs if (job.requester.channel, job.requester.chat_id) == here]


async def change_job(ctx: PluginContext, action: str, job_id: str) -> str:
    """Do what is possible with an existing job, and return what was done.

    Args:
        action: ``remove``, ``enable``, ``disable`` or ``run``.

    Raises:
        JobsError: the job is unknown, protected or cannot be changed.
    """
    jobs, report = ctx.shared(Jobs), await Reporter.of(ctx)
    if action == "remove":
        return f"Removed job {job_id} '{(await jobs.remove(job_id)).title}'."
    if action == "run":
        run = await jobs.run_now(job_id)
        return report.finished(run) if run else f"Job {job_id} runs now."
    changed = await jobs.enable(job_id, action == "enable")
    next_at = changed.state.next_at
    due = f"; next run {report.local(next_at)}" if action == "enable" and next_at else ""
    return f"{action.capitalize()}d job {job_id}{due}."


def _here(context: ToolContext) -> tuple[str, str]:
    return context.channel, context.chat_id


def _is_own(job: Job, context: ToolContext) -> bool:
    asked = job.requester
    return (asked.authority, asked.channel, person_of(asked.sender_id)) == (
        "guest",
        context.channel,
        person_of(context.sender_id),
    )
