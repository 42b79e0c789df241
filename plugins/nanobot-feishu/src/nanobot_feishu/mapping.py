"""Converts events of Feishu to messages of nanobot, with pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from nanobot_core import InboundMessage, JsonObject, shorten
from nanobot_core.chat import Attachment, Received
from nanobot_feishu import wire

_QUOTE_CHARS = 1_000
_CARD_CHARS = 4_000
_DEPTH = 12
_FILES = {"audio": "voice.ogg", "file": "file", "media": "video.mp4"}
_SIMPLE = {
    "sticker": "[sticker]",
    "share_chat": "[shared group]",
    "share_user": "[shared contact]",
    "merge_forward": "[several forwarded messages, which Feishu does not give to apps]",
}
_AFTER_MENTION = ",.:;!，。：；！、 \t"  # noqa: RUF001 - Chinese punctuation


def read_message(
    event: wire.Received, bot: str, *, isolates_topics: bool = True
) -> Received | None:
    """Return the content of a message, or ``None`` if it has none for the agent.

    Args:
        bot: open id of the bot itself.
        isolates_topics: a topic of a group is a chat of its own, ``<chat>:<first message>``.
    """
    message, sender = event.message, event.sender.sender_id.open_id
    content = _parsed(message.content)
    is_mentioned = any(mention.id.open_id == bot for mention in message.mentions if bot)
    files = tuple(_attachments(message, content))
    said = _without_mention(_said(message, content), message.mentions, bot)
    if event.sender.sender_type != "user" or not sender or sender == bot or not (said or files):
        return None
    is_group = message.chat_type != "p2p"
    chat_id = message.chat_id if is_group else sender
    if is_group and isolates_topics and message.thread_id:
        chat_id = f"{chat_id}:{message.root_id or message.message_id}"
    facts: JsonObject = {"message_id": message.message_id, "is_group": is_group}
    if message.thread_id:
        facts["thread"] = message.thread_id
    return Received(
        message=InboundMessage(
            channel="feishu",
            sender_id=sender,
            chat_id=chat_id,
            content=said,
            timestamp=instant(message.create_time),
            metadata=facts,
            dedupe_key=message.message_id,
            is_group=is_group,
            is_addressed=is_group and is_mentioned,
            is_forwarded=message.message_type == "merge_forward",
        ),
        files=files,
    )


def read_press(event: wire.Pressed, event_id: str) -> Received | None:
    """Return the press of one of our buttons, or ``None``."""
    value, chat = event.action.value.get("nanobot"), event.action.value.get("chat")
    sender = event.operator.open_id
    if not (isinstance(value, str) and isinstance(chat, str) and value and chat and sender):
        return None
    is_group = not chat.startswith("ou_")
    if not is_group and chat != sender:
        return None
    return Received(
        message=InboundMessage(
            channel="feishu",
            sender_id=sender,
            chat_id=chat,
            content=value,
            metadata={"message_id": event.context.open_message_id, "button": True},
            dedupe_key=f"press:{event_id or event.token}",
            is_group=is_group,
            is_addressed=True,
        )
    )


def with_quote(received: Received, quoted: JsonObject, app_id: str) -> Received:
    """Return a message with the text of the message that it answers, as the API describes it."""
    message = received.message
    sender, body = quoted.get("sender"), quoted.get("body")
    is_own = isinstance(sender, dict) and sender.get("id") == app_id
    kind, content = quoted.get("msg_type"), body.get("content") if isinstance(body, dict) else ""
    kind = kind if isinstance(kind, str) else ""
    text = _text_of(kind, _parsed(content if isinstance(content, str) else ""))
    text = text or (f"[{kind}]" if kind else "")
    if text and not message.content.startswith("/"):
        author = "your message" if is_own else "a message"
        lines = (f"[in reply to {author}]", f"> {shorten(text, _QUOTE_CHARS)}", message.content)
        message = replace(message, content="\n".join(line for line in lines if line))
    if is_own and message.is_group:
        message = replace(message, is_addressed=True)
    return replace(received, message=message)


def instant(unix_ms: str) -> datetime | None:
    """Return the time of a message, or ``None`` if it is unknown."""
    try:
        return datetime.fromtimestamp(int(unix_ms) / 1000, UTC) if int(unix_ms) > 0 else None
    except (OverflowError, ValueError, OSError):
        return None


def _parsed(content: str) -> dict[str, Any]:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _said(message: wire.Message, content: dict[str, Any]) -> str:
    kind = message.message_type
    said = _text_of(kind, content).strip()
    if said or kind in {"text", "post", "image", *_FILES}:
        return said
    return f"[a message of type '{shorten(' '.join(kind.split()), 40)}', which nanobot cannot read]"


def _text_of(kind: str, content: dict[str, Any]) -> str:
    match kind:
        case "text":
            return _text(content.get("text"))
        case "post":
            return _post_text(content)
        case "location":
            point = f"{content.get('latitude')}, {content.get('longitude')}"
            return f"[location: {_text(content.get('name'))} ({point})]"
        case "interactive":
            return shorten("\n".join(_card_texts(content, 0)), _CARD_CHARS)
    return _SIMPLE.get(kind, "")


def _post(content: dict[str, Any]) -> dict[str, Any]:
    """Return the post itself, which may be one of several languages."""
    if isinstance(content.get("content"), list):
        return content
    inner = content.get("post")
    versions = inner if isinstance(inner, dict) else content
    found = (one for one in versions.values() if isinstance(one, dict) and "content" in one)
    return next(found, {})


def _rows(content: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    rows = _post(content).get("content")
    for row in rows if isinstance(rows, list) else ():
        yield [one for one in row if isinstance(one, dict)] if isinstance(row, list) else []


def _post_text(content: dict[str, Any]) -> str:
    lines = [_text(_post(content).get("title"))]
    lines += ["".join(map(_element_text, row)) for row in _rows(content)]
    return "\n".join(line for line in lines if line.strip())


def _element_text(element: dict[str, Any]) -> str:
    text = _text(element.get("text"))
    match element.get("tag"):
        case "a":
            href = _text(element.get("href"))
            return f"{text} ({href})" if href and href != text else text
        case "at":
            return _text(element.get("user_id"))
        case "code_block":
            return f"```{_text(element.get('language'))}\n{text}\n```"
    return text


def _card_texts(value: object, depth: int) -> Iterator[str]:
    if depth > _DEPTH:
        return
    if isinstance(value, list):
        for one in value:
            yield from _card_texts(one, depth + 1)
    elif isinstance(value, dict):
        for key in ("title", "header", "text", "content", "elements", "body", "columns"):
            inner = value.get(key)
            if isinstance(inner, str) and inner.strip() and key in {"title", "text", "content"}:
                yield inner
            else:
                yield from _card_texts(inner, depth + 1)


def _without_mention(text: str, mentions: tuple[wire.Mention, ...], bot: str) -> str:
    """Return a text with names for mentions, and without those of the bot."""
    for mention in mentions:
        # '@_user_1' must not match within '@_user_10'.
        key = re.compile(rf"{re.escape(mention.key)}(?!\d)")
        if bot and mention.id.open_id == bot:
            begins = key.match(text.lstrip())
            text = key.sub("", text)
            text = text.lstrip(_AFTER_MENTION) if begins else text
        else:
            name = f"@{mention.name}"
            text = key.sub(lambda _, name=name: name, text)  # type: ignore[misc]
    return text.strip()


def _attachments(message: wire.Message, content: dict[str, Any]) -> Iterator[Attachment]:
    kind, place = message.message_type, message.message_id
    image, file = _text(content.get("image_key")), _text(content.get("file_key"))
    if kind == "image" and image:
        yield Attachment(ref=f"{place}:image:{image}", name="picture.jpg")
    elif kind in _FILES and file:
        name = _text(content.get("file_name")) or _FILES[kind]
        yield Attachment(ref=f"{place}:file:{file}", name=name)
    elif kind == "post":
        for row in _rows(content):
            for element in row:
                key, other = _text(element.get("image_key")), _text(element.get("file_key"))
                if element.get("tag") == "img" and key:
                    yield Attachment(ref=f"{place}:image:{key}", name="picture.jpg")
                elif element.get("tag") == "media" and other:
                    yield Attachment(ref=f"{place}:file:{other}", name="video.mp4")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
