"""Converts messages of DingTalk to messages of nanobot, with pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from nanobot_core import InboundMessage, JsonObject, shorten
from nanobot_core.chat import Attachment, Received
from nanobot_dingtalk.wire import BotMessage, Content

GROUP = "group:"
"""Begins the chat id of a group; that of a private chat is the id of the person."""
_QUOTE_CHARS = 1_000
_NAMES = {"picture": "picture.jpg", "audio": "voice.amr", "video": "video.mp4", "file": "file"}
_FILES = frozenset(_NAMES)


def read_message(message: BotMessage, *, isolates_users: bool = False) -> Received | None:
    """Return the content of a message, or ``None`` if it has none for the agent.

    Args:
        isolates_users: each person of a group has a session.
    """
    sender = message.sender_staff_id or message.sender_id
    files = tuple(_attachments(message))
    said = _said(message)
    is_own = message.sender_id == message.chatbot_user_id
    if is_own or sender.startswith(GROUP) or not (said or files):
        return None
    is_group = message.conversation_type == "2"
    chat_id = GROUP + message.conversation_id if is_group else sender
    content = said if said.startswith("/") else "\n".join(filter(None, (_quoted(message), said)))
    session = f"dingtalk:{chat_id}:{sender}" if is_group and isolates_users else None
    return Received(
        message=InboundMessage(
            channel="dingtalk",
            sender_id=sender,
            chat_id=chat_id,
            content=content,
            timestamp=_instant(message.create_at),
            metadata=_facts(message, is_group=is_group),
            session_key_override=session,
            dedupe_key=message.msg_id,
            is_group=is_group,
            is_addressed=is_group and message.is_in_at_list is not False,
        ),
        files=files,
    )


def _facts(message: BotMessage, *, is_group: bool) -> JsonObject:
    facts: JsonObject = {"message_id": message.msg_id, "is_group": is_group}
    if message.sender_nick:
        # People choose it themselves, so it must not match in `allow_from`.
        facts["name"] = message.sender_nick
    return facts


def _said(message: BotMessage) -> str:
    if message.text is not None and message.text.content.strip():
        return message.text.content.strip()
    content = message.content
    if content is None:
        known = not message.msgtype or message.msgtype == "text"
        return "" if known else f"[{_kind(message)}, which DingTalk does not give to apps]"
    said = (content.recognition or _text_of(content)).strip()
    if said or message.msgtype in _FILES or any(item.download_code for item in content.rich_text):
        return said
    return f"[{_kind(message)}, which nanobot cannot read]"


def _kind(message: BotMessage) -> str:
    return f"a message of type '{shorten(' '.join(message.msgtype.split()), 40)}'"


def _text_of(content: Content) -> str:
    return content.text or "".join(item.text for item in content.rich_text)


def _quoted(message: BotMessage) -> str:
    quoted = message.text.replied_msg if message.text is not None else None
    if quoted is None:
        return ""
    text = _text_of(quoted.content).strip() if quoted.content is not None else ""
    text = text or (f"[{shorten(quoted.msg_type, 40)}]" if quoted.msg_type else "")
    return f"[in reply to a message]\n> {shorten(text, _QUOTE_CHARS)}" if text else ""


def _attachments(message: BotMessage) -> Iterator[Attachment]:
    content = message.content
    if content is None:
        return
    if content.download_code and not content.recognition:
        name = content.file_name or _NAMES.get(message.msgtype, "file")
        yield _attachment(message, content.download_code, name)
    for item in content.rich_text:
        if item.download_code:
            yield _attachment(message, item.download_code, item.file_name or _NAMES["picture"])


def _attachment(message: BotMessage, code: str, name: str) -> Attachment:
    return Attachment(ref=f"{message.robot_code}:{code}", name=name)


def _instant(unix_ms: int | None) -> datetime | None:
    try:
        return datetime.fromtimestamp(unix_ms / 1000, UTC) if unix_ms and unix_ms > 0 else None
    except (OverflowError, ValueError, OSError):
        return None
