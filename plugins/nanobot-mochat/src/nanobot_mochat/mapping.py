"""Converts messages of Mochat, with pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from nanobot_core import InboundMessage, shorten
from nanobot_core.chat import Received
from nanobot_mochat import wire

_QUOTE_CHARS = 1_000
_MENTION_LISTS = ("mentions", "mentionIds", "mentionedUserIds", "mentionedUsers")


def read_message(
    chat_id: str,
    message: wire.Message,
    agent_user_id: str,
    *,
    is_panel: bool,
    allow_bots: Sequence[str] = (),
) -> Received | None:
    """Return a message for the agent, or ``None`` if it is its own or another agent's.

    Args:
        chat_id: session or panel.
        agent_user_id: the agent's own user.
        is_panel: several people write there.
        allow_bots: user ids of other agents that may write.
    """
    author, info = message.author, message.author_info
    if not author or not message.message_id or author == agent_user_id:
        return None
    if info.agent_id and author not in allow_bots:
        return None
    said = _said(message.content)
    if not said:
        return None
    inbound = InboundMessage(
        channel="mochat",
        sender_id=author,
        chat_id=chat_id,
        content=_without_mention(said, agent_user_id),
        # Without an at sign, it could be the id of another person.
        sender_names=(info.email,) if "@" in info.email else (),
        timestamp=_instant(message.created_at),
        metadata={"message_id": message.message_id, "nickname": info.nickname},
        dedupe_key=f"{chat_id}:{message.message_id}",
        is_group=is_panel or bool(message.group_id),
        is_addressed=mentions(message, agent_user_id),
    )
    return Received(message=inbound)


def mentions(message: wire.Message, agent_user_id: str) -> bool:
    """Whether a message mentions the agent."""
    if message.meta.get("mentioned") is True or message.meta.get("wasMentioned") is True:
        return True
    if any(agent_user_id in _ids(message.meta.get(key)) for key in _MENTION_LISTS):
        return True
    content = message.content
    return isinstance(content, str) and bool(_mention(agent_user_id).search(content))


def joined(collected: Sequence[Received]) -> Received:
    """Return the newest of several messages, with the earlier ones quoted before it.

    They are quotations because others may have written them.
    """
    *earlier, newest = collected
    if not earlier or newest.message.content.startswith("/"):
        return newest
    quoted = ["[earlier in this panel]"]
    for received in earlier:
        message = received.message
        name = str(message.metadata.get("nickname") or message.sender_id)
        said = shorten(message.content, _QUOTE_CHARS)
        quoted.append(f"> {' '.join(name.split())}: {said}")
    content = "\n".join([*quoted, newest.message.content])
    return replace(newest, message=replace(newest.message, content=content))


def _said(content: object) -> str:
    if isinstance(content, str):
        return content.strip()
    return "" if content is None else f"[not a text: {shorten(json.dumps(content), _QUOTE_CHARS)}]"


def _ids(value: object) -> list[str]:
    found = []
    for item in value if isinstance(value, list) else ():
        keys = [item.get(key) for key in ("id", "userId", "_id")] if isinstance(item, dict) else []
        found += [each for each in (item, *keys) if isinstance(each, str)]
    return found


def _mention(agent_user_id: str) -> re.Pattern[str]:
    # An id may be the beginning of another.
    name = re.escape(agent_user_id)
    return re.compile(rf"<@{name}>|@{name}(?![\w-])")


def _without_mention(said: str, agent_user_id: str) -> str:
    return _mention(agent_user_id).sub("", said, count=1).strip() or said


def _instant(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
