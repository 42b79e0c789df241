"""The error codes of the Cloud API, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping

from nanobot_core.chat import Cause

NO_ACCESS = (
    "WhatsApp does not accept channels.whatsapp.access_token; create a token of a system user at "
    "business.facebook.com > Settings > System users"
)
_PERMISSION = (
    "channels.whatsapp.access_token lacks the permission whatsapp_business_messaging; add it at "
    "business.facebook.com > Settings > System users > Generate token"
)
NUMBER_UNKNOWN = (
    "channels.whatsapp.phone_number_id does not exist, or the token has no access to it; copy the "
    "id at developers.facebook.com > the app > WhatsApp > API Setup"
)
_NOT_A_TESTER = (
    "the number is not among the recipients of the test number; add it at "
    "developers.facebook.com > the app > WhatsApp > API Setup"
)
_UNPAID = (
    "WhatsApp cannot charge the business account; correct it at business.facebook.com > "
    "Billing & payments"
)
_UNREGISTERED = (
    "the phone number is not registered; register it at business.facebook.com > "
    "WhatsApp Manager > Phone numbers"
)
_WINDOW = "more than 24 hours have passed since the person's last message"
WINDOW_CLOSED = 131047
BAD_VALUE = 131009
NO_SUCH_OBJECT = 33
"""Subcode of 100."""

FAILURES: Mapping[int, tuple[Cause, str]] = {
    0: (Cause.CREDENTIALS, NO_ACCESS),
    1: (Cause.UNREACHABLE, "WhatsApp has an internal error"),
    2: (Cause.UNREACHABLE, "WhatsApp is temporarily down"),
    3: (Cause.CREDENTIALS, _PERMISSION),
    4: (Cause.BUSY, "the app has made too many calls"),
    10: (Cause.CREDENTIALS, _PERMISSION),
    100: (Cause.REFUSED, "WhatsApp refused a parameter"),
    190: (Cause.CREDENTIALS, NO_ACCESS),
    368: (Cause.FORBIDDEN, "WhatsApp has blocked the business for a violation of its policies"),
    80007: (Cause.BUSY, "the business account has made too many calls"),
    130429: (Cause.BUSY, "too many messages per second"),
    130472: (Cause.FORBIDDEN, "WhatsApp does not deliver to this person, who is in an experiment"),
    130497: (Cause.FORBIDDEN, "the business must not write to people in this country"),
    131000: (Cause.UNREACHABLE, "WhatsApp failed for an unknown reason"),
    131005: (Cause.CREDENTIALS, _PERMISSION),
    131008: (Cause.REFUSED, "WhatsApp misses a parameter"),
    BAD_VALUE: (Cause.REFUSED, "WhatsApp refused a value"),
    131016: (Cause.UNREACHABLE, "WhatsApp is temporarily down"),
    131021: (Cause.FORBIDDEN, "the agent cannot write to its own number"),
    131026: (Cause.FORBIDDEN, "the message cannot be delivered to this number"),
    131030: (
        Cause.FORBIDDEN,
        _NOT_A_TESTER,
    ),
    131031: (Cause.CREDENTIALS, "the business account is locked; see business.facebook.com"),
    131042: (
        Cause.CREDENTIALS,
        _UNPAID,
    ),
    WINDOW_CLOSED: (Cause.FORBIDDEN, _WINDOW),
    131048: (Cause.BUSY, "WhatsApp limits the number, because people reported it as spam"),
    131049: (Cause.FORBIDDEN, "WhatsApp does not deliver more marketing to this person"),
    131051: (Cause.REFUSED, "WhatsApp does not support this type of message"),
    131052: (Cause.REFUSED, "WhatsApp could not download the file"),
    131053: (Cause.REFUSED, "WhatsApp does not accept the file's type or content"),
    131056: (Cause.BUSY, "too many messages to this person"),
    131057: (Cause.UNREACHABLE, "the business account is in maintenance"),
    132000: (Cause.REFUSED, "the template has another number of parameters"),
    132001: (Cause.REFUSED, "the template does not exist in this language, or is not approved"),
    132005: (Cause.REFUSED, "the template with its parameters is too long"),
    132007: (Cause.REFUSED, "the template violates a policy of WhatsApp"),
    132012: (Cause.REFUSED, "a parameter of the template has another format"),
    132015: (Cause.REFUSED, "the template is paused, because people reported it"),
    132016: (Cause.REFUSED, "the template is disabled, because people reported it"),
    133004: (Cause.UNREACHABLE, "WhatsApp is temporarily down"),
    133010: (
        Cause.CREDENTIALS,
        _UNREGISTERED,
    ),
}
"""Error code to the cause, and a sentence for the owner."""
_PERMISSION_CODES = range(200, 300)


def meaning_of(code: int) -> tuple[Cause, str]:
    """Return the cause of an error code, and a sentence for the owner."""
    if code in _PERMISSION_CODES:
        return Cause.CREDENTIALS, _PERMISSION
    return FAILURES.get(code, (Cause.REFUSED, f"WhatsApp refused the request (error {code})"))
