"""Schemas that strangers wrote to hold the process: each check ends, in words."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from nanobot_core import JsonObject, Tool, ToolContext, ToolOutput
from nanobot_core.events import ToolDefinition
from nanobot_core.tools import ToolRegistry, validate_params

BACKTRACKING = ["(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(.*a){25}$", "^(([a-z])+.)+[A-Z]([a-z])+$"]
EVIL = "a" * 50_000 + "!"
HELD_S = 5.0
"""Far above what a check may take, far below what the expressions take that this guards against."""


class StrangersTool(Tool):
    """A tool whose schema came over the wire."""

    name = "mcp_stranger"
    description = "Do something"

    def __init__(self, schema: JsonObject) -> None:
        self._schema = schema

    @property
    def definition(self) -> ToolDefinition:
        return ToolDefinition(name=self.name, description="", parameters=self._schema)

    async def execute(self, context: ToolContext, params: JsonObject) -> ToolOutput:
        return "done"


def property_a(schema: JsonObject) -> JsonObject:
    return {"properties": {"a": schema}}


def multiplying(keyword: str, levels: int = 40) -> JsonObject:
    """References that double at each of `levels` levels."""
    parts: dict[str, JsonObject] = {
        f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)
    }
    parts[f"d{levels}"] = {"type": "string"}
    return {"$ref": "#/$defs/d0", "$defs": dict(parts)}


def multiplying_unevaluated() -> JsonObject:
    parts: dict[str, JsonObject] = {}
    for level in range(40):
        following: JsonObject = {"$ref": f"#/$defs/d{level + 1}"}
        parts[f"d{level}"] = {"dependentSchemas": {"x": following, "y": following}}
    parts["d40"] = {}
    return {"$ref": "#/$defs/d0", "$defs": dict(parts), "unevaluatedProperties": False}


DIALECT = "http://json-schema.org/draft-07/schema#"
HOSTILE: dict[str, tuple[JsonObject, JsonObject]] = {
    **{f"pattern {p}": (property_a({"pattern": p}), {"a": EVIL}) for p in BACKTRACKING},
    "pattern in a part with a dialect": (
        property_a({"$schema": DIALECT, "pattern": "(a+)+$"}),
        {"a": EVIL},
    ),
    "pattern of names": ({"propertyNames": {"pattern": "(a+)+$"}}, {EVIL: 1}),
    "patternProperties": ({"patternProperties": {"(a+)+$": {"type": "null"}}}, {EVIL: 1}),
    "patternProperties beside additionalProperties": (
        {"patternProperties": {"(a+)+$": {}, "x": {}}, "additionalProperties": False},
        {EVIL: 1},
    ),
    "patternProperties beside unevaluatedProperties": (
        {"patternProperties": {"(a+)+$": {}}, "unevaluatedProperties": False},
        {EVIL: 1},
    ),
    "pattern by way of the meta-schema": (
        {
            "$dynamicAnchor": "meta",
            "properties": {
                "a": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
                "b": {"pattern": "(a+)+$"},
            },
        },
        {"a": {"not": {"b": EVIL}}},
    ),
    "large repetition": (property_a({"pattern": r"(?:(?:.*a){30}){100}$"}), {"a": EVIL}),
    "many large patterns": (
        property_a({"allOf": [{"pattern": r"(?:\w{50}){20}" + str(n)} for n in range(200)]}),
        {"a": EVIL},
    ),
    "anyOf multiplied": (multiplying("anyOf"), {}),
    "allOf multiplied": (multiplying("allOf"), {}),
    "dependentSchemas multiplied": (multiplying_unevaluated(), {"x": 1, "y": 2}),
    "reference to itself": ({"$ref": "#"}, {}),
    "dynamic reference to itself": (
        {"$dynamicAnchor": "x", "allOf": [{"$dynamicRef": "#x"}]},
        {},
    ),
    "depth of the arguments": (
        property_a({"$ref": "#"}),
        json.loads('{"a":' * 900 + "1" + "}" * 900),
    ),
    "unique items": (
        property_a({"uniqueItems": True}),
        {"a": [{"n": number} for number in range(20_000)]},
    ),
    "large enum": (property_a({"enum": [f"v{n}" for n in range(30_000)]}), {"a": "x"}),
    "large enum for each item": (
        property_a({"items": {"enum": [{"n": n} for n in range(20_000)]}}),
        {"a": [{"n": -1}] * 5_000},
    ),
    "contains": (
        property_a({"contains": {"const": 1}, "minContains": 9}),
        {"a": [0] * 200_000},
    ),
    "many properties": ({"properties": {f"p{n}": {"type": "null"} for n in range(20_000)}}, {}),
    "megabytes": ({"description": "x" * 2_000_000}, {}),
    "many anchors": (
        {"$defs": {f"d{n}": {"$anchor": f"x{n}"} for n in range(8_000)}, "$ref": "#x1"},
        {},
    ),
    "many alternatives to cast to": (
        property_a({"anyOf": [{"type": "object"}] * 5_000}),
        {"a": "[" + "1," * 100_000},
    ),
    "many items and many alternatives": (
        property_a({"items": {"anyOf": [{"type": "integer"}] * 2_000}}),
        {"a": ["{"] * 10_000},
    ),
    "many types": (
        property_a({"items": {"type": ["null"] * 30_000}}),
        {"a": ["x"] * 10_000},
    ),
    "many long messages": ({"allOf": [{"maxProperties": 0}] * 2_000}, {"a": ["x" * 99] * 20_000}),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_schema_does_not_hold_the_loop(name: str) -> None:
    schema, params = HOSTILE[name]
    registry = ToolRegistry()
    registry.register(StrangersTool({"type": "object", **schema}))
    entry = registry.get("mcp_stranger")
    assert entry is not None
    longest_s = 0.0
    done = asyncio.Event()

    async def beat() -> None:
        nonlocal longest_s
        last = time.thread_time()
        while not done.is_set():
            await asyncio.sleep(0)
            now = time.thread_time()
            longest_s, last = max(longest_s, now - last), now

    async with asyncio.TaskGroup() as group:
        group.create_task(beat())
        await asyncio.sleep(0)
        await entry.tool()
        prepared = registry.prepare_call("mcp_stranger", params)
        await asyncio.sleep(0)
        done.set()

    assert prepared.error is None or "invalid arguments" in prepared.error
    assert len(prepared.error or "") < 20_000
    assert longest_s < HELD_S


@pytest.mark.parametrize("pattern", BACKTRACKING)
def test_a_pattern_that_backtracks_is_still_enforced(pattern: str) -> None:
    schema: JsonObject = {"type": "object", **property_a({"pattern": pattern})}

    assert validate_params(schema, {"a": "?"}) == [f"a must match the pattern {pattern}"]


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "0" * 8 + "-0000" * 3
         + "-" + "0" * 12, "0000"),
        (r"^\d{4}-\d{2}-\d{2}$", "2026-11-21", "21.11.2026"),
        ("b", "abc", "xyz"),
        (r"^[\w.+-]+@[\w-]+\.[\w.-]+$", "a@example.org", "a@"),
        (r"^https?:\/\/", "https://example.org", "ftp://example.org"),
    ],
)  # fmt: skip
def test_everyday_patterns_are_enforced(pattern: str, good: str, bad: str) -> None:
    schema: JsonObject = {"type": "object", **property_a({"type": "string", "pattern": pattern})}

    assert validate_params(schema, {"a": good}) == []
    assert validate_params(schema, {"a": bad}) == [f"a must match the pattern {pattern}"]


@pytest.mark.parametrize("pattern", ["^(?!x)", r"(a)\1", "(", "x" * 2_000])
def test_a_pattern_that_no_linear_engine_knows_is_left_to_the_tool(pattern: str) -> None:
    schema: JsonObject = {
        "type": "object",
        "properties": {"a": {"pattern": pattern}, "b": {"type": "null"}},
        "patternProperties": {pattern: {"type": "null"}},
    }

    assert validate_params(schema, {"a": "xx", "b": 1}) == ["b should be null, found integer"]


def test_properties_that_a_pattern_names_are_checked() -> None:
    schema: JsonObject = {
        "type": "object",
        "patternProperties": {"^n_": {"type": "integer"}},
        "additionalProperties": False,
    }

    assert validate_params(schema, {"n_a": 1}) == []
    assert validate_params(schema, {"n_a": "x"}) == ["n_a should be integer, found string"]
    (finding,) = validate_params(schema, {"other": 1})
    assert "additional properties are not allowed ('other')" in finding


def test_additional_properties_are_checked_by_their_schema() -> None:
    schema: JsonObject = {"type": "object", "additionalProperties": {"type": "integer"}}

    assert validate_params(schema, {"x": "y"}) == ["x should be integer, found string"]


@pytest.mark.parametrize(
    ("items", "is_unique"),
    [
        ([1, 2], True),
        ([1, 1], False),
        ([{"a": 1}, {"a": 1}], False),
        ([[1], [2]], True),
        ([], True),
    ],
)
def test_unique_items_are_enforced(items: list[object], is_unique: bool) -> None:
    schema: JsonObject = {"type": "object", **property_a({"uniqueItems": True})}

    assert (validate_params(schema, {"a": items}) == []) is is_unique


def test_unevaluated_properties_are_enforced() -> None:
    schema: JsonObject = {
        "type": "object",
        "allOf": [{"properties": {"a": {"type": "integer"}}}],
        "unevaluatedProperties": False,
    }

    assert validate_params(schema, {"a": 1}) == []
    assert "b" in validate_params(schema, {"b": 1})[0]


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        (property_a({"pattern": 5}), "$.properties.a.pattern"),
        (property_a({"type": "unheard-of"}), "$.properties.a.type"),
        ({"required": "a"}, "$.required"),
        ({"properties": []}, "$.properties"),
        ({"patternProperties": {"a": 1}}, "$.patternProperties.a"),
    ],
)
def test_what_is_wrong_with_a_schema_is_told_with_its_place(schema: JsonObject, place: str) -> None:
    (finding,) = validate_params({"type": "object", **schema}, {"a": "x"})

    assert finding.startswith(f"the tool's schema cannot be used: {place}: ")


def test_a_long_enum_is_told_in_part() -> None:
    schema: JsonObject = {
        "type": "object",
        **property_a({"enum": [f"v{n}" for n in range(1_000)]}),
    }

    (finding,) = validate_params(schema, {"a": "x"})

    assert finding.startswith("a must be one of v0, v1, ")
    assert finding.endswith("and 900 more")
