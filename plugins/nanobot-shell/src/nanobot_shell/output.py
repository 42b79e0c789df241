"""What a command prints: kept in bounded memory, and rendered for the model."""

from __future__ import annotations

KEPT_BYTES = 200_000
"""Bytes kept of the beginning of a stream, and again of its end."""


class Capture:
    """Keeps the first and the last bytes of a stream of any length."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total_bytes += len(data)
        room = KEPT_BYTES - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * KEPT_BYTES:
            del self._tail[:-KEPT_BYTES]

    @property
    def text(self) -> str:
        """The stream as text; a note replaces what was not kept."""
        missing = self.total_bytes - len(self._head) - len(self._tail)
        if not missing:
            return _decoded(self._head + self._tail)
        gap = f"\n… [{missing:,} bytes left out] …\n"
        return _decoded(self._head) + gap + _decoded(self._tail)


def render_output(stdout: Capture, stderr: Capture, ending: str) -> str:
    """Return stdout, a ``STDERR:`` block, and the line that says how the command ended."""
    parts = [stdout.text.rstrip("\n")] if stdout.total_bytes else []
    if stderr.total_bytes:
        parts.append(f"STDERR:\n{stderr.text}".rstrip("\n"))
    text = "\n".join(parts)
    return f"{text}\n\n{ending}" if text else ending


def _decoded(data: bytearray) -> str:
    return data.decode("utf-8", "replace")
