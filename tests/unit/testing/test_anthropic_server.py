"""The rules by which the stand-in refuses what Anthropic's service refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nanobot_core.testing import AnthropicServer, RecordedRequest, Reply

_HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
_TOOL = {"name": "look", "input_schema": {"type": "object"}}
_USER = {"role": "user", "content": "x"}
_MARKED = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}


def _request(
    *messages: object, headers: dict[str, str] | None = None, **fields: Any
) -> RecordedRequest:
    body = {"model": "claude-opus-4-8", "max_tokens": 9_000, "messages": list(messages)} | fields
    body = {key: value for key, value in body.items() if value is not None}
    return RecordedRequest(
        method="POST",
        path="/v1/messages",
        headers=_HEADERS if headers is None else headers,
        body=body,
        received_at_s=0.0,
    )


def _refusal(request: RecordedRequest) -> str:
    reply = AnthropicServer().refusal(request)
    if reply is None:
        return ""
    error = json.loads(reply.body or b"{}")
    assert error["type"] == "error"
    return f"{reply.status} {error['error']['message']}"


def _user(*blocks: object) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def _model(*blocks: object) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def _call(call_id: str = "a", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": {}} | fields


def _result(call_id: str = "a", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "x"} | fields


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


_TOOLS: dict[str, Any] = {"tools": [_TOOL]}
_BUDGET: dict[str, Any] = {"type": "enabled", "budget_tokens": 2_000}


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (_request(_USER, headers={}), "401 x-api-key"),
        (_request(_USER, headers={"x-api-key": "k"}), "400 anthropic-version"),
        (_request(_USER, max_tokens=None), "max_tokens: Field required"),
        (_request(_USER, frequency_penalty=1), "Extra inputs are not permitted"),
        (_request(), "at least one message"),
        (_request(_model(_text("x")), _USER), "first message"),
        (_request(_USER, _model(_text("x"))), "prefill"),
        (_request({"role": "tool", "content": "x"}), "role: Input should be"),
        (_request(_user()), "non-empty content"),
        (_request(_user(_text(""))), "must be non-empty"),
        (_request(_user(_text(" \n"))), "non-whitespace"),
        (_request(_USER, system=[_text("")]), "must be non-empty"),
        (_request(_user({"type": "video"})), "not allowed here"),
        (_request(_USER, _model(_call()), _USER, **_TOOLS), "without `tool_result`"),
        (_request(_USER, _model(_call()), _model(_text("x")), **_TOOLS), "without `tool_result`"),
        (
            _request(_USER, _model(_call("a"), _call("b")), _user(_result("a")), **_TOOLS),
            "immediately after: b",
        ),
        (_request(_user(_result())), "unexpected `tool_use_id`"),
        (
            _request(_USER, _model(_call()), _user(_text("x"), _result()), **_TOOLS),
            "must come first",
        ),
        (
            _request(_USER, _model(_call("a"), _call("a")), _user(_result()), **_TOOLS),
            "must be unique",
        ),
        (_request(_USER, _model(_call("a b")), _user(_result()), **_TOOLS), "should match pattern"),
        (_request(_USER, _model(_call(name="a b")), _user(_result()), **_TOOLS), "should match"),
        (_request(_USER, _model(_call(input="x")), _user(_result()), **_TOOLS), "valid dictionary"),
        (_request(_USER, _model(_call()), _user(_result())), "must define tools"),
        (_request(_USER, tools=[_TOOL, _TOOL]), "must be unique"),
        (_request(_USER, tools=[{"name": "look"}]), "input_schema"),
        (_request(_USER, tool_choice={"type": "auto"}), "while providing tools"),
        (
            _request(_USER, model="claude-opus-5-5", tool_choice={"type": "any"}, **_TOOLS),
            "not supported for this model",
        ),
        (
            _request(_USER, tool_choice={"type": "any"}, thinking={"type": "adaptive"}, **_TOOLS),
            "forces tool use",
        ),
        (_request(_user(*[_MARKED] * 5)), "maximum of 4"),
        (_request(_USER, thinking=_BUDGET), "thinking.type.enabled"),
        (
            _request(_USER, model="claude-haiku-4-5", thinking=_BUDGET, max_tokens=2_000),
            "must be greater",
        ),
        (
            _request(_USER, model="claude-haiku-4-5", thinking={"type": "adaptive"}),
            "adaptive thinking is not supported",
        ),
        (
            _request(_USER, model="claude-fable-5-1", thinking={"type": "disabled"}),
            "thinking.type.disabled",
        ),
        (_request(_USER, temperature=0.5), "temperature"),
        (_request(_USER, model="claude-haiku-4-5", temperature=1.5), "temperature"),
        (
            _request(_USER, model="claude-haiku-4-5", output_config={"effort": "low"}),
            "effort",
        ),
        (
            _request(
                _USER,
                output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}},
            ),
            "additionalProperties",
        ),
        (
            _request(
                _USER,
                _model(_call()),
                _user(_result()),
                model="claude-haiku-4-5",
                thinking=_BUDGET,
                **_TOOLS,
            ),
            "Expected `thinking`",
        ),
    ],
)
def test_what_the_service_refuses_is_refused(request_: RecordedRequest, reason: str) -> None:
    assert reason in _refusal(request_)


def test_a_regular_conversation_is_accepted() -> None:
    call, result = _model(_text("I look"), _call()), _user(_result(), _text("and now?"))
    assert _refusal(_request(_USER, _USER, call, result, system="Be kind.", **_TOOLS)) == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"signature": "forged"}, "Invalid `signature`"),
        ({"thinking": "edited"}, "Invalid `signature`"),
    ],
)
def test_thinking_must_come_back_unchanged(change: dict[str, str], reason: str) -> None:
    server, asked = AnthropicServer(), _request(_USER, model="claude-opus-5-5")
    message = server.render(Reply(reasoning="hm", text="x"), asked)
    content = message["content"]
    assert isinstance(content, list)
    first = content[0]
    assert isinstance(first, dict)
    answer = _model({**first, **change}, content[1])
    assert reason in _refusal(_request(_USER, answer, _USER, model="claude-opus-5-5"))


def test_thinking_is_bound_to_its_conversation_where_the_model_checks_it() -> None:
    server, asked = AnthropicServer(), _request(_USER, model="claude-opus-5-5")
    content = server.render(Reply(reasoning="hm", text="x"), asked)["content"]
    answer = {"role": "assistant", "content": content}
    changed = {"role": "user", "content": "changed"}
    assert "bound" in _refusal(_request(changed, answer, _USER, model="claude-opus-5-5"))
    assert _refusal(_request(changed, answer, _USER, model="claude-opus-5")) == ""
