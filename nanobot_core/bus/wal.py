"""The queue's write-ahead log: whether it is complete, and recovery of its readable pages.

After a crash SQLite reads its log up to the first damage and silently drops the rest, because it
cannot distinguish an unfinished transaction from one that was damaged later. So the queue notes
beside the log how much of it is on the disk (`Mark`), and compares at the next start.

The format is described in https://www.sqlite.org/fileformat2.html#the_write_ahead_log.
"""

from __future__ import annotations

import os
import struct
import sys
import zlib
from array import array
from contextlib import closing, suppress
from typing import TYPE_CHECKING, BinaryIO, Final

from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
_MAGIC: Final = {0x377F0682: "little", 0x377F0683: "big"}
"""First number of a log, and the order of the bytes that its checksums are made of."""
_VERSION: Final = 3_007_000
_PAGE_SIZES: Final = frozenset(1 << power for power in range(9, 17))
_WORD: Final = 0xFFFFFFFF
_HALF: Final = 1 << 31
_MARK: Final = struct.Struct(">8s32sQ")
_MARK_NAME: Final = b"nb-wal-1"
_SIZE_AT, _CHANGES_AT, _VALID_FOR_AT = 28, 24, 92
"""Where the first page of a database has its size in pages, its counter of changes, and the count
for which the size is valid."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How much of a log is known to be on the disk.

    Attributes:
        header: the log's first 32 bytes, which change each time that it is begun again.
        frames: pages written to it since then.
    """

    header: bytes = bytes(_HEADER_BYTES)
    frames: int = 0


@dataclass(frozen=True, slots=True)
class _Frame:
    """One page in the log.

    Attributes:
        number: of the page, from 1.
        page: its content.
        is_whole: its checksum fits.
        is_commit: it ends a transaction.
    """

    number: int
    page: bytes
    is_whole: bool
    is_commit: bool


class Progress:
    """Notes how much of the log of an open database is on the disk. Blocking; for one thread.

    The note is written after each durable transaction and not synced: it survives this process,
    and after a power failure it may be too small, never too large.

    Args:
        log: the write-ahead log.
        file: where the note is kept.
    """

    def __init__(self, log: Path, file: Path) -> None:
        self._log_path = log
        self._log = -1
        self._file = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.fchmod(self._file, 0o600)
        self._mark = Mark()

    def note(self) -> None:
        """Note the transactions so far, which are on the disk.

        A note that cannot be written is skipped: the former one is still true.
        """
        with suppress(OSError):
            if self._log < 0:
                self._log = os.open(self._log_path, os.O_RDONLY | os.O_NOFOLLOW)
            header = os.pread(self._log, _HEADER_BYTES, 0)
            if page_bytes := _page_bytes(header):
                self._write(self._counted(header, page_bytes))

    def forget(self) -> None:
        """Note that nothing in the log is needed; call this before the log is emptied."""
        with suppress(OSError):
            self._write(Mark())

    def close(self) -> None:
        """Close the files, after the database; a log that it could not empty is noted again."""
        if self._log_path.exists():
            self.note()
        for descriptor in (self._log, self._file):
            if descriptor >= 0:
                os.close(descriptor)

    def _counted(self, header: bytes, page_bytes: int) -> Mark:
        """Return the mark with the frames that have been added; all of them are of this process."""
        frames = self._mark.frames if header == self._mark.header else 0
        step = _FRAME_HEADER_BYTES + page_bytes
        most = (os.fstat(self._log).st_size - _HEADER_BYTES) // step
        salts = header[16:24]
        while frames < most:
            found = os.pread(self._log, _FRAME_HEADER_BYTES, _HEADER_BYTES + frames * step)
            if found[8:16] != salts:  # left over from before the log was begun again
                break
            frames += 1
        return Mark(header, frames)

    def _write(self, mark: Mark) -> None:
        content = _MARK.pack(_MARK_NAME, mark.header, mark.frames)
        os.pwrite(self._file, content + zlib.crc32(content).to_bytes(4, "big"), 0)
        self._mark = mark


def read_mark(file: Path) -> Mark | None:
    """Return what `Progress` noted in `file`; ``None`` if it is missing or unreadable."""
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
            content = stream.read(_MARK.size + 4)
    except OSError:
        return None
    note, check = content[: _MARK.size], content[_MARK.size :]
    if len(note) < _MARK.size or check != zlib.crc32(note).to_bytes(4, "big"):
        return None
    name, header, frames = _MARK.unpack(note)
    return Mark(header, frames) if name == _MARK_NAME else None


