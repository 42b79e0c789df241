"""The small language of the offline provider.

::

    message  =  call { joint call } [ "please" ] [ "." | "!" ]
    call     =  { verb } tool [ JSON object ]
    joint    =  [ "," ] ( "then" | "and then" | "and" )

``then`` begins a new iteration; ``and`` adds to the calls of the same response. Only tools that are
offered count, and the whole message must be of this form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from nanobot_core import JsonObject

_VERBS = frozenset({"call", "invoke", "please", "run", "the", "tool", "try", "use"})
_WORD = re.compile(r"[a-zA-Z0-9_-]+")
_SPACE = re.compile(r"\s*")
_JOINT = re.compile(r",?\s*(?P<word>and\s+then|then|and)\b", re.IGNORECASE)
_END = re.compile(r"(?:,?\s*please)?\s*[.!]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A tool call that the user wrote."""

    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class Plan:
    """The calls of a message: one tuple for each response."""

    steps: tuple[tuple[PlannedCall, ...], ...]


@dataclass(frozen=True, slots=True)
class Misread:
    """A message that looks like a call and is not valid; `reason` is a sentence for the user."""

    reason: str


Reading: TypeAlias = Plan | Misread | None


class _MisreadError(ValueError):
    """Carries the reason of a `Misread` out of the parser."""


def parse_message(text: str, tools: Container[str]) -> Reading:
    """Read what the user wrote.

    Args:
        tools: names of the tools that are offered.

    Returns:
        The plan; what is wrong, when a name is followed by an object and one of the two is
        unusable; ``None`` where the text is something else.
    """
    try:
        return _parse(text, tools)
    except _MisreadError as error:
        return Misread(str(error))


def _parse(text: str, tools: Container[str]) -> Plan | None:
    steps: list[list[PlannedCall]] = [[]]
    position = 0
    while True:
        found = _parse_call(text, position, tools)
        if found is None:
            return None
        call, position = found
        steps[-1].append(call)
        position = _after_space(text, position)
        joint = _JOINT.match(text, position)
        if joint is None:
            break
        position = joint.end()
        if joint["word"].lower() != "and":
            steps.append([])
    if _END.fullmatch(text[position:].rstrip()) is None:
        return None
    return Plan(tuple(tuple(step) for step in steps))


def _parse_call(text: str, position: int, tools: Container[str]) -> tuple[PlannedCall, int] | None:
    while True:
        word = _WORD.match(text, _after_space(text, position))
        if word is None:
            return None
        position = word.end()
        start = _after_space(text, position)
        # Before another word a verb is a verb, even where a tool has its name.
        if word[0].lower() not in _VERBS or not _WORD.match(text, start):
            break
    has_object = text.startswith("{", start)
    if word[0] not in tools:
        if has_object:
            msg = f"There is no tool '{word[0]}' here; `help` lists the tools."
            raise _MisreadError(msg)
        return None
    if not has_object:
        return PlannedCall(word[0], {}), position
    arguments, end = _parse_object(text, start, word[0])
    return PlannedCall(word[0], arguments), end


def _parse_object(text: str, start: int, tool: str) -> tuple[JsonObject, int]:
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError as error:
        msg = f"The arguments of '{tool}' are nested too deeply."
        raise _MisreadError(msg) from error
    except ValueError as error:
        msg = f"The arguments of '{tool}' are not a JSON object: {error}."
        raise _MisreadError(msg) from error
    return value, end


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is not a JSON value"
    raise ValueError(msg)


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _after_space(text: str, position: int) -> int:
    space = _SPACE.match(text, position)
    return space.end() if space else position
