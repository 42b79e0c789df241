"""Text with formatting, independent of a platform, and how to split it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Literal, TypeAlias

from nanobot_core.record import dataclass

SpanKind: TypeAlias = Literal[
    "bold", "italic", "strikethrough", "code", "pre", "link", "quote", "heading"
]
_DIVISIBLE = frozenset({"pre", "quote"})
"""Spans that are split with the text; others are kept whole if they fit."""
_SPACE = re.compile(r"\s")


@dataclass(frozen=True, slots=True)
class Span:
    """A formatted part of a text.

    Attributes:
        kind: its formatting; ``pre`` is a block of code, ``heading`` a line above a section.
        offset: where it begins, in characters.
        length: characters, at least 1.
        url: target of a ``link``.
        language: language of a ``pre``, or an empty string.
    """

    kind: SpanKind
    offset: int
    length: int
    url: str = ""
    language: str = ""

    @property
    def end(self) -> int:
        """The first character after it."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class RichText:
    """A text and its formatting.

    Attributes:
        text: what people read.
        spans: its formatting, by offset, the longer one first. Spans are nested or separate; code
            contains no others, and only a quote contains a ``pre``.
    """

    text: str
    spans: tuple[Span, ...] = ()

    @property
    def plain(self) -> RichText:
        """The same text without formatting."""
        return RichText(self.text)


Measure: TypeAlias = Callable[[RichText], int]
"""Returns the size of a part as it is sent, in the unit of a platform's limit."""


def utf16_length(text: str) -> int:
    """Return the length of `text` in UTF-16 units."""
    return len(text) + sum(1 for character in text if character > "\uffff")


def utf16_size(part: RichText) -> int:
    """Return the UTF-16 units of a part that is sent as text with separate formatting."""
    return utf16_length(part.text)


def split_rich(whole: RichText, limit: int, measure: Measure = utf16_size) -> list[RichText]:
    """Split a text into parts of a size of at most `limit`.

    Parts end after a line feed, otherwise after a space, otherwise between any two characters. Code
    and quotes continue in the next part. The parts contain the whole text, except for parts of only
    white space, which platforms refuse. Formatting that alone exceeds the limit is left out.

    Args:
        limit: of one part, at least the size of any single character.
        measure: returns the size of a part, at least its number of characters.
    """
    parts, begin, spans = [], 0, list(whole.spans)
    while begin < len(whole.text):
        spans = [span for span in spans if span.end > begin]
        part = _first_part(whole.text, spans, begin, limit, measure)
        if part.text.strip():
            parts.append(part)
        begin += len(part.text)
    return parts


def _first_part(text: str, spans: list[Span], begin: int, limit: int, measure: Measure) -> RichText:
    """Return the part that begins at `begin`."""
    for formatting in (spans, []):
        end = _longest(text, formatting, begin, limit, measure)
        if end > begin:
            cut = end if end == len(text) else _cut(text, formatting, begin, end)
            return _part(text, formatting, begin, cut)
    return RichText(text[begin : begin + 1])


def _longest(text: str, spans: list[Span], begin: int, limit: int, measure: Measure) -> int:
    """Return the end of the longest part that fits; `begin` if none does."""
    fits, too_long = begin, min(begin + limit, len(text)) + 1
    end = too_long - 1
    while fits < end < too_long:
        if measure(_part(text, spans, begin, end)) <= limit:
            fits = end
        else:
            too_long = end
        end = (fits + too_long) // 2
    return fits


def _cut(text: str, spans: list[Span], begin: int, end: int) -> int:
    """Return where to cut a part that may reach to `end`."""
    # After a line feed in the first half, the part would be short; a space is better.
    middle = begin + (end - begin) // 2
    cut = text.rfind("\n", middle, end) + 1 or _after_space(text, middle, end) or end
    for span in spans:
        is_whole = span.kind in _DIVISIBLE or not span.offset < cut < span.end
        if not is_whole and span.offset > middle:
            return span.offset
    return cut


def _part(text: str, spans: Iterable[Span], begin: int, end: int) -> RichText:
    return RichText(text[begin:end], tuple(_clipped(spans, begin, end)))


def _after_space(text: str, begin: int, end: int) -> int:
    for index in range(end, begin, -1):
        if _SPACE.match(text[index - 1]):
            return index
    return 0


def _clipped(spans: Iterable[Span], begin: int, end: int) -> Iterator[Span]:
    for span in spans:
        first, last = max(span.offset, begin), min(span.end, end)
        if first < last:
            yield replace(span, offset=first - begin, length=last - first)
