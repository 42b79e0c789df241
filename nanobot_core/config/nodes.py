"""YAML and JSON texts to nodes with their lines, from events.

Reading events keeps hostile texts harmless: nothing recurses deeper than `MAX_DEPTH` (libyaml's
own composer overflows the stack), and no tag can ask for an object. Plain scalars follow the YAML
1.2 core schema, which agrees with JSON (``no`` is a text, ``1e3`` a number), except that digits
after a leading zero stay text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NoReturn

import yaml

from nanobot_core.errors import ConfigUnreadable
from nanobot_core.messages import JsonValue

MAX_DEPTH = 64

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,3000})\Z")
_FLOAT = re.compile(r"[-+]?(?=\.?[0-9])(?:0|[1-9][0-9]*)?(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?\Z")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_SCALAR_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float")}
_TAGS = _SCALAR_TAGS | {None, "!", *(f"tag:yaml.org,2002:{name}" for name in ("str", "map", "seq"))}
_JSON_ESCAPE = re.compile(r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|.)", re.IGNORECASE)
_JSON_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_REASONS = {
    "',' or ']'": "the list '[' is not closed, or a comma is missing before this line",
    "',' or '}'": "the mapping '{' is not closed, or a comma is missing before this line",
    "expected key": "the indentation differs from the lines above, or a key has no ':'",
    "<block end>": "the indentation differs from the lines above, or a key has no ':'",
    "expected ':'": "a key has no ':'",
    "'-' indicator": "the indentation differs from the items '-' above",
    "<document start>": "the indentation differs from the lines above, or a key has no ':'",
    "mapping values": "a ':' is not allowed here; put the value in quotes or check the indentation",
    "sequence entries": "an item '-' is not allowed here; begin a line with it",
    "cannot start any token": "a tab, '@', '`' or '%' begins a value; indent with spaces and put "
    "such a value in quotes",
    "tab character": "a tab is in the indentation; indent with spaces",
    "end of stream": "a quote is not closed",
    "document indicator": "a quote is not closed",
    "escape character": "an unknown '\\' sequence in double quotes; use single quotes",
    "hexdecimal": "an unknown '\\' sequence in double quotes; use single quotes",
    "alphabetic or numeric": "a value that begins with '&' or '*' needs quotes",
    "undefined alias": "an alias (*name) needs an anchor (&name) before it",
    "tag": "tags (!name) are not allowed; put a value that begins with '!' in quotes",
}
"""Words of the parser to ours. Its messages may quote the text, and the text may be a secret."""
_NOT_YAML = "this is not valid YAML; check indentation, quotes and colons"


@dataclass(slots=True)
class Node:
    """A value of the text; aliases share the node that they name.

    Attributes:
        line: from 1.
        kind: a mapping has its keys and values by turns in `items`.
        scalar: the value of a scalar.
        text: a scalar as written in the file.
        is_merge: the key ``<<``.
    """

    line: int
    kind: Literal["scalar", "list", "mapping"] = "scalar"
    scalar: JsonValue = None
    text: str = ""
    items: list[Node] = field(default_factory=list)
    is_merge: bool = False


def resolve_scalar(text: str) -> JsonValue:
    """Return the value of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.match(text):
        return int(text)
    return float(text) if _FLOAT.match(text) else text


def json_as_yaml(text: str) -> str:
    """Return JSON without those parts that YAML reads otherwise; lines stay where they are."""

    def join_surrogates(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        high, low = int(match[1], 16) - 0xD800, int(match[2], 16) - 0xDC00
        return f"\\U{0x10000 + (high << 10) + low:08x}"

    text = _JSON_UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text.replace("\t", " "))
    return _JSON_ESCAPE.sub(join_surrogates, text)


def compose(text: str, name: str) -> Node | None:
    """Return the outermost node of `text`, or ``None`` if the text is empty.

    Args:
        text: YAML.
        name: the file's name for messages.

    Raises:
        ConfigUnreadable: the text is not YAML, has tags, or is nested too deep.
    """
    try:
        return _Composer(text, name).compose_document()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        problem = error.problem or ""
        reason = next((ours for theirs, ours in _REASONS.items() if theirs in problem), _NOT_YAML)
        raise ConfigUnreadable(name, reason, line) from None
    except (yaml.YAMLError, ValueError):
        raise ConfigUnreadable(name, "it contains characters that YAML does not allow") from None


class _Composer:
    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self._anchors: dict[str, Node] = {}
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=loader)

    def compose_document(self) -> Node | None:
        root: Node | None = None
        for event in self._events:
            if isinstance(event, yaml.NodeEvent):
                if root is not None:
                    self._refuse(event, "it contains more than one document")
                root = self._compose(event, 1)
        return root

    def _refuse(self, event: yaml.Event, reason: str) -> NoReturn:
        raise ConfigUnreadable(self._name, reason, _line(event))

    def _compose(self, event: yaml.NodeEvent, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                self._refuse(event, "an alias (*name) without a complete anchor (&name) before it")
            return self._anchors[event.anchor]
        if depth > MAX_DEPTH:
            self._refuse(event, f"it is nested deeper than {MAX_DEPTH} levels")
        if getattr(event, "tag", None) not in _TAGS:
            self._refuse(event, "tags (!name) are not allowed")
        node = Node(_line(event))
        if isinstance(event, yaml.ScalarEvent):
            is_plain = event.implicit[0] or event.tag in _SCALAR_TAGS
            node.text = event.value
            node.scalar = resolve_scalar(event.value) if is_plain else event.value
            node.is_merge = is_plain and event.value == "<<"
        else:
            node.kind = "list" if isinstance(event, yaml.SequenceStartEvent) else "mapping"
            while isinstance(child := next(self._events), yaml.NodeEvent):
                node.items.append(self._compose(child, depth + 1))
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1
