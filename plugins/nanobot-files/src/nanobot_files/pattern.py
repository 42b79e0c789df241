"""Path patterns with ``*``, ``?``, ``[...]``, ``**`` and ``{a,b}``, matched without blow-up."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence

from nanobot_core import ToolInputError

_MAX_CHARS = 1_000
_MAX_ALTERNATIVES = 200
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_ANY_DEPTH = "**"


class PathPattern:
    """A pattern for paths below a folder.

    Without ``/`` it is matched against a file's name at any depth; with one, against the whole
    relative path, where ``**`` matches any number of folders.

    Raises:
        ToolInputError: the pattern is empty, too long, or leaves the folder.
    """

    def __init__(self, text: str) -> None:
        if not text.strip("/") or len(text) > _MAX_CHARS:
            raise ToolInputError(f"a pattern has 1 to {_MAX_CHARS} characters, such as '**/*.py'")
        self._alternatives = [_compile(each) for each in _expand(text)]

    def matches(self, names: Sequence[str]) -> bool:
        """Whether the path with these names fits; `names` are relative to the folder."""
        return any(_fits(parts, names) for parts in self._alternatives)


def _expand(text: str) -> list[str]:
    done: list[str] = []
    waiting = [text]
    while waiting:
        if len(done) + len(waiting) > _MAX_ALTERNATIVES:
            raise ToolInputError("the pattern has too many {a,b} alternatives; use fewer")
        each = waiting.pop()
        if found := _BRACES.search(each):
            head, tail = each[: found.start()], each[found.end() :]
            waiting += [head + option + tail for option in found[1].split(",")]
        else:
            done.append(each)
    return done


def _compile(text: str) -> list[re.Pattern[str] | None]:
    """Return a matcher for each name, ``None`` for any number of folders."""
    names = [name for name in text.split("/") if name not in {"", "."}]
    if ".." in names:
        raise ToolInputError("a pattern cannot contain '..'; give the folder as path")
    if not names:
        raise ToolInputError("a pattern names a file, such as '**/*.py'; give the folder as path")
    if "/" not in text:
        names.insert(0, _ANY_DEPTH)
    if names[-1] == _ANY_DEPTH:
        names.append("*")
    return list(_matchers(names))


def _matchers(names: list[str]) -> Iterator[re.Pattern[str] | None]:
    for index, name in enumerate(names):
        if name != _ANY_DEPTH:
            # fnmatch makes patterns that do not backtrack over more than one star.
            yield re.compile(fnmatch.translate(name))
        elif index == 0 or names[index - 1] != _ANY_DEPTH:
            yield None


def _fits(parts: Sequence[re.Pattern[str] | None], names: Sequence[str]) -> bool:
    part = name = 0
    any_depth: tuple[int, int] | None = None
    while name < len(names):
        if part < len(parts) and (matcher := parts[part]) is None:
            any_depth = part, name
            part += 1
        elif part < len(parts) and matcher is not None and matcher.match(names[name]):
            part += 1
            name += 1
        elif any_depth is not None:
            # Let the last ** match one more name; earlier ones do not have to be tried again.
            part, name = any_depth[0] + 1, any_depth[1] + 1
            any_depth = any_depth[0], name
        else:
            return False
    return part == len(parts)
