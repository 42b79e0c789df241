from __future__ import annotations

import pytest

from nanobot_core.events import ToolDefinition
from nanobot_core.messages import JsonObject
from nanobot_core.testing import definition_findings

GOOD: JsonObject = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "rows": {"type": "array", "items": {"type": ["array", "null"], "items": {}}},
        "mode": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/mode"}]},
    },
    "required": ["path"],
    "$defs": {"mode": {"type": "string"}},
}


def of(parameters: JsonObject, *, name: str = "tool", description: str = "Do it.") -> list[str]:
    definition = ToolDefinition(name=name, description=description, parameters=parameters)
    return definition_findings(definition)


def with_part(part: JsonObject) -> list[str]:
    return of({"type": "object", "properties": {"a": part}})


def test_a_good_definition_has_no_findings() -> None:
    assert of(GOOD) == []
    assert of({"type": "object", "properties": {}}) == []


@pytest.mark.parametrize(
    ("findings", "words"),
    [
        (of(GOOD, name="a b"), "name 'a b' must be"),
        (of(GOOD, description=" "), "description is missing"),
        (of({"type": "string", "properties": {}}), "found type 'string'"),
        (of({"type": "object"}), "parameters.properties is missing"),
        (of({**GOOD, "anyOf": [{}]}), "anyOf at the top"),
        (of({**GOOD, "required": ["pth"]}), "required names 'pth'"),
        (with_part({"type": "strin"}), "not valid JSON Schema 2020-12: $.properties.a"),
        (with_part({"$ref": "http://example.invalid/a"}), "parameters.a refers to"),
        (with_part({"type": "array"}), "parameters.a is an array without items"),
        (with_part({"type": ["array", "null"]}), "parameters.a is an array without items"),
        (with_part({"anyOf": [{"type": "array"}]}), "parameters.a.anyOf[0] is an array"),
        (
            of({"type": "object", "properties": {}, "$defs": {"x": {"$ref": "x.json"}}}),
            "parameters.$defs.x refers to 'x.json'",
        ),
        (of({"type": "object", "properties": {"a b": {}}}), "property name 'a b' of parameters"),
    ],
)
def test_what_services_refuse_is_found(findings: list[str], words: str) -> None:
    assert len(findings) == 1
    assert words in findings[0]


def test_a_definition_nested_without_bottom_is_found() -> None:
    part: JsonObject = {"type": "string"}
    for _ in range(40):
        part = {"type": "object", "properties": {"a": part}}

    assert any("nested deeper than 32" in finding for finding in of(part))
