"""MediaStore: files that people send and receive, under safe names and within a size."""

from __future__ import annotations

import os
import re
import tempfile
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
"""Pieces are gathered up to this, because each write is a way to a thread and back."""
_STEM_CHARS, _STEM_BYTES = 80, 180
_EXTENSION = re.compile(r"\w{1,10}")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Devices on Windows, whatever their extension; FAT and SMB shares refuse them too."""


class MediaTooLarge(NanobotError):
    """A file is larger than may be kept; nothing of it stays."""

    def __init__(self, name: str, limit: int) -> None:
        self.name: str = name
        self.limit: int = limit
        super().__init__(f"'{safe_name(name)}' is larger than {limit:,} bytes and was left out")


class MediaStore:
    """A folder with one folder for each file, so that a file keeps its name beside its equals.

    Attributes:
        folder: where they are, absolute; made at the first `save`.
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
            name: as the sender calls it.
            content: its bytes in pieces.
            max_bytes: largest file, instead of the store's own limit.

        Raises:
            MediaTooLarge: it is larger than that.
            OSError: it cannot be written.

        Cancellation:
            Nothing of the file stays; likewise when `content` or the disk fails.
        """
        limit = self.max_bytes if max_bytes is None else max_bytes
        entry = _Entry(self.folder, safe_name(name))
        size, gathered = 0, bytearray()
        try:
            await finish_in_thread(entry.create)
            async for piece in content:
                size += len(piece)
                if size > limit:
                    raise MediaTooLarge(name, limit)
                gathered += piece
                if len(gathered) >= _WRITE_BYTES:
                    await finish_in_thread(partial(entry.write, gathered))
                    gathered = bytearray()
            await finish_in_thread(partial(entry.complete, gathered))
        except BaseException:
            await finish_in_thread(entry.discard)
            raise
        return entry.path

    def remove_older(self, keep_days: float) -> int:
        """Delete files that were kept more than `keep_days` ago; return how many. Blocks.

        Links are removed and not followed. What cannot be removed stays for the next time.
        """
        oldest = time.time() - keep_days * 86_400
        removed = 0
        with suppress(OSError):  # nothing was ever kept
            for entry in list(os.scandir(self.folder)):
                # Another process may be removing the same.
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        removed += _remove_old_files(Path(entry.path), oldest)
        return removed


def safe_name(name: str) -> str:
    """Return `name` without folders and without what a file system or a shell could take amiss.

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


class _Entry:
    """One file while it is written. All methods block."""

    def __init__(self, store: Path, name: str) -> None:
        self._store = store
        self._name = name
        self._folder: Path | None = None
        self._handle = -1

    @property
    def path(self) -> Path:
        """Where the file is, once it was created."""
        if self._folder is None:
            msg = "the file was not created"
            raise RuntimeError(msg)
        return self._folder / self._name

    def create(self) -> None:
        """Make the folder, which none but this user may enter, and the empty file."""
        make_folder(self._store)
        self._folder = Path(tempfile.mkdtemp(prefix="", dir=self._store))
        self._handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def write(self, data: bytearray) -> None:
        """Append `data`, all of it."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._handle, rest) :]

    def complete(self, data: bytearray) -> None:
        """Append `data`, and return when the file is on disk."""
        self.write(data)
        os.fsync(self._handle)
        handle, self._handle = self._handle, -1
        os.close(handle)

    def discard(self) -> None:
        """Leave nothing behind."""
        if self._handle >= 0:
            with suppress(OSError):  # a full disk may say so once more
                os.close(self._handle)
        if self._folder is not None:
            self.path.unlink(missing_ok=True)
            self._folder.rmdir()


def _remove_old_files(folder: Path, oldest: float) -> int:
    removed = 0
    for file in list(os.scandir(folder)):
        if file.stat(follow_symlinks=False).st_mtime < oldest:
            Path(file.path).unlink()
            removed += 1
    # A young folder without a file is one that is about to get it.
    if removed or folder.stat().st_mtime < oldest:
        with suppress(OSError):
            folder.rmdir()
    return removed
