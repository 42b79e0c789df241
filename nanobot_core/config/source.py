"""Configuration files to trees with the line of each value.

Files are read from the events of the YAML parser, so that hostile texts are harmless: nothing
recurses deeper than `MAX_DEPTH` (libyaml's own composer overflows the stack), and no tag can create
an object. Plain scalars follow the YAML 1.2 core schema, which agrees with JSON (``no`` is a text,
``1e3`` a number), except that digits after a leading zero stay text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NoReturn

import yaml

from nanobot_core.config.tree import KeyPath, render_path
from nanobot_core.errors import ConfigInvalid, ConfigProblem, ConfigUnreadable
from nanobot_core.messages import JsonObject, JsonValue

MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 64
MAX_VALUES = 200_000
"""Values of one file after aliases are expanded; more is an attack or a mistake."""

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
"""Messages of the parser to ours. Its own may quote the text, which may contain a secret."""
_NOT_YAML = "this is not valid YAML; check indentation, quotes and colons"


@dataclass(frozen=True, slots=True)
class Source:
    """The content of a file.

    Attributes:
        tree: its values.
        lines: key path to line, from 1.
    """

    tree: JsonObject
    lines: dict[str, int]


def read_text(path: Path) -> str:
    """Return the text of the file at `path`.

    Raises:
        ConfigUnreadable: it cannot be read, is too large, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise ConfigUnreadable(str(path), error.strerror or type(error).__name__) from error
    except UnicodeDecodeError as error:
        raise ConfigUnreadable(str(path), f"byte {error.start} is not UTF-8") from None
    if len(content) > MAX_BYTES:
        raise ConfigUnreadable(str(path), f"it is larger than {MAX_BYTES} bytes")
    return text


def parse_source(text: str, name: str, *, is_json: bool = False) -> Source:
    """Return the content of `text`; an empty text is an empty mapping.

    Args:
        text: YAML, or JSON.
        name: name of the file in messages.
        is_json: accept what JSON allows and YAML does not, such as tabs between values.

    Raises:
        ConfigUnreadable: it is neither YAML nor JSON, not a mapping, or exceeds a limit.
        ConfigInvalid: a mapping has a key twice.
    """
    reader = _Reader(name)
    tree = reader.read(_json_as_yaml(text) if is_json else text)
    if reader.problems:
        raise ConfigInvalid(sorted(set(reader.problems), key=lambda problem: problem.line or 0))
    if tree is not None and not isinstance(tree, dict):
        raise ConfigUnreadable(name, "the outermost value must be a mapping of keys to values")
    return Source(tree or {}, reader.lines)


def parse_value(text: str) -> JsonValue:
    """Return the value of a text in an environment variable or on a command line.

    A scalar, a quoted text, ``[a, b]`` or ``{a: b}``; anything else is text.
    """
    if not text.startswith(("[", "{", '"', "'")):
        return _scalar(text)
    reader = _Reader("value")
    try:
        value = reader.read(text)
    except ConfigUnreadable:
        return text
    return text if reader.problems else value


