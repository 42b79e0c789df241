"""Job: its task, schedule, requester and history, in the form in which they are stored."""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, UTC, datetime
from functools import cache
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    model_validator,
)

from nanobot_core import Delivery, Requester, as_label
from nanobot_cron.expression import check_cron

MAX_RUNS = 20
"""Runs in the history of a job."""
MAX_EVENTS = 20
"""Events that wait for one job; further ones are only counted."""
MAX_MESSAGE_CHARS = 20_000
MAX_NAME_CHARS = 200
MAX_TITLE_CHARS = 60
MAX_TEXT_CHARS = 4_000
"""Characters of an error, an answer or the text of an event, in the history."""
WITHOUT_CHAT = frozenset({"cli", "sdk"})
"""Channels of the terminal and of programs; the owner's chat gets the answers of their jobs."""

Missed: TypeAlias = Literal["once", "skip"]
"""What happens to runs that were missed: the last one runs late, or none does."""
RunStatus: TypeAlias = Literal["ok", "error", "missed", "skipped", "unknown", "stopped"]
"""``skipped``: the previous run had not ended, or the job waits after failures; ``unknown``: it
started, and its end was never reported."""


def person_of(sender_id: str) -> str:
    """Return the part of a sender's id that stays the same when they change their name."""
    return sender_id.partition("|")[0]


def person_of_guest(requester: Requester) -> str:
    """Return channel and person of a guest; an empty string for the owner."""
    is_guest = requester.authority == "guest"
    return f"{requester.channel}:{person_of(requester.sender_id)}" if is_guest else ""


@cache
def _requesters() -> TypeAdapter[Requester]:
    return TypeAdapter(Requester)


def _requester(value: object) -> object:
    # As a field, it would inherit that unknown keys are allowed, and fail on them.
    return _requesters().validate_python(value) if isinstance(value, dict) else value


def _utc(instant: datetime) -> datetime:
    # The first and the last day cannot be shown in every time zone.
    if not MINYEAR < instant.year < MAXYEAR:
        msg = "the time is out of range"
        raise ValueError(msg)
    return instant.astimezone(UTC)


Instant: TypeAlias = Annotated[AwareDatetime, AfterValidator(_utc)]
"""Aware, in UTC."""
JobId: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[^\s@/]{1,64}$")]


class _Stored(BaseModel):
    """A frozen part of the jobs file; keys that this release does not know are kept."""

    model_config = ConfigDict(extra="allow", frozen=True)


class At(_Stored):
    """Once."""

    kind: Literal["at"] = "at"
    at: Instant


class Every(_Stored):
    """At a constant interval, which neither runs nor restarts shift.

    Attributes:
        seconds: the interval.
        anchor: a run is due at whole intervals before and after this instant.
    """

    kind: Literal["every"] = "every"
    seconds: float = Field(ge=1, le=10 * 366 * 86_400, allow_inf_nan=False)
    anchor: Instant


class Cron(_Stored):
    """At the times of an expression as in crontab(5).

    Attributes:
        expression: five fields, minute first; see `nanobot_cron.schedule.parse_cron`.
        timezone: IANA name; empty means the owner's time zone.
    """

    kind: Literal["cron"] = "cron"
    expression: str = Field(max_length=500)
    timezone: str = Field(default="", max_length=100)

    @model_validator(mode="after")
    def _require_times(self) -> Cron:
        check_cron(self.expression, self.timezone)
        return self


class On(_Stored):
    """On an event.

    Attributes:
        trigger: name of the `nanobot_core.Trigger`.
        options: as its `check` returned them.
    """

    kind: Literal["on"] = "on"
    trigger: str
    options: dict[str, JsonValue] = Field(default_factory=dict)


Schedule: TypeAlias = Annotated[At | Every | Cron | On, Field(discriminator="kind")]


class Event(_Stored):
    """What starts a job on an event; see `nanobot_core.TriggerEvent`."""

    id: str
    text: str


class Claim(_Stored):
    """A run that has started and has not ended. It is stored before the run starts.

    Attributes:
        run_id: id of the assignment.
        slot: when the run was due.
        at: when it was claimed.
        events: what started it, for a job on an event.
        by_hand: a person started it; it does not count as the run of an `At` job.
    """

    run_id: str
    slot: Instant
    at: Instant
    events: tuple[Event, ...] = ()
    by_hand: bool = False


class Run(_Stored):
    """An entry of the history: a run that ended, or times at which none took place.

    Attributes:
        slot: when it was due.
        started_at: when it started, ``None`` if it did not.
        status: see `RunStatus`.
        duration_s: seconds that it took.
        error: why it failed or did not take place; empty if it is ``ok``.
        answer: the result, where no chat got it.
        until: the entry also covers every other time that was due until this instant.
    """

    slot: Instant
    started_at: Instant | None = None
    status: RunStatus
    duration_s: float | None = None
    error: str = ""
    answer: str = ""
    until: Instant | None = None


class JobState(_Stored):
    """What the scheduler knows of a job.

    Attributes:
        next_at: when the next run is due; ``None`` if none is planned.
        planned_for: the schedule that `next_at` belongs to, as text; if another one is found in
            the file, the job is planned again.
        claim: the run under way.
        runs: the last `MAX_RUNS` entries of the history, oldest first.
        failures: failed runs since the last successful one.
        started_at: start of the last run.
        events: events that wait for the next run, at most `MAX_EVENTS`.
        dropped_events: number of events beyond that.
        seen: ids of the last events, which start no second run.
    """

    next_at: Instant | None = None
    planned_for: str = ""
    claim: Claim | None = None
    runs: tuple[Run, ...] = ()
    failures: int = Field(default=0, ge=0)
    started_at: Instant | None = None
    events: tuple[Event, ...] = ()
    dropped_events: int = Field(default=0, ge=0)
    seen: tuple[str, ...] = ()


class Job(_Stored):
    """A job of a person.

    Attributes:
        id: unique.
        name: a few words for people.
        schedule: when it runs.
        message: the task, for the model.
        requester: who asked for it, and where the answer goes.
        delivery: whether the chat gets the answer.
        session_key: session of its runs; empty means one of its own, see `session`.
        missed: what happens after a pause.
        grace_s: how late a run may start, in seconds; ``None`` means half the time between two
            runs, at least two minutes and at most two hours, and a day for `At`.
    """

    id: JobId
    name: str = Field(default="", max_length=MAX_NAME_CHARS)
    enabled: bool = True
    schedule: Schedule
    message: str = Field(min_length=1, max_length=MAX_MESSAGE_CHARS)
    requester: Annotated[Requester, BeforeValidator(_requester)]
    delivery: Delivery = "always"
    session_key: str = ""
    missed: Missed = "once"
    grace_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    created_at: Instant
    updated_at: Instant
    state: JobState = JobState()

    @property
    def title(self) -> str:
        """Its name, or the beginning of its task, as people may see it."""
        return as_label(self.name, MAX_NAME_CHARS) or as_label(self.message, MAX_TITLE_CHARS)

    @property
    def session(self) -> str:
        """Session of its runs."""
        return self.session_key or f"cron:{self.id}"


class SystemRecord(_Stored):
    """What is stored of a `nanobot_core.SystemJob`: only its state.

    Attributes:
        anchor: see `Every`; when the job was first seen.
    """

    id: str
    enabled: bool = True
    anchor: Instant
    state: JobState = JobState()
