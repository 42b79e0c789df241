"""Long lists cut to what a model should read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def render_lines(lines: Sequence[str], total: int, max_chars: int, remedy: str) -> str:
    """Return `lines` as text, with a note of how many are left out.

    Args:
        lines: at most `total` of them, in order.
        total: how many there are.
        max_chars: characters to give.
        remedy: what to do to see the others.
    """
    shown: list[str] = []
    room = max_chars
    for line in lines:
        room -= len(line) + 1
        if room < 0 and shown:
            break
        shown.append(line[:max_chars])
    if len(shown) < total:
        shown.append(f"\n[{len(shown):,} of {total:,} shown; {remedy}]")
    return "\n".join(shown)


def place(path: Path, workspace: Path) -> str:
    """Return how to call `path` in an answer: relative to the workspace where it lies in it."""
    near = path.relative_to(workspace) if path.is_relative_to(workspace) else path
    return str(near).encode(errors="replace").decode()
