"""Arguments as the schema wants them, where models write the right value in the wrong type."""

from __future__ import annotations

import math

from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.text import parse_json_object

_TRUE = frozenset({"true", "1", "yes"})
_FALSE = frozenset({"false", "0", "no"})
_MAX_DEPTH = 32


def cast_params(schema: JsonObject, params: JsonObject) -> JsonObject:
    """Return `params` with values cast to the types that `schema` asks for.

    Text becomes a number, a boolean, an object or an array where one of these is asked, numbers
    become text where text is asked; properties and items are followed. Among alternatives, one
    that the value fits as it is comes before all casts. What cannot be cast stays as it is, for
    validation to name. A boolean is never taken for a number. `params` itself is not changed.
    """
    cast = _cast(schema, params, 0)
    return cast if isinstance(cast, dict) else params


def _cast(schema: JsonValue, value: JsonValue, depth: int) -> JsonValue:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return value
    types = _types(schema)
    if value is None and "null" in types:
        return None
    for kind in types:
        if _is_of_type(value, kind):
            return _cast_inside(schema, value, depth)
    for kind in types:
        cast = _cast_scalar(kind, value)
        if cast is not value:
            return _cast_inside(schema, cast, depth)
    options = _options(schema)
    for option in options:
        if any(_is_of_type(value, kind) for kind in _types(option)):
            return _cast(option, value, depth + 1)
    for option in options:
        cast = _cast(option, value, depth + 1)
        if any(_is_of_type(cast, kind) for kind in _types(option)):
            return cast
    return value


def _cast_inside(schema: JsonObject, value: JsonValue, depth: int) -> JsonValue:
    if isinstance(value, dict):
        properties = schema.get("properties")
        known = properties if isinstance(properties, dict) else {}
        return {name: _cast(known.get(name), item, depth + 1) for name, item in value.items()}
    if isinstance(value, list):
        return [_cast(schema.get("items"), item, depth + 1) for item in value]
    return value


def _types(schema: JsonValue) -> list[str]:
    if not isinstance(schema, dict):
        return []
    kind = schema.get("type")
    if isinstance(kind, str):
        return [kind]
    return [item for item in kind if isinstance(item, str)] if isinstance(kind, list) else []


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


def _cast_scalar(kind: str, value: JsonValue) -> JsonValue:
    """Return `value` as `kind`, or `value` itself where that cannot be."""
    if kind == "string" and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        return _cast_text(kind, value)
    return value


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
