"""Contents of the events that the agent sends, with pure functions."""

from __future__ import annotations

import hashlib
import json
import mimetypes
import secrets
from typing import TYPE_CHECKING

from nanobot_core.chat import HTML, PLAIN, write_markup

if TYPE_CHECKING:
    from nanobot_core import JsonObject
    from nanobot_core.chat import RichText, Upload
    from nanobot_matrix.places import RoomRef

SENT_BYTES = 24_000
"""Most bytes of plain and formatted text. An edit contains both twice, and an event can have
65,536 bytes. Encryption adds a third, so encrypted edits contain the formatted text once."""
_FORMAT = "org.matrix.custom.html"
_KINDS = {
    "image": "m.image",
    "animation": "m.image",
    "voice": "m.audio",
    "audio": "m.audio",
    "video": "m.video",
    "file": "m.file",
}


def sent_bytes(text: RichText) -> int:
    """Return the bytes of a text as it is sent, with and without formatting."""
    return _bytes(write_markup(text, PLAIN)) + _bytes(write_markup(text, HTML))


def text_content(text: RichText) -> JsonObject:
    """Return the content of a message that notifies no one."""
    content: JsonObject = {
        "msgtype": "m.text",
        "body": write_markup(text, PLAIN),
        "m.mentions": {},
    }
    if text.spans:
        content |= {"format": _FORMAT, "formatted_body": write_markup(text, HTML)}
    return content


def edit_content(text: RichText, message_id: str, *, is_short: bool = False) -> JsonObject:
    """Return the content of an event that replaces the text of a message.

    Args:
        is_short: it contains the formatted text once, so that it can be encrypted.
    """
    content = text_content(text)
    relation: JsonObject = {"rel_type": "m.replace", "event_id": message_id}
    # Clients that do not know edits show it as a new message; the star is customary for them.
    fallback = (text_content(text.plain) if is_short else content) | {
        "body": f"* {content['body']}"
    }
    return fallback | {"m.new_content": content, "m.relates_to": relation}


def file_content(file: Upload, place: JsonObject) -> JsonObject:
    """Return the content of a message with an uploaded file.

    Args:
        place: ``url`` or, of an encrypted file, ``file``.
    """
    info: JsonObject = {"mimetype": media_type(file), "size": file.size}
    content: JsonObject = {
        "msgtype": _KINDS[file.kind],
        "body": file.path.name,
        "filename": file.path.name,
        "info": info,
        "m.mentions": {},
        **place,
    }
    return content | ({"org.matrix.msc3245.voice": {}} if file.kind == "voice" else {})


def media_type(file: Upload) -> str:
    """Return the media type of a file, by its name."""
    return mimetypes.guess_type(file.path.name)[0] or "application/octet-stream"


def relation_of(place: RoomRef, reply_to: str | None) -> JsonObject:
    """Return ``m.relates_to`` of a message in a room or thread; empty if it has none."""
    answered: JsonObject = {"event_id": reply_to or place.thread or ""}
    if place.thread is not None:
        return {
            "rel_type": "m.thread",
            "event_id": place.thread,
            "is_falling_back": reply_to is None,
            "m.in_reply_to": answered,
        }
    return {"m.in_reply_to": answered} if reply_to else {}


def transaction_of(place: RoomRef, key: str) -> str:
    """Return a transaction id: the same for the same key, with which nothing is sent twice."""
    if not key:
        return secrets.token_hex(16)
    return hashlib.sha256(f"{place} {key}".encode()).hexdigest()[:32]


def _bytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))
