"""Converts schemas of servers to a form that all model services and our validator accept.

The normal form is an object schema of limited size, without references, regular expressions, or
composition at the top. Notes describe what is lost. It keeps only keywords of JSON Schema 2020-12
(validation vocabulary) with values of the right type, so it is always a valid schema.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from urllib.parse import unquote

from nanobot_core import JsonObject, JsonValue, shorten

MAX_DEPTH = 24
MAX_NODES = 1_000
MAX_CHARS = 60_000
_MAX_TEXT_CHARS = 1_000
_MAX_CHOICES = 300
_MAX_NOTES = 20
_PROPERTY_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_TYPES = ("null", "boolean", "object", "array", "number", "string", "integer")
_NULL: JsonObject = {"type": "null"}


def _is_count(value: JsonValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_PLAIN: Mapping[str, Callable[[JsonValue], bool]] = {
    "minimum": _is_number,
    "maximum": _is_number,
    "exclusiveMinimum": _is_number,
    "exclusiveMaximum": _is_number,
    "multipleOf": lambda value: _is_number(value) and isinstance(value, int) and value > 0,
    "minLength": _is_count,
    "maxLength": _is_count,
    "minItems": _is_count,
    "maxItems": _is_count,
    "minProperties": _is_count,
    "maxProperties": _is_count,
    "uniqueItems": lambda value: isinstance(value, bool),
    "format": lambda value: isinstance(value, str) and len(value) <= 40,
}
"""Keywords that are copied if their value has the right type."""


def normalise_schema(schema: JsonValue) -> tuple[JsonObject, tuple[str, ...]]:
    """Return the normal form of a tool's input schema, and notes about what it omits."""
    return _Normaliser(schema).run()


