"""Requests that are wrong in one field: the error names it, and no model is asked."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Gateway

PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n rest").decode()
TOOL = {"type": "function", "function": {"name": "get_weather"}}
USER = {"role": "user", "content": "hello"}


def _content(part: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [part]}]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": 5}, "model"),
        ({"model": ""}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [None]}, "messages[0]"),
        ({"messages": [{"content": "hello"}]}, "messages[0].role"),
        ({"messages": [{"role": "wizard", "content": "hello"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [USER, {"role": "assistant", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "system", "content": "only this"}]}, "messages"),
        ({"messages": [USER, {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id"),
        (
            {"messages": [USER, {"role": "assistant", "tool_calls": [{"id": "c"}]}, USER]},
            "messages[1].tool_calls[0].function",
        ),
        (_content("text"), "messages[0].content[0]"),
        (_content({"text": "x"}), "messages[0].content[0].type"),
        (_content({"type": "text"}), "messages[0].content[0].text"),
        (_content({"type": "text", "text": 1}), "messages[0].content[0].text"),
        (_content({"type": "input_audio"}), "messages[0].content[0].type"),
        (_content({"type": "image_url"}), "messages[0].content[0].image_url"),
        (_content({"type": "image_url", "image_url": {}}), "messages[0].content[0].image_url.url"),
        (
            _content({"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}),
            "messages[0].content[0].image_url",
        ),
        (
            _content({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}),
            "messages[0].content[0].image_url",
        ),
        (
            _content({"type": "image_url", "image_url": {"url": "data:image/png;base64,%%"}}),
            "messages[0].content[0].image_url",
        ),
        (
            _content({"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}),
            "messages[0].content[0].image_url",
        ),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": True}, "stream_options"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ({"n": 2}, "n"),
        ({"tools": {}}, "tools"),
        ({"tools": [TOOL]}, "tools"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        ({"model": "custom/m", "tools": [TOOL, TOOL]}, "tools"),
        ({"model": "custom/m", "tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
        ({"model": "nanobot-plain", "tools": [TOOL]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": "json"}, "response_format"),
        ({"user": 5}, "user"),
    ],
)
def test_a_wrong_field_of_a_chat_completion_is_named(
    gateway: Gateway, fields: dict[str, Any], param: str
) -> None:
    before = len(gateway.model.requests)

    response = gateway.chat("hello", **fields)

    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert param.rpartition(".")[2].partition("[")[0] in error["message"]
    assert len(gateway.model.requests) == before


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": 5}, "model"),
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": "function_call", "name": "x"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].image_url",
        ),
        (
            {
                "input": [
                    {
                        "role": "user",
                        "content": [{"type": "input_image", "image_url": "http://127.0.0.1/"}],
                    }
                ]
            },
            "input[0].content[0].image_url",
        ),
        ({"instructions": []}, "instructions"),
        ({"previous_response_id": 5}, "previous_response_id"),
        ({"previous_response_id": "resp_unknown"}, "previous_response_id"),
        (
            {"previous_response_id": "resp_unknown", "model": "nanobot-plain"},
            "previous_response_id",
        ),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"store": "no"}, "store"),
        ({"stream": 1}, "stream"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
        ({"tools": [{"type": "web_search", "name": "x"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": "x"}]}, "tools"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"user": {}}, "user"),
    ],
)
def test_a_wrong_field_of_a_response_is_named(
    gateway: Gateway, fields: dict[str, Any], param: str
) -> None:
    with gateway.client() as client:
        response = client.post("/responses", json={"model": "nanobot", "input": "hello", **fields})

    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"model": "nanobot", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"model": "nanobot", "x": ' + b"[" * 1_000 + b"]" * 1_000 + b"}",
        b'{"model": "nanobot", "tools": ' + b'{"a":' * 1_000 + b"1" + b"}" * 1_000 + b"}",
        b"\xff\xfe",
    ],
)
def test_a_body_that_is_no_request_is_refused(gateway: Gateway, body: bytes) -> None:
    with gateway.client() as client:
        response = client.post("/chat/completions", content=body)

    assert response.status_code == 400, response.text
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_unknown_and_null_fields_are_ignored(gateway: Gateway) -> None:
    unset = dict.fromkeys(
        ("stream", "stream_options", "max_tokens", "n", "tools", "tool_choice", "user", "stop")
    )

    said = gateway.said("hello", **unset, temperature=0.5, chat_id="c1", features={"a": []}, seed=1)

    assert said == "You said: hello"


def test_a_body_over_the_limit_is_refused_in_the_form_of_the_api(gateway: Gateway) -> None:
    too_large, large = "x" * (17 * 1024 * 1024), "x" * (10 * 1024 * 1024)

    response = gateway.chat(too_large)
    allowed = gateway.chat("hello", padding=large)

    assert response.status_code == 413
    assert response.json()["error"]["code"] == "request_too_large"
    assert allowed.status_code == 200


def test_other_paths_and_methods_are_refused_in_the_form_of_the_api(gateway: Gateway) -> None:
    with gateway.client() as client:
        unknown = client.post("/embeddings", json={})
        wrong_method = client.get("/chat/completions")

    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")
    assert wrong_method.status_code == 405
    assert "POST" in wrong_method.json()["error"]["message"]
