"""Why Slack refuses a call: its error codes, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping

from nanobot_core.chat import CallFailed, Cause

_CODES = {
    Cause.REFUSED: (
        "msg_too_long msg_blocks_too_long invalid_blocks invalid_blocks_format no_text "
        "too_many_attachments invalid_arguments invalid_thread_ts thread_not_found "
        "message_not_found cant_update_message cant_delete_message edit_window_closed "
        "block_mismatch file_not_found invalid_channel message_not_in_streaming_state "
        "already_reacted no_reaction invalid_name too_many_reactions"
    ),
    Cause.FORBIDDEN: (
        "channel_not_found not_in_channel is_archived is_inactive restricted_action "
        "restricted_action_read_only_channel restricted_action_thread_only_channel "
        "restricted_action_non_threadable_channel user_not_found user_disabled cannot_dm_bot "
        "messages_tab_disabled user_not_visible"
    ),
    Cause.BUSY: "ratelimited rate_limited message_limit_exceeded",
    Cause.UNREACHABLE: "internal_error fatal_error service_unavailable request_timeout",
    Cause.CREDENTIALS: (
        "invalid_auth not_authed account_inactive token_revoked token_expired missing_scope "
        "not_allowed_token_type no_permission access_denied ekm_access_denied "
        "org_login_required team_access_not_granted app_not_installed"
    ),
}
CAUSES: Mapping[str, Cause] = {
    code: cause for cause, codes in _CODES.items() for code in codes.split()
}
"""Error code to the cause; all others count as `Cause.REFUSED`."""

BOT_TOKEN, APP_TOKEN = "channels.slack.bot_token", "channels.slack.app_token"
_PAGES = {
    BOT_TOKEN: "https://api.slack.com/apps, page OAuth & Permissions",
    APP_TOKEN: "https://api.slack.com/apps, page Basic Information, App-Level Tokens",
}
_HINTS = {
    "not_in_channel": "invite the app to the channel with /invite",
    "channel_not_found": "a private channel is unknown until the app is invited with /invite",
    "messages_tab_disabled": (
        "allow messages to the app at https://api.slack.com/apps, page App Home, Messages Tab"
    ),
}
_LONGEST_PAUSE_S = 3_600.0


def refused_call(
    method: str, answer: Mapping[str, object], *, setting: str, retry_after: str = ""
) -> CallFailed:
    """Return the failure of a call that Slack answered with an error.

    Args:
        method: of the Web API.
        answer: what Slack answered.
        setting: the token that was used.
        retry_after: value of the header ``Retry-After``.
    """
    code = str(answer.get("error") or "an unknown error")
    cause = CAUSES.get(code, Cause.REFUSED)
    if cause is Cause.CREDENTIALS:
        return CallFailed(cause, _advice(code, answer, setting))
    if cause is Cause.BUSY:
        reason = f"Slack allows no more calls of {method} at the moment"
        return CallFailed(cause, reason, retry_after_s=pause_of(retry_after))
    hint = f"; {_HINTS[code]}" if code in _HINTS else ""
    return CallFailed(cause, f"Slack refuses {method}: {code}{hint}")


def pause_of(retry_after: str) -> float | None:
    """Return the seconds of a header ``Retry-After``, or ``None`` if it is not a number."""
    try:
        seconds = float(retry_after)
    except ValueError:
        return None
    return min(seconds, _LONGEST_PAUSE_S) if seconds >= 0 else None


def bad_token(setting: str, reason: str) -> CallFailed:
    """Return the failure of a token that cannot work."""
    return CallFailed(Cause.CREDENTIALS, f"{setting} {reason}; copy it from {_PAGES[setting]}")


def _advice(code: str, answer: Mapping[str, object], setting: str) -> str:
    page = _PAGES[setting]
    if code == "missing_scope" and setting == APP_TOKEN:
        return f"{setting} lacks the scope connections:write; create another token on {page}"
    if code == "missing_scope":
        needed = answer.get("needed") or "that the call needs"
        return f"the Slack app lacks the scope {needed}; add it on {page}, and reinstall the app"
    if code in {"account_inactive", "app_not_installed", "token_revoked"}:
        return f"Slack reports {code}; install the app again on {page}, and copy {setting}"
    return f"Slack does not accept {setting} ({code}); copy it from {page}"
