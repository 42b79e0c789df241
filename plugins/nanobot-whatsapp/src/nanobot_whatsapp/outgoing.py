"""The bodies of messages to the Cloud API, and the types of files, with pure functions."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_core import JsonObject, JsonValue, shorten
from nanobot_core.chat import WHATSAPP, SendLimits, write_markup

if TYPE_CHECKING:
    from nanobot_core import Button
    from nanobot_core.chat import RichText, Upload
    from nanobot_whatsapp.settings import TemplateSettings

_MB = 1024 * 1024
_PHONE = re.compile(r"\+?([0-9][0-9 ()./-]{2,30})")
_USER_ID = re.compile(r"[A-Z]{2}(\.ENT)?\.[A-Za-z0-9]{1,128}")
_BUTTONS, _BUTTON_CHARS, _BUTTON_VALUE_CHARS = 3, 20, 256
_ROWS, _ROW_CHARS, _ROW_DETAIL_CHARS, _ROW_VALUE_CHARS = 10, 24, 72, 200
_OPEN_LIST = "Choose"
CHOICE_CHARS = 1_024
_PARAMETER_CHARS = 1_024
_VOICE = "audio/ogg; codecs=opus"
_HEAD_BYTES = 256
_CAPTIONED = frozenset({"image", "video", "document"})


def markup(part: RichText) -> str:
    """Return a text in WhatsApp's markup."""
    return write_markup(part, WHATSAPP)


def size(part: RichText) -> int:
    """Return the characters of a text with its markup."""
    return len(markup(part))


LIMITS = SendLimits(
    text=4_000,  # WhatsApp accepts 4,096
    measure=size,
    caption=1_024,
    file_bytes=100 * _MB,
    kind_bytes={"image": 5 * _MB, "voice": 16 * _MB, "audio": 16 * _MB, "video": 16 * _MB},
    kinds={
        ".jpg": "image",
        ".jpeg": "image",
        ".png": "image",
        ".ogg": "voice",
        ".oga": "voice",
        ".opus": "voice",
        ".mp3": "audio",
        ".m4a": "audio",
        ".aac": "audio",
        ".amr": "audio",
        ".mp4": "video",
        ".3gp": "video",
    },
)
"""What one message takes; other pictures, such as GIF and WebP, are sent as documents."""


def recipient(chat_id: str) -> JsonObject | None:
    """Return the fields that address a chat, or ``None`` if it is not one.

    WhatsApp accepts a `user_id` in the field for phone numbers, and then drops the message.
    """
    if _USER_ID.fullmatch(chat_id):
        return {"recipient_type": "individual", "recipient": chat_id}
    found = _PHONE.fullmatch(chat_id)
    if found is None:
        return None
    return {"recipient_type": "individual", "to": re.sub(r"[^0-9]", "", found[1])}


def text_body(text: str) -> JsonObject:
    """Return a text without a preview of its links."""
    return {"type": "text", "text": {"body": text, "preview_url": False}}


def choice_body(text: str, buttons: Sequence[Button]) -> JsonObject | None:
    """Return a text with reply buttons or a list, or ``None`` if it has to be words."""
    labels = {button.label.strip() for button in buttons}
    values = {button.value for button in buttons}
    if "" in labels | values or len(values) < len(buttons):
        return None
    body: JsonObject = {"text": shorten(text, CHOICE_CHARS) or _OPEN_LIST}
    if (
        len(buttons) <= _BUTTONS
        and len(labels) == len(buttons)
        and all(len(label) <= _BUTTON_CHARS for label in labels)
        and all(len(value) <= _BUTTON_VALUE_CHARS for value in values)
    ):
        replies: list[JsonValue] = [
            {"type": "reply", "reply": {"id": button.value, "title": button.label.strip()}}
            for button in buttons
        ]
        return _interactive("button", body, {"buttons": replies})
    if (
        len(buttons) <= _ROWS
        and all(len(label) <= _ROW_DETAIL_CHARS for label in labels)
        and all(len(value) <= _ROW_VALUE_CHARS for value in values)
    ):
        rows: list[JsonValue] = [_row(button) for button in buttons]
        return _interactive("list", body, {"button": _OPEN_LIST, "sections": [{"rows": rows}]})
    return None


def _interactive(kind: str, body: JsonObject, action: JsonObject) -> JsonObject:
    return {"type": "interactive", "interactive": {"type": kind, "body": body, "action": action}}


def _row(button: Button) -> JsonObject:
    label = button.label.strip()
    row: JsonObject = {"id": button.value, "title": shorten(label, _ROW_CHARS)}
    if len(label) > _ROW_CHARS:
        row["description"] = label
    return row


def words(buttons: Sequence[Button]) -> str:
    """Return buttons as words to write."""
    return "\n".join(f"{button.label}: write {button.value}" for button in buttons)


def media_body(file_type: str, media_id: str, caption: str, name: str) -> JsonObject:
    """Return a message with an uploaded file.

    Args:
        file_type: ``image``, ``voice``, ``audio``, ``video`` or ``document``.
        caption: only for types that `takes_caption`.
        name: shown with a document.
    """
    kind = "audio" if file_type == "voice" else file_type
    content: JsonObject = {"id": media_id}
    if caption:
        content["caption"] = caption
    if file_type == "document":
        content["filename"] = name
    if file_type == "voice":
        content["voice"] = True
    return {"type": kind, kind: content}


def takes_caption(file_type: str) -> bool:
    """Whether WhatsApp shows a text with a file of this type."""
    return file_type in _CAPTIONED


def request_body(template: TemplateSettings) -> JsonObject:
    """Return a template without parameters."""
    content: JsonObject = {"name": template.name, "language": {"code": template.language}}
    return {"type": "template", "template": content}


def template_body(template: TemplateSettings, text: str) -> JsonObject | None:
    """Return a template with `text` as its parameter, or ``None`` if it is too long."""
    # Line feeds, tabs and several spaces are refused in parameters.
    flat = " ".join(text.split())
    if not flat or len(flat) > _PARAMETER_CHARS:
        return None
    parameters: list[JsonValue] = [{"type": "text", "text": flat}]
    content: JsonObject = {
        "name": template.name,
        "language": {"code": template.language},
        "components": [{"type": "body", "parameters": parameters}],
    }
    return {"type": "template", "template": content}


def file_type_of(upload: Upload) -> tuple[str, str]:
    """Return how a file is sent, and its MIME type, by its first bytes.

    WhatsApp reports a file of another type only in a status, after it has accepted it.

    Raises:
        OSError: it cannot be read.
    """
    with upload.path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if upload.kind == "voice" and head.startswith(b"OggS") and b"OpusHead" in head:
        return "voice", _VOICE
    if upload.kind == "image":
        if head.startswith(b"\xff\xd8\xff"):
            return "image", "image/jpeg"
        if head.startswith(b"\x89PNG\r\n"):
            return "image", "image/png"
    if upload.kind in {"audio", "video"}:
        guessed = _mime_type(upload.path)
        if guessed.startswith(f"{upload.kind}/"):
            return upload.kind, guessed
    return "document", _mime_type(upload.path)


def file_name_of(path: Path, file_type: str) -> str:
    """Return the name under which a file is uploaded; a voice message ends with ``.ogg``."""
    return f"{path.stem}.ogg" if file_type == "voice" else path.name


def _mime_type(path: Path) -> str:
    guessed, _ = mimetypes.guess_type(path.name)
    return {"audio/mp4a-latm": "audio/mp4", "audio/x-m4a": "audio/mp4"}.get(
        guessed or "", (guessed or "application/octet-stream").lower()
    )
