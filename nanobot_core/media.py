"""MediaStore: files that people send and receive, under safe names and within a size."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
import unicodedata
from collections.abc import AsyncIterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from nanobot_core.disk import make_folder
from nanobot_core.errors import NanobotError
from nanobot_core.tasks import finish_in_thread

MAX_FILE_BYTES = 20 * 1024 * 1024
"""Largest file that is kept: what a Telegram bot may download (Bot API, ``getFile``)."""

_WRITE_BYTES = 256 * 1024
"""Pieces are gathered up to this size, because each write takes a way to a thread and back."""
_STEM_CHARS, _STEM_BYTES = 80, 180
_EXTENSION = re.compile(r"\w{1,10}")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Devices on Windows, whatever their extension; FAT and SMB shares refuse them too."""


class MediaTooLarge(NanobotError):
    """A file is larger than the limit; it is not kept."""

    def __init__(self, name: str, limit: int) -> None:
        self.name: str = name
        self.limit: int = limit
        super().__init__(f"'{safe_name(name)}' is larger than {limit:,} bytes and was left out")


class MediaStore:
    """A folder with one folder for each file, so that files of the same name keep it.

    Attributes:
        folder: where they are, absolute; created by the first `save`.
        max_bytes: largest file.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_FILE_BYTES) -> None:
        self.folder: Path = folder
        self.max_bytes: int = max_bytes

    async def save(
        self, name: str, content: AsyncIterable[bytes], *, max_bytes: int | None = None
    ) -> Path:
        """Keep a file and return its path, below a folder of its own and called `safe_name(name)`.

        When it returns, the file is on disk. Only the user who runs nanobot may read it.

        Args:
            name: the sender's name for it.
            content: its bytes in pieces.
            max_bytes: largest file, instead of the store's own limit.

        Raises:
            MediaTooLarge: it is larger than that.
            OSError: it cannot be written.

        Cancellation:
            The file is removed; the same applies if `content` or the disk fails.
        """
        limit = self.max_bytes if max_bytes is None else max_bytes
        path = self.folder / secrets.token_hex(8) / safe_name(name)
        size, gathered = 0, bytearray()
        try:
            async for piece in content:
                size += len(piece)
                if size > limit:
                    raise MediaTooLarge(name, limit)
                gathered += piece
                if len(gathered) >= _WRITE_BYTES:
                    await finish_in_thread(partial(_append, path, gathered))
                    gathered = bytearray()
            await finish_in_thread(partial(_append, path, gathered, is_last=True))
        except BaseException:
            await finish_in_thread(partial(shutil.rmtree, path.parent, ignore_errors=True))
            raise
        return path

    def remove_older(self, keep_days: float) -> int:
        """Delete files that were kept more than `keep_days` ago; return how many. Blocks.

        Links are removed and not followed. What cannot be removed is tried again next time.
        """
        oldest = time.time() - keep_days * 86_400
        removed = 0
        with suppress(OSError):  # nothing has been kept yet
            for entry in list(os.scandir(self.folder)):
                # Another process may be removing the same.
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        removed += _remove_old_files(Path(entry.path), oldest)
        return removed


def safe_name(name: str) -> str:
    """Return `name` without folders and without what a file system or a shell could misread.

    Letters, marks and digits of all scripts stay, and so do ``.``, ``-`` and the extension;
    anything else becomes ``_``. It is neither hidden nor reserved, does not begin like an option,
    and has at most 92 characters and 221 bytes.
    """
    plain = unicodedata.normalize("NFC", name).replace("\\", "/").rstrip("/")
    kept = "".join(c if _is_kept(c) else " " for c in plain.rpartition("/")[2])
    stem, dot, extension = "_".join(kept.split()).rstrip("._-").rpartition(".")
    if not dot or not _EXTENSION.fullmatch(extension):
        stem, extension = f"{stem}{dot}{extension}", ""
    short = stem.strip("._-")[:_STEM_CHARS].encode()[:_STEM_BYTES].decode(errors="ignore")
    result = (short.strip("._-") or "file") + (f".{extension}" if extension else "")
    return f"_{result}" if _RESERVED.fullmatch(result) else result


def _is_kept(character: str) -> bool:
    return character in "._-" or unicodedata.category(character)[0] in "LMN"


def _append(path: Path, data: bytearray, *, is_last: bool = False) -> None:
    """Append to a file that only this user may read; the last piece puts all of it on disk."""
    make_folder(path.parent)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "ab") as file:
        file.write(data)
        if is_last:
            file.flush()
            os.fsync(file.fileno())


def _remove_old_files(folder: Path, oldest: float) -> int:
    removed = 0
    for file in list(os.scandir(folder)):
        if file.stat(follow_symlinks=False).st_mtime < oldest:
            Path(file.path).unlink()
            removed += 1
    # An empty young folder is about to get its file.
    if removed or folder.stat().st_mtime < oldest:
        with suppress(OSError):
            folder.rmdir()
    return removed
