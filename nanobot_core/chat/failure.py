"""CallFailed: a call to a chat platform that failed, and what follows from it."""

from __future__ import annotations

from enum import Enum

from nanobot_core.errors import ChannelError, DeliveryError


class Cause(Enum):
    """Why a call failed, which determines what to do."""

    REFUSED = "refused"
    """The platform never accepts this request unchanged; a simpler form may work."""
    FORBIDDEN = "forbidden"
    """The agent cannot write there: it was blocked or removed, or the chat no longer exists."""
    BUSY = "busy"
    """Too many calls; the platform asks to wait."""
    UNREACHABLE = "unreachable"
    """There is no valid answer. The request may have taken effect."""
    CREDENTIALS = "credentials"
    """The platform does not accept the credentials, or they lack a permission."""
    CONFLICT = "conflict"
    """Another program receives the messages of this account."""


class CallFailed(ChannelError):
    """A call to a platform failed.

    Attributes:
        cause: why.
        reason: explanation for the owner, without secrets; for `Cause.CREDENTIALS` with the
            setting to correct and the page of the platform where its value is found.
        retry_after_s: seconds that the platform asks to wait, or ``None``.
    """

    def __init__(self, cause: Cause, reason: str, *, retry_after_s: float | None = None) -> None:
        self.cause: Cause = cause
        self.reason: str = reason
        self.retry_after_s: float | None = retry_after_s
        super().__init__(reason, needs_owner=cause is Cause.CREDENTIALS)

    def as_delivery_error(self, channel: str) -> DeliveryError:
        """Return the same failure as the error of a delivery over `channel`."""
        is_final = self.cause in {Cause.REFUSED, Cause.FORBIDDEN}
        return DeliveryError(
            channel, self.reason, retryable=not is_final, retry_after_s=self.retry_after_s
        )
