"""Lines out of a stream of bytes, without holding those that are too long."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_KEPT_BYTES = 2_048
_ID = re.compile(rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{1,100}")')


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line that was not kept, except its beginning and its end."""

    head: bytes
    tail: bytes
    size: int

    def request_id(self) -> int | str | None:
        """Return the JSON-RPC id that the message probably answers, or ``None``.

        Servers write ``id`` as one of the first or one of the last members of the message.
        """
        found = _ID.search(self.head) or next(reversed([*_ID.finditer(self.tail)]), None)
        if found is None:
            return None
        text = found[1]
        return text[1:-1].decode("utf-8", "replace") if text.startswith(b'"') else int(text)


class LineSplitter:
    """Splits what is fed into lines of at most `max_bytes`.

    A longer line is told as a `LongLine` when it ends; at no time more than `max_bytes` and one
    chunk are held.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    def feed(self, chunk: bytes) -> Iterator[bytes | LongLine]:
        """Yield the lines that `chunk` completes, without their ends."""
        *complete, rest = chunk.split(b"\n")
        for piece in complete:
            self._add(piece)
            yield self._finished()
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._max_bytes:
            self._parts.append(piece)
            return
        if self._parts or not self._head:
            self._head = b"".join((*self._parts, piece))[:_KEPT_BYTES]
            self._parts.clear()
        self._tail = (self._tail + piece[-_KEPT_BYTES:])[-_KEPT_BYTES:]

    def _finished(self) -> bytes | LongLine:
        try:
            if self._size > self._max_bytes:
                return LongLine(self._head, self._tail, self._size)
            return b"".join(self._parts)
        finally:
            self._parts, self._size, self._head, self._tail = [], 0, b"", b""
