"""Settings of the Mochat channel."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SecretStr, model_validator

from nanobot_core import ChannelSettings
from nanobot_core.chat import ServiceUrl

TEXT_CHARS = 4_000
"""Longest text of a message. Mochat does not document its limit."""
_DECIDED_HERE = frozenset(
    {
        "socket_disable_msgpack",
        "socket_reconnect_delay_ms",
        "socket_max_reconnect_delay_ms",
        "socket_connect_timeout_ms",
        "retry_delay_ms",
        "max_retry_attempts",
    }
)
"""Keys of the original that have no effect: the gateway decides about retries."""


class MochatSettings(ChannelSettings):
    """Section ``channels.mochat``.

    Attributes:
        claw_token: the agent's token from Mochat.
        agent_user_id: the agent's own user id, so that it does not answer itself.
        base_url: address of Mochat.
        sessions: ids of the sessions to follow; ``"*"`` means all that the agent is in.
        panels: ids of the panels to follow; ``"*"`` means all that the agent can see.
        allow_bots: user ids of other agents that may write.
        reply_delay_mode: ``non-mention`` collects the messages of a panel that do not mention the
            agent; a mention passes them on with it. ``off`` passes on each message by itself.
        reply_delay_ms: milliseconds after the last collected message until all of them are passed
            on without a mention; ``group_policy`` then decides whether they are answered.
        refresh_interval_ms: milliseconds between two looks at the panels and at the lists of
            sessions and panels.
        watch_timeout_ms: milliseconds that Mochat holds a request for new messages.
        watch_limit: most messages of one request.
        socket_url: address for Socket.IO, if it is not `base_url`; needs the extra ``socket``.
        socket_path: path of Socket.IO; empty to use none.
    """

    claw_token: SecretStr = SecretStr("")
    agent_user_id: str = ""
    base_url: ServiceUrl = "https://mochat.io"
    sessions: list[str] = Field(default_factory=lambda: ["*"])
    panels: list[str] = Field(default_factory=list)
    allow_bots: list[str] = Field(default_factory=list)
    reply_delay_mode: Literal["off", "non-mention"] = "non-mention"
    reply_delay_ms: int = Field(default=120_000, ge=0, le=3_600_000)
    refresh_interval_ms: int = Field(default=30_000, ge=100, le=3_600_000)
    watch_timeout_ms: int = Field(default=25_000, ge=100, le=120_000)
    watch_limit: int = Field(default=100, ge=1, le=100)
    socket_url: str = ""
    socket_path: str = "/socket.io"

    @model_validator(mode="before")
    @classmethod
    def _read_original(cls, given: object) -> object:
        """Read the original's rules about mentions, and leave out what is decided elsewhere."""
        if not isinstance(given, dict):
            return given
        section = {key: value for key, value in given.items() if _snake(key) not in _DECIDED_HERE}
        rule = section.pop("mention", None)
        if isinstance(rule, dict):
            section.setdefault("group_policy", _policy(rule, "require_in_groups"))
        groups = section.get("groups")
        if isinstance(groups, dict):
            section["groups"] = {chat: _group(rule) for chat, rule in groups.items()}
        return section


def _snake(key: object) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in str(key))


def _group(rule: object) -> object:
    if isinstance(rule, dict) and {_snake(key) for key in rule} == {"require_mention"}:
        return {"policy": _policy(rule, "require_mention")}
    return rule


def _policy(rule: dict[str, Any], key: str) -> str:
    found = {_snake(name): value for name, value in rule.items()}
    return "mention" if found.get(key, False) else "open"
