"""Who may write. Pure functions; only senders who are named are admitted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Literal

from nanobot_core.config.models import ChannelSettings, GroupSettings
from nanobot_core.messages import InboundMessage

EVERYONE = "*"
SEPARATOR = "|"
"""Separates the id and the names of a sender, none of which contains it."""
REPLACEMENT = "\ufffd"
"""Replaces bytes that are not text, so that different ids look the same."""
Verdict = Literal["admitted", "unknown", "ignored"]
"""``ignored``: not meant for the agent, such as the talk of a group."""


def fault_of(message: InboundMessage) -> str:
    """Return why a message cannot be attributed to a sender or a chat; empty when it can be.

    Platforms let people choose ids. What separates an id from a name, ends a line of the log or
    cannot be seen has no place in one.
    """
    if SEPARATOR in message.sender_id:
        return f"the sender's id holds '{SEPARATOR}'; a channel gives names in sender_names"
    for what, identity in (("sender", message.sender_id), ("chat", message.chat_id)):
        if not identity.isprintable() or REPLACEMENT in identity:
            return f"the {what}'s id holds characters that cannot be seen or were not readable"
    return ""


def with_names(message: InboundMessage) -> InboundMessage:
    """Return `message` with the sender's names behind the id; needs one without a fault.

    Names that could be taken for something else are left out: an id identifies without them.
    """
    names = [
        name
        for name in (" ".join(given.split()) for given in message.sender_names)
        if name and SEPARATOR not in name and name.isprintable()
    ]
    joined = SEPARATOR.join([message.sender_id, *names])
    return replace(message, sender_id=joined, sender_names=())


def decide(
    message: InboundMessage, settings: ChannelSettings, approved: Collection[str]
) -> Verdict:
    """Return whether a message is admitted.

    Args:
        message: as received.
        settings: of its channel.
        approved: sender ids that the owner has approved by pairing.
    """
    allowed = settings.allow_from
    if message.is_group:
        group = _group_of(message.chat_id, settings.groups)
        policy = (group.policy if group else None) or settings.group_policy
        if policy == "deny" or (policy == "mention" and not message.is_addressed):
            return "ignored"
        if group and group.allow_from is not None:
            return "admitted" if is_listed(message.sender_id, group.allow_from) else "unknown"
    if is_listed(message.sender_id, allowed) or first_part(message.sender_id) in approved:
        return "admitted"
    return "unknown"


def _group_of(chat_id: str, groups: Mapping[str, GroupSettings]) -> GroupSettings | None:
    """Return the settings of a group, or of the group that contains a thread.

    The id of a thread is that of its group followed by a colon and more; ids of groups may
    themselves contain colons. The longest entry wins.
    """
    while chat_id and chat_id not in groups:
        chat_id = chat_id.rpartition(":")[0]
    return groups.get(chat_id) if chat_id else None


def is_listed(sender_id: str, entries: Iterable[str]) -> bool:
    """Whether one of `entries` names the sender.

    Ids are compared exactly. Names, which follow the id behind ``|``, are compared without regard
    to case and to a leading ``@``; an entry of digits is an id and never a name. An entry of
    several parts such as ``12345|name`` is the whole sender id. An entry without a visible
    character matches no one.
    """
    identity, *names = sender_id.split(SEPARATOR)
    folded = {_folded(name) for name in names} - {""}
    for entry in entries:
        if not entry.strip():
            continue
        if entry in {EVERYONE, identity} or (identity and entry == sender_id):
            return True
        if not entry.lstrip("-").isdigit() and _folded(entry) in folded:
            return True
    return False


def is_owner(message: InboundMessage, owners: Iterable[str]) -> bool:
    """Whether the sender is the owner.

    An entry is an id that counts on every channel, or ``channel:id`` or ``channel:name`` for one.
    A name counts only with its channel, because on another one anybody may take it.
    """
    prefix, identity = f"{message.channel}:", first_part(message.sender_id)
    here: list[str] = []
    for entry in owners:
        if entry.startswith(prefix):
            here.append(entry.removeprefix(prefix))
        elif entry and ":" not in entry and entry == identity != EVERYONE:
            return True
    return is_listed(message.sender_id, [entry for entry in here if entry != EVERYONE])


def first_part(sender_id: str) -> str:
    """Return the id in a sender id such as ``12345|name``."""
    return sender_id.partition(SEPARATOR)[0]


def _folded(name: str) -> str:
    return name.strip().lstrip("@").strip().casefold()
