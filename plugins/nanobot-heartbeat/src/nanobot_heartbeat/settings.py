"""Settings."""

from __future__ import annotations

import re
from datetime import datetime, time
from typing import Annotated

from pydantic import AfterValidator, Field, PositiveInt

from nanobot_core import PluginSettings

READING_TOOLS = (
    *("read_file", "list_dir", "glob", "grep"),
    *("search_memory", "read_skill", "web_search", "web_fetch"),
)
"""The tools of a beat by default. The model can have written the checklist itself."""
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


def _check_hours(hours: str | None) -> str | None:
    if hours is None:
        return None
    match = _HOURS.fullmatch(hours)
    if match is None or match.group(1, 2) == match.group(3, 4):
        msg = "expected two different times such as '22:00-07:00'"
        raise ValueError(msg)
    return hours


def _check_target(target: str | None) -> str | None:
    channel, _, chat = (target or "").partition(":")
    if target is not None and not (channel and chat):
        msg = "expected a channel and a chat such as 'telegram:42'"
        raise ValueError(msg)
    return target


class HeartbeatSettings(PluginSettings):
    """Section ``gateway.heartbeat``.

    Attributes:
        enabled: whether beats happen by themselves.
        interval_s: seconds between two beats.
        quiet_hours: times of day, such as ``22:00-07:00``, in ``agents.defaults.timezone``, between
            which no beat happens by itself.
        target: channel and chat that get the answers, such as ``telegram:42``, instead of the
            private chat in which the owner last wrote.
        tools: patterns of the tools that a beat may use.
        model: model to use instead of the configured one.
        max_iterations: model calls in which a beat does its tasks.
    """

    enabled: bool = True
    interval_s: Annotated[int, Field(ge=60)] = 1800
    quiet_hours: Annotated[str | None, AfterValidator(_check_hours)] = None
    target: Annotated[str | None, AfterValidator(_check_target)] = None
    tools: tuple[str, ...] = READING_TOOLS
    model: str | None = None
    max_iterations: PositiveInt = 20

    def is_quiet(self, now: datetime) -> bool:
        """Whether a time is in the quiet hours.

        Args:
            now: in the owner's time zone.
        """
        if self.quiet_hours is None:
            return False
        start, end = map(time.fromisoformat, self.quiet_hours.split("-"))
        at = now.time()
        return start <= at < end if start < end else not end <= at < start
