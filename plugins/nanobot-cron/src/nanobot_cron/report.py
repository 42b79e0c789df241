"""Describes jobs: in words for people and the model, and as JSON for programs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from nanobot_core import CronExpression, as_label, shorten
from nanobot_cron.job import WITHOUT_CHAT, At, Cron, Every, Job, On, Run
from nanobot_cron.jobs import Jobs, SystemEntry
from nanobot_cron.schedule import describe, upcoming

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nanobot_core import Contributed, JsonObject, PluginContext, Requester, Trigger
    from nanobot_cron.job import JobState, Schedule

MAX_LISTED = 50
"""Jobs in a list for people and the model."""
_MAX_ERROR = 200
_MAX_EVENT_CHARS = 600


@dataclass(frozen=True, slots=True)
class Reporter:
    """Describes jobs in the owner's time zone.

    Attributes:
        now: the current instant.
        zone: the owner's time zone.
        triggers: the events that jobs can start on, by name.
        owners_chat: chat for the answers to jobs without a chat, or ``None`` if unknown.
        has_gateway: whether jobs run in this process.
        here: channel and chat in which the description is read, or ``None``.
    """

    now: datetime
    zone: ZoneInfo
    triggers: Mapping[str, Contributed[Trigger]]
    owners_chat: tuple[str, str] | None
    has_gateway: bool
    here: tuple[str, str] | None = None

    @classmethod
    async def of(cls, ctx: PluginContext, here: tuple[str, str] | None = None) -> Reporter:
        """Return the reporter for the present moment."""
        return cls(
            ctx.clock.now(),
            ctx.timezone,
            await ctx.shared(Jobs).triggers(),
            ctx.gateway.owners_chat if ctx.gateway else None,
            ctx.gateway is not None,
            here,
        )

    def added(self, job: Job) -> str:
        """Return a confirmation of a new job: its schedule, next runs and recipient."""
        lines = [f"Added job {job.id} '{job.title}': {self.when(job.schedule)}."]
        runs = upcoming(job.schedule, self.now, 3, timezone=self.zone)
        if runs and not isinstance(job.schedule, At):
            label = "Next run" if len(runs) == 1 else "Next runs"
            own = isinstance(job.schedule, Cron) and job.schedule.timezone not in (
                "",
                self.zone.key,
            )
            where = f" in {self.zone.key}" if own else ""
            lines.append(f"{label}{where}: {', '.join(map(self.local, runs))}.")
        lines.append(self._answer(job))
        if not isinstance(job.schedule, On):
            policy = "runs once, afterwards" if job.missed == "once" else "is left out"
            lines.append(f"A run that is due while the gateway is down {policy}.")
        if not self.has_gateway:
            lines.append(
                "No gateway is running; `nanobot gateway` starts one. Jobs run only in it."
            )
        return "\n".join(lines)

    def listed(self, jobs: list[Job], system: list[SystemEntry]) -> str:
        """Return a list in Markdown."""
        lines = [self._line(job) for job in jobs[:MAX_LISTED]]
        if (left := len(jobs) - MAX_LISTED) > 0:
            lines.append(f"- and {left:,} more; `nanobot cron list` shows all")
        lines += [self._system_line(entry) for entry in system]
        return "\n".join(lines) or "There are no jobs."

    def history(self, title: str, runs: tuple[Run, ...]) -> str:
        """Return the runs of a job in Markdown, newest first."""
        if not runs:
            return f"{title[:1].upper()}{title[1:]} has not run."
        lines = [self._run(run) for run in reversed(runs)]
        return "\n".join([f"Last runs of {title}:", "", *lines])

    def finished(self, run: Run) -> str:
        """Return the result of a run that was started by hand."""
        return run.answer if run.status == "ok" else f"The run ended with {run.status}: {run.error}"

    def local(self, instant: datetime) -> str:
        """Return an instant in the owner's time zone, short."""
        there = instant.astimezone(self.zone)
        year = f" {there.year}" if there.year != self.now.astimezone(self.zone).year else ""
        return f"{there:%a} {there.day} {there:%b}{year} {there:%H:%M}"

    def as_json(self, job: Job) -> JsonObject:
        """Return a job for programs; times are in UTC."""
        return {
            "id": job.id,
            "name": job.title,
            "plugin": None,
            "enabled": job.enabled,
            "schedule": job.schedule.model_dump(mode="json", exclude={"options"}),
            "when": self.when(job.schedule),
            "message": job.message,
            "deliver": job.delivery,
            "chat": _chat(job.requester),
            "by": {"authority": job.requester.authority, "sender": job.requester.sender_id},
            "missed": job.missed,
            **_state_json(job.state, enabled=job.enabled),
        }

    def system_as_json(self, entry: SystemEntry) -> JsonObject:
        """Return the job of a plugin for programs."""
        return {
            "id": entry.job.id,
            "name": entry.job.summary,
            "plugin": entry.plugin,
            "enabled": entry.enabled,
            "when": self.system_when(entry),
            **_state_json(entry.state, enabled=entry.enabled),
        }

    def when(self, schedule: Schedule) -> str:
        """Return when a job runs, in words."""
        if not isinstance(schedule, On):
            return describe(schedule, self.zone)
        found = self.triggers.get(schedule.trigger)
        if found is None:
            return f"on the event '{schedule.trigger}', whose plugin is missing"
        words = shorten(found.value.describe(schedule.options), _MAX_EVENT_CHARS)
        return f"when {''.join(filter(str.isprintable, words))}"

    def _answer(self, job: Job) -> str:
        if job.delivery == "never":
            return "No chat gets the answer; the history of the job keeps it."
        chat = self.recipient(job.requester)
        if job.requester.channel in WITHOUT_CHAT:
            if self.owners_chat is None:
                return (
                    "The answer goes to the owner's private chat; until the owner has written in "
                    "one, the history of the job keeps it."
                )
            chat = "this chat" if self.owners_chat == self.here else ":".join(self.owners_chat)
        notable = ", if it is worth a message" if job.delivery == "when_notable" else ""
        return f"The answer goes to {chat}{notable}."

    def _line(self, job: Job) -> str:
        planned = job.schedule.at if isinstance(job.schedule, At) else None
        state = self._state(job.state, enabled=job.enabled, said=planned)
        facts = [self.when(job.schedule), *state]
        answers = "none" if job.delivery == "never" else self.recipient(job.requester)
        return f"- **{job.title}** (`{job.id}`): {'; '.join(facts)}; answers to {answers}"

    def _system_line(self, entry: SystemEntry) -> str:
        facts = [
            self.system_when(entry),
            *self._state(entry.state, enabled=entry.enabled),
            f"of plugin {entry.plugin}",
        ]
        return f"- **{entry.job.summary}** (`{entry.job.id}`): {'; '.join(facts)}"

    def system_when(self, entry: SystemEntry) -> str:
        """Return when the job of a plugin runs, in words."""
        wanted = entry.job.schedule
        if wanted is None:
            return "switched off in the settings"
        if isinstance(wanted, CronExpression):
            return describe(Cron(expression=wanted.expression, timezone=wanted.timezone), self.zone)
        return describe(Every(seconds=wanted.seconds, anchor=self.now), self.zone)

    def recipient(self, requester: Requester) -> str:
        """Return the chat that gets the answers to a person's job."""
        is_here = (requester.channel, requester.chat_id) == self.here
        return "this chat" if is_here else _chat(requester)

    def _state(self, state: JobState, *, enabled: bool, said: datetime | None = None) -> list[str]:
        facts = [] if enabled else ["disabled"]
        if state.claim is not None:
            facts.append("running")
        if enabled and state.next_at is not None and state.next_at != said:
            facts.append(f"next {self.local(state.next_at)}")
        if state.runs:
            last = state.runs[-1]
            facts.append(f"last {last.status} {self.local(last.started_at or last.slot)}")
        if state.failures > 1:
            facts.append(f"{state.failures} failures in a row")
        return facts

    def run_cells(self, run: Run) -> tuple[str, str, str, str]:
        """Return time, status, seconds, and the answer or error of a run; each may be empty."""
        until = f" to {self.local(run.until)}" if run.until else ""
        took = "" if run.duration_s is None else f"{run.duration_s:.1f}"
        said = as_label(run.error or run.answer, _MAX_ERROR)
        return f"{self.local(run.started_at or run.slot)}{until}", run.status, took, said

    def _run(self, run: Run) -> str:
        time, status, took, said = self.run_cells(run)
        return f"- {time}: {status}{f', {took} s' if took else ''}{f': {said}' if said else ''}"


def run_as_json(run: Run) -> JsonObject:
    """Return a run for programs."""
    return run.model_dump(mode="json", exclude_none=True)


def _chat(requester: Requester) -> str:
    if requester.channel in WITHOUT_CHAT:
        return "the owner"
    return f"{requester.channel}:{requester.chat_id}"


def _state_json(state: JobState, *, enabled: bool) -> JsonObject:
    due = state.next_at if enabled else None
    return {
        "next": due.isoformat() if due else None,
        "running": state.claim is not None,
        "last": run_as_json(state.runs[-1]) if state.runs else None,
        "failures": state.failures,
    }
