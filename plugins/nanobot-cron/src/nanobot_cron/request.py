"""Turns a request into a job, with the same checks for the tool and the commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from nanobot_core import Delivery, ToolInputError, shorten
from nanobot_core.tools import cast_params, validate_params
from nanobot_cron.job import MAX_MESSAGE_CHARS, At, Every, Job, Missed, On, Schedule
from nanobot_cron.jobs import Jobs
from nanobot_cron.schedule import ScheduleInvalid, find_zone, parse_cron
from nanobot_cron.settings import CronSettings

if TYPE_CHECKING:
    from datetime import tzinfo

    from nanobot_core import PluginContext, Requester, ToolContext

KINDS = ("at", "every_seconds", "cron_expr", "on")
"""Of these fields, a request has exactly one."""
_FARTHEST = timedelta(days=100 * 365)
_LONGEST_INTERVAL_S = 10 * 365 * 86_400
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([smhdw]?)")


class NewJob(BaseModel):
    """A request for a job. Slash command and terminal use the same names as the tool."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    message: str = Field(default="", max_length=MAX_MESSAGE_CHARS)
    name: str = Field(default="", max_length=200)
    at: str | None = None
    every_seconds: float | None = None
    cron_expr: str | None = None
    tz: str | None = None
    on: str | None = None
    options: dict[str, JsonValue] = Field(default_factory=dict)
    deliver: Delivery = "always"
    missed: Missed = "once"
    session: str = Field(default="", max_length=200)
    to: str = Field(default="", max_length=300)


async def add_job(
    ctx: PluginContext,
    wanted: NewJob,
    context: ToolContext,
    names: Mapping[str, str] = MappingProxyType({}),
) -> Job:
    """Store a job and return it.

    Args:
        wanted: the request.
        context: of the call that makes it.
        names: what the sender calls the fields, where that differs, for messages.

    Raises:
        ToolError: the request cannot be met; the message says what to write.
        JobsError: a limit is reached, or the jobs cannot be stored.
    """
    if not wanted.message.strip():
        msg = "message is missing; write the task so that it can be done without this conversation"
        raise ToolInputError(msg)
    requester = _recipient(ctx, wanted.to, context.requester)
    schedule = await _schedule(
        ctx, wanted, context, {kind: names.get(kind, kind) for kind in KINDS}
    )
    return await ctx.shared(Jobs).add(
        message=wanted.message,
        schedule=schedule,
        requester=requester,
        name=" ".join(wanted.name.split()),
        delivery=wanted.deliver,
        session_key=wanted.session,
        missed=wanted.missed,
    )


async def _schedule(
    ctx: PluginContext, wanted: NewJob, context: ToolContext, names: Mapping[str, str]
) -> Schedule:
    given = [kind for kind in KINDS if getattr(wanted, kind) is not None]
    if len(given) != 1:
        found = " and ".join(names[kind] for kind in given) or "none"
        msg = f"give exactly one of {', '.join(names.values())}; found {found}"
        raise ToolInputError(msg)
    name = names[given[0]]
    if wanted.tz and given[0] in {"every_seconds", "on"}:
        msg = f"a time zone does not apply to {name}; leave it out"
        raise ToolInputError(msg)
    if wanted.options and given[0] != "on":
        msg = f"options belong to an event; leave them out, or name the event with {names['on']}"
        raise ToolInputError(msg)
    try:
        if wanted.at is not None:
            zone = find_zone(wanted.tz) if wanted.tz else ctx.timezone
            return At(at=read_instant(wanted.at, zone, ctx.clock.now()))
        if wanted.cron_expr is not None:
            return parse_cron(wanted.cron_expr, wanted.tz or "")
    except ScheduleInvalid as error:
        raise ToolInputError(str(error)) from error
    if wanted.every_seconds is not None:
        return _interval(ctx, wanted.every_seconds, name)
    return await _event(ctx, str(wanted.on), wanted.options, context)


def _interval(ctx: PluginContext, seconds: float, name: str) -> Every:
    shortest = ctx.settings(CronSettings).min_interval_s
    if not shortest <= seconds <= _LONGEST_INTERVAL_S:
        msg = f"{name} is {seconds:g}; it must be {shortest:g} seconds to 10 years"
        raise ToolInputError(msg)
    return Every(seconds=seconds, anchor=ctx.clock.now())


