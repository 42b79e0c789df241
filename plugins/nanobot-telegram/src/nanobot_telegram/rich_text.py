"""Text with formatting, as Telegram accepts it, and how to split it.

Offsets count UTF-16 units, as in the Bot API (``MessageEntity``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

EntityKind: TypeAlias = Literal[
    "bold", "italic", "strikethrough", "code", "pre", "text_link", "blockquote"
]
_DIVISIBLE = frozenset({"pre", "blockquote"})
"""Spans that are split with the text; others are kept whole if they fit."""
_SPACE = re.compile(r"\s")


@dataclass(frozen=True, slots=True)
class Span:
    """A formatted part of a text.

    Attributes:
        offset: where it begins, in UTF-16 units.
        length: UTF-16 units, at least 1.
        url: target of a ``text_link``.
        language: language of a ``pre``, or an empty string.
    """

    kind: EntityKind
    offset: int
    length: int
    url: str = ""
    language: str = ""

    @property
    def end(self) -> int:
        """The first unit after it."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class RichText:
    """A text and its formatting."""

    text: str
    spans: tuple[Span, ...] = ()

    @property
    def plain(self) -> RichText:
        """The same text without formatting."""
        return RichText(self.text)


def utf16_length(text: str) -> int:
    """Return the length of `text` in UTF-16 units."""
    return len(text) + sum(1 for character in text if character > "\uffff")


def split_rich(whole: RichText, limit: int) -> list[RichText]:
    """Split a text into parts of at most `limit` UTF-16 units.

    Parts end after a line feed, otherwise after a space, otherwise between any two characters. Code
    and quotes continue in the next part. The parts contain the whole text, except for parts of only
    white space, which Telegram refuses.

    Args:
        limit: UTF-16 units of one part, at least 2.
    """
    starts = _unit_offsets(whole.text)
    parts = []
    begin = 0
    while begin < len(whole.text):
        end = _next_cut(whole, starts, begin, limit)
        text = whole.text[begin:end]
        if text.strip():
            parts.append(RichText(text, tuple(_clipped(whole.spans, starts[begin], starts[end]))))
        begin = end
    return parts


def _unit_offsets(text: str) -> list[int]:
    """Return the UTF-16 offset of each character, followed by the length."""
    offsets = [0]
    for character in text:
        offsets.append(offsets[-1] + (2 if character > "\uffff" else 1))
    return offsets


def _next_cut(whole: RichText, starts: list[int], begin: int, limit: int) -> int:
    budget = starts[begin] + limit
    if starts[-1] <= budget:
        return len(whole.text)
    # Every character has at least one unit.
    end = begin + limit
    while starts[min(end, len(whole.text))] > budget:
        end -= 1
    # After a line feed in the first half, the part would be short; a space is better.
    middle = begin + (end - begin) // 2
    cut = whole.text.rfind("\n", middle, end) + 1 or _after_space(whole.text, middle, end) or end
    for span in whole.spans:
        if span.kind not in _DIVISIBLE and span.offset < starts[cut] < span.end:
            first = _index_of(starts, span.offset, begin, cut)
            if first > middle:
                return first
    return cut


def _after_space(text: str, begin: int, end: int) -> int:
    for index in range(end, begin, -1):
        if _SPACE.match(text[index - 1]):
            return index
    return 0


def _index_of(starts: list[int], offset: int, begin: int, end: int) -> int:
    return next(index for index in range(begin, end + 1) if starts[index] >= offset)


def _clipped(spans: tuple[Span, ...], begin: int, end: int) -> Iterator[Span]:
    for span in spans:
        first, last = max(span.offset, begin), min(span.end, end)
        if first < last:
            yield replace(span, offset=first - begin, length=last - first)
