"""Settings of the Slack channel, and time limits of its connection."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from nanobot_core import ChannelSettings, PluginSettings
from nanobot_core.chat import HttpProxy, ServiceUrl

_WITHOUT_EFFECT = (
    *("webhook_path", "webhookPath", "user_token_read_only", "userTokenReadOnly"),
    *("include_thread_context", "includeThreadContext"),
    *("thread_context_limit", "threadContextLimit"),
)
"""Keys of the original that have no counterpart here."""
_EMOJI = re.compile(r"[a-z0-9_+'-]{0,100}")


def _check_emoji(name: str) -> str:
    bare = name.strip().strip(":")
    if _EMOJI.fullmatch(bare) is None:
        msg = "not the name of an emoji such as 'eyes'"
        raise ValueError(msg)
    return bare


_Emoji = Annotated[str, AfterValidator(_check_emoji)]


class DirectMessageSettings(PluginSettings):
    """Section ``channels.slack.dm``: direct messages.

    Attributes:
        enabled: receive them.
        policy: ``open`` admits the people whom ``allow_from`` of the channel admits; ``allowlist``
            of them only those in `allow_from` here.
        allow_from: user ids.
    """

    enabled: bool = True
    policy: Literal["open", "allowlist"] = "open"
    allow_from: list[str] = Field(default_factory=list)


class SlackSettings(ChannelSettings):
    """Section ``channels.slack``.

    Attributes:
        bot_token: begins with ``xoxb-``; page OAuth & Permissions of the app.
        app_token: begins with ``xapp-``; page Basic Information, App-Level Tokens.
        mode: only Socket Mode is supported.
        reply_in_thread: answer a message of a channel in its thread.
        react_emoji: reaction on a message while the agent works on it; empty for none.
        done_emoji: reaction when the answer is sent; empty for none.
        edited_messages: process a message again when its author edits it.
        allow_bots: user or bot ids of other apps that may write.
        dm: direct messages.
        proxy: http proxy for all connections. Environment variables are not used.
        api_base: address of the Web API.
    """

    bot_token: SecretStr = SecretStr("")
    app_token: SecretStr = SecretStr("")
    mode: Literal["socket"] = "socket"
    reply_in_thread: bool = True
    react_emoji: _Emoji = "eyes"
    done_emoji: _Emoji = ""
    edited_messages: bool = False
    allow_bots: list[str] = Field(default_factory=list)
    dm: DirectMessageSettings = Field(default_factory=DirectMessageSettings)
    proxy: HttpProxy = None
    api_base: ServiceUrl = "https://slack.com/api"

    @field_validator("bot_token", "app_token")
    @classmethod
    def _strip(cls, token: SecretStr) -> SecretStr:
        return SecretStr(token.get_secret_value().strip())

    @model_validator(mode="before")
    @classmethod
    def _read_original(cls, section: object) -> object:
        """Read the original's list of channels, and leave out its keys without effect."""
        if not isinstance(section, dict):
            return section
        kept: dict[str, Any] = {
            key: value for key, value in section.items() if key not in _WITHOUT_EFFECT
        }
        channels = _taken(kept, "group_allow_from", "groupAllowFrom")
        policy = _taken(kept, "group_policy", "groupPolicy")
        if policy == "allowlist":
            policy = "deny"
            names = channels if isinstance(channels, list) else []
            listed = {str(channel): {"policy": "open"} for channel in names}
            kept["groups"] = listed | (kept.get("groups") or {})
        if policy is not None:
            kept["group_policy"] = policy
        dm = kept.get("dm")
        is_old = not {"allow_from", "allowFrom"} & kept.keys()
        if is_old and isinstance(dm, dict) and dm.get("policy") == "allowlist":
            kept["allow_from"] = dm.get("allow_from", dm.get("allowFrom", []))
        return kept


def _taken(section: dict[str, Any], *names: str) -> object:
    """Remove the keys `names`, and return the value of the first."""
    values = [section.pop(name) for name in names if name in section]
    return values[0] if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Time limits in seconds.

    Attributes:
        call_s: for a call of the Web API.
        transfer_s: for the upload of a file.
        open_s: for opening the socket.
        ping_s: between two pings on the socket.
        silence_s: longest time without any frame; a dead connection does not answer pings.
        catch_up_s: for reading histories after a connection was lost; the socket is not read.
        handover_s: for the end of the old connection when a new one replaces it.
    """

    call_s: float = 30.0
    transfer_s: float = 180.0
    open_s: float = 20.0
    ping_s: float = 10.0
    silence_s: float = 30.0
    catch_up_s: float = 15.0
    handover_s: float = 10.0
