"""The codes of QQ's failures, and what follows from them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from nanobot_core import JsonObject, shorten
from nanobot_core.chat import CallFailed, Cause

KEYS = (
    "QQ does not accept the credentials; copy `app_id` (AppID) and `secret` (AppSecret) of "
    "channels.qq from q.qq.com, your bot, Development settings"
)
_ADDRESS = (
    "the address of this machine is not in the bot's list; add it at q.qq.com, your bot, "
    "Development settings, IP whitelist; `app_id` of channels.qq names the bot"
)
_EVENTS = (
    "the bot may not receive these events; grant it messages of groups and private chats, and "
    "interactions if `msg_format` of channels.qq is 'markdown', at q.qq.com, your bot, Development "
    "settings, Events"
)
_SANDBOX = (
    "the bot is only allowed in the sandbox; publish it at q.qq.com, or set `api_base` of "
    "channels.qq to https://sandbox.api.sgroup.qq.com"
)
_BANNED = "QQ has banned the bot of `app_id` in channels.qq; see the messages at q.qq.com, your bot"
_GROUP = "the bot is not a member of the group"
_PERSON = "the person does not accept messages of the bot, or has removed it"
_ACTIVE = "QQ takes messages of this bot only as answers to a message"
_BUSY = "QQ has a failure of its own; the message is tried again"
_MARKDOWN = "the bot has no permission for Markdown, or QQ does not accept this text"
_BUTTONS = "the bot has no permission for buttons, or QQ does not accept these"
_LINKS = "QQ does not accept the links"

CODES: dict[int, tuple[Cause, str]] = {
    # tokens
    100007: (Cause.CREDENTIALS, KEYS),
    100016: (Cause.CREDENTIALS, KEYS),
    11241: (Cause.CREDENTIALS, KEYS),
    11242: (Cause.CREDENTIALS, KEYS),
    11243: (Cause.CREDENTIALS, KEYS),
    11244: (Cause.CREDENTIALS, KEYS),
    11298: (Cause.CREDENTIALS, _ADDRESS),
    # limits
    22009: (Cause.BUSY, "QQ takes no more messages now: at most 5 answers to each message"),
    304045: (Cause.BUSY, "too many messages without a question"),
    40034100: (Cause.BUSY, "too many messages without a question"),
    # recipients
    304064: (Cause.FORBIDDEN, _PERSON),
    40034101: (Cause.FORBIDDEN, _GROUP),
    40034102: (Cause.FORBIDDEN, _ACTIVE),
    40034105: (Cause.FORBIDDEN, _ACTIVE),
    40054002: (Cause.FORBIDDEN, "the bot is muted in the group"),
    40054003: (Cause.FORBIDDEN, _GROUP),
    40054004: (Cause.FORBIDDEN, _PERSON),
    40054013: (Cause.FORBIDDEN, _PERSON),
    # content
    304003: (Cause.REFUSED, _LINKS),
    40054010: (Cause.REFUSED, _LINKS),
    304036: (Cause.REFUSED, _MARKDOWN),
    40034008: (Cause.REFUSED, _MARKDOWN),
    40034009: (Cause.REFUSED, _MARKDOWN),
    40034010: (Cause.REFUSED, _MARKDOWN),
    40034011: (Cause.REFUSED, _MARKDOWN),
    40034124: (Cause.REFUSED, _MARKDOWN),
    40034127: (Cause.REFUSED, _MARKDOWN),
    304057: (Cause.REFUSED, _BUTTONS),
    305007: (Cause.REFUSED, _BUTTONS),
    40034029: (Cause.REFUSED, _BUTTONS),
    40034006: (Cause.REFUSED, "QQ's check of content refused the message"),
    304061: (Cause.REFUSED, "QQ does not accept the content"),
    40054007: (Cause.REFUSED, "the message is too long"),
    40054018: (Cause.REFUSED, "the message is too long"),
    304080: (Cause.REFUSED, "QQ does not accept the uploaded file"),
    40034004: (Cause.UNREACHABLE, "QQ could not store the file"),
    # failures of the platform
    40054006: (Cause.UNREACHABLE, _BUSY),
    40054016: (Cause.UNREACHABLE, "QQ counts the bot as offline"),
    50055001: (Cause.UNREACHABLE, _BUSY),
    50055002: (Cause.UNREACHABLE, _BUSY),
}
"""Code to its cause and a reason. Sources: QQ's pages on codes and on sending, and reports."""
REPEATED = 40054005
"""A message with this number in answer to this message was sent before."""
ENDED = frozenset({304027, 304103, 40034005, 40034024, 40034025, 40034031, 40034128})
"""The message can no longer be answered, or its id is not known."""
LINKS = frozenset({304003, 40054010})
MARKUP = frozenset({code for code, found in CODES.items() if found[1] in {_MARKDOWN, _BUTTONS}})
ACCEPTED = frozenset({304023, 304024})
"""The message is shown after QQ has checked it."""

Step: TypeAlias = Literal["resume", "identify", "token", "wait"]
_FINAL = {
    4001: "QQ does not know an operation that nanobot sent",
    4002: "QQ cannot read what nanobot sent",
    4010: "QQ does not accept the shard",
    4011: "QQ asks for more shards: the bot is in too many groups",
    4012: "QQ no longer supports this version of the protocol",
    4013: _EVENTS,
    4014: _EVENTS,
    4914: _SANDBOX,
    4915: _BANNED,
}
_STEPS: dict[int, Step] = {
    4004: "token",
    4006: "identify",
    4007: "identify",
    4008: "wait",
    4009: "resume",
    **dict.fromkeys(range(4900, 4914), "identify"),
}
_DETAIL_CHARS = 200


class QQFailed(CallFailed):
    """QQ answered with a code.

    Attributes:
        code: of QQ.
    """

    def __init__(self, code: int, cause: Cause, reason: str) -> None:
        self.code: int = code
        super().__init__(cause, reason)


def failure_of(status: int, answer: JsonObject) -> CallFailed | None:
    """Return the failure that an answer reports, or ``None``."""
    code = _code_of(answer)
    if code == 0 or code in ACCEPTED:
        return None
    if code in CODES:
        return QQFailed(code, *CODES[code])
    if status == 401:
        return QQFailed(code, Cause.CREDENTIALS, KEYS)
    if status == 429 or status >= 500:
        return None  # the status says enough
    reason = f"QQ refused the request ({code}): {answer.get('message') or ''}"
    return QQFailed(code, Cause.REFUSED, shorten(reason, _DETAIL_CHARS))


def after_close(code: int | None) -> Step | CallFailed | None:
    """Return what follows from the end of a connection; ``None`` if its code is not QQ's."""
    if code in _FINAL:
        return CallFailed(Cause.CREDENTIALS, f"{_FINAL[code]} (close code {code})")
    return _STEPS.get(code) if code is not None else None


def _code_of(answer: JsonObject) -> int:
    for name in ("err_code", "code"):
        value = answer.get(name)
        if isinstance(value, int | str) and str(value).strip("-").isdecimal() and int(value):
            return int(value)
    return 0
