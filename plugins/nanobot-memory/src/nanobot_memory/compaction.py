"""Compaction: moves old history to an archive, which search and Dream still read."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from nanobot_memory.history_file import NO_FILE

if TYPE_CHECKING:
    from nanobot_memory.files import MemoryFiles
    from nanobot_memory.history import HistoryEntry
    from nanobot_memory.settings import MemorySettings

LEFT: Final = 0.75
"""Part of ``history_megabytes`` that stays when a history has outgrown them."""


def compact_daily(files: MemoryFiles, settings: MemorySettings, now: datetime) -> int:
    """Move what is too old or too much to the archive, at most once a day; return the entries.

    Blocks.
    """
    if files.history_stamp == NO_FILE:
        return 0
    today, path = f"{now:%Y-%m-%d}".encode(), files.folder / ".compacted"
    with files.locked():
        with suppress(FileNotFoundError):
            if files.root.read(path, len(today)) == today:
                return 0
        files.root.replace(path, today, mode=0o600)
        return compact(files, settings, now)


def compact(files: MemoryFiles, settings: MemorySettings, now: datetime) -> int:
    """Move what is too old or too much to the archive; return how many entries that are.

    Entries go when they are older than ``history_days``. If the history is then longer than
    ``history_megabytes``, the oldest ones that Dream has read go too. Blocks.
    """
    with files.locked():
        entries = files.entries()
        gone = _aged(entries, settings.history_days, now)
        limit = int(settings.history_megabytes * 1_000_000)
        _, size, _ = files.history_stamp
        if limit and size > limit:
            cursor = files.dream_cursor
            read = [entry for entry in entries if entry.cursor <= cursor]
            gone |= _oldest(read, size - int(limit * LEFT))
        files.move_to_archive(gone)
    return len(gone)


def _oldest(entries: list[HistoryEntry], size: int) -> set[int]:
    """Return the first entries, together of at least `size` bytes."""
    oldest: set[int] = set()
    for entry in entries:
        if size <= 0:
            break
        size -= len(entry.to_line())
        oldest.add(entry.cursor)
    return oldest


def _aged(entries: list[HistoryEntry], days: int, now: datetime) -> set[int]:
    """Return the entries older than `days`; one without a time that can be read is not."""
    aged: set[int] = set()
    if not days:
        return aged
    oldest = now - timedelta(days=days)
    for entry in entries:
        with suppress(ValueError):
            if datetime.fromisoformat(entry.timestamp).replace(tzinfo=UTC) < oldest:
                aged.add(entry.cursor)
    return aged
