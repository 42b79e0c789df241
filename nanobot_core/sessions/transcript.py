"""The file of one session: read from its end, append, repair. Blocking; one caller at a time."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from loguru import logger

from nanobot_core.contracts.store import SessionState, StoredSession
from nanobot_core.folder import IrregularFile
from nanobot_core.messages import Message
from nanobot_core.sessions.records import (
    ORIGINAL_PROGRESS,
    Header,
    decode_line,
    encode_record,
    original_progress,
    salvage,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from datetime import datetime
    from io import BufferedReader

    from nanobot_core.contracts.store import SessionSummary
    from nanobot_core.sessions.folder import SessionFolder
    from nanobot_core.sessions.records import Record

_BLOCK_BYTES = 64 * 1024
_LOAD_ATTEMPTS = 3
"""One for a broken end, one for damage before it, one for the repaired file."""
MAX_LINE_BYTES = 32 * 1024 * 1024
"""A longer line is damage: no message is that long."""
MAX_REPAIR_BYTES = 1024 * 1024 * 1024
"""A larger damaged file is set aside unread, because reading it would delay other sessions."""
COMPACT_BYTES = 1024 * 1024
"""Superseded metadata lines below this size stay in the file."""
MAX_BARE_BYTES = 32 * 1024
"""Bytes after a line with metadata in which unchanged metadata is left out. It holds the summary of
a session, which is longer than everything else that a step stores."""


Records: TypeAlias = "Generator[tuple[Record, bytes]]"
"""Records with their lines."""


class _Torn(Exception):
    """The file does not end with a line feed."""

    def __init__(self, start: int, line: bytes) -> None:
        super().__init__(start, line)
        self.start, self.line = start, line


class _Damaged(Exception):
    """A line cannot be read, or the counts in metadata lines do not fit the lines."""


class SessionFile:
    """The file of one session, which may not exist yet.

    After an `OSError`, discard the object; a new one reads the file again.

    Args:
        folder: opens the file.
        name: of the file.
        key: session key.
        default_time: replaces times that a damaged file has lost; aware.
    """

    def __init__(self, folder: SessionFolder, name: str, key: str, default_time: datetime) -> None:
        self._folder, self._name, self._key = folder, name, key
        self._default_time = default_time
        self._latest: Header | None = None
        self._total = self._header_bytes = 0
        self._bare_bytes = MAX_BARE_BYTES  # a new object does not know when metadata was written
        self._compact_from_bytes = COMPACT_BYTES

    def load(self, max_messages: int) -> StoredSession | None:
        """Return the newest messages that are not consolidated; ``None`` without a file.

        Raises:
            OSError: the file cannot be read, or there is no space to repair it.
        """
        repaired: list[str] = []
        for _ in range(_LOAD_ATTEMPTS):
            try:
                session = self._read(max_messages)
            except IrregularFile as error:
                repaired.append(self._set_aside(str(error.strerror)))
            except _Torn as torn:
                repaired += self._repair_end(torn)
            except _Damaged:
                repaired.append(self._repair())
            else:
                for sentence in repaired:
                    logger.warning("session {} was repaired: {}", self._key, sentence)
                if session is None and repaired:  # the file was set aside
                    session = StoredSession(key=self._key, state=self._new_state())
                return session and replace(session, repaired=tuple(repaired))
        msg = f"'{self._name}' changes while it is repaired; check that no other process writes it"
        raise OSError(msg)

    def append(self, messages: Sequence[Message], state: SessionState) -> None:
        """Add lines in one write; if that fails, the file is unchanged.

        Raises:
            OSError: nothing was added.
        """
        if self._latest is None:
            self.load(0)
        before, lines = self._latest, b"".join(map(encode_record, messages))
        self._total += len(messages)
        superseded = before.superseded_bytes + self._header_bytes if before else 0
        header = self._header(state, self._total if before else 0, superseded)
        if before and before.state.metadata == state.metadata:
            header = replace(header, is_bare=self._bare_bytes + len(lines) < MAX_BARE_BYTES)
        encoded = encode_record(header)
        size = self._folder.append(
            self._name,
            lines + encoded if before else encoded + lines,
            _nanoseconds(state.updated_at),
        )
        self._latest, self._header_bytes = header, len(encoded)
        self._bare_bytes += len(lines) + len(encoded)
        if not header.is_bare:
            self._bare_bytes = 0
        if superseded > self._compact_from_bytes and superseded * 2 > size:
            self._compact()

    def summary(self) -> SessionSummary | None:
        """Return the facts of the file; ``None`` without a file, or with an empty one."""
        return self._folder.summary(self._name, self._key)

    def delete(self) -> bool:
        """Remove the file and its damaged copies; False if it does not exist."""
        self._latest, self._total = None, 0
        self._folder.remove_kept(self._name)
        return self._folder.remove(self._name)

    def read(self) -> Records:
        """Yield the record of each line and the line; nothing without a file."""
        if self._folder.stat(self._name) is not None:
            yield from self._lines()

    def _read(self, max_messages: int) -> StoredSession | None:
        facts = self._folder.stat(self._name)
        if facts is None or facts.st_size == 0:
            return None
        session = self._read_tail(max_messages)
        if ORIGINAL_PROGRESS.isdisjoint(session.state.metadata):
            return session
        self._adopt_progress(session.state)
        return self._read_tail(max_messages)

    def _new_state(self) -> SessionState:
        return SessionState(created_at=self._default_time, updated_at=self._default_time)

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
        last_bytes = 0
        with self._folder.open_read(self._name) as file:
            for line in _lines_backwards(file):
                record = self._decode(line)
                if isinstance(record, Message):
                    messages.append(record)
                else:
                    last_bytes = last_bytes or len(line) + 1
                    latest = _joined(latest, record)
                    total = _checked_total(total, record, len(messages))
                if latest and not latest.is_bare and total is not None:
                    wanted = min(max_messages, total - latest.state.last_consolidated)
                    # If all counted messages are read, line 1 shows whether there are more.
                    if wanted <= len(messages) < total:
                        break
            else:
                # Line 1 must name the session.
                if latest is None or isinstance(record, Message):
                    raise _Damaged
                if total not in (None, len(messages)):
                    raise _Damaged
                total = len(messages)
        self._latest, self._total, self._header_bytes = latest, total, last_bytes
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

    def _repair_end(self, torn: _Torn) -> list[str]:
        """Complete or remove a last line that has no line feed."""
        if decode_line(torn.line, self._default_time) is not None:
            self._folder.append(self._name, b"\n")
            return []
        if torn.start == 0:
            return [self._repair()]
        kept = [r for r in salvage(torn.line, self._default_time) if isinstance(r, Message)]
        self._folder.truncate(self._name, torn.start)
        self._folder.append(self._name, b"".join(map(encode_record, kept)))
        result = "its text was kept" if kept else "it was removed"
        return [f"the last line was incomplete; {result}"]

    def _repair(self) -> str:
        """Write the readable content to a new file, and keep the damaged one beside it."""
        facts = self._folder.stat(self._name)
        if facts is not None and facts.st_size > MAX_REPAIR_BYTES:
            return self._set_aside(f"it is damaged and has {facts.st_size} bytes")
        kept = self._rewrite(is_damaged=True)
        return f"damaged lines were repaired; the damaged file is '{kept}'"

    def _adopt_progress(self, state: SessionState) -> None:
        """Add what nanobot-ai has kept of an interrupted turn to the messages, once."""
        added = original_progress(state.metadata, self._default_time)
        newest = list(map(_content, self._read_tail(len(added)).messages))
        known = len(newest)
        while newest[len(newest) - known :] != list(map(_content, added[:known])):
            known -= 1
        kept = {k: v for k, v in state.metadata.items() if k not in ORIGINAL_PROGRESS}
        self.append(added[known:], replace(state, metadata=kept))

    def _set_aside(self, reason: str) -> str:
        """Rename the unusable file, so that the session begins again."""
        kept = self._folder.set_aside(self._name)
        return f"its file could not be used: {reason}; it is now '{kept}' and the session is empty"

    def _compact(self) -> None:
        """Drop superseded metadata lines. Failure is logged: the append before it is complete."""
        try:
            self._check_all()
            self._rewrite(is_damaged=False)
        except (OSError, _Damaged) as error:
            self._compact_from_bytes *= 2
            reason = str(error) or "consolidated lines are damaged"
            logger.warning("session {} was not compacted: {}", self._key, reason)

    def _check_all(self) -> None:
        """Read the part that loading has skipped, so that a new file loses none of it.

        Raises:
            _Damaged: a line cannot be read, or the number of messages differs from the count.
        """
        with self._folder.open_read(self._name) as file:
            records = map(self._decode, _lines_backwards(file))
            if sum(isinstance(record, Message) for record in records) != self._total:
                raise _Damaged

    def _rewrite(self, *, is_damaged: bool) -> str:
        """Write the file again; return the name under which the damaged one is kept."""
        header = self._survey()
        with self._folder.replacing(self._name, _nanoseconds(header.state.updated_at)) as file:
            file.write(encode_record(replace(header, message_count=0)))
            for record, line in self._lines():
                if isinstance(record, Message):
                    file.write(line)
            self._header_bytes = file.write(encode_record(header))
            kept = self._folder.keep(self._name) if is_damaged else ""
        self._latest, self._total = header, header.message_count or 0
        return kept

    def _survey(self) -> Header:
        """Return the last state and the number of messages of a file that may be damaged.

        If lines are lost or doubled, counting from the two ends gives two sizes of the consolidated
        part. The smaller one counts: a message sent twice harms less than one never sent.
        """
        latest: Header | None = None
        total = after = 0
        for record, _ in self._lines():
            if isinstance(record, Message):
                total, after = total + 1, after + 1
            else:
                latest, after = _joined(record, latest) if latest else record, 0
        state = latest.state if latest else self._new_state()
        consolidated = min(state.last_consolidated, total)
        if latest and latest.message_count is not None:
            open_messages = latest.message_count - state.last_consolidated + after
            consolidated = max(0, min(consolidated, total - open_messages))
        return self._header(replace(state, last_consolidated=consolidated), total, 0)

    def _lines(self) -> Records:
        with self._folder.open_read(self._name) as file:
            yield from read_lines(file, self._default_time)


def read_lines(file: BufferedReader, default_time: datetime) -> Records:
    """Yield the records of a file and their lines, from its start to its present end.

    A damaged line yields what can be salvaged from it. Empty lines and those that are too long are
    skipped.
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
    """Read to the end of a line, at most `left` bytes, and return the number of bytes read."""
    skipped = 0
    while skipped < left:
        piece = file.readline(min(left - skipped, _BLOCK_BYTES))
        skipped += len(piece)
        if not piece or piece.endswith(b"\n"):
            break
        if skipped > MAX_REPAIR_BYTES:
            return left
    return skipped


