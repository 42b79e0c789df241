"""Where growing Markdown may be cut: what is printed once must not change any more."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from nanobot_core.cli.render import whole_passages

LINES = st.sampled_from(["text\n", "\n", "```\n", "````\n", "~~~\n", "  \n", "- item\n", "open"])


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("one\n\ntwo", "one\n\n"),
        ("one\ntwo", ""),
        ("```\na\n\nb\n", ""),
        ("```\na\n\n```\n\nrest", "```\na\n\n```\n\n"),
        ("````\n```\n\n````\n\n", "````\n```\n\n````\n\n"),
        ("~~~\n```\n\n~~~\n", ""),
    ],
)
def test_passages_end_at_blank_lines_outside_of_code(text: str, whole: str) -> None:
    assert text[: whole_passages(text)] == whole


@given(st.lists(LINES).map("".join), st.lists(LINES).map("".join))
def test_more_text_never_takes_back_what_was_whole(text: str, more: str) -> None:
    first = whole_passages(text)

    assert whole_passages(text + more) >= first
    assert whole_passages(text[first:]) == 0
