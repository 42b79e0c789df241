"""The codes of Feishu's failures, and what follows from them."""

from __future__ import annotations

from nanobot_core import JsonObject, shorten
from nanobot_core.chat import CallFailed, Cause

_PLACE = "open.feishu.cn (or open.larksuite.com), your app"
_KEYS = (
    "Feishu does not accept the credentials; copy `app_id` and `app_secret` of channels.feishu "
    f"from {_PLACE}, Credentials & Basic Info; for Lark, set `domain: lark`"
)
_BOT = f"the app has no bot; add it at {_PLACE}, Add features, and publish a version"
_SCOPE = (
    "the app lacks a permission; grant those of the README of nanobot-feishu at "
    f"{_PLACE}, Permissions & Scopes, and publish a version"
)
_ADDRESS = f"the address of this machine is not allowed; see {_PLACE}, Security settings"
_QUICK = "too many calls of Feishu's API"
_GONE = "the bot is not in the chat, or the chat no longer exists"
_PERSON = "this person cannot use the app, or has stopped its messages"
_LONG = "the message is too long"
_FILE = "Feishu does not accept the file"
_CARD = "Feishu does not accept the card"

CODES: dict[int, tuple[Cause, str]] = {
    10003: (Cause.CREDENTIALS, _KEYS),
    10014: (Cause.CREDENTIALS, _KEYS),
    10015: (Cause.CREDENTIALS, _KEYS),
    403: (Cause.CREDENTIALS, _KEYS),
    514: (Cause.CREDENTIALS, _KEYS),
    99991661: (Cause.CREDENTIALS, _KEYS),
    99991663: (Cause.CREDENTIALS, _KEYS),
    99991664: (Cause.CREDENTIALS, _KEYS),
    99991668: (Cause.CREDENTIALS, _KEYS),
    99991672: (Cause.CREDENTIALS, _SCOPE),
    99991679: (Cause.CREDENTIALS, _SCOPE),
    99991401: (Cause.CREDENTIALS, _ADDRESS),
    230006: (Cause.CREDENTIALS, _BOT),
    230027: (Cause.CREDENTIALS, _SCOPE),
    232034: (Cause.CREDENTIALS, "the app was stopped or removed; enable it in the admin console"),
    # The SDK takes the next two for refused credentials and a lost chat.
    99991400: (Cause.BUSY, _QUICK),
    230020: (Cause.BUSY, _QUICK),
    11232: (Cause.BUSY, _QUICK),
    1000040350: (Cause.BUSY, "the app has too many connections; stop other programs that use it"),
    1: (Cause.UNREACHABLE, "Feishu is overloaded"),
    1000040343: (Cause.UNREACHABLE, "Feishu has an internal error"),
    230002: (Cause.FORBIDDEN, _GONE),
    232009: (Cause.FORBIDDEN, _GONE),
    232010: (Cause.FORBIDDEN, _GONE),
    230013: (Cause.FORBIDDEN, _PERSON),
    230029: (Cause.FORBIDDEN, _PERSON),
    230053: (Cause.FORBIDDEN, _PERSON),
    230025: (Cause.REFUSED, _LONG),
    230028: (Cause.REFUSED, "Feishu's safety check refused the text"),
    230099: (Cause.REFUSED, _CARD),
    200621: (Cause.REFUSED, _CARD),
    300305: (Cause.REFUSED, _CARD),
    234006: (Cause.REFUSED, _FILE),
    234010: (Cause.REFUSED, _FILE),
}
"""Code to its cause and a reason. Sources: the pages on messages, CardKit and the long connection
of Feishu, and reports."""
_STREAM_ENDED = frozenset({300309, 200850})
_DETAIL_CHARS = 200


class StreamEnded(CallFailed):
    """A card is no longer in streaming mode, which ends by itself after ten minutes."""

    def __init__(self) -> None:
        super().__init__(Cause.REFUSED, "the card is no longer written")


def failure_of(status: int, answer: JsonObject) -> CallFailed | None:
    """Return the failure that an answer reports, or ``None``."""
    code = answer.get("code")
    if not isinstance(code, int) or code == 0:
        return None
    if code in _STREAM_ENDED:
        return StreamEnded()
    if code in CODES:
        return CallFailed(*CODES[code])
    reason = f"Feishu refused the request ({code}): {answer.get('msg') or ''}"
    return CallFailed(Cause.REFUSED, shorten(reason, _DETAIL_CHARS))
