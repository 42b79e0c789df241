from __future__ import annotations

import copy

import pytest
from hypothesis import given, strategies as st

from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.tools import cast_params, validate_params

json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(
        ["1", "-2", "1.5", "true", "NO", "[1]", '{"a": "1"}', "", "x", "1e999", "nan"]
    )
    | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)
kinds = st.sampled_from(
    ["string", "integer", "number", "boolean", "array", "object", "null", "unheard-of"]
)
types: st.SearchStrategy[JsonValue] = kinds | st.lists(kinds, max_size=3).map(list)


def larger_schemas(inner: st.SearchStrategy[JsonObject]) -> st.SearchStrategy[JsonObject]:
    array = st.builds(lambda items: {"type": "array", "items": items}, inner)
    choice = st.builds(lambda options: {"anyOf": options}, st.lists(inner, max_size=3))
    properties = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    return array | choice | st.builds(lambda p: {"type": "object", "properties": p}, properties)


plain_schemas: st.SearchStrategy[JsonObject] = st.fixed_dictionaries({"type": types})
schemas = st.recursive(plain_schemas, larger_schemas, max_leaves=6)
arguments = st.dictionaries(st.sampled_from("abc"), json_values, max_size=3)


def one(schema: JsonObject, value: JsonValue) -> JsonValue:
    return cast_params({"type": "object", "properties": {"p": schema}}, {"p": value})["p"]


@given(st.dictionaries(st.sampled_from("abc"), schemas, max_size=3), arguments)
def test_casting_never_raises_and_casting_again_changes_nothing(
    properties: dict[str, JsonObject], params: JsonObject
) -> None:
    schema: JsonObject = {"type": "object", "properties": dict(properties)}

    once = cast_params(schema, params)

    assert cast_params(schema, once) == once


@given(json_values, arguments)
def test_a_schema_that_is_none_does_no_harm(schema: JsonValue, params: JsonObject) -> None:
    assert isinstance(cast_params({"type": "object", "properties": schema}, params), dict)
    assert isinstance(cast_params({"type": schema, "anyOf": schema}, params), dict)


@given(st.dictionaries(st.sampled_from("abc"), schemas, max_size=3), arguments)
def test_the_arguments_themselves_are_not_changed(
    properties: dict[str, JsonObject], params: JsonObject
) -> None:
    before = copy.deepcopy(params)

    cast_params({"type": "object", "properties": dict(properties)}, params)

    assert params == before


@pytest.mark.parametrize(
    ("schema", "written", "meant"),
    [
        ({"type": "integer"}, "60", 60),
        ({"type": "integer"}, " -7 ", -7),
        ({"type": "integer"}, 60.0, 60),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "1", True),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "false", False),
        ({"type": "boolean"}, "0", False),
        ({"type": "boolean"}, "no", False),
        ({"type": "string"}, 7, "7"),
        ({"type": "string"}, 1.5, "1.5"),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"type": ["integer", "null"]}, "60", 60),
        ({"type": ["integer", "null"]}, None, None),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "60", 60),
        ({"oneOf": [{"type": "null"}, {"type": "array"}]}, "[]", []),
        ({"type": "array", "items": {"type": "integer"}}, '["1", 2]', [1, 2]),
        (
            {"type": "object", "properties": {"n": {"type": "integer"}}},
            '{"n": "1", "other": "1"}',
            {"n": 1, "other": "1"},
        ),
        (
            {"anyOf": [{"type": "object", "properties": {"n": {"type": "integer"}}}]},
            {"n": "1"},
            {"n": 1},
        ),
    ],
)
def test_the_right_value_in_the_wrong_type_is_cast(
    schema: JsonObject, written: JsonValue, meant: JsonValue
) -> None:
    cast = one(schema, written)

    assert cast == meant
    assert type(cast) is type(meant)


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "integer"}, "sixty"),
        ({"type": "integer"}, 1.5),
        ({"type": "integer"}, True),
        ({"type": "string"}, True),
        ({"type": "boolean"}, 1),
        ({"type": "boolean"}, "maybe"),
        ({"type": "number"}, "nan"),
        ({"type": "number"}, "1e999"),
        ({"type": "object"}, "[1]"),
        ({"type": "array"}, '{"a": 1}'),
        ({"type": "array"}, "[1], 2"),
        ({"type": "array"}, '[1], "more": [2]'),
        ({"type": "string"}, {"a": 1}),
        ({}, "60"),
    ],
)
def test_what_cannot_be_cast_stays_for_validation_to_name(
    schema: JsonObject, written: JsonValue
) -> None:
    cast = one(schema, written)

    assert cast == written
    assert type(cast) is type(written)


@pytest.mark.parametrize("text", ["yes", "5", '{"a": 1}', "[1]"])
def test_text_stays_text_where_one_alternative_is_text(text: str) -> None:
    """Guards against file contents that arrive as an object because they look like one."""
    others: list[JsonValue] = [{"type": kind} for kind in ("boolean", "integer", "object", "array")]

    assert one({"anyOf": [*others, {"type": "string"}]}, text) == text
    assert one({"type": ["boolean", "integer", "object", "array", "string"]}, text) == text


def test_a_bottomless_schema_and_value_end() -> None:
    schema: JsonObject = {"type": "object"}
    schema["properties"] = {"a": schema}
    value: JsonObject = {}
    for _ in range(5_000):
        value = {"a": value}

    assert cast_params(schema, value)["a"] == value["a"]


def test_cast_arguments_pass_validation() -> None:
    schema: JsonObject = {
        "type": "object",
        "properties": {"timeout": {"type": "integer", "maximum": 600}, "all": {"type": "boolean"}},
    }

    assert validate_params(schema, cast_params(schema, {"timeout": "60", "all": "no"})) == []
