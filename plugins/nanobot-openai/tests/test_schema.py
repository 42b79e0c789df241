"""JSON Schemas in the forms of services."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings, strategies as st

from nanobot_core import JsonObject, JsonValue
from nanobot_core.testing import strict_dialects
from nanobot_core.tools import validate_params
from nanobot_openai.dialect import dialect_of
from nanobot_openai.schema import adapt_schema

VALUES: list[JsonValue] = [None, True, 0, 1, 3, 1.5, "", "a", "only", ["a"], [1], {}, {"a": "a"}]
_NODE: JsonObject = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
_LEAVES: list[JsonObject] = [
    {"type": "string", "minLength": 2, "pattern": "^o"},
    {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3},
    {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5},
    {"type": ["string", "null"], "maxLength": 3, "default": None},
    {"type": ["integer", "string", "array"], "minimum": 1, "minLength": 1, "minItems": 1},
    {"enum": ["a", None]},
    {"enum": [1, "a", True]},
    {"const": "only"},
    {"const": 1},
    {"$ref": "#/$defs/node", "description": "a tree"},
    {"type": "object", "additionalProperties": {"type": "string"}, "required": ["a"]},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
    {"type": "array", "uniqueItems": True},
    {"not": {"type": "string"}},
    {},
]
_TREES = st.recursive(
    st.sampled_from(_LEAVES),
    lambda inner: st.one_of(
        inner.map(lambda each: {"type": "array", "items": each}),
        st.lists(inner, min_size=1, max_size=2).map(lambda each: {"anyOf": [*each]}),
        st.lists(inner, min_size=1, max_size=2).map(lambda each: {"oneOf": [*each]}),
        inner.map(lambda each: {"type": "object", "properties": {"a": each}, "required": ["a"]}),
    ),
    max_leaves=3,
)


def _plain(schema: JsonValue) -> JsonValue:
    """Return `schema` with Google's ``nullable`` in the standard form."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain: JsonObject = {key: _plain(each) for key, each in schema.items() if key != "nullable"}
    return {"anyOf": [plain, {"type": "null"}]} if schema.get("nullable") is True else plain


def _accepts(schema: JsonValue, value: JsonValue) -> bool:
    root: JsonObject = {
        "type": "object",
        "properties": {"v": schema},
        "$defs": {"node": _NODE},
    }
    return not validate_params(root, {"v": value})


@settings(max_examples=60)
@example(tree={"oneOf": [_LEAVES[0], _LEAVES[3]]}, vendor="xai")
@given(tree=_TREES, vendor=st.sampled_from(["gemini", "moonshot", "openai", "xai", "llama_cpp"]))
def test_a_schema_rules_out_nothing_that_it_accepted(tree: JsonObject, vendor: str) -> None:
    root: JsonObject = {"type": "object", "properties": {"v": tree}, "$defs": {"node": _NODE}}
    adapted = adapt_schema(root, dialect_of(vendor, "m").schema)
    properties = adapted["properties"]
    assert isinstance(properties, dict)
    lost = [
        value
        for value in VALUES
        if _accepts(tree, value) and not _accepts(_plain(properties["v"]), value)
    ]
    # Where any value is allowed but each type must be named, lists are lists of text.
    assert [value for value in lost if not isinstance(value, list)] == [], json.dumps(adapted)


@pytest.mark.parametrize(
    ("vendor", "given_", "sent"),
    [
        ("gemini", {"const": "a"}, {"enum": ["a"], "type": "string"}),
        ("gemini", {"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        (
            "gemini",
            {"type": "integer", "exclusiveMinimum": 0, "multipleOf": 2, "description": "even"},
            {"type": "integer", "description": "even (multipleOf: 2)", "minimum": 1},
        ),
        (
            "moonshot",
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "T"},
            {
                "title": "T",
                "anyOf": [
                    {"default": None, "type": "string"},
                    {"default": None, "type": "null"},
                ],
            },
        ),
        (
            "moonshot",
            {"$ref": "#/$defs/at", "description": "where"},
            {"type": "string", "description": "where"},
        ),
        (
            "xai",
            {"type": "string", "maxLength": 3},
            {"type": "string", "description": "(maxLength: 3)"},
        ),
        ("llama_cpp", {"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 3}),
        ("groq", {"type": "string", "pattern": "a"}, {"type": "string", "pattern": "a"}),
    ],
)
def test_a_refused_keyword_is_expressed_otherwise(
    vendor: str, given_: JsonObject, sent: JsonObject
) -> None:
    root: JsonObject = {"type": "object", "properties": {"v": given_}}
    root["$defs"] = {"at": {"type": "string"}}
    adapted = adapt_schema(root, dialect_of(vendor, "m").schema)
    assert adapted["properties"] == {"v": sent}
    assert root["properties"] == {"v": given_}


def test_alternatives_of_all_parameters_become_optional_parameters() -> None:
    text: JsonObject = {"properties": {"at": {"type": "string"}}, "required": ["at"]}
    number: JsonObject = {"properties": {"at": {"type": "integer"}, "by": {"type": "integer"}}}
    adapted = adapt_schema({"type": "object", "anyOf": [text, number]}, dialect_of("m", "m").schema)
    assert adapted == {
        "type": "object",
        "properties": {
            "at": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "by": {"type": "integer"},
        },
        "required": [],
        "description": "(requires one of these: at; nothing more)",
    }


@pytest.mark.parametrize("vendor", strict_dialects())
def test_a_hostile_schema_stays_small(vendor: str) -> None:
    """Guards against definitions that grow exponentially when they replace references."""
    twice: JsonObject = {
        f"d{depth}": {
            "type": "object",
            "properties": {side: {"$ref": f"#/$defs/d{depth + 1}"} for side in "ab"},
        }
        for depth in range(40)
    }
    root: JsonObject = {"type": "object", "properties": {"v": {"$ref": "#/$defs/d0"}}}
    root["$defs"] = {**twice, "d40": {"type": "string"}}
    assert len(json.dumps(adapt_schema(root, dialect_of(vendor, "m").schema))) < 2_000_000
