"""The file of one session: read from its end, append, mend. Blocking; one caller at a time."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

from loguru import logger

from nanobot_core.contracts.store import SessionState, StoredSession
from nanobot_core.disk import make_folder
from nanobot_core.messages import Message
from nanobot_core.sessions.records import Header, decode_line, encode_record, salvage

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from nanobot_core.sessions.records import Record

_BLOCK_BYTES = 64 * 1024
_PRIVATE = 0o600
_BINARY = getattr(os, "O_BINARY", 0)  # Windows would write carriage returns
_APPENDED = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _BINARY
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY
_MEND_ROUNDS = 3
"""A broken end, then damage before it, then the clean file."""
COMPACT_BYTES = 1024 * 1024
"""Superseded metadata lines of less than this are not worth a new file."""


class _Torn(Exception):
    """The file does not end with a line feed."""

    def __init__(self, start: int, line: bytes) -> None:
        super().__init__(start, line)
        self.start, self.line = start, line


class _Damaged(Exception):
    """A line cannot be read, or the counts in metadata lines do not fit the lines."""


class SessionFile:
    """The file of one session, which may not exist yet.

    After an `OSError` the object must be dropped; a new one looks at the file afresh.

    Args:
        path: where it is or will be.
        key: session key.
        default_time: stands for times that a damaged file has lost, aware.
        fsync: whether an append waits for the disk.
    """

    def __init__(self, path: Path, key: str, *, default_time: datetime, fsync: bool) -> None:
        self._path, self._key = path, key
        self._default_time, self._fsync = default_time, fsync
        self._latest: Header | None = None
        self._total = 0
        self._compact_from_bytes = COMPACT_BYTES

    @property
    def path(self) -> Path:
        """Where the file is or will be."""
        return self._path

    def load(self, max_messages: int) -> StoredSession | None:
        """Return the newest messages that are not consolidated; ``None`` without a file.

        Raises:
            OSError: the file cannot be read, or damage cannot be mended for want of space.
        """
        repaired: list[str] = []
        for _ in range(_MEND_ROUNDS):
            if not self._path.exists() or self._path.stat().st_size == 0:
                return None
            try:
                session = self._read_tail(max_messages)
            except _Torn as torn:
                repaired += self._mend_end(torn)
            except _Damaged:
                repaired.append(self._mend_all())
            else:
                for sentence in repaired:
                    logger.warning("session {} was repaired: {}", self._key, sentence)
                return replace(session, repaired=tuple(repaired))
        msg = f"'{self._path.name}' changes while it is mended; does another process write it?"
        raise OSError(msg)

    def append(self, messages: Sequence[Message], state: SessionState) -> None:
        """Add lines in one write; the file is as before when that fails.

        Raises:
            OSError: nothing was added.
        """
        if self._latest is None:
            self.load(0)
        before, lines = self._latest, b"".join(map(encode_record, messages))
        self._total += len(messages)
        superseded = before.superseded_bytes + len(encode_record(before)) if before else 0
        header = self._header(state, self._total if before else 0, superseded)
        encoded = encode_record(header)
        self._write(lines + encoded if before else encoded + lines)
        os.utime(self._path, ns=(_nanoseconds(state.updated_at),) * 2)
        self._latest = header
        if superseded > self._compact_from_bytes and superseded * 2 > self._path.stat().st_size:
            self._compact()

    def delete(self) -> bool:
        """Remove the file and what was kept aside of it; False when there is none."""
        self._latest, self._total = None, 0
        for aside in self._path.parent.glob(f"{self._path.name}.corrupt-*"):
            aside.unlink(missing_ok=True)
        existed = self._path.exists()
        self._path.unlink(missing_ok=True)
        return existed

    def _header(self, state: SessionState, count: int, superseded_bytes: int) -> Header:
        return Header(
            key=self._key, state=state, message_count=count, superseded_bytes=superseded_bytes
        )

    def _read_tail(self, max_messages: int) -> StoredSession:
        """Read backwards until the state, the count and enough messages are known."""
        latest: Header | None = None
        total: int | None = None
        record: Record | None = None
        messages: list[Message] = []
        with self._path.open("rb", buffering=0) as file:
            for line in _lines_backwards(file):
                record = self._decode(line)
                if isinstance(record, Message):
                    messages.append(record)
                else:
                    latest = latest or record
                    total = _checked_total(total, record, len(messages))
                if latest and total is not None:
                    wanted = min(max_messages, total - latest.state.last_consolidated)
                    # With all that were counted at hand, line 1 shows whether there are more.
                    if wanted <= len(messages) < total:
                        break
            else:
                # Line 1 must say whose file it is.
                if latest is None or isinstance(record, Message):
                    raise _Damaged
                if total not in (None, len(messages)):
                    raise _Damaged
                total = len(messages)
        self._latest, self._total = latest, total
        consolidated = min(latest.state.last_consolidated, total)
        newest = messages[: min(max_messages, total - consolidated)]
        return StoredSession(
            key=self._key,
            state=replace(latest.state, last_consolidated=consolidated),
            messages=tuple(reversed(newest)),
            first_index=total - len(newest),
        )

    def _decode(self, line: bytes) -> Record:
        record = decode_line(line, self._default_time)
        if record is None:
            raise _Damaged
        return record

    def _write(self, data: bytes) -> None:
        try:
            file = os.open(self._path, _APPENDED, _PRIVATE)
        except FileNotFoundError:
            make_folder(self._path.parent)
            file = os.open(self._path, _APPENDED, _PRIVATE)
        try:
            size = os.fstat(file).st_size
            try:
                if os.write(file, data) != len(data):
                    msg = "the disk took only part of the data; make room"
                    raise OSError(msg)
                if self._fsync:
                    os.fsync(file)
            except OSError:
                os.ftruncate(file, size)
                raise
        finally:
            os.close(file)
        if size == 0:
            self._sync_folder()

    def _mend_end(self, torn: _Torn) -> list[str]:
        """Complete or remove a last line that has no line feed."""
        if decode_line(torn.line, self._default_time) is not None:
            self._write(b"\n")
            return []
        if torn.start == 0:
            return [self._mend_all()]
        kept = [r for r in salvage(torn.line, self._default_time) if isinstance(r, Message)]
        os.truncate(self._path, torn.start)
        self._write(b"".join(map(encode_record, kept)))
        fate = "its text was kept" if kept else "it was removed"
        return [f"the last line was broken off; {fate}"]

    def _mend_all(self) -> str:
        """Write the file anew from what can be read, and keep the damaged one aside."""
        aside = self._aside()
        self._rewrite(keep_as=aside)
        return f"damaged lines were mended; the former file is '{aside.name}'"

    def _compact(self) -> None:
        """Leave superseded metadata lines behind; an append is done whether this works or not."""
        try:
            self._rewrite(keep_as=None)
        except OSError as error:
            self._compact_from_bytes *= 2
            logger.warning("session {} was not compacted: {}", self._key, error)

    def _rewrite(self, *, keep_as: Path | None) -> None:
        header, total = self._survey()
        temporary = self._path.with_name(self._path.name + ".tmp")
        try:
            with os.fdopen(os.open(temporary, _NEW_FILE, _PRIVATE), "wb") as file:
                file.write(encode_record(replace(header, message_count=0)))
                for record, line in read_lines(self._path, self._default_time):
                    if isinstance(record, Message):
                        file.write(line)
                file.write(encode_record(header))
                file.flush()
                if self._fsync:
                    os.fsync(file.fileno())
            if keep_as is not None:
                shutil.copy2(self._path, keep_as)
            temporary.replace(self._path)
        finally:
            temporary.unlink(missing_ok=True)
        self._sync_folder()
        os.utime(self._path, ns=(_nanoseconds(header.state.updated_at),) * 2)
        self._latest, self._total = header, total

    def _survey(self) -> tuple[Header, int]:
        """Return the last state and the number of messages of a file that may be damaged.

        Where lines are gone or doubled, the consolidated part is taken for the shorter one of what
        counting from either end says: a message told twice harms less than one never told.
        """
        latest: Header | None = None
        total = after = 0
        for record, _ in read_lines(self._path, self._default_time):
            if isinstance(record, Message):
                total, after = total + 1, after + 1
            else:
                latest, after = record, 0
        if latest is None:
            time = self._default_time
            return self._header(SessionState(created_at=time, updated_at=time), total, 0), total
        state = latest.state
        consolidated = min(state.last_consolidated, total)
        if latest.message_count is not None:
            open_messages = latest.message_count - state.last_consolidated + after
            consolidated = max(0, min(consolidated, total - open_messages))
        return self._header(replace(state, last_consolidated=consolidated), total, 0), total

    def _aside(self) -> Path:
        number = 1
        while (path := self._path.with_name(f"{self._path.name}.corrupt-{number}")).exists():
            number += 1
        return path

    def _sync_folder(self) -> None:
        """Make a new name in the folder durable, where the system can."""
        if self._fsync and hasattr(os, "O_DIRECTORY"):
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def read_lines(path: Path, default_time: datetime) -> Generator[tuple[Record, bytes]]:
    """Yield what the lines of a file say, and the lines, from its start to its present end.

    Of a damaged line comes what could be saved, with a line made of it; empty lines are left out.
    """
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size
        while line := file.readline(left):
            left -= len(line)
            record = decode_line(line, default_time)
            if record is not None:
                yield record, line if line.endswith(b"\n") else line + b"\n"
                continue
            for saved in salvage(line, default_time):
                yield saved, encode_record(saved)


def _checked_total(total: int | None, header: Header, messages_after: int) -> int | None:
    """Return the number of messages in the file; `total` where this header does not count.

    Raises:
        _Damaged: a header further on counted otherwise.
    """
    if header.message_count is None:
        return total
    counted = header.message_count + messages_after
    if total not in (None, counted):
        raise _Damaged
    return counted


def _lines_backwards(file: BinaryIO) -> Iterator[bytes]:
    """Yield lines without line feed, the last one first; empty ones are left out.

    Raises:
        _Torn: the last line has no line feed.
    """
    size = end = os.fstat(file.fileno()).st_size
    rest: list[bytes] = []  # a line whose start lies in an earlier block, its end first
    terminated = False
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        file.seek(start)
        first, *others = file.read(end - start).split(b"\n")
        for block_part in reversed(others):
            line = block_part + b"".join(reversed(rest))
            rest.clear()
            if not terminated and line:
                raise _Torn(size - len(line), line)
            terminated = True
            if line.strip():
                yield line
        rest.append(first)
        end = start
    line = b"".join(reversed(rest))
    if not terminated and line:
        raise _Torn(0, line)
    if line.strip():
        yield line


def _nanoseconds(instant: datetime) -> int:
    return round(instant.timestamp() * 1_000_000) * 1000
