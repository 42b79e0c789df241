"""Cards: how a piece is written, and how much of one fits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from nanobot_core import JsonObject, JsonValue, shorten
from nanobot_core.chat import FEISHU, RichText, SendLimits, write_markup

if TYPE_CHECKING:
    from nanobot_core.chat import Piece

TEXT_ID = "text"
"""Id of the element with the text, which streaming replaces."""
_MB = 1024 * 1024
_CHARS = 6_000
_BYTES_PER_CHAR = 4
"""24,000 bytes in total: a card has 30 KB, buttons included."""
_SUMMARY_CHARS = 80


def packed(value: JsonValue) -> str:
    """Return JSON in few bytes, because Feishu limits them."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _size(part: RichText) -> int:
    """Return the characters of a part as it is sent, or more if its JSON is long."""
    written = write_markup(part, FEISHU)
    # The card is a text in the JSON of the call.
    size = len(packed(packed(written)).encode())
    return max(len(written), -(-size // _BYTES_PER_CHAR))


LIMITS = SendLimits(
    text=_CHARS,
    measure=_size,
    schemes=frozenset({"http", "https"}),
    file_bytes=30 * _MB,
    kind_bytes={"image": 10 * _MB},
    kinds={
        **dict.fromkeys((".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp"), "image"),
        **dict.fromkeys((".opus", ".ogg", ".oga"), "voice"),
        ".mp4": "video",
    },
)


def build_card(piece: Piece, chat_id: str) -> JsonObject:
    """Return the card of a piece; text without formatting is not parsed as Markdown.

    Args:
        chat_id: where a pressed button belongs.
    """
    text = piece.text
    if text.spans or piece.is_draft:
        element: JsonObject = {"tag": "markdown", "content": write_markup(text, FEISHU)}
    else:
        element = {"tag": "div", "text": {"tag": "plain_text", "content": text.text}}
    element["element_id"] = TEXT_ID
    rows: list[JsonValue] = [
        {
            "tag": "column_set",
            "columns": [
                {
                    "tag": "column",
                    "width": "auto",
                    "elements": [_button(button.label, button.value, chat_id)],
                }
                for button in row
            ],
        }
        for row in piece.buttons
    ]
    summary = shorten(" ".join(text.text.split()) or "…", _SUMMARY_CHARS)
    return {
        "schema": "2.0",
        "config": {
            "update_multi": True,
            "streaming_mode": piece.is_draft,
            "summary": {"content": summary},
        },
        "body": {"elements": [element, *rows]},
    }


def _button(label: str, value: str, chat_id: str) -> JsonObject:
    return {
        "tag": "button",
        "text": {"tag": "plain_text", "content": label},
        "behaviors": [{"type": "callback", "value": {"nanobot": value, "chat": chat_id}}],
    }
