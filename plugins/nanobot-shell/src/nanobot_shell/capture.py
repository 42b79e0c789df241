"""Output of any length in bounded memory: its head and its tail."""

from __future__ import annotations

from nanobot_core import truncate_middle

_BYTES_PER_CHAR = 4


class Capture:
    """Keeps the first and the last bytes of a stream.

    Args:
        max_chars: characters that `text` may ask for; four bytes are kept for each, twice.
    """

    def __init__(self, max_chars: int) -> None:
        self._keep = max_chars * _BYTES_PER_CHAR
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total_bytes += len(data)
        room = self._keep - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._keep:
            del self._tail[: -self._keep]

    def text(self, max_chars: int) -> str:
        """Return the stream as text of about `max_chars`; what is gone is told in the middle."""
        missing = self.total_bytes - len(self._head) - len(self._tail)
        if not missing:
            return truncate_middle(_decoded(self._head + self._tail), max_chars)
        head = _decoded(self._head)[: (max_chars + 1) // 2]
        tail = _decoded(self._tail)[-(max_chars // 2) :]
        gone = self.total_bytes - len(head.encode()) - len(tail.encode())
        return f"{head}\n… [about {gone:,} bytes left out] …\n{tail}"


def _decoded(data: bytearray) -> str:
    return data.decode("utf-8", "replace")