def loss_in(log: Path, mark: Mark | None) -> str | None:
    """Return what is wrong with a log that SQLite would cut off; ``None`` if it is complete.

    Without a mark, only complete transactions behind a damaged one show a loss; a damaged end does
    not.

    Args:
        log: the write-ahead log of a database that is not open.
        mark: the note on it.

    Raises:
        OSError: it cannot be read.
    """
    if mark is not None and not mark.frames:
        return None
    if not log.exists():
        return None if mark is None else f"'{log.name}' is missing"
    with log.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        if mark is None:
            mark = Mark(header)
        if header != mark.header or not _page_bytes(header):
            return _other_beginning(log, header, mark)
        whole = expected = 0
        is_unbroken = True
        for count, frame in enumerate(_frames(file, mark), 1):
            is_unbroken = is_unbroken and frame.is_whole
            if frame.is_commit and frame.is_whole:
                expected = count
                whole = count if is_unbroken else whole
    expected = max(expected, mark.frames)
    if whole >= expected:
        return None
    return f"'{log.name}' can be read only up to page {whole} of {expected}"


def _other_beginning(log: Path, header: bytes, mark: Mark) -> str | None:
    """Return what is wrong with a log whose beginning differs from the mark, if anything."""
    if _page_bytes(header):
        begun, noted = (int.from_bytes(one[12:16], "big") for one in (header, mark.header))
        # SQLite restarts it only when the database has all of it. The counter wraps at 2^32.
        if 0 < (begun - noted) % (1 << 32) < _HALF:
            return None
        return f"'{log.name}' is older than the last write to it"
    return f"'{log.name}' is empty" if not header else f"the beginning of '{log.name}' is damaged"


def has_pages(log: Path) -> bool:
    """Whether a log contains pages."""
    return log.exists() and log.stat().st_size > _HEADER_BYTES


def apply_log(log: Path, mark: Mark | None, database: Path) -> None:
    """Write each committed intact page into a copy of the database, also behind damaged ones.

    Args:
        log: the write-ahead log of the database that was copied.
        mark: the note on the log.
        database: the copy, without a log of its own.
    """
    try:
        file = log.open("rb")
    except FileNotFoundError:
        return
    with closing(file):
        header = file.read(_HEADER_BYTES)
        if not _page_bytes(header):
            header = mark.header if mark else header
        if not (page_bytes := _page_bytes(header)):
            return
        noted = mark if mark and mark.header == header else Mark(header)
        with database.open("r+b") as copy:
            pending: list[_Frame] = []
            for count, frame in enumerate(_frames(file, noted), 1):
                if frame.is_whole:
                    pending.append(frame)
                # Noted pages are committed, even if the end of their transaction is damaged.
                if count <= noted.frames or (frame.is_whole and frame.is_commit):
                    for one in pending:
                        copy.seek((one.number - 1) * page_bytes)
                        copy.write(one.page)
                    pending.clear()
            _write_size(copy, page_bytes)


def _write_size(database: BinaryIO, page_bytes: int) -> None:
    """Write the size of the file into its first page, because the page with it may be lost."""
    pages = database.seek(0, os.SEEK_END) // page_bytes
    database.seek(_CHANGES_AT)
    changes = database.read(4)
    for place, value in ((_SIZE_AT, pages.to_bytes(4, "big")), (_VALID_FOR_AT, changes)):
        database.seek(place)
        database.write(value)


def _page_bytes(header: bytes) -> int:
    """Return the size of the pages in the log with this header; 0 if the header is damaged."""
    if len(header) != _HEADER_BYTES:
        return 0
    magic, version, page_bytes = struct.unpack_from(">III", header)
    if magic not in _MAGIC or version != _VERSION or page_bytes not in _PAGE_SIZES:
        return 0
    is_whole = _checksum(header[:24], (0, 0), _MAGIC[magic]) == struct.unpack(">II", header[24:])
    return page_bytes if is_whole else 0


def _frames(file: BinaryIO, mark: Mark) -> Iterator[_Frame]:
    """Yield the frames of the log that began with the mark's header, damaged ones too.

    A frame is checked against the one before it, so damage does not spread beyond the next one.
    """
    magic, _, page_bytes = struct.unpack_from(">III", mark.header)
    order, salts = _MAGIC[magic], mark.header[16:24]
    before: tuple[int, int] = struct.unpack(">II", mark.header[24:])
    file.seek(_HEADER_BYTES)
    count = 0
    while (
        len(data := file.read(_FRAME_HEADER_BYTES + page_bytes)) == _FRAME_HEADER_BYTES + page_bytes
    ):
        count += 1
        number, pages, first, second = struct.unpack_from(">II8xII", data)
        is_ours = data[8:16] == salts
        if not is_ours and count > mark.frames:
            return
        page = data[_FRAME_HEADER_BYTES:]
        found = _checksum(page, _checksum(data[:8], before, order), order)
        before = (first, second)
        is_whole = is_ours and number > 0 and found == before
        yield _Frame(number, page, is_whole, pages > 0)


def _checksum(data: bytes, before: tuple[int, int], order: str) -> tuple[int, int]:
    words = array("I", data)
    if order != sys.byteorder:
        words.byteswap()
    first, second = before
    pairs = iter(words)
    for one, other in zip(pairs, pairs, strict=True):
        first = (first + one + second) & _WORD
        second = (second + other + first) & _WORD
    return first, second
