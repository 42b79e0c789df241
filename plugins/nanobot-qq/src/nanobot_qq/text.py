"""Writes texts for QQ: as Markdown, as text, and as text whose links QQ does not see."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from nanobot_core import shorten
from nanobot_core.chat import COMMONMARK, PLAIN, write_markup

if TYPE_CHECKING:
    from nanobot_core import Button, JsonObject, JsonValue
    from nanobot_core.chat import Piece, RichText

Form: TypeAlias = Literal["markdown", "text", "links"]
_MARKDOWN = replace(COMMONMARK, link="[{label}]({url})")
_TEXT = replace(PLAIN, mentions=COMMONMARK.mentions)
_ROWS = _BUTTONS = 5
_LABEL_CHARS = 10
_CALLBACK, _EVERYONE = 1, 2
_HOST = re.compile(r"(?:https?://)?(?<![\w.-])((?:[a-z0-9-]+\.)+[a-z]{2,})\b", re.IGNORECASE)


def written(text: RichText, form: Form) -> str:
    """Return a text in a form."""
    if form == "markdown":
        return write_markup(text, _MARKDOWN)
    plain = write_markup(text, _TEXT)
    return broken_links(plain) if form == "links" else plain


def broken_links(text: str) -> str:
    """Return `text` with addresses that people can read, and that are no links."""
    return _HOST.sub(lambda found: found[1].replace(".", "[.]"), text)


def message_body(piece: Piece, form: Form) -> JsonObject:
    """Return a piece as the body of a call, without the message that it answers."""
    text = written(piece.text, form)
    if form != "markdown":
        return {"msg_type": 0, "content": text}
    body: JsonObject = {"msg_type": 2, "markdown": {"content": text}}
    if piece.buttons:
        rows: list[JsonValue] = [
            {"buttons": [_button(button, f"{row}-{place}") for place, button in enumerate(buttons)]}
            for row, buttons in enumerate(line[:_BUTTONS] for line in piece.buttons[:_ROWS])
        ]
        body["keyboard"] = {"content": {"rows": rows}}
    return body


def _button(button: Button, name: str) -> JsonObject:
    label = shorten(button.label, _LABEL_CHARS)
    return {
        "id": name,
        "render_data": {"label": label, "visited_label": label, "style": 1},
        "action": {
            "type": _CALLBACK,
            "permission": {"type": _EVERYONE},
            "data": button.value,
            "unsupport_tips": button.value,
        },
    }
