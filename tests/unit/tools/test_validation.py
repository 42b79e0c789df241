from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from hypothesis import given, strategies as st

from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.tools import validate_params

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "maxLength": 5},
        "timeout": {"type": "integer", "minimum": 1, "maximum": 600},
        "mode": {"enum": ["read", "write"]},
        "size": {"type": ["integer", "null"]},
        "items": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
            },
        },
    },
    "required": ["path"],
    "additionalProperties": False,
}
json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
keywords = st.sampled_from(
    [
        "properties", "required", "items", "enum", "minimum", "multipleOf", "pattern", "anyOf",
        "$ref", "$id", "$defs", "$schema", "$anchor", "$dynamicRef", "patternProperties",
        "additionalProperties", "uniqueItems", "format", "dependentSchemas", "not", "if",
    ]
)  # fmt: skip


@pytest.mark.parametrize(
    ("params", "finding"),
    [
        ({}, "path is required"),
        ({"path": "a", "timeout": 601}, "timeout must be <= 600"),
        ({"path": "a", "timeout": 0}, "timeout must be >= 1"),
        ({"path": "a", "timeout": "x"}, "timeout should be integer, found string"),
        ({"path": "a", "timeout": True}, "timeout should be integer, found boolean"),
        ({"path": "a", "size": "x"}, "size should be integer or null, found string"),
        ({"path": ""}, "path must have at least 1 characters"),
        ({"path": "abcdef"}, "path must have at most 5 characters"),
        ({"path": "a", "mode": "eat"}, "mode must be one of read, write"),
        ({"path": "a", "items": []}, "items must have at least 1 items"),
        ({"path": "a", "items": [{"name": "x"}] * 4}, "items must have at most 3 items"),
        ({"path": "a", "items": [{"name": "x"}, {}]}, "items[1].name is required"),
        (
            {"path": "a", "items": [{"name": "x"}, {"name": "y"}, {"name": 5}]},
            "items[2].name should be string, found integer",
        ),
    ],
)
def test_a_finding_names_path_and_rule(params: JsonObject, finding: str) -> None:
    assert validate_params(SCHEMA, params) == [finding]


def test_good_arguments_have_no_findings() -> None:
    good: JsonObject = {"path": "a", "timeout": 600, "mode": "read", "items": [{"name": "x"}]}

    assert validate_params(SCHEMA, good) == []


def test_an_unknown_argument_is_named() -> None:
    (finding,) = validate_params(SCHEMA, {"path": "a", "colour": "red"})

    assert "colour" in finding


@pytest.mark.parametrize("name", ["it's", 'a "b"', "a.b", ""])
def test_a_missing_property_is_named_as_the_schema_spells_it(name: str) -> None:
    schema: JsonObject = {"type": "object", "required": ["it's not", name]}

    assert f"{name} is required" in validate_params(schema, {"it's not": 1})


@pytest.mark.parametrize(
    ("params", "found"),
    [(None, "null"), ("x", "string"), ([1], "array"), (1, "integer"), (1.5, "number")],
)
def test_arguments_that_are_no_object_are_told_as_such(params: object, found: str) -> None:
    assert validate_params(SCHEMA, params) == [f"arguments must be an object, found {found}"]


@pytest.mark.parametrize("schema", [{}, {"type": "array"}, {"type": ["object"]}])
def test_a_schema_that_is_no_object_schema_is_told_as_such(schema: JsonObject) -> None:
    (finding,) = validate_params(schema, {})

    assert "not an object schema" in finding


def test_findings_are_bounded() -> None:
    schema: JsonObject = {"type": "object", "additionalProperties": {"type": "string"}}

    assert len(validate_params(schema, {str(number): number for number in range(500)})) == 20


@given(st.dictionaries(keywords, json_values, max_size=4), st.dictionaries(st.text(), json_values))
def test_no_schema_of_a_stranger_makes_validation_raise(
    hostile: JsonObject, params: JsonObject
) -> None:
    findings = validate_params({**hostile, "type": "object"}, params)

    assert all(isinstance(finding, str) for finding in findings)


@pytest.mark.parametrize(
    "hostile",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$dynamicRef": "#"},
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"properties": {"a": {"$ref": "#/nowhere"}}},
        {"properties": {"a": {"type": "unheard-of"}}},
        {"properties": {"a": {"pattern": "("}}},
        {"properties": {"a": {"multipleOf": 0.1}}},
        {"$id": "http://[", "properties": {"a": {"$ref": "x"}}},
        {"$schema": "http://example.invalid/schema"},
    ],
)
def test_a_hostile_schema_ends_in_words(hostile: JsonObject) -> None:
    for value in ("x", 10**400, 1e308):
        findings = validate_params({**hostile, "type": "object"}, {"a": value})

        assert all(isinstance(finding, str) for finding in findings)


def test_a_schema_nested_without_bottom_ends_in_words() -> None:
    schema: JsonObject = {"type": "string"}
    value: JsonValue = "x"
    for _ in range(3_000):
        schema = {"type": "object", "properties": {"a": schema}}
        value = {"a": value}

    (finding,) = validate_params(schema, value)

    assert "cannot be used" in finding


@contextmanager
def schema_server() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"type": "string"}')

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join(5)


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_remote_references_are_never_fetched(keyword: str) -> None:
    with schema_server() as (base, asked):
        schema: JsonObject = {
            "type": "object",
            "$id": f"{base}/root.json",
            "properties": {"a": {keyword: f"{base}/a.json"}, "b": {keyword: "b.json"}},
        }

        findings = validate_params(schema, {"a": "x", "b": "y"})

    assert asked == []
    assert len(findings) == 1
    assert "cannot be used" in findings[0]


@pytest.mark.parametrize(
    ("timeout", "finding"),
    [
        (999, "timeout must be <= 600"),
        ("soon", "timeout should be integer or null, found string"),
        (True, "timeout should be integer or null, found boolean"),
    ],
)
def test_an_optional_parameter_is_judged_by_the_alternative_that_was_meant(
    timeout: object, finding: str
) -> None:
    limited: JsonObject = {"type": "integer", "maximum": 600}
    optional: JsonObject = {"anyOf": [limited, {"type": "null"}]}
    schema: JsonObject = {"type": "object", "properties": {"timeout": optional}}

    assert validate_params(schema, {"timeout": timeout}) == [finding]
