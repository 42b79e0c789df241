from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nanobot_core.testing import FakeClock
from nanobot_memory.files import MemoryFiles
from nanobot_memory.history import NewEntry

OTHER = "sender/telegram:42"


@pytest.fixture
def files(tmp_path: Path) -> MemoryFiles:
    return MemoryFiles(tmp_path, "", FakeClock())


def test_entries_are_numbered_and_kept(files: MemoryFiles, tmp_path: Path) -> None:
    files.append([NewEntry(content="one"), NewEntry(content="two", session_key="cli:direct")])
    again = MemoryFiles(tmp_path, "", FakeClock())

    assert [(each.cursor, each.content) for each in again.entries()] == [(1, "one"), (2, "two")]
    assert [each.cursor for each in again.entries(after=1)] == [2]
    assert json.loads((tmp_path / "memory/history.jsonl").read_text("utf-8").splitlines()[0]) == {
        "cursor": 1,
        "timestamp": "2026-01-01 00:00",
        "content": "one",
    }


@pytest.mark.parametrize(
    "damage", ['{"cursor": 3, "cont', "\x00\x00\n", "[]\n", '{"cursor": "x", "content": ""}\n']
)
def test_lines_that_cannot_be_read_cost_only_themselves(
    files: MemoryFiles, tmp_path: Path, damage: str
) -> None:
    files.append([NewEntry(content="one")])
    with (tmp_path / "memory/history.jsonl").open("a", encoding="utf-8") as file:
        file.write(damage)

    files.append([NewEntry(content="two")])

    assert [each.content for each in files.entries()] == ["one", "two"]


@pytest.mark.parametrize("counter", [None, "", "x", "0", "1"])
def test_a_lost_counter_is_recovered_from_the_file(
    files: MemoryFiles, tmp_path: Path, counter: str | None
) -> None:
    files.append([NewEntry(content="one"), NewEntry(content="two")])
    cursor = tmp_path / "memory/.cursor"
    cursor.unlink() if counter is None else cursor.write_text(counter, "utf-8")

    assert files.append([NewEntry(content="three")])[0].cursor == 3


def test_the_number_of_a_removed_entry_is_not_used_again(files: MemoryFiles) -> None:
    files.append([NewEntry(content="one"), NewEntry(content="two")])

    assert files.remove(2)
    assert not files.remove(2)
    assert files.append([NewEntry(content="three")])[0].cursor == 3


def test_another_memory_has_a_folder_of_its_own(files: MemoryFiles, tmp_path: Path) -> None:
    other = MemoryFiles(tmp_path, OTHER, FakeClock())
    other.append([NewEntry(content="a guest's words")])
    other.write("MEMORY.md", "- a guest\n")

    assert files.entries() == []
    assert files.read("MEMORY.md") == ""
    assert other.read("MEMORY.md") == "- a guest\n"
    with pytest.raises(FileNotFoundError):
        other.read("USER.md")


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_regular_file_is_refused(files: MemoryFiles, tmp_path: Path, kind: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret", "utf-8")
    (tmp_path / "memory").mkdir()
    for name in ("MEMORY.md", "history.jsonl"):
        path = tmp_path / "memory" / name
        if kind == "link":
            path.symlink_to(secret)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()

    with pytest.raises(OSError, match="regular"):
        files.read("MEMORY.md")
    with pytest.raises(OSError, match="regular"):
        files.write("MEMORY.md", "x")
    with pytest.raises(OSError, match="regular"):
        files.append([NewEntry(content="x")])
    assert secret.read_text("utf-8") == "secret"
