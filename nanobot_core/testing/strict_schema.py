"""What a service refuses in the JSON Schema of a tool or of an answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_TYPES = {"null", "boolean", "object", "array", "number", "integer", "string"}
_LENGTHS = ("minLength", "maxLength", "minItems", "maxItems")
_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_BY_NAME = ("properties", "$defs", "definitions", "patternProperties")
_ROOT_UNIONS = {"anyOf", "oneOf", "allOf", "enum", "not"}


def schema_problem(schema: object, rules: Mapping[str, Any], *, is_strict: bool) -> str | None:
    """Return what a service refuses in `schema`, or ``None``.

    Args:
        schema: JSON Schema of an object.
        rules: a ``[schema.NAME]`` of ``dialects.toml``.
        is_strict: the service is asked to enforce it.
    """
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "schema must have type 'object'"
    if not isinstance(schema.get("properties"), dict):
        return "object schema missing properties"
    if not rules["root_unions"] and _ROOT_UNIONS & schema.keys():
        return "schema must not have 'anyOf' or the like at the top level"
    found = (
        f"at {place or 'root'}: {problem}"
        for place, node in _nodes(schema, "")
        for problem in (*_problems(node, rules), *(_loose(node) if is_strict else ()))
    )
    return next(found, None)


def _nodes(schema: object, place: str) -> Iterator[tuple[str, object]]:
    yield place, schema
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if key in _BY_NAME and isinstance(value, dict):
            for name, each in value.items():
                yield from _nodes(each, f"{place}.{name}")
        elif key in _SCHEMAS and isinstance(value, list):
            for number, each in enumerate(value):
                yield from _nodes(each, f"{place}.{key}[{number}]")
        elif key in {"items", "not"} or (key == "additionalProperties" and isinstance(value, dict)):
            yield from _nodes(value, f"{place}.{key}")


def _problems(node: object, rules: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(node, dict):
        yield "a schema must be an object"
        return
    for key in node:
        if key in rules["refused"] or (rules["keywords"] and key not in rules["keywords"]):
            yield f"unknown name '{key}'"
    yield from _problems_of_type(node, rules)
    yield from _problems_of_enum(node, rules)
    if "$ref" in node and not rules["references"]:
        yield "'$ref' is not supported"
    if node.get("format") not in {None, *rules["formats"]} and rules["formats"]:
        yield f"format: only {rules['formats']} are supported"
    beside = node.keys() - {"anyOf", *rules["beside_any_of"]}
    if "anyOf" in node and rules["beside_any_of"] and beside:
        yield f"conflicting keywords beside anyOf: {sorted(beside)}"
    if "anyOf" in node and not node["anyOf"]:
        yield "anyOf is empty"
    if rules["max_bound"] and any(node.get(key, 0) > rules["max_bound"] for key in _LENGTHS):
        yield "number of repetitions exceeds sane defaults"
    if rules["required_is_known"]:
        unknown = set(node.get("required", ())) - node.get("properties", {}).keys()
        if unknown or ("required" in node and "properties" not in node):
            yield f"'required' names {sorted(unknown)}, which are not defined"


def _problems_of_type(node: Mapping[str, Any], rules: Mapping[str, Any]) -> Iterator[str]:
    kind = node.get("type")
    kinds = kind if isinstance(kind, list) else [kind] if "type" in node else []
    if not set(kinds) <= _TYPES:
        yield f"unknown type {kind}"
    if isinstance(kind, list) and not rules["type_lists"]:
        yield "type must be a string"
    if rules["typed"] and not {"type", "anyOf", "$ref"} & node.keys():
        yield "type is not defined"
    if rules["array_items"] and "array" in kinds and not isinstance(node.get("items"), dict):
        yield "array schema missing items"


def _problems_of_enum(node: Mapping[str, Any], rules: Mapping[str, Any]) -> Iterator[str]:
    values = node.get("enum")
    if values is None or rules["enums"] == "any":
        return
    kinds = {type(value) for value in values}
    if len(kinds) != 1 or not kinds <= {str, int, float}:
        yield "enum must have literals of one type"
    elif rules["enums"] == "text" and (kinds != {str} or node.get("type") != "string"):
        yield "enum: only allowed for STRING type"


def _loose(node: object) -> Iterator[str]:
    """Yield what keeps a schema from being enforced."""
    if isinstance(node, dict) and (node.get("type") == "object" or "properties" in node):
        if node.get("additionalProperties") is not False:
            yield "'additionalProperties' is required to be false"
        if set(node.get("required", ())) != set(node.get("properties", {})):
            yield "'required' is required to include every key in properties"
