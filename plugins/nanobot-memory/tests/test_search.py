from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from nanobot_core.testing import FakeClock, FakePluginContext
from nanobot_memory.files import MemoryFiles
from nanobot_memory.history import NewEntry
from nanobot_memory.search import Index, terms_of

Find = Callable[[str], list[str]]


@pytest.fixture
def context(tmp_path: Path) -> FakePluginContext:
    return FakePluginContext(tmp_path)


@pytest.fixture
def files(context: FakePluginContext) -> MemoryFiles:
    files = MemoryFiles(context.workspace, "", FakeClock())
    files.append(
        [
            NewEntry(content="- The dentist is on 4 May.\n- Anna likes oolong tea."),
            NewEntry(content="- 我们在东京见面。\n- Grüße aus Köln."),
        ]
    )
    files.write("USER.md", "# About the user\n\n- Name: Anna\n- Allergic to peanuts.\n")
    return files


@pytest.fixture
def find(context: FakePluginContext, files: MemoryFiles) -> Find:
    return lambda query: [entry.text for entry in Index(context).search(files, query, 5)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("When is the dentist?", "- The dentist is on 4 May."),
        ("OOLONG", "- Anna likes oolong tea."),
        ("东京", "- 我们在东京见面。"),
        ("koln", "- Grüße aus Köln."),
        ("peanuts allergy", "- Allergic to peanuts."),
    ],
)
def test_the_line_that_fits_comes_first(find: Find, query: str, expected: str) -> None:
    assert find(query)[0] == expected


@pytest.mark.parametrize("query", ["", "  ", '"', "* OR NOT (", "NEAR(", "-", "zzz", "\x00"])
def test_a_query_without_a_match_finds_nothing(find: Find, query: str) -> None:
    assert find(query) == []


def test_words_are_whole_and_unspaced_text_is_in_pairs() -> None:
    assert list(terms_of("Tea東京都2 x")) == ["tea", "東京", "京都", "2", "x"]
    assert list(terms_of("茶")) == ["茶"]


def test_new_and_changed_texts_are_found(find: Find, files: MemoryFiles) -> None:
    assert find("zebra") == []
    files.append([NewEntry(content="- a zebra")])
    files.write("USER.md", "- Rides a zebra.\n")

    assert set(find("zebra")) == {"- a zebra", "- Rides a zebra."}
    assert find("peanuts") == []


def test_a_removed_entry_is_not_found(find: Find, files: MemoryFiles) -> None:
    assert find("dentist")
    files.remove(1)

    assert find("dentist") == []
    assert find("köln")


@pytest.mark.parametrize("damage", [b"", b"not a database" * 100])
def test_a_missing_or_damaged_index_is_built_again(
    context: FakePluginContext, find: Find, damage: bytes
) -> None:
    assert find("dentist")
    (index,) = (context.data_dir / "search").glob("*.sqlite")
    index.write_bytes(damage)

    assert find("dentist")


def test_an_index_of_another_release_is_built_again(context: FakePluginContext, find: Find) -> None:
    assert find("dentist")
    (path,) = (context.data_dir / "search").glob("*.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.execute("DROP TABLE entries")
    connection.commit()
    connection.close()

    assert find("dentist")
