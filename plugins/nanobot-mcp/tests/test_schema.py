from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from nanobot_core import JsonObject, JsonValue, ToolDefinition, ToolRegistry, tool
from nanobot_core.testing import definition_findings
from nanobot_mcp.offers import Offer, offer_from_json, offer_to_json, tool_offer
from nanobot_mcp.schema import MAX_CHARS, normalise_schema

WORDS = """
type properties required items anyOf oneOf allOf not if enum const default description pattern $ref
$defs definitions minimum maxLength additionalProperties prefixItems nullable format
patternProperties multipleOf uniqueItems x-other a
"""
KEYS = st.sampled_from(WORDS.split())
TEXTS = """
object string array null # #/$defs/a a #/properties/a http://example.test/s.json (a+)+$ object
"""
LEAVES = st.sampled_from([None, True, False, -1, 0, 3.5, ["a"], ["string", "null"], *TEXTS.split()])
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    LEAVES | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=30,
)


def findings(schema: JsonObject) -> list[str]:
    """Findings of the strictest known service and of our registry."""
    return definition_findings(ToolDefinition(name="a", description="a", parameters=schema))


@settings(max_examples=300, deadline=None)
@given(SCHEMAS)
def test_any_json_becomes_a_schema_that_services_take(schema: JsonValue) -> None:
    plain, _ = normalise_schema(schema)

    assert findings(plain) == []
    assert normalise_schema(plain)[0] == plain
    assert len(json.dumps(plain)) < 20 * MAX_CHARS


@settings(max_examples=100, deadline=None)
@given(SCHEMAS)
def test_an_offer_survives_the_disk(schema: JsonValue) -> None:
    offer = tool_offer("name", None, schema, {})  # type: ignore[arg-type]  # servers send anything

    assert offer_from_json(json.loads(json.dumps(offer_to_json(offer)))) == offer


@pytest.mark.parametrize("record", [None, [], {}, {"kind": "tool"}, {"kind": "smell", "name": "a"}])
def test_a_record_of_no_offer_is_refused(record: object) -> None:
    with pytest.raises(ValueError, match="offer"):
        offer_from_json(record)


def prop(schema: JsonValue, definitions: JsonValue = None) -> JsonValue:
    """The normal form of `schema` as that of a parameter."""
    whole: JsonObject = {"type": "object", "properties": {"a": schema}, "$defs": definitions}
    properties = normalise_schema(whole)[0]["properties"]
    assert isinstance(properties, dict)
    return properties["a"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": ["string", "null"]}),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, {"type": ["integer", "null"]}),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        (
            {"anyOf": [{"enum": ["a"], "type": "string"}, {"type": "null"}], "description": "d"},
            {"enum": ["a", None], "type": ["string", "null"], "description": "d"},
        ),
        ({"type": ["integer"]}, {"type": "integer"}),
        ({"const": "x"}, {"enum": ["x"]}),
        ({"type": "array"}, {"type": "array", "items": {}}),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        ),
        (True, {}),
        ({"type": "string", "minLength": "many", "title": "T", "x-a": 1}, {"type": "string"}),
    ],
)
def test_forms_that_services_dislike_are_rewritten(schema: JsonValue, expected: JsonValue) -> None:
    assert prop(schema) == expected


def test_local_references_are_put_in_their_place() -> None:
    point: JsonObject = {"type": "object", "properties": {"x": {"$ref": "#/$defs/N"}}}
    definitions: JsonObject = {"Point": point, "N": {"type": "number"}}

    found = prop({"$ref": "#/$defs/Point", "description": "where"}, definitions)

    assert found == {
        "type": "object",
        "properties": {"x": {"type": "number"}},
        "description": "where",
    }


def test_a_schema_that_contains_itself_is_cut() -> None:
    node: JsonObject = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}

    schema, notes = normalise_schema(
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
    )

    assert schema["properties"] == {
        "a": {"type": "object", "properties": {"next": {"type": "object"}}}
    }
    assert notes == ("a.next contains itself (#/$defs/Node) and is cut there",)


