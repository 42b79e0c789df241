"""Files of a chat: uploads in pieces, and downloads by id."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, JSONResponse

from nanobot_core import MediaTooLarge, finish_in_thread
from nanobot_page.access import TOKEN_HEADER, check_token, read_body, require_login
from nanobot_page.pages import visible
from nanobot_page.settings import WebSettings

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from nanobot_core import MediaStore, PluginContext
    from nanobot_page.access import Login

PIECE_BYTES: Final = 1024 * 1024
MAX_UPLOADS: Final = 20
"""Uploads under way; the oldest one ends when there are more."""
UPLOAD_LIFE_S: Final = 86_400.0
"""After its last piece, an upload can be continued for so long."""
MAX_NAME_CHARS: Final = 4_096
MAX_OF_GUEST: Final = 1_000
"""Files that a guest can download; the oldest ones cannot be any more when there are more."""
_UPLOAD: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_FILE: Final = re.compile(r"[0-9a-f]{16}")
_ATTACHED: Final = "Attached file: "
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_INLINE: Final = (
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/gif", b"GIF8"),
    ("audio/ogg", b"OggS"),
    ("audio/flac", b"fLaC"),
    ("audio/mpeg", b"ID3"),
    ("audio/mpeg", b"\xff\xfb"),
)
"""Types that a browser shows on the page, by how files of them begin; not by their names."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file of a message, as a page shows it.

    Attributes:
        id: names it in ``/web/files``.
        name: its name.
        kind: ``image``, ``audio`` or ``file``.
    """

    id: str
    name: str
    kind: str


class Files:
    """Uploads and downloads; get it with ``ctx.shared(Files)``.

    Downloads come from the media store only, by the random name of a file's folder. A guest gets
    those that they have sent, and those that were sent to them.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._media: MediaStore = ctx.media
        self._folder = ctx.data_dir / "uploads"
        self._guests = ctx.data_dir / "guests"
        self._limit = ctx.settings(WebSettings).max_upload_bytes
        self._clock = ctx.clock
        self._locks: dict[str, asyncio.Lock] = {}
        self._done: dict[str, str] = {}

    async def upload(self, request: Request) -> Response:
        """Add a piece to an upload: ``id``, ``at``, ``size``, ``name``, and the bytes as the body.

        The answer names the bytes that have arrived, so that an upload continues where it
        broke off; with the last piece it names the ``file``. A repeated piece changes nothing.
        """
        check_token(request, request.headers.get(TOKEN_HEADER, ""))
        query = request.query_params
        upload, name = query.get("id", ""), query.get("name", "")[:MAX_NAME_CHARS]
        at, size = _number(query.get("at", "")), _number(query.get("size", ""))
        if not _UPLOAD.fullmatch(upload) or at < 0 or size < 0:
            raise HTTPException(400, "expected id (a UUID), at and size")
        guest = require_login(request).guest
        upload = f"{guest}.{upload}" if guest else upload
        if size > self._limit:
            raise HTTPException(413, f"files may have at most {self._limit:,} bytes")
        piece = await read_body(request, PIECE_BYTES)
        async with self._lock_of(upload):
            if (file := self._done.get(upload)) is not None:
                return JSONResponse({"at": size, "file": file})
            try:
                have = await finish_in_thread(lambda: self._append(upload, at, piece, size))
                if have < size:
                    return JSONResponse({"at": have})
                file = await self._keep(upload, name)
                if guest:
                    await finish_in_thread(lambda: self.share(guest, file))
                self._remember(upload, file)
                return JSONResponse({"at": have, "file": file})
            except MediaTooLarge as error:
                raise HTTPException(413, str(error)) from error
            except OSError as error:
                raise HTTPException(507, _reason_of(error)) from error

    def _lock_of(self, upload: str) -> asyncio.Lock:
        """Return the lock of an upload; those of abandoned uploads are dropped."""
        lock = self._locks.setdefault(upload, asyncio.Lock())
        idle = [
            key for key, other in self._locks.items() if other is not lock and not other.locked()
        ]
        for key in idle[: max(0, len(self._locks) - 2 * MAX_UPLOADS)]:
            del self._locks[key]
        return lock

    async def download(self, request: Request) -> Response:
        """Return a file. Everything but pictures and audio is an attachment, never a page."""
        path = await self.find(request.query_params.get("id", ""), require_login(request))
        if path is None:
            raise HTTPException(404, "this file does not exist any more")
        kind = await asyncio.to_thread(_type_of, path)
        place = "inline" if kind else "attachment"
        return FileResponse(
            path,
            media_type=kind or "application/octet-stream",
            headers={
                "content-disposition": f"{place}; filename*=utf-8''{quote(path.name, safe='')}",
                "content-security-policy": "default-src 'none'; sandbox",
                "cache-control": "private, max-age=3600",
            },
        )

    async def find(self, file_id: str, login: Login) -> Path | None:
        """Return the file of an id, or ``None`` if the login may not have it."""
        if not _FILE.fullmatch(file_id):
            return None
        if login.guest:
            mark = self._guests / login.guest / file_id
            if not await asyncio.to_thread(mark.exists):
                return None
        return await asyncio.to_thread(self.path_of, file_id)

    def share(self, guest: str, *file_ids: str) -> None:
        """Let a guest download files. Blocks.

        Raises:
            OSError: this cannot be stored.
        """
        folder = self._guests / guest
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file_id in file_ids:
            (folder / file_id).touch(mode=0o600)
        marks = list(folder.iterdir())
        if len(marks) > MAX_OF_GUEST:
            marks.sort(key=lambda mark: mark.stat().st_mtime)
            marks[0].unlink(missing_ok=True)

    def path_of(self, file_id: str) -> Path | None:
        """Return the file of an id, or ``None``. Blocks."""
        if not _FILE.fullmatch(file_id):
            return None
        folder = self._media.folder / file_id
        try:
            found = [file for file in folder.iterdir() if file.is_file() and not file.is_symlink()]
        except OSError:
            return None
        return found[0] if len(found) == 1 else None

    def attachment(self, path: str) -> Attachment | None:
        """Return a file of the media store as a page shows it, or ``None``. Blocks."""
        file = Path(path)
        if file.parent.parent != self._media.folder or self.path_of(file.parent.name) != file:
            return None
        kind = (_type_of(file) or "file").partition("/")[0]
        return Attachment(file.parent.name, visible(file.name), kind)

    def split(self, text: str) -> tuple[str, list[Attachment]]:
        """Return the text of a stored message without the files at its end, and these. Blocks."""
        files: list[Attachment] = []
        paragraphs = text.split("\n\n")
        while paragraphs and paragraphs[-1].startswith(_ATTACHED):
            found = self.attachment(paragraphs[-1].removeprefix(_ATTACHED))
            if found is None:
                break
            files.insert(0, found)
            paragraphs.pop()
        return "\n\n".join(paragraphs), files

    def _append(self, upload: str, at: int, piece: bytes, size: int) -> int:
        """Write a piece at the end of what has arrived, and return how much has."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._folder / upload
        have = part.stat().st_size if part.exists() else 0
        if not part.exists():
            self._make_room()
        if at == have and have + len(piece) <= size:
            with part.open("ab") as file:
                file.write(piece)
            have += len(piece)
        return have

    def _make_room(self) -> None:
        """Delete uploads that nobody continues."""
        parts: list[tuple[float, Path]] = []
        for part in list(self._folder.iterdir()):
            with suppress(FileNotFoundError):  # another upload has just been completed
                parts.append((part.stat().st_mtime, part))
        too_many = max(0, len(parts) - MAX_UPLOADS + 1)
        oldest_s = self._clock.now().timestamp() - UPLOAD_LIFE_S
        for place, (changed_s, part) in enumerate(sorted(parts)):
            if place < too_many or changed_s < oldest_s:
                part.unlink(missing_ok=True)

    async def _keep(self, upload: str, name: str) -> str:
        part = self._folder / upload
        path = await self._media.save(name or "file", _pieces(part), max_bytes=self._limit)
        await finish_in_thread(lambda: part.unlink(missing_ok=True))
        return path.parent.name

    def _remember(self, upload: str, file: str) -> None:
        """Remember a complete upload, whose last piece may be repeated."""
        while len(self._done) >= MAX_UPLOADS:
            oldest = next(iter(self._done))
            del self._done[oldest]
            self._locks.pop(oldest, None)
        self._done[upload] = file


def _reason_of(error: OSError) -> str:
    """Return why a file is not stored, for the person who sends it."""
    if error.errno in _FULL:
        return (
            "the disk of the machine on which nanobot runs has no room for the file: make room "
            "and try again"
        )
    return f"the file cannot be stored: {error.strerror or type(error).__name__}"


async def _pieces(part: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(part.open, "rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) <= 12 else -1


def _type_of(path: Path) -> str:
    """Return the type of a file that may be shown on the page, else an empty string."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError:
        return ""
    if head[:4] == b"RIFF" and head[8:12] in (b"WEBP", b"WAVE"):
        return "image/webp" if head[8:12] == b"WEBP" else "audio/wav"
    if head[4:8] == b"ftyp" and head[8:11] == b"M4A":
        return "audio/mp4"
    return next((kind for kind, start in _INLINE if head.startswith(start)), "")


def attachments(files: Files, paths: Sequence[str]) -> list[Attachment]:
    """Return those of `paths` that a page can show. Blocks."""
    return [found for path in paths if (found := files.attachment(path))]
