"""Schemas for services that enforce them: each field required, no others, optional ones nullable.

A service with strict schemas accepts a part of JSON Schema. `strict_schema` states the same in that
part, and `without_unset` undoes what it does to optional fields.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from nanobot_core.messages import JsonObject, JsonValue

_STRUCTURE = frozenset({"type", "description", "enum", "const", "anyOf", "oneOf", "allOf", "items"})
_OBJECTS = frozenset({"properties", "required", "additionalProperties"})
_SILENT = frozenset({"title", "default", "examples", "discriminator", "$schema", "$defs"})
"""Keywords that restrict nothing."""
_SHAPES = ("type", "enum", "anyOf", "$ref")
"""Keywords of which a strict schema has at least one."""


def strict_schema(schema: JsonObject, *, keywords: Collection[str] = ()) -> JsonObject | None:
    """Return `schema` in the form that services with strict schemas require.

    Each object has ``additionalProperties: false`` and requires all its properties; an optional one
    may be null, which the core reads as absent. ``oneOf`` becomes ``anyOf`` and ``const`` becomes
    ``enum``. Other rules, such as ``minimum``, move to the description, where the model reads them.

    Args:
        schema: JSON Schema of an object, such as `ChatRequest.output_schema`.
        keywords: further rules that the service enforces itself; they are kept.

    Returns:
        The strict form, or ``None`` if none exists, as for an object with any keys.
    """
    try:
        strict = _Strict(frozenset(keywords)).converted(schema)
        definitions = schema.get("$defs")
        if isinstance(definitions, dict):
            convert = _Strict(frozenset(keywords)).converted
            strict["$defs"] = {name: convert(item) for name, item in definitions.items()}
    except _NotStrict:
        return None
    return strict if strict.get("type") == "object" else None


def without_unset(schema: JsonValue, value: JsonValue) -> JsonValue:
    """Return `value` without the nulls of optional properties that `schema` does not let be null.

    Models give them for absent properties, because a strict schema requires each.
    """
    if isinstance(value, list) and isinstance(schema, dict):
        return [without_unset(schema.get("items"), item) for item in value]
    if not isinstance(value, dict):
        return value
    found = _object_schema(schema, value)
    properties, required = _properties(found), _names(found.get("required"))
    return {
        name: without_unset(properties.get(name), item)
        for name, item in value.items()
        if item is not None
        or name in required
        or name not in properties
        or _accepts_null(properties[name])
    }


class _NotStrict(Exception):
    """A part of a schema has no strict form."""


class _Strict:
    """Converts schemas; `keywords` are kept besides those of the structure."""

    def __init__(self, keywords: frozenset[str]) -> None:
        self._keywords = keywords

    def converted(self, node: JsonValue) -> JsonObject:
        if not isinstance(node, dict):
            raise _NotStrict
        if "$ref" in node:
            return {"$ref": node["$ref"]}
        parts = node.get("allOf")
        if isinstance(parts, list):
            if len(parts) != 1 or not isinstance(parts[0], dict):
                raise _NotStrict
            rest = {key: value for key, value in node.items() if key != "allOf"}
            return self.converted({**parts[0], **rest})
        result: JsonObject = {}
        rules: list[str] = []
        for key, value in node.items():
            if key in {"anyOf", "oneOf"} and isinstance(value, list):
                result["anyOf"] = [self.converted(item) for item in value]
            elif key == "const":
                result["enum"] = [value]
            elif key in _STRUCTURE or key in self._keywords:
                result[key] = value
            elif key not in _SILENT | _OBJECTS:
                rules.append(f"{key}: {json.dumps(value, ensure_ascii=False)}")
        if rules:
            stated = f"({', '.join(rules)})"
            result["description"] = f"{result.get('description', '')} {stated}".strip()
        self._fill(node, result)
        return result

    def _fill(self, node: JsonObject, result: JsonObject) -> None:
        """Add the properties of an object and the items of a list."""
        kinds = _kinds(node)
        if "object" in kinds:
            properties = node.get("properties")
            if not isinstance(properties, dict):
                raise _NotStrict
            required = _names(node.get("required"))
            result["properties"] = {
                name: self.converted(item) if name in required else _nullable(self.converted(item))
                for name, item in properties.items()
            }
            result["required"] = list(properties)
            result["additionalProperties"] = False
        if "array" in kinds:
            if "prefixItems" in node:
                raise _NotStrict
            result["items"] = self.converted(node.get("items"))
        if not any(key in result for key in _SHAPES):
            raise _NotStrict


def _nullable(schema: JsonObject) -> JsonObject:
    if _accepts_null(schema):
        return schema
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    result = dict(schema)
    if isinstance(options := result.get("anyOf"), list):
        result["anyOf"] = [*options, {"type": "null"}]
    if kinds := _kinds(result):
        result["type"] = [*kinds, "null"]
    if isinstance(values := result.get("enum"), list):
        result["enum"] = [*values, None]
    return result


def _accepts_null(schema: JsonValue) -> bool:
    if not isinstance(schema, dict):
        return True
    if options := _options(schema):
        return any(map(_accepts_null, options))
    if isinstance(values := schema.get("enum"), list):
        return None in values
    return "null" in _kinds(schema) or not any(key in schema for key in ("type", "const", "$ref"))


def _options(schema: JsonObject) -> list[JsonValue]:
    found = schema.get("anyOf") or schema.get("oneOf")
    return found if isinstance(found, list) else []


def _object_schema(schema: JsonValue, value: JsonObject) -> JsonObject:
    """Return the schema that describes `value`: of several alternatives, the first that fits."""
    found = [each for each in _alternatives(schema) if "object" in _kinds(each)]
    fitting = [each for each in found if _fits(each, value)]
    return (fitting or found or [{}])[0]


def _alternatives(schema: JsonValue) -> list[JsonObject]:
    if not isinstance(schema, dict):
        return []
    options = _options(schema)
    return [each for option in options for each in _alternatives(option)] if options else [schema]


def _fits(schema: JsonObject, value: JsonObject) -> bool:
    """Whether `value` has no other keys, and the constants that distinguish alternatives."""
    properties = _properties(schema)
    return value.keys() <= properties.keys() and all(
        part["const"] == value.get(name)
        for name, part in properties.items()
        if isinstance(part, dict) and "const" in part
    )


def _properties(schema: JsonObject) -> JsonObject:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _kinds(schema: JsonObject) -> list[JsonValue]:
    kind = schema.get("type")
    return kind if isinstance(kind, list) else [kind] if kind else []


def _names(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
