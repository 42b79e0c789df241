"""Text in linear time: repair, truncation, near spellings, JSON from models."""

from __future__ import annotations

import difflib
import json
import math
import re
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable

_REPAIR_LIMIT_CHARS = 100_000
MAX_JSON_DEPTH = 100
"""Levels of arguments; deeper ones end in a `RecursionError` wherever they are written as JSON."""
_MAX_PARSED_DEPTH = 3 * MAX_JSON_DEPTH
"""Arguments are nested in calls and messages; Python can write almost a thousand levels."""
_SEQUENCES = (list, tuple)
_REPAIRABLE = (str, dict, *_SEQUENCES)
_BRACKETS = re.compile(r"[\[\]{}]")


class Repaired:
    """Base of dataclasses whose texts hold whole characters only, however they were made.

    Half a surrogate pair cannot be encoded: one in a message would make each later request of its
    session fail. Platforms, models, file names and standard input all give such halves.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __post_init__(self) -> None:
        """Repair each field; a field without errors stays the same object."""
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            # Most fields need no more than this check, and a turn makes dozens of messages.
            if isinstance(value, _REPAIRABLE) and value:
                repaired = repair_texts(value)
                if repaired is not value:
                    object.__setattr__(self, name, repaired)


class PairJoiner:
    """Repairs a text that arrives in pieces: the first half of a pair waits for the second."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, piece: str) -> str:
        """Return the part of the text that is certain and was not returned before."""
        text = self._half + piece
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return repair_text(text[: len(text) - len(self._half)])

    def finish(self) -> str:
        """Return the rest when no more text comes."""
        rest, self._half = repair_text(self._half), ""
        return rest


def repair_text(text: str) -> str:
    """Return `text` in whole characters; the same object if it has no others.

    Adjacent halves of a surrogate pair are joined; any other half becomes U+FFFD.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def repair_texts(value: object) -> object:
    """Return `value`, a text or plain data, with each text in it repaired.

    Data without errors is returned as the same object. Data that needs repair but is nested too
    deeply is returned empty.
    """
    if isinstance(value, str):
        return repair_text(value)
    for item in _items_in(value):
        if isinstance(item, str) and repair_text(item) is not item:
            break
    else:
        return value
    try:
        return _rebuilt(value)
    except RecursionError:
        return type(value)()


def _rebuilt(value: object) -> object:
    if isinstance(value, dict):
        return {_rebuilt(key): _rebuilt(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rebuilt(item) for item in value]
    if isinstance(value, tuple):
        return tuple(_rebuilt(item) for item in value)
    return repair_text(value) if isinstance(value, str) else value


def count_chars(value: object) -> int:
    """Return the characters of all texts in plain data, and one for each other value."""
    return sum(len(item) if isinstance(item, str) else 1 for item in _items_in(value))


def is_deeper(value: object, levels: int) -> bool:
    """Return whether plain data is nested in more than `levels` lists and objects."""
    layer = [value]
    for _ in range(levels):
        inner: list[object] = []
        for item in layer:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, _SEQUENCES):
                inner += item
        if not inner:
            return False
        layer = inner
    return any(isinstance(item, dict | list) for item in layer)


def _items_in(value: object) -> list[object]:
    """Return each value in plain data, however deep it is nested."""
    found = [value]
    for item in found:  # which grows meanwhile
        if isinstance(item, dict):
            found += item
            found += item.values()
        elif isinstance(item, _SEQUENCES):
            found += item
    return found


def truncate_middle(text: str, max_chars: int) -> str:
    """Return `text` cut to about `max_chars`, with head and tail, and a note about the gap.

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


_MARKUP = str.maketrans({"`": "'", "[": "(", "]": ")", **dict.fromkeys("*|~<>")})


def as_label(text: str, max_chars: int) -> str:
    """Return `text` as a label in what people read: one line that cannot look like anything else.

    Invisible and bidirectional control characters and Markdown for emphasis, code and links are
    left out.
    """
    line = shorten(text.translate(_MARKUP), max_chars)
    return "".join(filter(str.isprintable, line))


def nearest(word: str, known: Iterable[str], limit: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return the names of `known` that are spelt most like `word`, best first.

    Args:
        word: the misspelt name.
        known: the valid names.
        limit: number of names to return.
        cutoff: least similarity, from 0 to 1.
    """
    return difflib.get_close_matches(word, list(known), n=limit, cutoff=cutoff)


def parse_json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in `text`, or ``None`` where it is something else.

    An object that is nested too deeply to be written again without a `RecursionError` counts as
    something else.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    is_usable = isinstance(value, dict) and not is_deeper(value, _MAX_PARSED_DEPTH)
    return value if is_usable else None


def _refuse_constant(name: str) -> None:
    """Refuse NaN and the infinities, which are not JSON: services refuse such requests."""
    msg = f"{name} is not a JSON value"
    raise ValueError(msg)


def _finite(digits: str) -> float:
    """Return a number; refuse ``1e999``, which is JSON but infinite in Python."""
    number = float(digits)
    if not math.isfinite(number):
        _refuse_constant(digits)
    return number


def is_finite(value: object) -> bool:
    """Return whether plain data holds neither NaN nor an infinity, so that it can be JSON."""
    return all(math.isfinite(item) for item in _items_in(value) if isinstance(item, float))


def repair_json_object(
    text: str, *, max_repair_chars: int = _REPAIR_LIMIT_CHARS
) -> dict[str, Any] | None:
    """Return the object that `text` was meant to be, or ``None`` if that is uncertain.

    Strict JSON is accepted unchanged; json-repair repairs the rest, if the result is an object of
    at most `MAX_JSON_DEPTH` levels.

    Args:
        text: as the model wrote it.
        max_repair_chars: longer text must be strict JSON; json-repair takes a second for some
            hundred thousand characters.
    """
    parsed = parse_json_object(text)
    if parsed is None and len(text) <= max_repair_chars and _is_repairable(text):
        from json_repair import repair_json

        try:
            repaired = repair_json(text, return_objects=True)
        except (ValueError, RecursionError):
            return None
        parsed = repaired if isinstance(repaired, dict) and is_finite(repaired) else None
    return None if is_deeper(parsed, MAX_JSON_DEPTH) else parsed


def _is_repairable(text: str) -> bool:
    if not text.strip().startswith(("{", "```")):
        return False
    levels = 0
    for bracket in _BRACKETS.finditer(text):
        levels += 1 if bracket[0] in "[{" else -1
        if levels > MAX_JSON_DEPTH:
            return False
    return True
