"""Services that refuse what a vendor refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from nanobot_core.testing import irregularity, strict_dialects, strict_rules

Change = Callable[[dict[str, Any]], object]


def _regular() -> dict[str, Any]:
    function = {"name": "look", "arguments": '{"at": "x"}'}
    return {
        "model": "mistral-large-latest",
        "messages": [
            {"role": "system", "content": "rules"},
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "abcdefghi", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "abcdefghi", "content": "seen"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "look",
                    "description": "Look.",
                    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
                },
            }
        ],
        "max_tokens": 9,
    }


def _parameters(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body["tools"][0]["function"]["parameters"]
    return found


def _property(body: dict[str, Any], schema: dict[str, Any]) -> None:
    _parameters(body)["properties"]["at"] = schema


@pytest.mark.parametrize("dialect", strict_dialects())
def test_a_regular_request_is_accepted_by_all(dialect: str) -> None:
    body = {**_regular(), "model": strict_rules(dialect)["models"][-1]}
    if strict_rules(dialect)["max_completion_tokens"] != "(?!)":
        body["max_completion_tokens"] = body.pop("max_tokens")
    if strict_rules(dialect)["reasoning_content"] in {"calls", "all"}:
        body["messages"][2]["reasoning_content"] = "hm"
    assert irregularity(dialect, body) is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda body: body.update(bogus=1), "extra inputs: bogus"),
        (lambda body: body.update(stream=True, stream_options={}), "extra inputs: stream_options"),
        (lambda body: body["messages"][1].update(name="a"), "extra inputs: name"),
        (lambda body: body["messages"][2].update(reasoning_content="a"), "reasoning_content"),
        (lambda body: body["messages"][1].update(content=""), "empty content"),
        (lambda body: body["messages"][1].pop("content"), "no content"),
        (lambda body: body["messages"].pop(), "are missing"),
        (lambda body: body["messages"].pop(2), "answers no open call"),
        (lambda body: body["messages"].insert(1, {"role": "system", "content": "a"}), "late"),
        (lambda body: body["messages"].insert(1, {"role": "user", "content": "a"}), "after role"),
        (lambda body: body["messages"].append({"role": "user", "content": "a"}), "role 'tool'"),
        (lambda body: body["messages"][2]["tool_calls"][0].update(id="call_1"), "id of a call"),
        (lambda body: body["tools"].clear(), "tools is empty"),
        (lambda body: body.update(tool_choice="any"), "tool_choice"),
        (lambda body: body.update(reasoning_effort="high"), "reasoning_effort"),
        (lambda body: body.update(temperature=3), "out of range"),
        (lambda body: _parameters(body).pop("properties"), "missing properties"),
    ],
)
def test_an_irregular_request_is_refused(change: Change, problem: str) -> None:
    body = copy.deepcopy(_regular())
    change(body)
    assert problem in (irregularity("mistral", body) or "")


@pytest.mark.parametrize(
    ("dialect", "schema", "problem"),
    [
        ("openai", {"type": "array"}, "missing items"),
        ("openai", {"allOf": [{}]}, "allOf"),
        ("gemini", {"type": "string", "$comment": "x"}, "$comment"),
        ("gemini", {"type": ["string", "null"]}, "must be a string"),
        ("gemini", {"type": "string", "format": "uri"}, "format"),
        ("gemini", {"type": "integer", "enum": [1]}, "STRING"),
        ("gemini", {"description": "x"}, "not defined"),
        ("moonshot", {"anyOf": [{"type": "null"}], "default": None}, "beside anyOf"),
        ("xai", {"enum": ["a", None]}, "one type"),
        ("groq", {"type": "object", "required": ["a"]}, "not defined"),
        ("llama_cpp", {"type": "string", "maxLength": 9_000}, "repetitions"),
    ],
)
def test_a_schema_that_a_vendor_refuses_is_found(
    dialect: str, schema: dict[str, Any], problem: str
) -> None:
    body = {**_regular(), "model": "none", "messages": [{"role": "user", "content": "hi"}]}
    if dialect == "openai":
        body["model"] = "gpt-4.1"
    _property(body, schema)
    assert problem in (irregularity(dialect, body) or "")
