"""Calls to Telegram: time limits and failures."""

from __future__ import annotations

from dataclasses import dataclass

from nanobot_core.chat import CallFailed, Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """Time limits in seconds.

    Attributes:
        step_s: for connecting, and for each wait for data.
        call_s: for a whole call.
        transfer_s: for sending or fetching files.
        poll_s: for a poll of Telegram for updates.
    """

    step_s: float = 30.0
    call_s: float = 60.0
    transfer_s: float = 180.0
    poll_s: float = 30.0


CHANNEL = "telegram"


class GroupMoved(CallFailed):
    """A group has become a supergroup, with another id.

    Attributes:
        moved_to: its id now.
    """

    def __init__(self, moved_to: int) -> None:
        self.moved_to: int = moved_to
        super().__init__(Cause.BUSY, "the group has become a supergroup")
