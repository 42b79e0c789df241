"""Requests in the form of the Responses API."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, strategies as st

from nanobot_core import (
    ChatRequest,
    Content,
    ImageBlock,
    JsonObject,
    JsonValue,
    Message,
    TextBlock,
    ToolCall,
    ToolDefinition,
)
from nanobot_core.testing import ResponsesServer
from nanobot_openai.responses_request import ResponsesWire

IMAGE = ImageBlock("image/png", "QUJD")
IMAGE_PART = {"type": "input_image", "image_url": "data:image/png;base64,QUJD", "detail": "auto"}
TOOL = ToolDefinition(
    name="look", description="Look.", parameters={"type": "object", "properties": {}}
)


def _sealed(number: str) -> JsonObject:
    return {
        "type": "reasoning",
        "id": f"rs_{number}",
        "summary": [{"type": "summary_text", "text": "Look first."}],
        "encrypted_content": f"sealed {number}",
    }


SEALED = _sealed("1")
ISSUED = [SEALED, *(_sealed(f"{turn}-{index}") for turn in range(3) for index in range(5))]
ACCOUNT = sha256(b"key").hexdigest()[:12]
CALL: JsonObject = {"type": "function_call", "call": 0}


def _body(*messages: Message, stream: bool = False, **fields: Any) -> dict[str, Any]:
    request = ChatRequest(messages=messages, **{"model": "gpt-5.3-codex", **fields})
    body = ResponsesWire("openai", "key").body(request, stream=stream)
    rules = ResponsesServer().rules
    rules.issued.update((str(item["encrypted_content"]), item) for item in ISSUED)
    rules.check(body)
    return body


def _items(*messages: Message) -> list[dict[str, Any]]:
    """Return the items for `messages`, which follow a question."""
    items: list[dict[str, Any]] = _body(Message(role="user", content="hi"), *messages)["input"]
    return items[1:]


def _answer(
    *output: JsonObject, provider: str = "openai", account: str = ACCOUNT, **fields: Any
) -> Message:
    block: JsonObject = {"provider": provider, "account": account, "output": list(output)}
    return Message(role="assistant", provider_blocks=(block,), **fields)


def _result(call_id: str, content: Content = "seen", **fields: Any) -> Message:
    return Message(role="tool", tool_call_id=call_id, content=content, **fields)


def _kinds(items: list[dict[str, Any]]) -> list[str]:
    return [item["type"] for item in items]


def _texts(items: list[dict[str, Any]]) -> list[str]:
    return [item["content"][0]["text"] for item in items if item["type"] == "message"]


def test_a_plain_request_is_stateless_and_asks_for_the_reasoning() -> None:
    body = _body(Message(role="system", content="Be brief."), Message(role="user", content="hi"))
    assert len(body.pop("prompt_cache_key")) == 32
    assert body == {
        "model": "gpt-5.3-codex",
        "instructions": "Be brief.",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "hi"}],
            }
        ],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


def test_options_have_the_names_and_limits_of_this_api() -> None:
    schema: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}}
    body = _body(
        Message(role="user", content="hi"),
        stream=True,
        max_tokens=5,
        tools=(TOOL,),
        tool_choice="required",
        reasoning_effort="high",
        output_schema=schema,
    )
    assert body["stream"] is True
    assert body["max_output_tokens"] == 16
    assert body["tools"] == [
        {
            "type": "function",
            "name": "look",
            "description": "Look.",
            "parameters": TOOL.parameters,
            "strict": False,
        }
    ]
    assert body["tool_choice"] == "required"
    assert body["reasoning"] == {"effort": "high"}
    form = body["text"]["format"]
    assert (form["type"], form["strict"], form["schema"]["required"]) == (
        "json_schema",
        True,
        ["n"],
    )


def test_parameters_of_tools_are_adapted_as_for_chat_completions() -> None:
    pair: JsonObject = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}
    schema: JsonObject = {"type": "object", "properties": {"allOf": pair}}
    tool = ToolDefinition(name="look", description="Look.", parameters=schema)
    body = _body(Message(role="user", content="hi"), tools=(tool,))
    assert "items" in body["tools"][0]["parameters"]["properties"]["allOf"]


def test_a_schema_without_a_strict_form_is_sent_as_it_is() -> None:
    schema: JsonObject = {"type": "object", "additionalProperties": {"type": "integer"}}
    form = _body(Message(role="user", content="hi"), output_schema=schema)["text"]["format"]
    assert (form["strict"], form["schema"]) == (False, schema)


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        ("gpt-5.6-sol", "none", "none"),
        ("gpt-5", "none", "minimal"),
        ("gpt-5.3-codex", "none", "low"),
        ("gpt-5.4-pro", "low", "medium"),
        ("gpt-5-pro", "medium", "high"),
        ("o3-pro", "medium", "medium"),
        ("somebody/large", "none", "none"),
    ],
)
def test_an_effort_that_the_model_refuses_becomes_the_nearest(
    model: str, effort: str, sent: str
) -> None:
    body = _body(Message(role="user", content="hi"), model=model, reasoning_effort=effort)
    assert body["reasoning"] == {"effort": sent}


@pytest.mark.parametrize(
    ("model", "reasons"),
    [
        *(("o3-pro", True), ("gpt-5.6", True), ("codex-mini-latest", True)),
        *(("gpt-4.1", False), ("gpt-5-chat-latest", False), ("gpt-5.3-chat-latest", False)),
    ],
)
def test_only_models_that_reason_are_asked_for_it_and_get_no_temperature(
    model: str, reasons: bool
) -> None:
    # The core puts values that are forced for a model into `extra`.
    fields: dict[str, Any] = {"temperature": 0.5, "extra": {"temperature": 1.0}}
    body = _body(Message(role="user", content="hi"), model=model, **fields)
    assert ("include" in body, body.get("temperature")) == (reasons, None if reasons else 1.0)


def test_a_summary_of_the_reasoning_is_asked_for_if_it_is_wanted() -> None:
    request = ChatRequest(messages=(), model="gpt-5.6", reasoning_effort="low")
    body = ResponsesWire("openai", summary="concise").body(request, stream=False)
    assert body["reasoning"] == {"effort": "low", "summary": "concise"}


def test_extra_fields_replace_what_is_derived() -> None:
    body = _body(Message(role="user", content="hi"), extra={"service_tier": "flex"}, max_tokens=50)
    assert (body["service_tier"], body["max_output_tokens"]) == ("flex", 50)


def test_a_session_keeps_its_cache_key_and_another_has_its_own() -> None:
    system, first = Message(role="system", content="S"), Message(role="user", content="hi")
    later = (first, Message(role="assistant", content="ho"), Message(role="user", content="more"))
    keys = [_body(system, *history)["prompt_cache_key"] for history in ((first,), later, later[2:])]
    assert keys[0] == keys[1] != keys[2]


def test_an_answer_with_calls_and_results_keeps_ids_names_and_images() -> None:
    calls = (ToolCall("call_1", "look", {"at": "ü"}), ToolCall("odd id/" * 20, "do.it", {}))
    message, first, second, *results = _items(
        Message(role="assistant", content="I look.", tool_calls=calls),
        _result("call_1", (TextBlock("seen"), IMAGE)),
        _result("odd id/" * 20, "broken", is_error=True),
    )
    assert message["role"] == "assistant"
    assert message["content"] == [{"type": "output_text", "text": "I look.", "annotations": []}]
    assert first == {
        "type": "function_call",
        "call_id": "call_1",
        "name": "look",
        "arguments": '{"at": "ü"}',
    }
    assert second["name"] == "do_it"
    assert results == [
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [{"type": "input_text", "text": "seen"}, IMAGE_PART],
        },
        {
            "type": "function_call_output",
            "call_id": second["call_id"],
            "output": "Error: broken",
        },
    ]


def test_images_of_the_user_and_later_instructions_are_sent() -> None:
    user, developer = _items(
        Message(role="user", content=(TextBlock("what"), IMAGE, ImageBlock("image/png", "", "a"))),
        Message(role="system", content="Be careful."),
    )
    lost = {"type": "input_text", "text": "[image: a]"}
    assert user["content"] == [{"type": "input_text", "text": "what"}, IMAGE_PART, lost]
    assert developer["role"] == "developer"


def test_reasoning_goes_back_to_the_place_that_it_had() -> None:
    call = ToolCall("c1", "look", {})
    phase: JsonObject = {"type": "message", "chars": 7, "phase": "commentary"}
    final: JsonObject = {"type": "message", "chars": 5, "phase": "final_answer"}
    items = _items(
        _answer(phase, SEALED, CALL, final, content="I look.\n\nDone.", tool_calls=(call,)),
        _result("c1"),
    )
    assert _kinds(items) == [
        *("message", "reasoning", "function_call", "message", "function_call_output"),
    ]
    assert items[1] == SEALED
    assert _texts(items) == ["I look.", "Done."]
    assert [item["phase"] for item in items if item["type"] == "message"] == [
        *("commentary", "final_answer"),
    ]


@pytest.mark.parametrize("other", [{"provider": "other"}, {"account": "another"}])
def test_reasoning_of_another_provider_or_account_is_left_out(other: dict[str, str]) -> None:
    answer = _answer(SEALED, CALL, **other, tool_calls=(ToolCall("c1", "look", {}),))
    assert _kinds(_items(answer, _result("c1"))) == ["function_call", "function_call_output"]


def test_reasoning_whose_following_item_is_gone_is_left_out() -> None:
    gone: JsonObject = {"type": "message", "chars": 4}
    items = _items(_answer(SEALED, gone), Message(role="user", content="and?"))
    assert _texts(items) == ["(empty)", "and?"]
    items = _items(
        _answer(SEALED, gone, CALL, tool_calls=(ToolCall("c1", "look", {}),)), _result("c1")
    )
    assert _kinds(items) == ["function_call", "function_call_output"]
    later = {**CALL, "call": 1}
    items = _items(
        _answer(CALL, SEALED, later, tool_calls=(ToolCall("c1", "look", {}),)), _result("c1")
    )
    assert _kinds(items) == ["function_call", "function_call_output"]


def test_a_text_that_was_changed_takes_the_place_of_the_first_message() -> None:
    messages: list[JsonObject] = [{"type": "message", "chars": chars} for chars in (3, 4)]
    items = _items(_answer(messages[0], SEALED, messages[1], content="something else"))
    assert _texts(items) == ["something else"]


_TEXT = st.text(max_size=12) | st.just("x" * 200)
_IMAGES = st.sampled_from([IMAGE, ImageBlock("image/webp", "", "lost.webp")])
_CONTENT = _TEXT | st.lists(_TEXT.map(TextBlock) | _IMAGES, max_size=3).map(tuple)
_BLOCKS_OF_OTHERS: st.SearchStrategy[JsonObject] = st.sampled_from(
    [
        {"provider": "openai", "reasoning_details": [{"text": "t"}]},
        {"provider": "openai", "account": ACCOUNT, "output": ["text", {"type": "unknown"}, {}]},
        {"type": "thinking", "signature": "s"},
        {"provider": "anthropic", "account": ACCOUNT, "output": [{**SEALED, "id": "rs_9"}]},
        {"provider": "openai", "account": "other", "output": [{**SEALED, "id": "rs_9"}]},
    ]
)


@st.composite
def _outputs(draw: st.DrawFn, number: int) -> JsonObject:
    """Blocks of this provider and account; hooks may have changed what they refer to."""
    output: list[JsonValue] = []
    kinds = st.sampled_from(["reasoning", "reasoning", "message", "function_call"])
    for index, kind in enumerate(draw(st.lists(kinds, max_size=5))):
        if kind == "reasoning":
            output.append(_sealed(f"{number}-{index}"))
        elif kind == "message":
            output.append({"type": kind, "chars": draw(st.integers(0, 12))})
        else:
            output.append({"type": kind, "call": draw(st.integers(-1, 2))})
    return {"provider": "openai", "account": ACCOUNT, "output": output}


@st.composite
def _turns(draw: st.DrawFn) -> list[Message]:
    """Histories in the form that the core sends: each call has one result, ids are unique."""
    history: list[Message] = []
    if draw(st.booleans()):
        history.append(Message(role="system", content=draw(_TEXT)))
    for turn in range(draw(st.integers(0, 3))):
        history.append(Message(role="user", content=draw(_CONTENT)))
        ids = draw(st.lists(_TEXT, max_size=3, unique=True))
        calls = tuple(
            ToolCall(f"{call_id}{turn}", draw(_TEXT), draw(st.sampled_from([{}, {"a": "ü"}])))
            for call_id in ids
        )
        answer = Message(
            role="assistant",
            content=draw(_TEXT),
            tool_calls=calls,
            provider_blocks=(draw(_outputs(turn) | _BLOCKS_OF_OTHERS),),
        )
        history.append(answer)
        history += [
            _result(call.id, draw(_CONTENT), is_error=draw(st.booleans())) for call in calls
        ]
    return history


@given(_turns(), st.sampled_from(["gpt-5.6", "gpt-4.1"]))
def test_every_history_gives_a_request_that_the_service_accepts(
    history: list[Message], model: str
) -> None:
    _body(*history, model=model, tools=(TOOL,), max_tokens=1, temperature=0.1)
