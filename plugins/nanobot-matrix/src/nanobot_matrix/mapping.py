"""Converts events of Matrix to messages of nanobot, with pure functions."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from nanobot_core import InboundMessage, JsonObject, shorten
from nanobot_core.chat import Attachment, Received
from nanobot_matrix import wire
from nanobot_matrix.attachment import SealedFile
from nanobot_matrix.places import RoomRef

MESSAGES = frozenset({"m.room.message", "m.sticker"})
_TEXTS = frozenset({"m.text", "m.emote", "m.notice"})
_EXTENSIONS = {"m.image": ".jpg", "m.audio": ".ogg", "m.video": ".mp4", "m.file": ""}
"""Kind of file to its extension, if neither its name nor its type has one."""
_QUOTE_CHARS = 1_000
_USER = re.compile(r"@[^\s:|]+:[^\s|]+")
ENCRYPTED = "m.room.encrypted"
_MXC = re.compile(r"mxc://[A-Za-z0-9.:\[\]-]+/[A-Za-z0-9_-]+")
_PILL = re.compile(r"""href=["'](?:https://matrix\.to/#/|matrix:u/)([^"'?/]+)""")
_QUOTED_HTML = re.compile(r"<mx-reply>.*?</mx-reply>", re.DOTALL)
_QUOTED_BODY = re.compile(r"\A(?:> ?[^\n]*\n)+\n?")


def thread_of(content: Mapping[str, Any]) -> str | None:
    """Return the event that begins the thread of a message, if it is in one."""
    relation = _relation(content)
    return _event_id(relation.get("event_id")) if relation.get("rel_type") == "m.thread" else None


def answered_by(content: Mapping[str, Any]) -> str | None:
    """Return the event that a message replies to, if it is a reply.

    Messages of threads name the one before them, for clients that do not know threads.
    """
    relation = _relation(content)
    if relation.get("is_falling_back") is True:
        return None
    answered = relation.get("m.in_reply_to")
    return _event_id(answered.get("event_id")) if isinstance(answered, dict) else None


def replaced_by(content: Mapping[str, Any]) -> str | None:
    """Return the event that an edit replaces, if it is an edit."""
    relation = _relation(content)
    return _event_id(relation.get("event_id")) if relation.get("rel_type") == "m.replace" else None


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads what people write to one account.

    Attributes:
        user_id: the agent's own id.
        name: its display name; may be empty.
        allow_bots: ids of bots whose notices are read.
        room_mentions: a message to ``@room`` addresses the agent.
        edits: edits are read.
    """

    user_id: str
    name: str = ""
    allow_bots: Collection[str] = ()
    room_mentions: bool = False
    edits: bool = False

    def may_want(self, event: wire.Event) -> bool:
        """Whether an event can be a message for the agent, or an encrypted one."""
        if event.type != ENCRYPTED:
            return self.wants(event)
        return self._is_of_others(event)

    def _is_of_others(self, event: wire.Event) -> bool:
        is_valid = _USER.fullmatch(event.sender) and _event_id(event.event_id)
        return bool(is_valid) and event.sender != self.user_id

    def wants(self, event: wire.Event) -> bool:
        """Whether an event can be a message for the agent."""
        if event.type not in MESSAGES or not self._is_of_others(event):
            return False
        if replaced_by(event.content) and not self.edits:
            return False
        return event.content.get("msgtype") != "m.notice" or event.sender in self.allow_bots

    def read(
        self,
        room: str,
        event: wire.Event,
        related: wire.Event | None,
        *,
        is_group: bool,
    ) -> Received | None:
        """Return a message, or ``None`` if it has no content for the agent.

        Args:
            room: id of the room.
            event: one that `wants` accepts.
            related: the event that it replies to, or replaces, if it is known.
            is_group: the room has several people.
        """
        original, content, place = replaced_by(event.content), event.content, event.content
        if original is not None:
            content = _dict(event.content.get("m.new_content"))
            if related is None or related.sender != event.sender:
                return None
            place, related = related.content, None
        said, is_addressed = self._said(event.type, content, is_reply=related is not None)
        files = tuple(_files(event.type, content))
        if not (said or files):
            return None
        answers_agent = related is not None and related.sender == self.user_id
        thread = thread_of(place)
        facts: JsonObject = {"message_id": event.event_id, "is_group": is_group}
        facts |= {"thread": thread} if thread else {}
        facts |= {"edited": True} if original else {}
        inbound = InboundMessage(
            channel="matrix",
            sender_id=event.sender,
            chat_id=str(RoomRef(room, thread)),
            content=_with_context(said, related, is_edit=original is not None),
            timestamp=_instant(event.origin_server_ts),
            metadata=facts,
            dedupe_key=f"{original} {event.event_id}" if original else event.event_id,
            is_group=is_group,
            is_addressed=is_addressed or answers_agent,
        )
        return Received(message=inbound, files=files)

    def _said(self, kind: str, content: Mapping[str, Any], *, is_reply: bool) -> tuple[str, bool]:
        """Return the words of a message without mentions of the agent, and if there are any."""
        mentions = _dict(content.get("m.mentions"))
        users = mentions.get("user_ids")
        is_marked = isinstance(users, list) and self.user_id in users
        is_marked = is_marked or self.user_id in _pills(content)
        words, is_named = self._without_mention(_words(kind, content, is_reply), is_marked)
        is_for_room = self.room_mentions and mentions.get("room") is True
        return words, is_marked or is_named or is_for_room

    def _without_mention(self, words: str, is_marked: bool) -> tuple[str, bool]:
        # Words that only look like the name, such as a part of a path, are not changed.
        full = re.compile(rf"(?<![\w/]){re.escape(self.user_id)}(?![\w-]|[.:]\w)")
        start = [re.escape(name) for name in (self.user_id, self.name) if name.strip()]
        end = r"(?:\s*[:,]\s*|\s+|\Z)" if is_marked else r"\s*[:,](?:\s+|\Z)"
        addressed = re.match(rf"\s*@?(?:{'|'.join(start)}){end}", words, re.IGNORECASE)
        rest = words[addressed.end() :] if addressed else words
        rest, count = full.subn("", rest)
        return rest.strip(), addressed is not None or count > 0


def text_of(event: wire.Event) -> str:
    """Return the words of an event as they are now, after edits."""
    relations = _dict(event.unsigned.get("m.relations"))
    edit = _dict(_dict(relations.get("m.replace")).get("content"))
    content = _dict(edit.get("m.new_content")) or event.content
    words = _words(event.type, content, is_reply=answered_by(event.content) is not None)
    return words or next((f"[{file.name}]" for file in _files(event.type, content)), "")


def _with_context(said: str, related: wire.Event | None, *, is_edit: bool) -> str:
    """Add what the message refers to. A new command has no context, so that it is recognised."""
    lines = ["[edited]"] if is_edit else []
    if related is not None and not said.startswith("/"):
        quoted = " ".join(text_of(related).splitlines())
        if quoted:
            lines += [f"[in reply to {related.sender}]", f"> {shorten(quoted, _QUOTE_CHARS)}"]
    return "\n".join(line for line in (*lines, said) if line)


def _words(kind: str, content: Mapping[str, Any], is_reply: bool) -> str:
    body, how = _text(content.get("body")), _text(content.get("msgtype"))
    if kind == "m.sticker":
        return f"[sticker: {body}]" if body else "[sticker]"
    if how == "m.location":
        return f"[location: {_text(content.get('geo_uri')).removeprefix('geo:')}]"
    if how in _TEXTS:
        words = _QUOTED_BODY.sub("", body) if is_reply else body
        return f"* {words}" if how == "m.emote" else words
    # The body of a file is its name, or a text beside it.
    name = _text(content.get("filename"))
    return body if how in _EXTENSIONS and name and name != body else ""


def _files(kind: str, content: Mapping[str, Any]) -> Iterator[Attachment]:
    url, how = content.get("url"), _text(content.get("msgtype"))
    if kind == "m.sticker" or how not in _EXTENSIONS:
        return
    sealed = SealedFile.read(content.get("file"))
    if sealed is not None:
        url, ref = sealed.url, sealed.ref
    elif isinstance(url, str) and _MXC.fullmatch(url):
        ref = url
    else:
        return
    info = _dict(content.get("info"))
    size, media_type = info.get("size"), _text(info.get("mimetype"))
    given = _text(content.get("filename")) or _text(content.get("body"))
    name = PurePosixPath(given.replace("\\", "/")).name or url.rpartition("/")[2]
    if not PurePosixPath(name).suffix:
        name += mimetypes.guess_extension(media_type) or _EXTENSIONS[how]
    yield Attachment(ref=ref, name=name, size=size if isinstance(size, int) else None)


def _pills(content: Mapping[str, Any]) -> set[str]:
    html = _QUOTED_HTML.sub("", _text(content.get("formatted_body")))
    return {f"@{unquote(found).removeprefix('@')}" for found in _PILL.findall(html)}


def _relation(content: Mapping[str, Any]) -> dict[str, Any]:
    return _dict(content.get("m.relates_to"))


def _event_id(value: object) -> str | None:
    is_id = isinstance(value, str) and len(value) > 1 and value[0] == "$" and value.isprintable()
    return value if is_id and isinstance(value, str) and " " not in value else None


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _instant(unix_ms: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(unix_ms / 1_000, UTC) if unix_ms > 0 else None
    except (OverflowError, ValueError, OSError):
        return None
