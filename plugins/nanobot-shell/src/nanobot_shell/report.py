"""What the model reads of a command."""

from __future__ import annotations

from nanobot_shell.capture import Capture


def render_output(stdout: Capture, stderr: Capture, max_chars: int) -> str:
    """Return stdout, then a ``STDERR:`` block, together about `max_chars` characters.

    Errors are sure of half of the room, and either stream may use what the other leaves.
    """
    half = max_chars // 2
    stderr_chars = max(half, max_chars - stdout.total_bytes)
    stdout_chars = max(half, max_chars - stderr.total_bytes)
    parts = [stdout.text(stdout_chars).rstrip("\n")] if stdout.total_bytes else []
    if stderr.total_bytes:
        parts.append(f"STDERR:\n{stderr.text(stderr_chars)}".rstrip("\n"))
    return "\n".join(parts)


def render_end(text: str, ending: str) -> str:
    """Return `text` with the line that says how the command ended."""
    return f"{text}\n\n{ending}" if text else ending
