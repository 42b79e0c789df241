"""Reads the words after ``/cron``, as people type them and as the terminal passes them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nanobot_core import shorten
from nanobot_cron.request import near, read_duration_s

if TYPE_CHECKING:
    from nanobot_core import JsonObject

VERBS = ("list", "add", "remove", "enable", "disable", "run", "history")
_FIELDS = {
    "--at": "at",
    "--cron": "cron_expr",
    "--deliver": "deliver",
    "--every": "every_seconds",
    "--missed": "missed",
    "--name": "name",
    "--on": "on",
    "--option": "options",
    "--session": "session",
    "--to": "to",
    "--tz": "tz",
}
OPTIONS: Mapping[str, str] = {name: option for option, name in _FIELDS.items()}
"""What people at a terminal or in a chat call the fields of a request."""
# Phones replace two hyphens and straight quotes as one types.
_QUOTES = str.maketrans(dict.fromkeys("“”„‟«»", '"'))
_DASHES = ("\N{EM DASH}", "\N{EN DASH}")


class WordsInvalid(ValueError):
    """The words after the command cannot be read; the message says what to write."""


@dataclass(frozen=True, slots=True)
class Words:
    """What follows ``/cron``.

    Attributes:
        verb: one of `VERBS`.
        job_id: the job, for verbs that have one.
        fields: of a new job, as in `NewJob`.
        as_json: a program reads the answer.
    """

    verb: str
    job_id: str = ""
    fields: JsonObject = field(default_factory=dict)
    as_json: bool = False


def parse_words(text: str) -> Words:
    """Return what the words after ``/cron`` mean.

    Raises:
        WordsInvalid: they are invalid.
    """
    verb, _, rest = text.strip().partition(" ")
    verb, rest = verb.lower() or "list", rest.strip()
    if verb.startswith("-"):
        verb, rest = "list", text.strip()
    if verb not in VERBS:
        msg = f"there is no /cron {shorten(verb, 40)}{near(verb, VERBS)}; use {', '.join(VERBS)}"
        raise WordsInvalid(msg)
    as_json = rest == "--json" or rest.startswith("--json ")
    rest = rest.removeprefix("--json").strip() if as_json else rest
    if verb == "add" and rest.startswith("{"):
        return Words(verb, fields=_object(rest), as_json=as_json)
    words = _split(rest)
    if words[-1:] == ["--json"]:
        words.pop()
        as_json = True
    if verb == "add":
        return Words(verb, fields=_fields(words), as_json=as_json)
    wanted = 0 if verb == "list" else 1
    if len(words) != wanted:
        usage = f"/cron {verb}" + (" ID" if wanted else "")
        msg = f"write {usage}; /cron list shows the ids" if wanted else f"write {usage}"
        raise WordsInvalid(msg)
    return Words(verb, words[0] if words else "", as_json=as_json)


def _object(text: str) -> JsonObject:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = "the text after add begins with { and is not a JSON object; correct it, or use words"
        raise WordsInvalid(msg) from error
    return dict(found)


def _split(text: str) -> list[str]:
    """Return the words; double quotes group words, and apostrophes are ordinary characters."""
    reader = shlex.shlex(text.translate(_QUOTES), posix=True)
    reader.whitespace_split = True
    reader.commenters, reader.quotes = "", '"'
    try:
        return [_hyphens(word) for word in reader]
    except ValueError as error:
        msg = 'a " is not closed; close it, or leave it out'
        raise WordsInvalid(msg) from error


def _hyphens(word: str) -> str:
    return f"--{word[1:]}" if word.startswith(_DASHES) and len(word) > 1 else word


def _fields(words: list[str]) -> JsonObject:
    found: JsonObject = {}
    options: JsonObject = {}
    message: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            message += rest
        elif not word.startswith("--"):
            message.append(word)
        else:
            name, equals, value = word.partition("=")
            if name not in _FIELDS:
                msg = f"there is no option {shorten(name, 40)}{near(name, _FIELDS)}"
                raise WordsInvalid(msg)
            value = value if equals else next(rest, "")
            if not value:
                msg = f"{name} needs a value"
                raise WordsInvalid(msg)
            if name == "--option":
                options |= read_options([value])
            elif _FIELDS[name] in found:
                msg = f"{name} is given twice"
                raise WordsInvalid(msg)
            else:
                found[_FIELDS[name]] = read_seconds(value) if name == "--every" else value
    if options:
        found["options"] = options
    return {"message": " ".join(message), **found}


def read_options(texts: Iterable[str]) -> JsonObject:
    """Return the options of an event from texts such as ``path=inbox``.

    Raises:
        WordsInvalid: a text is not KEY=VALUE.
    """
    found: JsonObject = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            msg = f"--option needs KEY=VALUE, found '{shorten(text, 60)}'"
            raise WordsInvalid(msg)
        found[key] = value
    return found


def read_seconds(text: str) -> float:
    """Return the seconds of an interval such as ``90`` or ``30m``.

    Raises:
        WordsInvalid: it is not one.
    """
    seconds = read_duration_s(text)
    if seconds is None:
        msg = f"--every needs a time such as 90, 30m, 2h or 1d, found '{shorten(text, 40)}'"
        raise WordsInvalid(msg)
    return seconds
