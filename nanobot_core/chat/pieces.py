"""Divides a message into the texts and files that a platform takes in one call each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from nanobot_core.chat.markdown import WEB_SCHEMES, render_markdown
from nanobot_core.chat.rich_text import Measure, RichText, split_rich, utf16_size
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.messages import Button, OutboundMessage

FileKind: TypeAlias = Literal["image", "animation", "voice", "audio", "video", "file"]
FILE_KINDS: Mapping[str, FileKind] = {
    ".jpg": "image",
    ".jpeg": "image",
    ".png": "image",
    ".webp": "image",
    ".gif": "animation",
    ".ogg": "voice",
    ".oga": "voice",
    ".opus": "voice",
    ".mp3": "audio",
    ".m4a": "audio",
    ".mp4": "video",
    ".mov": "video",
}
"""Extension to the usual kind of file; all others are of kind ``file``."""
_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to send."""

    path: Path
    kind: FileKind
    size: int


@dataclass(frozen=True, slots=True)
class Piece:
    """What one call sends.

    Attributes:
        text: text of the message, or the text beside its files.
        files: empty, or as many as the platform takes in one call.
        buttons: rows of buttons below the text.
        is_draft: the text is an unfinished answer, whose end or removal follows.
    """

    text: RichText
    files: tuple[Upload, ...] = ()
    buttons: tuple[tuple[Button, ...], ...] = ()
    is_draft: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SendLimits:
    """What a platform takes in one call.

    Attributes:
        text: largest text, in the unit of `measure`.
        measure: returns the size of a text as it is sent, such as the bytes of its markup.
        schemes: schemes of addresses that the platform opens.
        caption: largest text beside files; 0 if files are sent without text.
        file_bytes: largest file; 0 if the platform takes no files.
        kind_bytes: smaller limits of some kinds; a larger file is sent as ``file``.
        kinds: extension to the kind that the platform shows in a way of its own; by default
            `FILE_KINDS`.
        album_files: most files of one call.
        album_bytes: most bytes of the files of one call.
        albums: the kinds that one call can combine, each set by itself.
        caption_with_buttons: files and buttons can be in one call.
    """

    text: int
    measure: Measure = utf16_size
    schemes: Collection[str] = WEB_SCHEMES
    caption: int = 0
    file_bytes: int = 20 * _MB
    kind_bytes: Mapping[FileKind, int] = field(default_factory=dict)
    kinds: Mapping[str, FileKind] = field(default_factory=lambda: FILE_KINDS)
    album_files: int = 1
    album_bytes: int = 50 * _MB
    albums: Sequence[frozenset[FileKind]] = ()
    caption_with_buttons: bool = False


def plan_pieces(message: OutboundMessage, limits: SendLimits) -> list[Piece]:
    """Return the pieces of `message`; the same message always has the same pieces.

    If a file cannot be sent, the text says so. Call it in a thread, because it reads file sizes.
    """
    uploads, problems = _uploads(message.media, limits)
    content = "\n\n".join(part for part in (message.content, *problems) if part)
    text = render_markdown(content, limits.schemes)
    albums = list(_albums(uploads, limits))
    fits = limits.caption and limits.measure(text) <= limits.caption
    may_be_caption = limits.caption_with_buttons or not message.buttons
    # A draft is a text message.
    if albums and fits and may_be_caption and message.draft_id is None:
        first = Piece(text, albums[0], message.buttons)
        return [first, *(Piece(RichText(""), files) for files in albums[1:])]
    texts = split_rich(text, limits.text, limits.measure)
    if message.buttons and not texts:
        texts = [RichText("…")]
    pieces = [Piece(part) for part in texts]
    if message.buttons:
        pieces[-1] = replace(pieces[-1], buttons=message.buttons)
    return [*pieces, *(Piece(RichText(""), files) for files in albums)]


def simpler_pieces(piece: Piece) -> list[Piece]:
    """Return pieces with the same content in a simpler form, or an empty list.

    An album becomes single files, a picture a plain file, and formatted text plain text.
    """
    if len(piece.files) > 1:
        first, *rest = piece.files
        alone = [Piece(RichText(""), (file,)) for file in rest]
        return [replace(piece, files=(first,)), *alone]
    if piece.files and piece.files[0].kind != "file":
        return [replace(piece, files=(replace(piece.files[0], kind="file"),))]
    return [replace(piece, text=piece.text.plain)] if piece.text.spans else []


def _uploads(paths: Sequence[str], limits: SendLimits) -> tuple[list[Upload], list[str]]:
    uploads, problems = [], []
    for name in paths:
        path = Path(name)
        try:
            size = path.stat().st_size
            is_file = path.is_file()
        except OSError:
            is_file, size = False, 0
        problem = ""
        if not limits.file_bytes:
            problem = "this chat takes no files"
        elif not is_file:
            problem = "the file does not exist"
        elif size == 0:
            problem = "it is empty"
        elif size > limits.file_bytes:
            problem = f"it is larger than {limits.file_bytes / _MB:.0f} MB"
        if problem:
            problems.append(f"(`{path.name}` could not be sent: {problem}.)")
        else:
            uploads.append(Upload(path, _kind(path, size, limits), size))
    return uploads, problems


def _kind(path: Path, size: int, limits: SendLimits) -> FileKind:
    kind = limits.kinds.get(path.suffix.lower(), "file")
    return kind if size <= limits.kind_bytes.get(kind, size) else "file"


def _albums(uploads: list[Upload], limits: SendLimits) -> Iterator[tuple[Upload, ...]]:
    """Combine adjacent files that one call can send."""
    album: list[Upload] = []
    for upload in uploads:
        kinds = {upload.kind, *(file.kind for file in album)}
        fits = (
            len(album) < limits.album_files
            and any(kinds <= together for together in limits.albums)
            and sum(file.size for file in album) + upload.size <= limits.album_bytes
        )
        if album and not fits:
            yield tuple(album)
            album = []
        album.append(upload)
    if album:
        yield tuple(album)
