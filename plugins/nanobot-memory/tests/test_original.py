"""Files as nanobot-ai leaves them."""

from __future__ import annotations

from pathlib import Path

from nanobot_core.testing import FakeClock
from nanobot_memory.files import MemoryFiles
from nanobot_memory.history import NewEntry
from nanobot_memory.original import import_history

HISTORY = """\
[2026-02-01 09:30] USER: asked about the tram.
The assistant answered.

[2026-02-02 10:00] [RAW] 3 messages
USER: hello

[2026-02-03T11:45:10] The garden was planned.
"""


def opened(tmp_path: Path, name: str, text: str) -> MemoryFiles:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / name).write_text(text, "utf-8")
    return MemoryFiles(tmp_path, "", FakeClock())


def test_the_older_history_is_imported_once_and_not_dreamt_of(tmp_path: Path) -> None:
    files = opened(tmp_path, "HISTORY.md", HISTORY)

    assert import_history(files) == 3
    assert import_history(files) == 0
    first, second, third = files.entries()
    assert first.timestamp == "2026-02-01 09:30"
    assert first.content == "USER: asked about the tram.\nThe assistant answered."
    assert second.content.startswith("[RAW] 3 messages")
    assert third.timestamp == "2026-02-03 11:45"
    assert files.dream_cursor == 3
    assert (tmp_path / "memory/HISTORY.md.bak").read_text("utf-8") == HISTORY


def test_a_history_without_times_is_imported_by_paragraphs(tmp_path: Path) -> None:
    files = opened(tmp_path, "HISTORY.md", "one\n\ntwo\n\n\n")

    assert import_history(files) == 2
    assert [entry.content for entry in files.entries()] == ["one", "two"]


def test_the_newer_history_continues(tmp_path: Path) -> None:
    files = opened(
        tmp_path,
        "history.jsonl",
        '{"cursor": 7, "timestamp": "2026-08-01 10:00", "content": "- talked"}\n',
    )
    (tmp_path / "memory/.cursor").write_text("9", "utf-8")
    (tmp_path / "memory/.dream_cursor").write_text("7", "utf-8")

    assert import_history(files) == 0
    assert [entry.content for entry in files.entries()] == ["- talked"]
    assert files.dream_cursor == 7
    assert files.append([NewEntry(content="- more")])[0].cursor == 10
