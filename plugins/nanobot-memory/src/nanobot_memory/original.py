"""Takes over ``HISTORY.md``, in which the original kept its history at first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from nanobot_core import OWNERS_MEMORY
from nanobot_memory.history import NewEntry
from nanobot_memory.history_file import NO_FILE

if TYPE_CHECKING:
    from nanobot_memory.files import MemoryFiles

MAX_BYTES: Final = 50_000_000
_FILE = "HISTORY.md"
_STAMP = re.compile(r"^\[(\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2})[^\]\n]{0,32}\][ \t]*", re.MULTILINE)


def import_history(files: MemoryFiles) -> int:
    """Import ``HISTORY.md`` if there is no other history, and rename it; return the entries.

    Dream does not read them: the original has worked them into its files already. Blocks.
    """
    if files.scope != OWNERS_MEMORY or files.history_stamp != NO_FILE:
        return 0
    try:
        data = files.root.read(files.folder / _FILE, MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    entries = list(_entries(data.decode("utf-8", "replace").replace("\r\n", "\n")))
    if not entries:
        return 0
    kept = files.append(entries)
    if files.dream_cursor == 0:
        files.dream_cursor = kept[-1].cursor
    files.root.rename(files.folder / _FILE, f"{_FILE}.bak")
    return len(kept)


def _entries(text: str) -> list[NewEntry]:
    stamps = list(_STAMP.finditer(text))
    if not stamps:
        return [NewEntry(content=each.strip()) for each in text.split("\n\n") if each.strip()]
    ends = [*(each.start() for each in stamps[1:]), len(text)]
    found = []
    if before := text[: stamps[0].start()].strip():
        found.append(NewEntry(content=before))
    for stamp, end in zip(stamps, ends, strict=True):
        if content := text[stamp.end() : end].strip():
            found.append(NewEntry(content=content, timestamp=stamp[1].replace("T", " ")))
    return found
