r"""Distinguishes markup from characters that belong to names in a text.

CommonMark reads ``__init__.py`` as bold text, and the backslash in ``C:\_temp`` as an escape. In an
answer both are names, and a reader cannot guess the characters that they lose.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from markdown_it.rules_inline import StateInline

Rule = Callable[[StateInline, bool], bool]

_CHUNK = re.compile(r'[^\s`\[\]<>"\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]+')
"""Ends at brackets, and at letters of scripts without spaces between words."""
_NAME = re.compile(
    r"/|\\[A-Za-z0-9]|^\\\\|(?:^|\W)(?:[A-Za-z]:|\.{1,2})\\|%\\|[\w*]\.\w|\w@\w|\w::\w"
)
"""Parts that identify an address, path, file, host, regular expression or qualified name."""
_DUNDER = re.compile(r"__[a-z0-9]+(?:_[a-z0-9]+)*__")
_ALTERNATIVES = re.compile(r"\*\*[^*/\\]+\*\*(?:/(?:\*\*[^*/\\]+\*\*|[\w-]+))+")
"""Such as ``**yes**/**no**``."""
_OPENING, _CLOSING = "({'“‘", ")}'”’.,;:!?…"  # noqa: RUF001 - the quotes of people
_SEPARATORS = "/\\"
_NEVER_FIRST = frozenset("),;:!?]}|>")
_NEVER_LAST = frozenset("([{|<")
_NOT_BEFORE = {"_": frozenset(".=/\\:$#@&%^+-"), "*": frozenset("./\\=$#@&%^+")}
_NOT_BEHIND = frozenset(".:=@(/\\[")


@dataclass(frozen=True, slots=True)
class _Place:
    """A name from `begin` to `end`, in a word from `first` to `last` whose rest may be markup."""

    first: int
    begin: int
    end: int
    last: int


def sparing_names(rule: Rule) -> Rule:
    """Return a rule for inline markup that does not change names."""

    def spare(state: StateInline, silent: bool) -> bool:
        start, known = state.pos, len(state.delimiters)
        place = _place_at(state, start)
        if (place and place.begin <= start < place.end) or not rule(state, silent):
            return False
        if added := state.delimiters[known:]:
            opens, closes = _flanks(state.src, start, state.pos)
            for delimiter in added:
                # A delimiter before a name closes nothing, and one after it opens nothing.
                delimiter.open = delimiter.open and opens and not (place and start >= place.end)
                delimiter.close = delimiter.close and closes and not (place and start < place.begin)
        return True

    return spare


def _place_at(state: StateInline, position: int) -> _Place | None:
    known: dict[str, list[_Place]] = state.env.setdefault("names", {})
    places = known.get(state.src)
    if places is None:
        places = known[state.src] = list(_places(state.src))
    index = bisect_right(places, position, key=lambda place: place.first)
    return places[index - 1] if index and position < places[index - 1].last else None


def _places(text: str) -> Iterator[_Place]:
    """Yield the positions of names, in order."""
    for found in _CHUNK.finditer(text):
        chunk, first, last = found[0], found.start(), found.end()
        if _NAME.search(chunk) and not _ALTERNATIVES.fullmatch(chunk.rstrip(_CLOSING)):
            begin, end = _without_wrapping(chunk)
            yield _Place(first, first + begin, first + end, last)
        else:
            for one in _DUNDER.finditer(chunk):
                begin, end = first + one.start(), first + one.end()
                yield _Place(begin, begin, end, end)


def _without_wrapping(chunk: str) -> tuple[int, int]:
    """Return where a name begins and ends in `chunk`, without markup around it."""
    inner = chunk.lstrip(_OPENING)
    begin = len(chunk) - len(inner)
    inner = inner.rstrip(_CLOSING)
    core = inner.lstrip("*~")
    core = core[1:] if core.startswith("_") and not core.startswith("__") else core
    left = inner[: len(inner) - len(core)]
    bare = core.rstrip("*~")
    bare = bare[:-1] if bare.endswith("_") and not bare.endswith("__") else bare
    right = core[len(bare) :]
    if bare and _is_wrapping(left, bare, right):
        return begin + len(left), begin + len(left) + len(bare)
    return 0, len(chunk)


def _is_wrapping(left: str, name: str, right: str) -> bool:
    """Whether the characters on both sides of a name are markup, and not part of it."""
    if left and right and left != right[::-1]:
        return False
    if any(_stands_alone(mark, name) for mark in {*left, *right}):
        return False
    if right and name[-1] in _SEPARATORS and not (left and "://" in name):
        return False
    # A bold path of the root is a path; other marks before a separator or a dot are patterns.
    is_pattern = name[0] in _SEPARATORS or name[0] == "."
    return not (left and is_pattern and (left == "*" or not right))


def _stands_alone(mark: str, name: str) -> bool:
    """Whether `name` contains `mark` outside of a word."""
    for found in re.finditer(f"{re.escape(mark)}+", name):
        around = name[: found.start()][-1:], name[found.end() :][:1]
        if not all(side.isalnum() for side in around):
            return True
    return False


def _flanks(text: str, start: int, end: int) -> tuple[bool, bool]:
    """Return whether a run of marks may open formatting, and whether it may close it.

    CommonMark also formats ``a*b*c``, ``f(*), g(*)`` and ``x=_y_``, which authors do not intend.
    """
    mark, is_strong = text[start], end - start > 1
    before, behind = text[start - 1 : start] or " ", text[end : end + 1] or " "
    word = max(text.rfind(" ", 0, start), text.rfind("\n", 0, start)) + 1
    in_words = is_strong and mark != "_" and text[word:start].lstrip(_OPENING).startswith(mark)
    opens = behind not in _NEVER_FIRST and (in_words or not _is_letter(before))
    closes = before not in _NEVER_LAST and (in_words or not _is_letter(behind))
    if not is_strong or mark == "_":
        opens = opens and before not in _NOT_BEFORE.get(mark, ())
    if mark == "_":
        closes = closes and not (behind in _NOT_BEHIND and text[end + 1 : end + 2].isalnum())
    return opens, closes


def _is_letter(character: str) -> bool:
    """Whether this is a letter of a script with spaces between words."""
    return character.isalnum() and unicodedata.east_asian_width(character) not in "WF"
