"""The file of one session: read from its end, append, mend. Blocking; one caller at a time."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from loguru import logger

from nanobot_core.contracts.store import SessionState, StoredSession
from nanobot_core.messages import Message
from nanobot_core.sessions.door import NotRegular
from nanobot_core.sessions.records import Header, decode_line, encode_record, salvage

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from datetime import datetime
    from io import BufferedReader

    from nanobot_core.sessions.door import SessionDoor
    from nanobot_core.sessions.records import Record

_BLOCK_BYTES = 64 * 1024
_MEND_ROUNDS = 3
"""A broken end, then damage before it, then the clean file."""
MAX_LINE_BYTES = 32 * 1024 * 1024
"""A longer line is damage: no message is that long, and it would fill the memory."""
MAX_REPAIR_BYTES = 1024 * 1024 * 1024
"""A damaged file that is larger is set aside as it is: reading it would hold up other sessions."""
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
        door: opens files of its folder.
        name: of the file.
        key: session key.
        default_time: stands for times that a damaged file has lost, aware.
    """

    def __init__(self, door: SessionDoor, name: str, key: str, *, default_time: datetime) -> None:
        self._door, self._name, self._key = door, name, key
        self._default_time = default_time
        self._latest: Header | None = None
        self._total = 0
        self._compact_from_bytes = COMPACT_BYTES

    def load(self, max_messages: int) -> StoredSession | None:
        """Return the newest messages that are not consolidated; ``None`` without a file.

        Raises:
            OSError: the file cannot be read, or damage cannot be mended for want of space.
        """
        repaired: list[str] = []
        for _ in range(_MEND_ROUNDS):
            try:
                facts = self._door.stat(self._name)
                if facts is None or facts.st_size == 0:
                    return self._set_aside_only(repaired)
                session = self._read_tail(max_messages)
            except NotRegular as error:
                repaired.append(self._set_aside(str(error.strerror)))
            except _Torn as torn:
                repaired += self._mend_end(torn)
            except _Damaged:
                repaired.append(self._mend_all())
            else:
                self._report(repaired)
                return replace(session, repaired=tuple(repaired))
        msg = f"'{self._name}' changes while it is repaired; check that no other process writes it"
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
        size = self._door.append(
            self._name,
            lines + encoded if before else encoded + lines,
            _nanoseconds(state.updated_at),
        )
        self._latest = header
        if superseded > self._compact_from_bytes and superseded * 2 > size:
            self._compact()

    def delete(self) -> bool:
        """Remove the file and what was kept aside of it; False when there is none."""
        self._latest, self._total = None, 0
        self._door.remove_kept(self._name)
        return self._door.remove(self._name)

    def read(self) -> Generator[tuple[Record, bytes]]:
        """Yield what the lines say, and the lines; nothing without a file."""
        if self._door.stat(self._name) is not None:
            yield from self._lines()

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
        with self._door.open_read(self._name) as file:
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

    def _mend_end(self, torn: _Torn) -> list[str]:
        """Complete or remove a last line that has no line feed."""
        if decode_line(torn.line, self._default_time) is not None:
            self._door.append(self._name, b"\n")
            return []
        if torn.start == 0:
            return [self._mend_all()]
        kept = [r for r in salvage(torn.line, self._default_time) if isinstance(r, Message)]
        self._door.truncate(self._name, torn.start)
        self._door.append(self._name, b"".join(map(encode_record, kept)))
        fate = "its text was kept" if kept else "it was removed"
        return [f"the last line was broken off; {fate}"]

    def _mend_all(self) -> str:
        """Write the file again from what can be read, and keep the damaged one aside."""
        facts = self._door.stat(self._name)
        if facts is not None and facts.st_size > MAX_REPAIR_BYTES:
            return self._set_aside(f"it is damaged and has {facts.st_size} bytes")
        kept = self._rewrite(is_damaged=True)
        return f"damaged lines were repaired; the former file is '{kept}'"

    def _set_aside(self, reason: str) -> str:
        """Let the session begin again, since what has its file's name cannot be used."""
        kept = self._door.set_aside(self._name)
        return f"its file could not be used: {reason}; it is kept as '{kept}', the session is empty"

    def _set_aside_only(self, repaired: list[str]) -> StoredSession | None:
        """Return what is left of a session that was set aside; ``None`` if there was no file."""
        self._report(repaired)
        if not repaired:
            return None
        time = self._default_time
        state = SessionState(created_at=time, updated_at=time)
        return StoredSession(key=self._key, state=state, repaired=tuple(repaired))

    def _report(self, repaired: Sequence[str]) -> None:
        for sentence in repaired:
            logger.warning("session {} was repaired: {}", self._key, sentence)

    def _compact(self) -> None:
        """Leave superseded metadata lines behind; an append is done whether this works or not."""
        try:
            self._check_all()
            self._rewrite(is_damaged=False)
        except (OSError, _Damaged) as error:
            self._compact_from_bytes *= 2
            reason = str(error) or "lines that memory has taken up are damaged"
            logger.warning("session {} was not compacted: {}", self._key, reason)

    def _check_all(self) -> None:
        """Read what loading has left out: a new file without it would be a loss without a word.

        Raises:
            _Damaged: a line cannot be read, or there are more or fewer messages than were counted.
        """
        with self._door.open_read(self._name) as file:
            records = map(self._decode, _lines_backwards(file))
            if sum(isinstance(record, Message) for record in records) != self._total:
                raise _Damaged

    def _rewrite(self, *, is_damaged: bool) -> str:
        """Write the file again; return the name that the damaged one is kept under."""
        header, total = self._survey()
        with self._door.replacing(self._name, _nanoseconds(header.state.updated_at)) as file:
            file.write(encode_record(replace(header, message_count=0)))
            for record, line in self._lines():
                if isinstance(record, Message):
                    file.write(line)
            file.write(encode_record(header))
            kept = self._door.keep(self._name) if is_damaged else ""
        self._latest, self._total = header, total
        return kept

    def _survey(self) -> tuple[Header, int]:
        """Return the last state and the number of messages of a file that may be damaged.

        Where lines are gone or doubled, the consolidated part is taken for the shorter one of what
        counting from either end says: a message told twice harms less than one never told.
        """
        latest: Header | None = None
        total = after = 0
        for record, _ in self._lines():
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

    def _lines(self) -> Generator[tuple[Record, bytes]]:
        with self._door.open_read(self._name) as file:
            yield from read_lines(file, self._default_time)