def _joined(later: Header | None, earlier: Header) -> Header:
    """Return the later of two metadata lines; if it is bare, with the earlier one's metadata."""
    if later is None or not later.is_bare:
        return later or earlier
    state = replace(later.state, metadata=earlier.state.metadata)
    return replace(later, state=state, is_bare=earlier.is_bare)


def _checked_total(total: int | None, header: Header, messages_after: int) -> int | None:
    """Return the number of messages in the file; `total` if this header has no count.

    Raises:
        _Damaged: a later header has another count.
    """
    if header.message_count is None:
        return total
    counted = header.message_count + messages_after
    if total not in (None, counted):
        raise _Damaged
    return counted


def _lines_backwards(file: BufferedReader) -> Iterator[bytes]:
    """Yield lines without line feed, the last one first; empty ones are skipped.

    Raises:
        _Torn: the last line has no line feed.
        _Damaged: a line is too long.
    """
    size = end = os.fstat(file.fileno()).st_size
    rest: list[bytes] = []  # a line that starts in an earlier block, its end first
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


def _content(message: Message) -> tuple[object, ...]:
    return message.role, message.content, message.tool_calls, message.tool_call_id


def _nanoseconds(instant: datetime) -> int:
    return round(instant.timestamp() * 1_000_000) * 1000
