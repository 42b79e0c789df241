"""Where growing Markdown may be cut: what is printed once must not change any more."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from nanobot_core.cli import render
from nanobot_core.cli.render import Passages

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
    passages = Passages()

    assert passages.feed(text) == whole
    assert passages.take_rest() == text[len(whole) :]
    assert passages.rest == ""


@given(st.lists(LINES).map("".join), st.lists(st.integers(0, 60), max_size=8))
def test_passages_are_the_same_however_the_text_is_split(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    passages, whole = Passages(), Passages()

    pieces = [passages.feed(text[start:end]) for start, end in pairwise(edges)]

    assert "".join(pieces) == whole.feed(text)
    assert passages.rest == whole.rest
    assert "".join(pieces) + passages.rest == text


def test_each_line_of_a_long_passage_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a terminal that hangs on long code."""
    looked_at: list[int] = []
    fence = render._FENCE

    class Fence:
        def match(self, line: str) -> re.Match[str] | None:
            looked_at.append(len(line))
            return fence.match(line)

    monkeypatch.setattr(render, "_FENCE", Fence())
    passages = Passages()
    passages.feed("```\n")
    for _ in range(1_000):
        passages.feed("a line of code\n")

    assert sum(looked_at) == len(passages.rest)