@pytest.mark.parametrize("reference", ["http://example.test/x.json", "other.json", "#nowhere", 7])
def test_references_to_elsewhere_are_refused_and_told(reference: JsonValue) -> None:
    schema, notes = normalise_schema(
        {"type": "object", "properties": {"a": {"$ref": reference, "description": "d"}}}
    )

    assert schema["properties"] == {"a": {"description": "d"}}
    assert len(notes) == 1
    assert notes[0].startswith(f"a refers to {reference}")


def test_a_pattern_is_reported_to_the_model_and_not_run() -> None:
    schema, notes = normalise_schema(
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    )

    assert schema["properties"] == {"a": {"type": "string", "description": "(pattern: ^(a+)+$)"}}
    assert "loses its pattern ^(a+)+$" in notes[0]


def test_a_schema_that_doubles_at_each_level_stays_small_and_quick() -> None:
    defs: JsonObject = {
        f"d{level}": {"type": "object", "properties": {
            "l": {"$ref": f"#/$defs/d{level + 1}"}, "r": {"$ref": f"#/$defs/d{level + 1}"}}}
        for level in range(60)
    }  # fmt: skip
    began = time.process_time()

    schema, notes = normalise_schema({"$ref": "#/$defs/d0", "$defs": defs})

    assert time.process_time() - began < 5
    assert len(json.dumps(schema)) < 100_000
    assert any("too large or too deep" in note for note in notes)
    assert findings(schema) == []


def test_a_deep_schema_is_cut() -> None:
    schema: JsonObject = {"type": "string"}
    for _ in range(200):
        schema = {"type": "object", "properties": {"a": schema}}

    plain, notes = normalise_schema(schema)

    assert findings(plain) == []
    assert "too large or too deep" in notes[0]


def test_a_wide_schema_is_cut() -> None:
    properties: JsonObject = {f"p{n}": {"type": "string"} for n in range(5_000)}

    plain, notes = normalise_schema({"type": "object", "properties": properties})

    assert isinstance(plain["properties"], dict)
    assert len(plain["properties"]) < 1_100
    assert notes


def test_alternatives_at_the_top_are_joined() -> None:
    plain, notes = normalise_schema(
        {
            "type": "object",
            "anyOf": [
                {"properties": {"id": {"type": "integer"}}, "required": ["id"]},
                {"properties": {"name": {"type": "string"}}, "required": ["name"]},
            ],
            "allOf": [{"properties": {"user": {"type": "string"}}, "required": ["user"]}],
        }
    )

    assert plain["properties"] == {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "user": {"type": "string"},
    }
    assert plain["required"] == ["user"]
    assert any("are merged" in note for note in notes)


def test_the_registry_takes_what_was_hostile() -> None:
    plain, _ = normalise_schema(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"a": {"type": "string", "pattern": "("}, "b": "string"},
            "required": ["a", "missing"],
            "patternProperties": {"[": {}},
        }
    )
    registry = ToolRegistry()

    @tool(name="t")
    async def made() -> str:
        """Do nothing."""
        return ""

    made.parameters = plain
    registry.register(made)

    assert registry.prepare_call("t", {"a": "x"}).error is None
    assert "a is required" in str(registry.prepare_call("t", {}).error)


def test_hints_are_believed_only_when_they_are_given() -> None:
    plain = tool_offer("a", "d", {}, {"read_only": None, "idempotent": None})
    reading = tool_offer("a", "d", {}, {"read_only": True})
    again = tool_offer("a", "d", {}, {"idempotent": True})

    assert [(o.read_only, o.idempotent) for o in (plain, reading, again)] == [
        (False, False),
        (True, True),
        (False, True),
    ]
    assert isinstance(plain, Offer)
