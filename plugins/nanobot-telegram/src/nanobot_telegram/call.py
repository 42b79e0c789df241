"""Calls to Telegram: their time limits, and how they can fail."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from nanobot_core import ChannelError, DeliveryError


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """Time limits in seconds.

    Attributes:
        step_s: connecting, and each wait for bytes.
        call_s: a call as a whole.
        transfer_s: sending or fetching files.
        poll_s: how long Telegram may keep a question for updates open.
    """

    step_s: float = 30.0
    call_s: float = 60.0
    transfer_s: float = 180.0
    poll_s: float = 30.0


CHANNEL = "telegram"


class Cause(Enum):
    """Why a call failed, where the reason decides what to do."""

    REFUSED = "refused"
    """This request will never be accepted as it is."""
    FORBIDDEN = "forbidden"
    """The bot may not write there: it was blocked or removed, or the chat is gone."""
    MOVED = "moved"
    """The group has another id now."""
    BUSY = "busy"
    """Too many calls; Telegram says how long to wait."""
    UNREACHABLE = "unreachable"
    """No answer, or none that can be read. The request may have taken effect."""
    CREDENTIALS = "credentials"
    """The token is not valid."""
    CONFLICT = "conflict"
    """Another program receives the bot's messages."""


class CallFailed(ChannelError):
    """A call to Telegram failed.

    Attributes:
        cause: what kind of failure it is.
        reason: for the owner; holds no token.
        retry_after_s: seconds that Telegram asks to wait, or ``None``.
        moved_to: new id of the group, or ``None``.
    """

    def __init__(
        self,
        cause: Cause,
        reason: str,
        *,
        retry_after_s: float | None = None,
        moved_to: int | None = None,
    ) -> None:
        self.cause: Cause = cause
        self.reason: str = reason
        self.retry_after_s: float | None = retry_after_s
        self.moved_to: int | None = moved_to
        super().__init__(reason)

    @property
    def as_delivery_error(self) -> DeliveryError:
        """The same for a message that could not be sent."""
        is_final = self.cause in {Cause.REFUSED, Cause.FORBIDDEN}
        return DeliveryError(
            CHANNEL, self.reason, retryable=not is_final, retry_after_s=self.retry_after_s
        )
