"""Recordings as services take them: in memory, under a name whose extension shows the format."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from nanobot_core import BadRequest

_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"OggS", "ogg"),
    (0, b"ID3", "mp3"),
    (0, b"\xff\xfb", "mp3"),
    (0, b"\xff\xf3", "mp3"),
    (0, b"\xff\xf2", "mp3"),
    (0, b"fLaC", "flac"),
    (0, b"\x1a\x45\xdf\xa3", "webm"),
    (8, b"WAVE", "wav"),
    (4, b"ftypM4A", "m4a"),
    (4, b"ftyp", "mp4"),
)
"""(offset, bytes, extension), the first that matches counts.

Services go by the extension and refuse, with the very same content, what they do not know: voice
messages of Telegram and WhatsApp are Ogg files called ``.oga`` and ``.opus``.
"""
_MEDIA_TYPES = {
    "flac": "audio/flac",
    "m4a": "audio/mp4",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "ogg": "audio/ogg",
    "wav": "audio/wav",
    "webm": "audio/webm",
}


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording that can be sent.

    Attributes:
        name: file name for the service; it shows the format, but not the sender.
        media_type: such as ``audio/ogg``.
        data: its bytes.
    """

    name: str
    media_type: str
    data: bytes = field(repr=False)


def load_recording(path: Path, max_bytes: int, provider: str) -> Recording:
    """Read a recording that `provider` is to get. Blocks.

    Raises:
        BadRequest: it cannot be read, is not a file, is empty, or is too large.
    """
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            is_file = stat.S_ISREG(os.fstat(handle).st_mode)
            data = file.read(max_bytes + 1) if is_file else b""
    except OSError as error:
        reason = f"the recording cannot be read ({error.strerror})"
        raise BadRequest(provider, reason) from error
    if not data:
        raise BadRequest(provider, "the recording is empty or no regular file")
    if len(data) > max_bytes:
        reason = f"the recording is larger than {max_bytes:,} bytes (transcription.max_bytes)"
        raise BadRequest(provider, reason)
    extension = _format_of(data, path)
    media_type = _MEDIA_TYPES.get(extension, "application/octet-stream")
    return Recording(f"recording.{extension}" if extension else "recording", media_type, data)


def _format_of(data: bytes, path: Path) -> str:
    found = (name for at, mark, name in _SIGNATURES if data[at : at + len(mark)] == mark)
    extension = path.suffix[1:].lower()
    return next(found, extension if extension.isascii() and extension.isalnum() else "")