def _scalar(text: str) -> JsonValue:
    """Return the value of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.match(text):
        return int(text)
    return float(text) if _FLOAT.match(text) else text


def _json_as_yaml(text: str) -> str:
    """Return JSON in a form that YAML reads in the same way, with the same lines."""

    def join_surrogates(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        high, low = int(match[1], 16) - 0xD800, int(match[2], 16) - 0xDC00
        return f"\\U{0x10000 + (high << 10) + low:08x}"

    text = _JSON_UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text.replace("\t", " "))
    return _JSON_ESCAPE.sub(join_surrogates, text)


@dataclass(slots=True)
class _Node:
    """A value of the text; aliases share the node that they name.

    Attributes:
        line: from 1.
        kind: the items of a mapping are its keys and values in turn.
        scalar: the value of a scalar.
        text: a scalar as written in the file.
        is_merge: it is the key ``<<``.
    """

    line: int
    kind: Literal["scalar", "list", "mapping"] = "scalar"
    scalar: JsonValue = None
    text: str = ""
    items: list[_Node] = field(default_factory=list)
    is_merge: bool = False


class _Reader:
    """Reads one text: events to nodes, and nodes to plain values, in which aliases are copies.

    Attributes:
        lines: key path to line.
        problems: keys that a mapping has twice.
    """

    def __init__(self, name: str) -> None:
        self.lines: dict[str, int] = {}
        self.problems: list[ConfigProblem] = []
        self._name = name
        self._anchors: dict[str, _Node] = {}
        self._count = 0

    def read(self, text: str) -> JsonValue:
        """Return the value of a text, ``None`` if it is empty."""
        root: _Node | None = None
        events: Iterator[yaml.Event] = yaml.parse(
            text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        )
        try:
            for event in events:
                if isinstance(event, yaml.NodeEvent):
                    if root is not None:
                        self._refuse(_line(event), "it contains more than one document")
                    root = self._compose(event, events, 1)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else None
            problem = error.problem or ""
            found = (ours for theirs, ours in _REASONS.items() if theirs in problem)
            raise ConfigUnreadable(self._name, next(found, _NOT_YAML), line) from None
        except (yaml.YAMLError, ValueError):
            reason = "it contains characters that YAML does not allow"
            raise ConfigUnreadable(self._name, reason) from None
        return self._build(root, ()) if root else None

    def _refuse(self, line: int, reason: str) -> NoReturn:
        raise ConfigUnreadable(self._name, reason, line)

    def _compose(self, event: yaml.NodeEvent, events: Iterator[yaml.Event], depth: int) -> _Node:
        line = _line(event)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                self._refuse(line, "an alias (*name) without a complete anchor (&name) before it")
            return self._anchors[event.anchor]
        if depth > MAX_DEPTH:
            self._refuse(line, f"it is nested deeper than {MAX_DEPTH} levels")
        if getattr(event, "tag", None) not in _TAGS:
            self._refuse(line, "tags (!name) are not allowed")
        node = _Node(line)
        if isinstance(event, yaml.ScalarEvent):
            is_plain = event.implicit[0] or event.tag in _SCALAR_TAGS
            node.text = event.value
            node.scalar = _scalar(event.value) if is_plain else event.value
            node.is_merge = is_plain and event.value == "<<"
        else:
            node.kind = "list" if isinstance(event, yaml.SequenceStartEvent) else "mapping"
            while isinstance(child := next(events), yaml.NodeEvent):
                node.items.append(self._compose(child, events, depth + 1))
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _build(self, node: _Node, at: KeyPath) -> JsonValue:
        self._count_value(len(at))
        self.lines[render_path(at)] = node.line
        if node.kind == "scalar":
            return node.scalar
        if node.kind == "list":
            return [self._build(item, (*at, index)) for index, item in enumerate(node.items)]
        pairs = self._pairs(node, at, 1)
        return {key: self._build(value, (*at, key)) for key, value in pairs.items()}

    def _pairs(self, node: _Node, at: KeyPath, depth: int) -> dict[str, _Node]:
        """Return keys and values of a mapping, including those that ``<<`` adds."""
        self._count_value(depth)
        pairs: dict[str, _Node] = {}
        seen: dict[str, int] = {}
        merged: list[_Node] = []
        for key, value in zip(node.items[::2], node.items[1::2], strict=True):
            if key.kind != "scalar":
                self._refuse(key.line, "a key must be a text")
            elif key.is_merge:
                merged += value.items if value.kind == "list" else [value]
            elif key.text in seen:
                expected = "expected each key once in a mapping"
                remedy = f"remove it here or in line {seen[key.text]}"
                path = render_path((*at, key.text))
                self.problems.append(
                    ConfigProblem(path, expected, self._name, key.line, remedy=remedy)
                )
            else:
                seen[key.text], pairs[key.text] = key.line, value
        for other in merged:
            if other.kind != "mapping":
                self._refuse(other.line, "'<<' takes mappings only")
            for name, value in self._pairs(other, at, depth + 1).items():
                pairs.setdefault(name, value)
        return pairs

    def _count_value(self, depth: int) -> None:
        self._count += 1
        if self._count > MAX_VALUES or depth > MAX_DEPTH:
            raise ConfigUnreadable(
                self._name,
                f"its aliases make more than {MAX_VALUES} values or {MAX_DEPTH} levels",
            )


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1
