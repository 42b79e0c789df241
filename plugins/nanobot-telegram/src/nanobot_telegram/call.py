"""Calls to Telegram: time limits and failures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from nanobot_core import ChannelError, DeliveryError


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


class Cause(Enum):
    """Why a call failed, which determines what to do."""

    REFUSED = "refused"
    """Telegram will never accept this request unchanged."""
    FORBIDDEN = "forbidden"
    """The bot cannot write there: it was blocked or removed, or the chat no longer exists."""
    MOVED = "moved"
    """The group has a new id."""
    BUSY = "busy"
    """Too many calls; Telegram asks to wait."""
    UNREACHABLE = "unreachable"
    """There is no valid answer. The request may have taken effect."""
    CREDENTIALS = "credentials"
    """The token is not valid."""
    CONFLICT = "conflict"
    """Another program receives the bot's messages."""


class CallFailed(ChannelError):
    """A call to Telegram failed.

    Attributes:
        reason: explanation for the owner, without the token.
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
        """The same failure as the error of a delivery."""
        is_final = self.cause in {Cause.REFUSED, Cause.FORBIDDEN}
        return DeliveryError(
            CHANNEL, self.reason, retryable=not is_final, retry_after_s=self.retry_after_s
        )
