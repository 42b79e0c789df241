"""Settings of the Matrix channel."""

from __future__ import annotations

from pydantic import Field, SecretStr, model_validator

from nanobot_core import ChannelSettings
from nanobot_core.chat import ServiceUrl
from nanobot_matrix.places import room_key

TEXT_BYTES = 12_000
"""Most bytes of the words of one message; an event can have 65,536 bytes, see `content`."""
_DECIDED_HERE = frozenset(
    {"max_concurrent_media_downloads", "sas_verification", "sync_stop_grace_seconds"}
)
"""Keys of the original that have no effect: the core limits downloads and ends the sync."""


class MatrixSettings(ChannelSettings):
    """Section ``channels.matrix``.

    Attributes:
        homeserver: address of the agent's homeserver.
        access_token: of the agent's account.
        user_id: the agent's own id, such as ``@nano:example.org``; needed with a password.
        password: of the agent's account, instead of an access token.
        device_id: device of the session that the password opens.
        e2ee_enabled: read and write encrypted rooms; it needs the extra ``e2e``.
        encrypted_only: leave out rooms that are not encrypted.
        trusted_keys: user ids to fingerprints of their devices, or their master keys: only these
            devices get keys, and only their messages are read.
        e2e_verified_only: in encrypted rooms, devices of people that `trusted_keys` does not list
            get no keys, and their messages are not read.
        group_allow_from: ids of the only rooms with several people that are read, if
            ``group_policy`` is the original's ``allowlist``.
        allow_room_mentions: a message to ``@room`` addresses the agent.
        allow_bots: ids of bots whose notices are read; they also need `allow_from`.
        edited_messages: process a message again when its author edits it.
        reply_to_message: send an answer as a reply to the message that it answers.
        max_media_bytes: largest file in both directions; 0 for none.
    """

    homeserver: ServiceUrl = "https://matrix.org"
    access_token: SecretStr = SecretStr("")
    user_id: str = ""
    password: SecretStr = SecretStr("")
    device_id: str = ""
    e2ee_enabled: bool = Field(default=True, alias="e2eeEnabled")
    encrypted_only: bool = False
    trusted_keys: dict[str, list[str]] = Field(default_factory=dict)
    e2e_verified_only: bool = False
    group_allow_from: list[str] = Field(default_factory=list)
    allow_room_mentions: bool = False
    allow_bots: list[str] = Field(default_factory=list)
    edited_messages: bool = False
    reply_to_message: bool = False
    max_media_bytes: int = Field(default=20 * 1024 * 1024, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _read_original(cls, given: object) -> object:
        """Read the original's list of rooms, and write ids of rooms as in ids of chats."""
        if not isinstance(given, dict):
            return given
        section = {key: value for key, value in given.items() if _snake(key) not in _DECIDED_HERE}
        policy = "groupPolicy" if "groupPolicy" in section else "group_policy"
        rooms = section.get("groupAllowFrom", section.get("group_allow_from"))
        groups = section.get("groups")
        if isinstance(groups, dict):
            section["groups"] = groups = {room_key(str(room)): groups[room] for room in groups}
        if section.get(policy) == "allowlist":
            section[policy] = "deny"
            listed = rooms if isinstance(rooms, list) else []
            allowed = {room_key(str(room)): {"policy": "open"} for room in listed}
            section["groups"] = allowed | (groups if isinstance(groups, dict) else {})
        return section


def _snake(key: object) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in str(key))
