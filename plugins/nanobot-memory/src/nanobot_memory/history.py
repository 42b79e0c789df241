"""Entries of ``history.jsonl``: one line of JSON each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from nanobot_core import truncate_middle

if TYPE_CHECKING:
    from nanobot_core import Message

MAX_ENTRY_CHARS: Final = 8_000
"""Characters of an entry; longer ones lose their middle when they are written."""
_MAX_LINE_BYTES: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """An entry before it has a number.

    Attributes:
        content: the text.
        session_key: session that it summarises, or empty.
        first: number of the first message that it summarises, or ``None``.
        last: number of the first message after them, or ``None``.
        digest: of these messages, see `digest_of`.
        timestamp: ``YYYY-MM-DD HH:MM`` in UTC, or what another program wrote; empty means now.
    """

    content: str
    session_key: str = ""
    first: int | None = None
    last: int | None = None
    digest: str = ""
    timestamp: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry(NewEntry):
    """A line of the file.

    Attributes:
        cursor: its number, greater than that of each line before.
    """

    cursor: int

    def to_line(self) -> bytes:
        """Return the line, line feed included."""
        line: dict[str, object] = {
            "cursor": self.cursor,
            "timestamp": self.timestamp,
            "content": self.content,
        }
        if self.session_key:
            line["session_key"] = self.session_key
        if self.first is not None and self.last is not None:
            line |= {"first": self.first, "last": self.last, "digest": self.digest}
        return json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def numbered(new: NewEntry, cursor: int, now: datetime) -> HistoryEntry:
    """Return `new` as the line with number `cursor`; its content is cut if it is too long."""
    return HistoryEntry(
        cursor=cursor,
        timestamp=new.timestamp or f"{now:%Y-%m-%d %H:%M}",
        content=truncate_middle(new.content, MAX_ENTRY_CHARS),
        session_key=new.session_key,
        first=new.first,
        last=new.last,
        digest=new.digest,
    )


def parse_line(line: bytes) -> HistoryEntry | None:
    """Return the entry in a line, or ``None`` for one that no writer of history left behind."""
    if len(line) > _MAX_LINE_BYTES:
        return None
    try:
        raw = json.loads(line)
        cursor, content = int(raw["cursor"]), raw["content"]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    if cursor < 1 or not isinstance(content, str):
        return None
    first, last = _number(raw.get("first")), _number(raw.get("last"))
    return HistoryEntry(
        cursor=cursor,
        timestamp=_text(raw.get("timestamp")),
        content=truncate_middle(content, MAX_ENTRY_CHARS),
        session_key=_text(raw.get("session_key")),
        first=first,
        last=last,
        digest=_text(raw.get("digest")),
    )


def parse_lines(data: bytes) -> Iterator[HistoryEntry]:
    """Yield the entries of a file, without lines that cannot be read and a torn last one."""
    for line in data.split(b"\n"):
        if line and (entry := parse_line(line)) is not None:
            yield entry


def digest_of(messages: Sequence[Message]) -> str:
    """Return what identifies messages, the same when they are loaded again after a crash."""
    whole = hashlib.sha256()
    for message in messages:
        if message.role in {"user", "assistant"}:
            whole.update(f"{message.role}\0{message.text}\0".encode(errors="replace"))
    return whole.hexdigest()[:16]


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
