"""What a person adds to a memory and removes from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nanobot_core import Forgotten, MemoryEntry
from nanobot_memory.files import TEMPLATE
from nanobot_memory.search import history_memory, line_id, lines_of

if TYPE_CHECKING:
    from nanobot_memory.files import MemoryFiles
    from nanobot_memory.search import Index

MAX_NOTE_CHARS: Final = 2_000


def remember_text(files: MemoryFiles, text: str) -> MemoryEntry:
    """Add a line to ``MEMORY.md`` and return it; one that is there already is not added.

    Raises:
        ValueError: the text is empty or too long.
        OSError: the file cannot be written.
    """
    line = "- " + " ".join(text.split())
    if line == "- " or len(line) > MAX_NOTE_CHARS:
        msg = f"a note has 1 to {MAX_NOTE_CHARS:,} characters"
        raise ValueError(msg)
    entry = MemoryEntry(id=f"MEMORY.md:{line_id(line)}", text=line, place="MEMORY.md")
    with files.locked():
        before = files.read("MEMORY.md")
        if entry.id in {each.id for each in lines_of(files)}:
            return entry
        end = "\r\n" if "\r\n" in before else "\n"
        before = before or TEMPLATE.read_text("utf-8") + end
        files.write("MEMORY.md", before + ("" if before.endswith("\n") else end) + line + end)
    return entry


def forget_entry(files: MemoryFiles, index: Index, entry_id: str) -> Forgotten:
    """Remove an entry of the history or a line of a file."""
    place, _, name = entry_id.rpartition(":")
    if place == "history":
        removed = int(name.isdigit() and len(name) < 19 and files.remove(int(name)))
        remains = (
            "the messages, in the file of their session; remove it with `nanobot sessions delete`",
        )
    else:
        removed = (
            _remove_lines(files, place, name) if place in (*files.names, *files.topics()) else 0
        )
        remains = (f"former versions of {place}, in memory/.git",)
    if not removed:
        return Forgotten(entries=0)
    index.forget(files)
    return Forgotten(entries=removed, remains=remains)


def all_entries(files: MemoryFiles) -> list[MemoryEntry]:
    """Return the history and the lines of the files."""
    return [*map(history_memory, files.all_entries()), *lines_of(files)]


def _remove_lines(files: MemoryFiles, place: str, name: str) -> int:
    with files.locked():
        lines = files.read(place).splitlines(keepends=True)
        kept = [line for line in lines if line_id(line) != name]
        if len(kept) == len(lines):
            return 0
        files.write(place, "".join(kept))
    return 1
