"""Configuration files to trees with the line of each value."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from nanobot_core.config.nodes import MAX_DEPTH, Node, compose, json_as_yaml, resolve_scalar
from nanobot_core.config.tree import KeyPath, render_path
from nanobot_core.errors import ConfigInvalid, ConfigProblem, ConfigUnreadable
from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.record import dataclass

MAX_BYTES = 4 * 1024 * 1024
MAX_VALUES = 200_000
"""Values of one file after aliases are expanded; more is an attack or a mistake."""


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
        ConfigUnreadable: it cannot be read, is too large or not UTF-8.
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
    """Return what `text` says; an empty text is an empty mapping.

    Args:
        text: YAML, or JSON.
        name: the file's name for messages.
        is_json: accept what JSON allows and YAML does not, such as tabs between values.

    Raises:
        ConfigUnreadable: it is neither YAML nor JSON, not a mapping, or exceeds a limit.
        ConfigInvalid: keys that are twice in one mapping.
    """
    builder = _Builder(name)
    root = compose(json_as_yaml(text) if is_json else text, name)
    tree = builder.build(root) if root else None
    if builder.problems:
        raise ConfigInvalid(sorted(set(builder.problems), key=lambda problem: problem.line or 0))
    if tree is not None and not isinstance(tree, dict):
        raise ConfigUnreadable(name, "the outermost value must be a mapping of keys to values")
    return Source(tree or {}, builder.lines)


def parse_value(text: str) -> JsonValue:
    """Return the value that `text` means in an environment variable or on a command line.

    A scalar, a quoted text, ``[a, b]`` or ``{a: b}``; anything else is text.
    """
    if not text.startswith(("[", "{", '"', "'")):
        return resolve_scalar(text)
    builder = _Builder("value")
    try:
        root = compose(text, "value")
        value = builder.build(root) if root else text
    except ConfigUnreadable:
        return text
    return text if builder.problems else value


class _Builder:
    """Plain values from nodes; aliases become copies, counted."""

    def __init__(self, name: str) -> None:
        self.problems: list[ConfigProblem] = []
        self.lines: dict[str, int] = {}
        self._name = name
        self._count = 0

    def build(self, node: Node, at: KeyPath = ()) -> JsonValue:
        self._count_value(len(at))
        self.lines[render_path(at)] = node.line
        if node.kind == "scalar":
            return node.scalar
        if node.kind == "list":
            return [self.build(item, (*at, index)) for index, item in enumerate(node.items)]
        pairs = self._pairs(node, at, 1)
        return {key: self.build(value, (*at, key)) for key, value in pairs.items()}

    def _pairs(self, node: Node, at: KeyPath, depth: int) -> dict[str, Node]:
        """Keys and values of a mapping, with those that ``<<`` brings and it does not have."""
        self._count_value(depth)
        pairs: dict[str, Node] = {}
        seen: dict[str, int] = {}
        merged: list[Node] = []
        for key, value in zip(node.items[::2], node.items[1::2], strict=True):
            if key.kind != "scalar":
                self._refuse(key, "a key must be a text")
            elif key.is_merge:
                merged += value.items if value.kind == "list" else [value]
            elif key.text in seen:
                self._report_duplicate((*at, key.text), key.line, seen[key.text])
            else:
                seen[key.text], pairs[key.text] = key.line, value
        for other in merged:
            if other.kind != "mapping":
                self._refuse(other, "'<<' takes mappings only")
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

    def _report_duplicate(self, path: KeyPath, line: int, first_line: int) -> None:
        self.problems.append(
            ConfigProblem(
                render_path(path),
                "expected each key once in a mapping",
                file=self._name,
                line=line,
                remedy=f"remove it here or in line {first_line}",
            )
        )

    def _refuse(self, node: Node, reason: str) -> NoReturn:
        raise ConfigUnreadable(self._name, reason, node.line)
