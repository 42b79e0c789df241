"""The codes of DingTalk's failures, and what follows from them."""

from __future__ import annotations

from nanobot_core import JsonObject, shorten
from nanobot_core.chat import CallFailed, Cause

_KEYS = (
    "DingTalk does not accept the credentials; copy `client_id` and `client_secret` of "
    "channels.dingtalk from open-dev.dingtalk.com, your app, Credentials & Basic Info"
)
_PERMISSION = (
    "the app lacks the permission for this call; grant 'qyapi_robot_sendmsg' at "
    "open-dev.dingtalk.com, your app, Permissions"
)
_ROBOT = (
    "the app has no such robot; add the capability Robot at open-dev.dingtalk.com, your app, "
    "and publish a version"
)
_ADDRESS = (
    "the address of this machine is not in the app's list; add it at open-dev.dingtalk.com, "
    "your app, Security settings"
)
_QUICK = "too many calls of DingTalk's API"
_GONE = "the robot was removed from the chat, or the chat no longer exists"
_PERSON = "DingTalk does not know this person, or the person cannot use the app"

CODES: dict[str, tuple[Cause, str]] = {
    "invalidClientIdOrSecret": (Cause.CREDENTIALS, _KEYS),
    "authFailed": (Cause.CREDENTIALS, _KEYS),
    "InvalidAuthentication": (Cause.CREDENTIALS, _KEYS),
    "Forbidden.AccessDenied.AccessTokenPermissionDenied": (Cause.CREDENTIALS, _PERMISSION),
    "Forbidden.AccessDenied.IpNotInWhiteList": (Cause.CREDENTIALS, _ADDRESS),
    "Forbidden.AccessDenied.QpsLimitForApi": (Cause.BUSY, _QUICK),
    "Forbidden.AccessDenied.QpsLimitForAppkeyAndApi": (Cause.BUSY, _QUICK),
    "Forbidden.AccessDenied.ApiQuotaExceeded": (
        Cause.BUSY,
        "the calls of this month are used up; see the plan of the organisation",
    ),
    "Throttling": (Cause.BUSY, _QUICK),
    "invalidParameter.robotCode": (Cause.CREDENTIALS, _ROBOT),
    "robot": (Cause.CREDENTIALS, _ROBOT),
    "bot.stopped": (Cause.FORBIDDEN, _GONE),
    "invalid.openConversationId": (Cause.FORBIDDEN, _GONE),
    "openConversationId": (Cause.FORBIDDEN, _GONE),
    "staffId": (Cause.FORBIDDEN, _PERSON),
    "invalidParameter.userIds": (Cause.FORBIDDEN, _PERSON),
    # errcode of the older API and of session webhooks
    "-1": (Cause.BUSY, "DingTalk is overloaded"),
    "88": (Cause.CREDENTIALS, _KEYS),
    "40001": (Cause.CREDENTIALS, _KEYS),
    "40014": (Cause.CREDENTIALS, _KEYS),
    "42001": (Cause.CREDENTIALS, _KEYS),
    "60011": (Cause.CREDENTIALS, _PERMISSION),
    "90018": (Cause.BUSY, _QUICK),
    "130101": (Cause.BUSY, _QUICK),
    "130102": (Cause.BUSY, _QUICK),
    "410100": (Cause.BUSY, _QUICK),
    "400013": (Cause.FORBIDDEN, _GONE),
    "400102": (Cause.FORBIDDEN, _GONE),
    "310000": (Cause.REFUSED, "DingTalk's safety check refused the text"),
    "430101": (Cause.REFUSED, "DingTalk refused a link"),
    "430102": (Cause.REFUSED, "DingTalk refused the text"),
    "430103": (Cause.REFUSED, "DingTalk refused a picture"),
    "460101": (Cause.REFUSED, "the message is too long"),
}
"""Code to its cause and a reason; a code also stands for longer ones that begin with it and a dot.

Sources: the pages on global error codes and on robots of DingTalk, and reports.
"""
EXPIRED = frozenset({"300001", "400101", "300005"})
"""Codes of a session webhook that is no longer valid."""
_DETAIL_CHARS = 200
_HTTP_SERVER_ERROR = 500
_HTTP_UNAUTHORIZED = 401
_HTTP_FORBIDDEN = 403


class WebhookExpired(CallFailed):
    """A session webhook no longer takes messages."""

    def __init__(self) -> None:
        super().__init__(Cause.REFUSED, "the time for a reply has passed")


def failure_of(status: int, answer: JsonObject) -> CallFailed | None:
    """Return the failure that an answer reports, or ``None``."""
    code = _code_of(answer)
    if code in EXPIRED:
        return WebhookExpired()
    known = _known(code)
    if known is not None:
        return CallFailed(*known)
    if status >= _HTTP_SERVER_ERROR:
        return None  # the status says enough
    if status == _HTTP_UNAUTHORIZED:
        return CallFailed(Cause.CREDENTIALS, _KEYS)
    if status == _HTTP_FORBIDDEN:  # quotas have many codes
        return CallFailed(Cause.BUSY, f"DingTalk does not allow the call now ({code or status})")
    if code:
        said = answer.get("message") or answer.get("errmsg") or ""
        reason = f"DingTalk refused the request ({code}): {said}"
        return CallFailed(Cause.REFUSED, shorten(reason, _DETAIL_CHARS))
    return None


def _code_of(answer: JsonObject) -> str:
    errcode = answer.get("errcode")
    if errcode not in (None, 0, "0"):
        return str(errcode)
    code = answer.get("code")
    return str(code) if code not in (None, 0, "0", "OK", 200) else ""


def _known(code: str) -> tuple[Cause, str] | None:
    while code:
        if code in CODES:
            return CODES[code]
        code = code.rpartition(".")[0]
    return None
