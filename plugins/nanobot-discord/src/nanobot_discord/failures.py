"""What Discord's error codes mean for the channel."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from nanobot_core.chat import CallFailed, Cause

PORTAL = "https://discord.com/developers/applications"
BAD_TOKEN = (
    "Discord does not accept the token; set channels.discord.token to the one that "
    f"'Reset Token' shows at {PORTAL}, page Bot"
)
CODES: Mapping[int, Cause] = {
    # The chat or its recipient is gone, or the bot is not allowed to write there.
    10003: Cause.FORBIDDEN,  # unknown channel
    10004: Cause.FORBIDDEN,  # unknown server
    10013: Cause.FORBIDDEN,  # unknown user
    50001: Cause.FORBIDDEN,  # missing access
    50007: Cause.FORBIDDEN,  # the user takes no messages of this bot
    50008: Cause.FORBIDDEN,  # not a channel for text
    50013: Cause.FORBIDDEN,  # missing permissions
    50083: Cause.FORBIDDEN,  # archived thread
    50278: Cause.FORBIDDEN,  # no server in common with the user
    160005: Cause.FORBIDDEN,  # locked thread
    # The request itself; a simpler one may be accepted.
    10008: Cause.REFUSED,  # unknown message
    10015: Cause.REFUSED,  # unknown webhook: an interaction that has expired
    10062: Cause.REFUSED,  # unknown interaction: answered too late
    30046: Cause.REFUSED,  # too many edits of a message that is older than an hour
    40005: Cause.REFUSED,  # too large
    40060: Cause.REFUSED,  # the interaction was answered before
    50005: Cause.REFUSED,  # a message of another author
    50006: Cause.REFUSED,  # empty message
    50027: Cause.REFUSED,  # invalid token of an interaction
    50035: Cause.REFUSED,  # invalid form
    160002: Cause.REFUSED,  # a reply without the permission 'Read Message History'
    200000: Cause.REFUSED,  # blocked by the server's AutoMod
    240000: Cause.REFUSED,  # blocked as a harmful link
    # Too much at once.
    20016: Cause.BUSY,  # slow mode of the channel
    20028: Cause.BUSY,  # limit of writing in the channel
    40062: Cause.BUSY,  # the service is limited
    # The bot itself.
    40001: Cause.CREDENTIALS,  # unauthorized
    40002: Cause.CREDENTIALS,  # the account must be verified
    50014: Cause.CREDENTIALS,  # invalid token
}
"""Code in the body of an error, which is more exact than the status."""

_STATUSES: Mapping[int, Cause] = {
    HTTPStatus.BAD_REQUEST: Cause.REFUSED,
    HTTPStatus.UNAUTHORIZED: Cause.CREDENTIALS,
    HTTPStatus.FORBIDDEN: Cause.FORBIDDEN,
    HTTPStatus.NOT_FOUND: Cause.FORBIDDEN,
    HTTPStatus.METHOD_NOT_ALLOWED: Cause.REFUSED,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: Cause.REFUSED,
    HTTPStatus.TOO_MANY_REQUESTS: Cause.BUSY,
}
_REASONS: Mapping[int, str] = {
    50001: "the bot cannot see this channel; allow it 'View Channel' there",
    50007: "this person takes no direct messages of the bot",
    50013: "the bot lacks a permission in this channel, such as 'Send Messages' or 'Attach Files'",
    50083: "the thread is archived; only a member of the server can reopen it",
    50278: "this person shares no server with the bot any more",
}
CLOSES: Mapping[int, str] = {
    4004: BAD_TOKEN,
    4010: "Discord does not accept the shard of the bot",
    4011: "the bot is in too many servers for one connection (2,500); nanobot does not divide them",
    4012: "Discord does not accept version 10 of its API any more; update nanobot-discord",
    4013: "Discord does not know one of the intents; correct channels.discord.intents",
    4014: (
        "Discord does not allow the bot to read messages; switch on 'Message Content Intent' at "
        f"{PORTAL}, page Bot, or subtract 32768 from channels.discord.intents"
    ),
}
"""Codes with which Discord closes an event stream for good."""

BLOCK_PAUSE_S = 600.0
"""Pause after a block at Discord's edge, which counts failed requests of ten minutes."""
_DETAIL_CHARS = 300


def failure_of(status: int, code: int, text: str, retry_after_s: float | None = None) -> CallFailed:
    """Return the failure that an error response stands for.

    Args:
        code: of the body, 0 if it has none.
        text: of the body.
        retry_after_s: seconds that Discord asks to wait, if it does.
    """
    cause = CODES.get(code) or _STATUSES.get(status, Cause.UNREACHABLE)
    if cause is Cause.CREDENTIALS:
        reason = BAD_TOKEN
    elif cause is Cause.BUSY:
        reason = f"too many requests; Discord asks to wait {retry_after_s or 0:.0f} s"
    else:
        reason = _REASONS.get(code) or f"Discord refused the request: {text[:_DETAIL_CHARS]}"
        reason = f"{reason} ({code or status})"
    return CallFailed(cause, reason, retry_after_s=retry_after_s)
