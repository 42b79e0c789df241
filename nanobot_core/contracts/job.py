"""Jobs of plugins, and triggers: what starts work at a time or on an event."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from nanobot_core.messages import JsonObject
from nanobot_core.record import dataclass
from nanobot_core.text import Repaired

if TYPE_CHECKING:
    from nanobot_core.contracts.tool import ToolContext


@dataclass(frozen=True, slots=True)
class Every:
    """A schedule: at a constant interval, which neither runs nor restarts shift.

    Attributes:
        seconds: the interval.
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class CronExpression:
    """A schedule: five fields, minute first, as in crontab(5).

    Attributes:
        expression: such as ``0 7 * * mon-fri``.
        timezone: IANA name; empty means the configured one.
    """

    expression: str
    timezone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemJob:
    """Work that a plugin does on a schedule. People see it among the jobs and cannot remove it.

    Attributes:
        id: unique, such as ``dream``.
        summary: one line for people.
        schedule: when it is due; ``None`` if the settings switch it off.
        run: does it once, and returns a line for the history of the job. An exception counts as
            a failure; nothing else limits its time.
    """

    id: str
    summary: str
    schedule: Every | CronExpression | None
    run: Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerEvent(Repaired):
    """Something happened that starts a job.

    Attributes:
        id: the same event has the same id, also after a restart; a job starts once for it.
        text: what happened, for the model. It counts as the text of a stranger.
    """

    id: str
    text: str


Fire: TypeAlias = Callable[[TriggerEvent], Awaitable[None]]
"""Starts the job; returns when the event is stored."""


class Trigger(ABC):
    """A kind of event that can start jobs.

    Attributes:
        name: unique, such as ``file``.
        description: what it waits for, for the model and for people.
        parameters: JSON Schema of the options of one job, an object schema.
    """

    name: str
    description: str
    parameters: JsonObject

    @abstractmethod
    async def check(self, context: ToolContext, options: JsonObject) -> JsonObject:
        """Return the options as they are stored.

        Args:
            context: of the call that creates the job; resolve paths with its `files`.
            options: valid by `parameters`.

        Raises:
            ToolInputError: such a job could never start.
            ToolDenied: the creator may not wait for this event.
        """

    @abstractmethod
    async def watch(self, job_id: str, options: JsonObject, fire: Fire) -> None:
        """Wait for events and fire each of them, until cancelled.

        Args:
            job_id: the job that they start.
            options: as `check` returned them.
            fire: starts the job.
        """

    @abstractmethod
    def describe(self, options: JsonObject) -> str:
        """Return in a few words what a job waits for."""
