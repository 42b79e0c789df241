"""Finds the passage that a model means, even if it did not copy every character."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from typing import NamedTuple

SINGLE_QUOTES = "'\u2018\u2019\u201a\u201b\u2032"
DOUBLE_QUOTES = '"\u201c\u201d\u201e\u201f\u2033'
PLAIN_QUOTES = {
    **dict.fromkeys(map(ord, SINGLE_QUOTES), "'"),
    **dict.fromkeys(map(ord, DOUBLE_QUOTES), '"'),
}
"""For ``str.translate``: typographic marks to those on the keyboard."""


_QUOTES = {mark: f"[{marks}]" for marks in (SINGLE_QUOTES, DOUBLE_QUOTES) for mark in marks}
_BLANKS = r"[^\S\r\n]*"
_LINE_END = rf"{_BLANKS}\r?\n"
_MAX_COMPARED_LINES = 5_000
_LIKENESS = 0.6


class Span(NamedTuple):
    """The place of a passage: ``text[start:end]``."""

    start: int
    end: int


def find_spans(text: str, wanted: str) -> list[Span]:
    """Return the places of `wanted` in `text`, without overlaps.

    Exact matches count; if there are none, those that differ in line endings, in white
    space at the ends of lines or in typographic quotes.

    Args:
        wanted: the passage, not empty.
    """
    exact = [Span(found.start(), found.end()) for found in re.finditer(re.escape(wanted), text)]
    if exact or not wanted.strip():
        return exact
    return [Span(found.start(), found.end()) for found in _forgiving(wanted).finditer(text)]


def line_number(text: str, position: int) -> int:
    """Return the number of the line, from 1, of `position`."""
    return text.count("\n", 0, position) + 1


def describe_nearest(text: str, wanted: str) -> str:
    """Return how the most similar passage of `text` differs from `wanted`; can be empty."""
    lines = text.splitlines()
    asked = wanted.splitlines()
    start = _nearest_start(lines, asked)
    if start is None:
        return ""
    found = lines[start : start + len(asked)]
    diff = difflib.unified_diff(asked, found, "old_text", "file", n=1, lineterm="")
    shown = "\n".join(line[:300] for line in list(diff)[2:60])
    return f"The most similar passage begins at line {start + 1}:\n{shown}"


def _forgiving(wanted: str) -> re.Pattern[str]:
    lines = wanted.replace("\r\n", "\n").split("\n")
    parts = ["".join(_QUOTES.get(c) or re.escape(c) for c in line.rstrip()) for line in lines]
    # A pattern that begins with white space would be tried again at each character of a long run.
    pattern = _LINE_END.join(parts).removeprefix(_BLANKS)
    if lines[-1] != lines[-1].rstrip():
        # White space was meant to follow, so the line must end here.
        pattern += rf"{_BLANKS}(?=\r?\n|\Z)"
    return re.compile(pattern)


def _nearest_start(lines: list[str], asked: list[str]) -> int | None:
    """Return the index where most of `asked` matches, else that of the most similar single line."""
    places: dict[str, list[int]] = {}
    for index, line in enumerate(asked):
        if key := " ".join(line.split()):
            places.setdefault(key, []).append(index)
    votes: Counter[int] = Counter()
    for index, line in enumerate(lines):
        for place in places.get(" ".join(line.split()), ())[:10]:
            votes[index - place] += 1
    if votes:
        return max(votes.most_common(1)[0][0], 0)
    return _likest_line(lines, asked)


def _likest_line(lines: list[str], asked: list[str]) -> int | None:
    longest = max(range(len(asked)), key=lambda index: len(asked[index].strip()), default=None)
    if longest is None:
        return None
    matcher = difflib.SequenceMatcher(None, b=asked[longest].strip()[:300], autojunk=False)
    best, best_ratio = None, _LIKENESS
    for index, line in enumerate(lines[:_MAX_COMPARED_LINES]):
        matcher.set_seq1(line.strip()[:300])
        if matcher.real_quick_ratio() > best_ratio and matcher.quick_ratio() > best_ratio:
            ratio = matcher.ratio()
            if ratio > best_ratio:
                best, best_ratio = max(index - longest, 0), ratio
    return best
