"""Long texts in pieces."""

from __future__ import annotations

_BREAKS = ("\n\n", "\n", " ")


def split_text(text: str, limit: int) -> list[str]:
    """Return `text` in pieces of at most `limit` characters.

    A piece ends at a paragraph, else at a line, else at a word, where one ends in its second half.
    Joined, the pieces are the text: nothing is taken out, not even at the ends.

    Args:
        text: may be empty, which gives one empty piece.
        limit: one or more.
    """
    pieces = []
    while len(text) > limit:
        end = _end(text, limit)
        pieces.append(text[:end])
        text = text[end:]
    return [*pieces, text]


def _end(text: str, limit: int) -> int:
    for mark in _BREAKS:
        at = text.rfind(mark, limit // 2, limit)
        if at > 0:
            return at + len(mark)
    return limit