def read_lines(file: BufferedReader, default_time: datetime) -> Generator[tuple[Record, bytes]]:
    """Yield what the lines of a file say, and the lines, from its start to its present end.

    Of a damaged line comes what could be saved, with a line made of it; empty lines are left out,
    and so are those that are too long.
    """
    left = os.fstat(file.fileno()).st_size
    while line := file.readline(min(left, MAX_LINE_BYTES)):
        left -= len(line)
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            left -= _skip_line(file, left)
            continue
        record = decode_line(line, default_time)
        if record is not None:
            yield record, line if line.endswith(b"\n") else line + b"\n"
            continue
        for saved in salvage(line, default_time):
            yield saved, encode_record(saved)


def _skip_line(file: BufferedReader, left: int) -> int:
    """Read to the end of a line, or of what may be read of it; return how much that was."""
    skipped = 0
    while skipped < left:
        piece = file.readline(min(left - skipped, _BLOCK_BYTES))
        skipped += len(piece)
        if not piece or piece.endswith(b"\n"):
            break
        if skipped > MAX_REPAIR_BYTES:
            return left
    return skipped


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


def _lines_backwards(file: BufferedReader) -> Iterator[bytes]:
    """Yield lines without line feed, the last one first; empty ones are left out.

    Raises:
        _Torn: the last line has no line feed.
        _Damaged: a line is too long.
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
        if len(rest) * _BLOCK_BYTES > MAX_LINE_BYTES:
            raise _Damaged
        end = start
    line = b"".join(reversed(rest))
    if not terminated and line:
        raise _Torn(0, line)
    if line.strip():
        yield line


def _nanoseconds(instant: datetime) -> int:
    return round(instant.timestamp() * 1_000_000) * 1000
