"""Versions of the memory files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot_memory.files import MemoryFiles


def show_log(files: MemoryFiles, sha: str = "") -> str:
    """Return the newest changes, or the diff of one of them, in Markdown. Blocks."""
    return "No versions are kept yet."


def restore(files: MemoryFiles, sha: str = "") -> str:
    """Revert one change, the newest by default, and return a report in Markdown. Blocks."""
    return "No versions are kept yet."
