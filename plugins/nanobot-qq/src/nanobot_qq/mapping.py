"""Converts events of QQ to messages of nanobot, with pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from nanobot_core import InboundMessage, JsonObject
from nanobot_core.chat import Attachment, Received
from nanobot_qq.wire import File, Interaction, Message

GROUP = "group:"
"""Begins the chat id of a group; that of a private chat is the id of the person."""
PRESS = "interaction:"
"""Begins the key of a pressed button, which cannot be answered like a message."""
_FACE = re.compile(r"<faceType=[^<>]*>")
_EXTENSIONS = {
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/gif": ".gif",
    "voice": ".silk",
    "video/mp4": ".mp4",
}


def read_message(message: Message) -> Received | None:
    """Return the content of a message, or ``None`` if it has none for the agent."""
    author = message.author
    is_group = bool(message.group_openid)
    sender = author.member_openid if is_group else author.user_openid
    said = _FACE.sub("[emoji]", message.content).strip()
    files = tuple(_attachments(message))
    if author.bot or not sender or not (said or files):
        return None
    facts: JsonObject = {"message_id": message.id, "is_group": is_group}
    if author.username:
        # People choose it themselves, so it must not match in `allow_from`.
        facts["name"] = author.username
    return Received(
        message=InboundMessage(
            channel="qq",
            sender_id=sender,
            chat_id=GROUP + message.group_openid if is_group else sender,
            content=said,
            timestamp=instant(message.timestamp),
            metadata=facts,
            dedupe_key=message.id,
            is_group=is_group,
            is_addressed=is_group,  # a bot gets nothing else of a group
        ),
        files=files,
    )


def read_press(press: Interaction) -> Received | None:
    """Return what a pressed button says, or ``None`` if it is not one of a chat."""
    is_group = bool(press.group_openid)
    sender = press.group_member_openid if is_group else press.user_openid
    value = press.data.resolved.button_data
    if not sender or not value:
        return None
    return Received(
        message=InboundMessage(
            channel="qq",
            sender_id=sender,
            chat_id=GROUP + press.group_openid if is_group else sender,
            content=value,
            timestamp=instant(press.timestamp),
            metadata={"is_group": is_group, "button": True},
            dedupe_key=PRESS + press.id,
            is_group=is_group,
            is_addressed=is_group,
        )
    )


def instant(written: str) -> datetime | None:
    """Return a time that QQ writes with its offset, or ``None`` if it cannot be read."""
    try:
        found = datetime.fromisoformat(written)
        return None if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _attachments(message: Message) -> Iterator[Attachment]:
    for file in message.attachments:
        if file.url:
            url = f"https:{file.url}" if file.url.startswith("//") else file.url
            yield Attachment(ref=url, name=file.filename or _name(file), size=file.size)


def _name(file: File) -> str:
    kind = file.content_type.partition("/")[0]
    known = kind if kind in {"image", "voice", "video"} else "file"
    return known + _EXTENSIONS.get(file.content_type, "")
