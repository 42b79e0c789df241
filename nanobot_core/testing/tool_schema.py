"""What model services ask of a tool's definition, as findings in words."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nanobot_core.events import ToolDefinition
from nanobot_core.messages import JsonObject, JsonValue

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PROPERTY_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_REFUSED_AT_TOP = ("anyOf", "oneOf", "allOf", "not", "enum", "if")
_MAX_DEPTH = 32


def definition_findings(definition: ToolDefinition) -> list[str]:
    """Return what keeps `definition` from being offered to the known model services.

    The rules are the strictest of them: OpenAI's function calling (names, object schema, no
    composition at the top, items of arrays), Anthropic's tool use (property names) and JSON
    Schema 2020-12 itself. Empty when all hold.
    """
    found: list[str] = []
    if not _TOOL_NAME.fullmatch(definition.name):
        found.append(f"name '{definition.name}' must be 1 to 64 letters, digits, '_' and '-'")
    if not definition.description.strip():
        found.append("description is missing")
    schema = definition.parameters
    if schema.get("type") != "object":
        found.append(f"parameters must be an object schema, found type {schema.get('type')!r}")
    found += [
        f"{key} at the top of parameters is refused" for key in _REFUSED_AT_TOP if key in schema
    ]
    found += _required_findings(schema)
    found += _validity_findings(schema)
    found += _part_findings(schema, "parameters", 0)
    return found


def _required_findings(schema: JsonObject) -> Iterator[str]:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        yield "parameters.properties is missing; a tool without parameters has an empty one"
        return
    for name in required if isinstance(required, list) else ():
        if name not in properties:
            yield f"required names '{name}', which is not a property"


def _validity_findings(schema: JsonObject) -> Iterator[str]:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        place = error.json_path
        yield f"parameters are not valid JSON Schema 2020-12: {place}: {error.message[:200]}"


def _part_findings(schema: JsonValue, path: str, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        yield f"{path} is nested deeper than {_MAX_DEPTH} levels"
        return
    if not isinstance(schema, dict):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and not reference.startswith("#"):
        yield f"{path} refers to '{reference}'; nothing is fetched, resolve it first"
    if _is_array(schema) and "items" not in schema and "prefixItems" not in schema:
        yield f"{path} is an array without items"
    for name, part in _named_parts(schema):
        if not _PROPERTY_NAME.fullmatch(name):
            yield f"property name '{name}' of {path} must be 1 to 64 letters, digits, '_.-'"
        yield from _part_findings(part, f"{path}.{name}", depth + 1)
    definitions = schema.get("$defs")
    for name, part in (definitions if isinstance(definitions, dict) else {}).items():
        yield from _part_findings(part, f"{path}.$defs.{name}", depth + 1)
    for key in ("items", "additionalProperties"):
        yield from _part_findings(schema.get(key), f"{path}.{key}", depth + 1)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        parts = schema.get(key)
        for index, part in enumerate(parts if isinstance(parts, list) else ()):
            yield from _part_findings(part, f"{path}.{key}[{index}]", depth + 1)


def _is_array(schema: JsonObject) -> bool:
    kind = schema.get("type")
    return kind == "array" or (isinstance(kind, list) and "array" in kind)


def _named_parts(schema: JsonObject) -> list[tuple[str, JsonValue]]:
    properties = schema.get("properties")
    return list(properties.items()) if isinstance(properties, dict) else []
