"""Divides a message into the texts, files and albums to send, in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from nanobot_core import Button, OutboundMessage
from nanobot_core.chat import WEB_SCHEMES, RichText, render_markdown, split_rich, utf16_length

PART_UNITS = 4_000
"""UTF-16 units of one message; Telegram accepts 4,096."""
SCHEMES = WEB_SCHEMES | {"tg"}
"""The schemes of addresses that Telegram opens."""
_CAPTION_UNITS = 1_024
_ALBUM_FILES = 10
_MAX_FILE_BYTES = 50 * 1024 * 1024
_MAX_PHOTO_BYTES = 10 * 1024 * 1024
"""Upload limits of bots (Bot API, "Sending files")."""

MediaKind: TypeAlias = Literal["photo", "voice", "audio", "video", "animation", "document"]
_KINDS: dict[str, MediaKind] = {
    ".jpg": "photo",
    ".jpeg": "photo",
    ".png": "photo",
    ".webp": "photo",
    ".ogg": "voice",
    ".oga": "voice",
    ".opus": "voice",
    ".mp3": "audio",
    ".m4a": "audio",
    ".mp4": "video",
    ".mov": "video",
    ".gif": "animation",
}
_ALBUMS: dict[MediaKind, str] = {
    "photo": "pictures",
    "video": "pictures",
    "audio": "audio",
    "document": "documents",
}
"""Kind of file to the kind of album that may contain it (Bot API, ``sendMediaGroup``)."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to send."""

    path: Path
    kind: MediaKind
    size: int


@dataclass(frozen=True, slots=True)
class Piece:
    """One call to Telegram.

    Attributes:
        text: text of the message, or the caption of its files.
        files: several files are an album.
        buttons: rows of buttons.
    """

    text: RichText
    files: tuple[Upload, ...] = ()
    buttons: tuple[tuple[Button, ...], ...] = field(default=())


def plan_pieces(message: OutboundMessage) -> list[Piece]:
    """Return the pieces of `message`; the same message always has the same pieces.

    If a file cannot be sent, the text says so. Call it in a thread, because it reads file sizes.
    """
    uploads, problems = _uploads(message.media)
    text = render_markdown(
        "\n\n".join(part for part in (message.content, *problems) if part), SCHEMES
    )
    albums = list(_albums(uploads))
    fits = utf16_length(text.text) <= _CAPTION_UNITS
    # A draft is a text message, and albums cannot have buttons.
    if albums and fits and not message.buttons and message.draft_id is None:
        return [Piece(text, albums[0]), *(Piece(RichText(""), files) for files in albums[1:])]
    texts = split_rich(text, PART_UNITS)
    if message.buttons and not texts:
        texts = [RichText("…")]
    pieces = [Piece(part) for part in texts]
    if message.buttons:
        pieces[-1] = Piece(texts[-1], buttons=message.buttons)
    return [*pieces, *(Piece(RichText(""), files) for files in albums)]


def _uploads(paths: Sequence[str]) -> tuple[list[Upload], list[str]]:
    uploads, problems = [], []
    for name in paths:
        path = Path(name)
        try:
            size = path.stat().st_size
            is_file = path.is_file()
        except OSError:
            is_file, size = False, 0
        if not is_file:
            problems.append(f"(`{path.name}` could not be sent: the file does not exist.)")
        elif size == 0:
            problems.append(f"(`{path.name}` could not be sent: it is empty.)")
        elif size > _MAX_FILE_BYTES:
            problems.append(f"(`{path.name}` could not be sent: it is larger than 50 MB.)")
        else:
            uploads.append(Upload(path, _kind(path, size), size))
    return uploads, problems


def _kind(path: Path, size: int) -> MediaKind:
    kind = _KINDS.get(path.suffix.lower(), "document")
    return "document" if kind == "photo" and size > _MAX_PHOTO_BYTES else kind


def _albums(uploads: list[Upload]) -> Iterator[tuple[Upload, ...]]:
    """Combine adjacent files that can be in one album."""
    album: list[Upload] = []
    for upload in uploads:
        group = _ALBUMS.get(upload.kind)
        fits = (
            album
            and group is not None
            and _ALBUMS.get(album[-1].kind) == group
            and len(album) < _ALBUM_FILES
            and sum(file.size for file in album) + upload.size <= _MAX_FILE_BYTES
        )
        if album and not fits:
            yield tuple(album)
            album = []
        album.append(upload)
    if album:
        yield tuple(album)