async def _event(
    ctx: PluginContext, name: str, options: dict[str, JsonValue], context: ToolContext
) -> On:
    triggers = await ctx.shared(Jobs).triggers()
    if (found := triggers.get(name)) is None:
        hint = near(name, triggers)
        listed = "; ".join(
            f"{each.value.name}: {each.value.description}" for each in triggers.values()
        )
        msg = f"on: there is no event '{shorten(name, 60)}'{hint}; there are: {listed or 'none'}"
        raise ToolInputError(msg)
    options = cast_params(found.value.parameters, options)
    if findings := validate_params(found.value.parameters, options):
        msg = f"options of '{name}': {'; '.join(findings)}"
        raise ToolInputError(msg)
    return On(trigger=name, options=await found.value.check(context, options))


def _recipient(ctx: PluginContext, to: str, requester: Requester) -> Requester:
    """Return the requester, with another chat for the answers if one is named."""
    if not to:
        return requester
    channel, _, chat_id = to.partition(":")
    if not (channel and chat_id):
        msg = f"to: expected CHANNEL:CHAT such as telegram:42, found '{shorten(to, 80)}'"
        raise ToolInputError(msg)
    if requester.authority != "machine" and channel != requester.channel:
        # The same id may belong to somebody else there.
        msg = f"to: another channel than {requester.channel} can be named only at the terminal"
        raise ToolInputError(msg)
    owners = ctx.gateway.owners_chat if ctx.gateway else None
    return replace(
        requester,
        channel=channel,
        chat_id=chat_id,
        session_key=f"{channel}:{chat_id}",
        # Others may read any other chat, so the owner's memory stays out of it.
        is_group=(channel, chat_id) != owners,
    )


def near(word: str, known: Iterable[str]) -> str:
    """Return a hint at the known names that resemble `word`, to follow it; empty if none does."""
    close = get_close_matches(word, list(known), n=2)
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def read_duration_s(text: str) -> float | None:
    """Return the seconds of a text such as ``90``, ``30m`` or ``1.5h``; None if it is not one."""
    found = _DURATION.fullmatch(text.strip().lower())
    return float(found[1]) * _UNITS[found[2]] if found else None


def read_instant(text: str, zone: tzinfo, now: datetime) -> datetime:
    """Return the instant of an ISO 8601 time or of ``+30m``, which counts from now.

    A time that a change of the clocks skips is the first one after the gap; of one that occurs
    twice, the first counts.

    Args:
        zone: of a time without offset.
        now: aware; earlier times are refused.

    Raises:
        ScheduleInvalid: it is not a time, or in the past.
    """
    text, local_now = text.strip(), now.astimezone(zone)
    shown = shorten(text, 60)
    try:
        instant = _from_now(text, now) if text.startswith("+") else _read_time(text, zone)
        is_far = instant is not None and instant > now + _FARTHEST
    except OverflowError:
        instant, is_far = now, True
    if is_far:
        msg = f"at: '{shown}' is out of range; it must be within {_FARTHEST.days // 365} years"
        raise ScheduleInvalid(msg)
    if instant is None:
        example = f"{local_now + timedelta(days=1):%Y-%m-%dT09:00}"
        msg = f"at: '{shown}' is not a time; write it like {example}, or +20m, +2h or +1d from now"
        raise ScheduleInvalid(msg)
    if instant <= now:
        where = f"{local_now:%A %Y-%m-%d %H:%M} in {zone}"
        msg = f"at: '{shown}' is in the past: it is now {where}"
        raise ScheduleInvalid(msg)
    return instant


def _from_now(text: str, now: datetime) -> datetime | None:
    seconds = read_duration_s(text[1:])
    return None if seconds is None else now + timedelta(seconds=seconds)


def _read_time(text: str, zone: tzinfo) -> datetime | None:
    """Return the instant of an ISO 8601 time with a time of day, else ``None``."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    if not re.search(r"[T ]\d", text):  # a date alone
        return None
    return (at if at.tzinfo else _resolve_local(at, zone)).astimezone(UTC)


def _resolve_local(at: datetime, zone: tzinfo) -> datetime:
    """Return a local time in its zone; one in a gap becomes the end of the gap."""
    instant = at.replace(tzinfo=zone).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == at:
        return instant
    late = instant
    early = at.replace(tzinfo=zone, fold=1).astimezone(UTC)
    before = early.astimezone(zone).utcoffset()
    while late - early > timedelta(seconds=1):
        middle = early + (late - early) / 2
        if middle.astimezone(zone).utcoffset() == before:
            early = middle
        else:
            late = middle
    return late.replace(microsecond=0)
