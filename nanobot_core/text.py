"""Text in linear time: truncation, near spellings, JSON from models, thoughts set apart."""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_OPENING = re.compile("<think>|<thinking>")
_CLOSING = {
    "<think>": re.compile("</think>"),
    "<thinking>": re.compile("</thinking>"),
}
_TAGS = tuple(tag for start, end in _CLOSING.items() for tag in (start, end.pattern))
_MAX_TAG_CHARS = max(len(tag) for tag in _TAGS)
_REPAIR_LIMIT_CHARS = 100_000
"""json-repair takes quadratic time on cut-off strings; longer text is not repaired."""


def truncate_middle(text: str, max_chars: int) -> str:
    """Return `text` cut to about `max_chars`, head and tail kept, the gap told in between.

    Args:
        text: any text.
        max_chars: characters of the original to keep, at least 2.
    """
    if len(text) <= max_chars:
        return text
    head = (max_chars + 1) // 2
    tail = max_chars - head
    gone = len(text) - head - tail
    return f"{text[:head]}\n… [{gone:,} characters left out] …\n{text[len(text) - tail :]}"


def shorten(text: str, max_chars: int) -> str:
    """Return `text` on one line, cut at `max_chars` with an ellipsis."""
    # No more words than could be shown are looked for in a text of any length.
    line = " ".join(text.split(None, max_chars + 1)[: max_chars + 1])
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def nearest(word: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Return the names of `known` that are spelt most like `word`, best first."""
    return difflib.get_close_matches(word, list(known), n=limit, cutoff=0.6)


def parse_json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in `text`, or ``None`` where it is something else."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_constant(name: str) -> None:
    """NaN and the infinities are no JSON; services refuse requests that hold them."""
    msg = f"{name} is no JSON value"
    raise ValueError(msg)


def repair_json_object(text: str) -> dict[str, Any] | None:
    """Return the object that `text` was meant to be, or ``None`` where that cannot be told.

    Strict JSON is taken as it is; the rest goes through json-repair, whose answer counts only when
    it is an object. Text that json-repair would need seconds for is not tried.
    """
    parsed = parse_json_object(text)
    if (
        parsed is not None
        or not text.strip().startswith(("{", "```"))
        or len(text) > _REPAIR_LIMIT_CHARS
    ):
        return parsed
    from json_repair import repair_json

    try:
        repaired = repair_json(text, return_objects=True)
    except (ValueError, RecursionError):
        return None
    return repaired if isinstance(repaired, dict) else None


class ThoughtFilter:
    """Separates ``<think>`` passages from an answer that arrives in pieces.

    Feed it deltas of any size; a tag may be split anywhere. A passage that is never closed is
    thought to its end. Each character is looked at a bounded number of times.
    """

    def __init__(self) -> None:
        self._pending = ""
        self._closing: re.Pattern[str] | None = None

    def feed(self, delta: str) -> tuple[str, str]:
        """Return what of the text so far has become certain as (visible, thought)."""
        visible: list[str] = []
        thought: list[str] = []
        text = self._pending + delta
        start = 0
        while True:
            certain = thought if self._closing else visible
            found = (self._closing or _OPENING).search(text, start)
            if found is None:
                break
            certain.append(text[start : found.start()])
            start = found.end()
            self._closing = None if self._closing else _CLOSING[found[0]]
        end = len(text) - _partial_tag_length(text[max(start, len(text) - _MAX_TAG_CHARS) :])
        certain.append(text[start:end])
        self._pending = text[end:]
        return "".join(visible), "".join(thought)

    def finish(self) -> tuple[str, str]:
        """Return the rest as (visible, thought) when no more text comes."""
        rest, self._pending = self._pending, ""
        return ("", rest) if self._closing else (rest, "")


def split_thoughts(text: str) -> tuple[str, str]:
    """Return (answer, thoughts) of a complete text, white space at the joints trimmed."""
    thoughts = ThoughtFilter()
    visible, thought = thoughts.feed(text)
    last_visible, last_thought = thoughts.finish()
    thought += last_thought
    visible += last_visible
    return (visible.strip() if thought else visible), thought.strip()


def _partial_tag_length(text: str) -> int:
    """Length of the end of `text` that may be the beginning of a tag."""
    position = text.rfind("<")
    end = text[position:] if position >= 0 else ""
    return len(end) if end and any(tag.startswith(end) for tag in _TAGS) else 0
