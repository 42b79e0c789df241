"""Replies as they are posted, long ones in pieces."""

from __future__ import annotations

import base64
import hashlib
import json
import mimetypes
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from nanobot_core import JsonObject, JsonValue, OutboundMessage
from nanobot_webhook.payload import REPLY_TYPE

_BREAKS = ("\n\n", "\n", " ")


def split_text(text: str, limit: int) -> list[str]:
    """Return `text` in pieces of at most `limit` characters.

    A piece ends at a paragraph, else at a line, else at a word, where one ends in its second half.
    Joined, the pieces are the text: nothing is removed, not even at the ends.

    Args:
        text: may be empty, which gives one empty piece.
        limit: one or more.
    """
    pieces = []
    while len(text) > limit:
        end = _end(text, limit)
        pieces.append(text[:end])
        text = text[end:]
    return [*pieces, text]


def _end(text: str, limit: int) -> int:
    for mark in _BREAKS:
        at = text.rfind(mark, limit // 2, limit)
        if at > 0:
            return at + len(mark)
    return limit


_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request of a reply.

    Attributes:
        id: the same whenever this piece is sent.
        body: JSON.
    """

    id: str
    body: bytes


def build_deliveries(
    message: OutboundMessage, now: datetime, *, max_chars: int, max_file_bytes: int
) -> list[Delivery]:
    """Return the requests of a reply in order; the last one has files and buttons.

    Reads the files; call it in a thread.
    """
    texts = split_text(message.content, max_chars)
    base = _base_id(message)
    deliveries = []
    for number, text in enumerate(texts, 1):
        data: JsonObject = {
            "chat_id": message.chat_id,
            "content": text,
            "kind": message.kind,
            "reply_to": message.reply_to,
            "part": number,
            "parts": len(texts),
        }
        if number == len(texts):
            data |= _files(message.media, max_file_bytes)
            data["buttons"] = [
                [{"label": button.label, "value": button.value} for button in row]
                for row in message.buttons
            ]
        body = {"type": REPLY_TYPE, "timestamp": now.isoformat(), "data": data}
        delivery_id = base if len(texts) == 1 else f"{base}-{number}"
        deliveries.append(Delivery(delivery_id, json.dumps(body).encode()))
    return deliveries


def _base_id(message: OutboundMessage) -> str:
    key = message.idempotency_key or uuid4().hex
    # A signed id must not contain other characters, above all no full stop.
    return key if _PLAIN_ID.fullmatch(key) else f"msg_{hashlib.sha256(key.encode()).hexdigest()}"


def _files(paths: tuple[str, ...], limit: int) -> JsonObject:
    """Return the files of a reply; one that is missing or too large is named in the text."""
    files: list[JsonValue] = []
    left_out: list[JsonValue] = []
    for path in map(Path, paths):
        try:
            content = path.read_bytes() if path.stat().st_size <= limit else None
        except OSError:
            content = None
        if content is None:
            left_out.append(path.name)
            continue
        limit -= len(content)
        media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        encoded = base64.b64encode(content).decode()
        files.append({"name": path.name, "media_type": media_type, "content": encoded})
    return {"files": files, "left_out": left_out}
