"""Casts arguments to the types of the schema: models write correct values in the wrong type."""

from __future__ import annotations

import math

from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.text import parse_json_object

_TRUE = frozenset({"true", "1", "yes"})
_FALSE = frozenset({"false", "0", "no"})
_MAX_DEPTH = 32
_MAX_STEPS = 100_000
"""Values times alternatives to examine: about 0.2 seconds."""
_MAX_PARSED_CHARS = 2_000_000
"""Text to parse as JSON or a number."""
_MAX_TYPES = 7
"""All types of JSON."""


def cast_params(schema: JsonObject, params: JsonObject) -> JsonObject:
    """Return `params` with values cast to the types of `schema`.

    Text is cast to a number, a boolean, an object or an array if the schema has that type, numbers
    to text; properties and items are cast too. If the value already fits one of several
    alternatives, it is not cast. A value that cannot be cast is left for validation to report. A
    boolean never counts as a number. `params` itself is not changed.
    """
    cast = _Caster().cast(schema, params, 0)
    return cast if isinstance(cast, dict) else params


class _Caster:
    """Casts the arguments of one call, with limited work: beyond the limit they stay unchanged."""

    def __init__(self) -> None:
        self._steps = 0
        self._parsed_chars = 0

    def cast(self, schema: JsonValue, value: JsonValue, depth: int) -> JsonValue:
        self._steps += 1
        if not isinstance(schema, dict) or depth > _MAX_DEPTH or self._steps > _MAX_STEPS:
            return value
        types = _types(schema)
        if value is None and "null" in types:
            return None
        for kind in types:
            if _is_of_type(value, kind):
                return self._inside(schema, value, depth)
        for kind in types:
            cast = self._scalar(kind, value)
            if cast is not value:
                return self._inside(schema, cast, depth)
        options = _options(schema)
        self._steps += len(options)
        for option in options:
            if any(_is_of_type(value, kind) for kind in _types(option)):
                return self.cast(option, value, depth + 1)
        for option in options:
            cast = self.cast(option, value, depth + 1)
            if any(_is_of_type(cast, kind) for kind in _types(option)):
                return cast
        return value

    def _inside(self, schema: JsonObject, value: JsonValue, depth: int) -> JsonValue:
        if isinstance(value, dict):
            properties = schema.get("properties")
            known = properties if isinstance(properties, dict) else {}
            return {
                name: self.cast(known.get(name), item, depth + 1) for name, item in value.items()
            }
        if isinstance(value, list):
            return [self.cast(schema.get("items"), item, depth + 1) for item in value]
        return value

    def _scalar(self, kind: str, value: JsonValue) -> JsonValue:
        """Return `value` as `kind`, or `value` itself if that is impossible."""
        if isinstance(value, str):
            self._parsed_chars += len(value)
            return value if self._parsed_chars > _MAX_PARSED_CHARS else _cast_text(kind, value)
        if isinstance(value, bool):
            return value
        if kind == "string" and isinstance(value, int | float):
            return str(value)
        if kind == "integer" and isinstance(value, float) and value.is_integer():
            return int(value)
        return value


def _types(schema: JsonValue) -> list[str]:
    if not isinstance(schema, dict):
        return []
    kind = schema.get("type")
    if isinstance(kind, str):
        return [kind]
    if not isinstance(kind, list):
        return []
    return [item for item in kind[:_MAX_TYPES] if isinstance(item, str)]


def _options(schema: JsonObject) -> list[JsonObject]:
    found = schema.get("anyOf") or schema.get("oneOf")
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _is_of_type(value: JsonValue, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case "null":
            return value is None
    return False


def _cast_text(kind: str, text: str) -> JsonValue:
    word = text.strip()
    if kind == "boolean" and word.lower() in _TRUE | _FALSE:
        return word.lower() in _TRUE
    if kind in {"integer", "number"}:
        return _cast_number(kind, text)
    if kind == "object":
        parsed = parse_json_object(word)
        return text if parsed is None else parsed
    if kind == "array" and word.startswith("["):
        wrapped = parse_json_object(f'{{"items": {word}}}')
        items = wrapped.get("items") if wrapped and len(wrapped) == 1 else None
        return items if isinstance(items, list) else text
    return text


def _cast_number(kind: str, text: str) -> JsonValue:
    try:
        number = int(text) if kind == "integer" else float(text)
    except ValueError:
        return text
    # JSON has no infinity and no NaN; the text lets validation name them.
    return number if math.isfinite(number) else text
