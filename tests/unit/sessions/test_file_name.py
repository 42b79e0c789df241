from __future__ import annotations

import string
from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given, strategies as st

from nanobot_core.sessions.folder import file_name, original_file_names, original_key

SAFE = set(string.ascii_letters + string.digits + "._-")


@pytest.mark.parametrize(
    ("key", "start"),
    [
        ("cli:direct", "cli-"),
        ("telegram:-100123", "telegram-"),
        ("..", "session-"),
        (":1", "session-"),
    ],
)
def test_a_file_name_begins_with_the_channel_and_does_not_say_who_writes(
    key: str, start: str
) -> None:
    name = file_name(key)
    assert name.startswith(start)
    assert "direct" not in name
    assert "100123" not in name


@given(st.text() | st.text(st.characters(categories=["Cs"])))
def test_a_file_name_is_one_short_plain_name(key: str) -> None:
    name = file_name(key)
    assert set(name) <= SAFE
    assert len(name) <= 120
    assert PurePosixPath(name).name == PureWindowsPath(name).name == name
    assert not name.startswith(".")
    assert file_name(key) == name


@given(st.text(max_size=8), st.text(max_size=8))
def test_different_keys_have_files_that_differ_by_more_than_case(one: str, other: str) -> None:
    assert (file_name(one).lower() == file_name(other).lower()) == (one == other)


@pytest.mark.parametrize("key", ["telegram:12345", "cli:direct", "discord:1_2"])
def test_a_key_is_read_out_of_the_name_that_the_original_gave(key: str) -> None:
    assert original_key(original_file_names(key)[0].removesuffix(".jsonl")) == key
    assert "/" not in "".join(original_file_names("../a/b:\\c"))