class _Normaliser:
    """One pass over one schema."""

    def __init__(self, root: JsonValue) -> None:
        self._root = root
        self._nodes_left = MAX_NODES
        self._chars_left = MAX_CHARS
        self._notes: dict[str, None] = {}

    def run(self) -> tuple[JsonObject, tuple[str, ...]]:
        plain = self._part(self._root, "", (), 0)
        if not isinstance(self._root, dict):
            self._note("", "is not an object schema; the server validates the arguments")
        merged = self._flat_top(plain)
        properties = merged.get("properties")
        merged["type"] = "object"
        merged["properties"] = properties if isinstance(properties, dict) else {}
        self._keep_required(merged)
        return merged, tuple(self._notes)

    def _note(self, path: str, text: str) -> None:
        if len(self._notes) < _MAX_NOTES:
            self._notes[f"{path or 'the schema'} {text}"] = None

    def _part(self, node: JsonValue, path: str, seen: tuple[str, ...], depth: int) -> JsonObject:
        """Return one part in normal form. A value that is not a schema becomes `{}`."""
        self._nodes_left -= 1
        if self._nodes_left < 0 or self._chars_left < 0 or depth > MAX_DEPTH:
            self._note(path[:80], "is too large or too deep; below, any value is accepted")
            return {}
        if not isinstance(node, dict):
            return {}
        reference = node.get("$ref")
        if reference is not None:
            return self._resolved(node, reference, path, seen, depth)
        result: JsonObject = {}
        self._copy_type(node, result)
        self._copy_texts(node, result, path)
        self._copy_plain(node, result)
        self._copy_choices(node, result, path)
        self._copy_object_parts(node, result, path, seen, depth)
        self._copy_array_parts(node, result, path, seen, depth)
        self._copy_branches(node, result, path, seen, depth)
        for key in ("not", "if", "dependentSchemas", "$dynamicRef", "$recursiveRef"):
            if key in node:
                self._note(path, f"loses '{key}'; the server checks it")
        return _with_null_in_type(result)

    def _resolved(
        self, node: JsonObject, reference: JsonValue, path: str, seen: tuple[str, ...], depth: int
    ) -> JsonObject:
        rest = {key: value for key, value in node.items() if key != "$ref"}
        if not isinstance(reference, str) or not reference.startswith("#"):
            self._note(
                path, f"refers to {shorten(str(reference), 100)}, which is outside the schema"
            )
            return self._part(rest, path, seen, depth + 1)
        if reference in seen:
            self._note(path, f"contains itself ({shorten(reference, 100)}) and is cut there")
            return {"type": "object"}
        found, target = self._lookup(reference)
        if not found:
            self._note(path, f"refers to {shorten(reference, 100)}, which does not exist")
            return self._part(rest, path, seen, depth + 1)
        if isinstance(target, dict):
            target = {**target, **rest}
        return self._part(target, path, (*seen, reference), depth + 1)

    def _lookup(self, reference: str) -> tuple[bool, JsonValue]:
        """Follow a JSON pointer (RFC 6901) inside the schema."""
        current = self._root
        pointer = unquote(reference[1:])
        if pointer and not pointer.startswith("/"):
            return False, None
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(current, dict) and name in current:
                current = current[name]
            elif isinstance(current, list) and name.isdecimal() and int(name) < len(current):
                current = current[int(name)]
            else:
                return False, None
        return True, current

    def _copy_type(self, node: JsonObject, result: JsonObject) -> None:
        kind = node.get("type")
        kinds = [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else []
        known = list(dict.fromkeys(item for item in kinds if item in _TYPES))
        if node.get("nullable") is True and known and "null" not in known:
            known.append("null")
        if known:
            result["type"] = known[0] if len(known) == 1 else [*known]

    def _copy_texts(self, node: JsonObject, result: JsonObject, path: str) -> None:
        words = node.get("description")
        texts = [shorten(words, _MAX_TEXT_CHARS)] if isinstance(words, str) and words else []
        pattern = node.get("pattern")
        if pattern is not None:
            # A server's regular expression can block the validator forever (ReDoS).
            self._note(
                path, f"loses its pattern {shorten(str(pattern), 100)}; the server checks it"
            )
            texts.append(f"(pattern: {shorten(str(pattern), 200)})")
        if texts:
            text = " ".join(texts)
            self._chars_left -= len(text)
            result["description"] = text

    def _copy_plain(self, node: JsonObject, result: JsonObject) -> None:
        for key, is_right in _PLAIN.items():
            if key in node and is_right(node[key]):
                result[key] = node[key]
        default = node.get("default")
        if default is not None and len(repr(default)) <= _MAX_TEXT_CHARS:
            self._chars_left -= len(repr(default))
            result["default"] = default

    def _copy_choices(self, node: JsonObject, result: JsonObject, path: str) -> None:
        choices = [node["const"]] if "const" in node else node.get("enum")
        if not isinstance(choices, list) or not choices:
            return
        size = len(repr(choices[: _MAX_CHOICES + 1]))
        if len(choices) > _MAX_CHOICES or size > self._chars_left:
            self._note(path, f"loses its list of {len(choices)} choices; the server checks them")
            return
        self._chars_left -= size
        unique = [item for index, item in enumerate(choices) if item not in choices[:index]]
        if "null" in _types_of(result) and None not in unique:
            unique.append(None)
        result["enum"] = unique

    def _copy_object_parts(
        self, node: JsonObject, result: JsonObject, path: str, seen: tuple[str, ...], depth: int
    ) -> None:
        properties = node.get("properties")
        if isinstance(properties, dict):
            kept: JsonObject = {}
            for name, part in properties.items():
                if not _PROPERTY_NAME.fullmatch(name) or self._nodes_left <= 0:
                    self._note(path, f"loses the property {shorten(name, 60)!r}")
                elif part is not False:
                    self._chars_left -= len(name)
                    kept[name] = self._part(part, f"{path}.{name}".lstrip("."), seen, depth + 1)
            result["properties"] = kept
        required = node.get("required")
        if isinstance(required, list):
            result["required"] = [name for name in required if isinstance(name, str)]
            self._keep_required(result)
        more = node.get("additionalProperties")
        if isinstance(more, bool):
            result["additionalProperties"] = more
        elif isinstance(more, dict):
            result["additionalProperties"] = self._part(more, f"{path}.*", seen, depth + 1)
        if "patternProperties" in node or "propertyNames" in node:
            result.pop("additionalProperties", None)
            self._note(path, "loses its rules for names of properties; the server checks them")

    def _keep_required(self, result: JsonObject) -> None:
        required, properties = result.pop("required", None), result.get("properties")
        if isinstance(required, list) and isinstance(properties, dict):
            names: list[JsonValue] = [n for n in dict.fromkeys(required) if n in properties]
            if names:
                result["required"] = names

    def _copy_array_parts(
        self, node: JsonObject, result: JsonObject, path: str, seen: tuple[str, ...], depth: int
    ) -> None:
        prefix, items = node.get("prefixItems"), node.get("items")
        if isinstance(items, list):  # the form of drafts before 2020-12
            prefix, items = items, None
        if isinstance(prefix, list) and prefix:
            result["prefixItems"] = [
                self._part(part, f"{path}[{index}]", seen, depth + 1)
                for index, part in enumerate(prefix[:_MAX_CHOICES])
            ]
        if isinstance(items, dict) or (
            "array" in _types_of(result) and "prefixItems" not in result
        ):
            result["items"] = self._part(items, f"{path}[]", seen, depth + 1)

    def _copy_branches(
        self, node: JsonObject, result: JsonObject, path: str, seen: tuple[str, ...], depth: int
    ) -> None:
        for key in ("anyOf", "oneOf", "allOf"):
            branches = node.get(key)
            if not isinstance(branches, list) or not branches:
                continue
            if len(branches) > _MAX_CHOICES:
                self._note(path, f"loses its {len(branches)} alternatives; the server checks them")
                continue
            parts: list[JsonValue] = [
                self._part(part, path, seen, depth + 1) for part in branches if part is not False
            ]
            if parts:
                # With overlapping branches, oneOf would refuse valid arguments.
                result["allOf" if key == "allOf" else "anyOf"] = parts

    def _flat_top(self, schema: JsonObject) -> JsonObject:
        """Merge the branches of anyOf and allOf at the top, which services do not accept there."""
        flat = {
            key: value
            for key, value in schema.items()
            if key in ("properties", "required", "description", "additionalProperties")
        }
        for key in ("anyOf", "allOf"):
            branches = schema.get(key)
            if not isinstance(branches, list):
                continue
            self._note("", "has alternatives, which are merged; the server distinguishes them")
            flat.pop("additionalProperties", None)
            for branch in branches:
                if isinstance(branch, dict):
                    _join(flat, self._flat_top(branch), demands=key == "allOf")
        return flat


def _join(into: JsonObject, branch: JsonObject, *, demands: bool) -> None:
    """Add the properties of `branch`, and its required names if `demands` is true."""
    mine, others = into.get("properties"), branch.get("properties")
    known = mine if isinstance(mine, dict) else {}
    into["properties"] = {**(others if isinstance(others, dict) else {}), **known}
    wanted, more = into.get("required"), branch.get("required")
    if demands and isinstance(more, list):
        into["required"] = [*(wanted if isinstance(wanted, list) else []), *more]


def _types_of(schema: JsonObject) -> list[JsonValue]:
    kind = schema.get("type")
    return kind if isinstance(kind, list) else [] if kind is None else [kind]


def _with_null_in_type(schema: JsonObject) -> JsonObject:
    """Write ``anyOf: [X, null]`` as ``type: [X, "null"]``, as the core does."""
    branches = schema.get("anyOf")
    if not isinstance(branches, list):
        return schema
    others = [branch for branch in branches if branch != _NULL]
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    if len(others) == 1 and isinstance(only := others[0], dict):
        if len(others) == len(branches):
            return {**only, **rest}
        kinds = _types_of(only)
        if kinds and "type" not in rest:
            only = {**only, "type": [*dict.fromkeys([*kinds, "null"])]}
            if isinstance(choices := only.get("enum"), list) and None not in choices:
                only["enum"] = [*choices, None]
            return {**only, **rest}
    return schema
