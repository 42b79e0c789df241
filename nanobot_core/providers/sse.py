"""Server-sent events from bytes that arrive in any pieces.

Follows the WHATWG HTML standard, section 9.2.6 (interpreting an event stream), without ``id`` and
``retry``: a model's answer is not resumed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nanobot_core.record import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLargeError(ValueError):
    """An event holds more bytes than its limit."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its data, lines joined by line feeds, and its type."""

    data: str
    type: str = "message"


class EventParser:
    """Turns the bytes of one event stream into events.

    Each byte is looked at a bounded number of times.

    Args:
        max_event_bytes: most bytes of one event, line ends included.
    """

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._pieces: list[bytes] = []
        self._pending_bytes = 0
        self._at_start = True
        self._after_cr = False
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._type = b""

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Yield the events that `chunk` completes.

        An event whose closing empty line never comes is dropped, as the standard demands. The
        iterator must be used up before the next call.

        Raises:
            EventTooLargeError: an event is longer than the limit.
        """
        if self._after_cr and chunk:
            # The line end was counted at the carriage return; its line feed belongs to it.
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        start = 0
        for end in _LINE_END.finditer(chunk):
            line = b"".join([*self._pieces, chunk[start : end.start()]])
            self._pieces.clear()
            self._pending_bytes = 0
            start = end.end()
            self._after_cr = start == len(chunk) and end.group() == b"\r"
            event = self._take_line(line)
            if event is not None:
                yield event
        if start < len(chunk):
            self._pieces.append(chunk[start:])
            self._pending_bytes += len(chunk) - start
        self._check_size()

    def _take_line(self, line: bytes) -> ServerEvent | None:
        if self._at_start:
            line = line.removeprefix(_BOM)
            self._at_start = False
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._data_bytes += len(value) + 1
            self._check_size()
        elif field == b"event":
            self._type = value
        return None

    def _dispatch(self) -> ServerEvent | None:
        data, kind = self._data, self._type
        self._data, self._data_bytes, self._type = [], 0, b""
        if not data:
            return None
        text = b"\n".join(data).decode("utf-8", "replace")
        return ServerEvent(text, kind.decode("utf-8", "replace") or "message")

    def _check_size(self) -> None:
        if self._data_bytes + self._pending_bytes > self._max_event_bytes:
            msg = f"an event is longer than {self._max_event_bytes:,} bytes"
            raise EventTooLargeError(msg)
