"""Requests in the form of the wire."""

from __future__ import annotations

import json
import re
from collections.abc import ItemsView
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given, strategies as st

from nanobot_core import (
    ChatRequest,
    ImageBlock,
    JsonObject,
    Message,
    ProviderSpec,
    Role,
    TextBlock,
    ToolCall,
    ToolDefinition,
)
from nanobot_core.providers import BodyEncoder
from nanobot_openai.dialect import dialect_of
from nanobot_openai.mapping import MessageMapper, body_of, own_name, render_tool, wire_name
from nanobot_openai.vendors import VENDORS

SPECS = {spec.name: spec for spec in VENDORS}
IMAGE = ImageBlock("image/png", "QUJD")
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}
TOOL = ToolDefinition(name="look", description="Look.", parameters=NO_PARAMETERS)


def _body(
    *messages: Message,
    vendor: str = "custom",
    stream: bool = True,
    mapper: MessageMapper | None = None,
    **fields: Any,
) -> dict[str, Any]:
    spec: ProviderSpec = fields.pop("spec", SPECS[vendor])
    request = ChatRequest(messages=messages, **{"model": "m", **fields})
    dialect = dialect_of(vendor, request.model)
    return body_of(
        request,
        spec=spec,
        dialect=dialect,
        mapper=mapper or MessageMapper(vendor),
        stream=stream,
        tools=[render_tool(tool, dialect) for tool in request.tools],
    )


def _wire(*messages: Message, vendor: str = "custom", **fields: Any) -> list[dict[str, Any]]:
    wire: list[dict[str, Any]] = _body(*messages, vendor=vendor, **fields)["messages"]
    return wire


def test_a_plain_request_holds_nothing_that_was_not_asked_for() -> None:
    assert _body(Message(role="user", content="hi"), stream=False) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
    }


@pytest.mark.parametrize(
    ("vendor", "model", "is_merged"),
    [("custom", "m", False), ("vllm", "google/gemma-3-27b-it", True), ("mistral", "large", True)],
)
def test_messages_of_one_role_are_merged_where_roles_must_alternate(
    vendor: str, model: str, is_merged: bool
) -> None:
    history = (
        Message(role="user", content="one"),
        Message(role="user", content=(TextBlock("two"), IMAGE)),
        Message(role="assistant", content="a"),
        Message(role="assistant", content="b"),
        Message(role="user", content="three"),
    )
    wire = _wire(*history, vendor=vendor, model=model)
    if not is_merged:
        assert len(wire) == 5
        return
    text = [{"type": "text", "text": each} for each in ("one", "two")]
    assert wire == [
        {"role": "user", "content": [*text, IMAGE_PART]},
        {"role": "assistant", "content": "a\n\nb"},
        {"role": "user", "content": "three"},
    ]


def test_an_endpoint_can_ask_for_alternating_roles() -> None:
    dialect = replace(dialect_of("custom", "m"), needs=frozenset({"alternate"}))
    users = [Message(role="user", content=each) for each in ("one", "two")]
    call = ToolCall("c1", "look", {})
    request = ChatRequest(
        model="m",
        messages=(
            *users,
            Message(role="assistant", content="I look.", tool_calls=(call,)),
            Message(role="tool", content="seen", tool_call_id="c1"),
            *users,
        ),
    )
    body = body_of(
        request,
        spec=SPECS["custom"],
        dialect=dialect,
        mapper=MessageMapper("custom"),
        stream=False,
        tools=[],
    )
    messages = body["messages"]
    assert isinstance(messages, list)
    roles = [message["role"] for message in messages if isinstance(message, dict)]
    assert roles == ["user", "assistant", "tool", "user"]


def test_a_streamed_request_asks_for_usage() -> None:
    body = _body(Message(role="user", content="hi"))
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


def test_a_vendor_that_refuses_stream_options_gets_none() -> None:
    body = _body(Message(role="user", content="hi"), vendor="mistral")
    assert body["stream"] is True
    assert "stream_options" not in body


def test_limits_and_tools_are_sent() -> None:
    body = _body(max_tokens=9, temperature=0.0, tools=(TOOL,), tool_choice="required")
    assert (body["max_tokens"], body["temperature"]) == (9, 0.0)
    assert body["tools"] == [TOOL.to_schema()]
    assert body["tool_choice"] == "required"


def test_tool_choice_is_left_out_where_it_says_nothing() -> None:
    assert "tool_choice" not in _body(tools=(TOOL,))
    assert "tool_choice" not in _body(tool_choice="required")


def test_openai_gets_the_limit_under_its_own_name() -> None:
    body = _body(max_tokens=9, vendor="openai")
    assert body["max_completion_tokens"] == 9
    assert "max_tokens" not in body


@pytest.mark.parametrize(
    ("vendor", "model", "effort", "fields"),
    [
        ("openai", "gpt-5", "high", {"reasoning_effort": "high"}),
        ("openai", "gpt-5", "none", {"reasoning_effort": "minimal"}),
        ("openai", "gpt-4.1", "high", {}),
        ("deepseek", "m", "low", {"thinking": {"type": "enabled"}}),
        ("zhipu", "glm-4.6", "none", {"thinking": {"type": "disabled"}}),
        ("dashscope", "qwen-plus", "none", {"enable_thinking": False}),
        ("siliconflow", "zai-org/GLM-4.6", "medium", {"enable_thinking": True}),
        ("siliconflow", "Qwen/Qwen3-VL-32B-Instruct", "medium", {}),
        ("mistral", "mistral-small-latest", "low", {"reasoning_effort": "high"}),
        ("groq", "qwen/qwen3-32b", "high", {"reasoning_effort": "default"}),
        ("xai", "grok-4", "high", {}),
    ],
)
def test_effort_takes_the_vendors_form(
    vendor: str,
    model: str,
    effort: Literal["none", "low", "medium", "high"],
    fields: dict[str, Any],
) -> None:
    body = _body(vendor=vendor, model=model, reasoning_effort=effort)
    sent = {"reasoning_effort", "thinking", "enable_thinking"} & body.keys()
    assert {key: body[key] for key in sent} == fields


@pytest.mark.parametrize(
    ("vendor", "model", "sent"),
    [("openai", "o3", None), ("openai", "gpt-4o", 0.0), ("minimax", "MiniMax-M3", 0.01)],
)
def test_temperature_is_left_out_or_moved_where_a_model_refuses_it(
    vendor: str, model: str, sent: float | None
) -> None:
    assert _body(vendor=vendor, model=model, temperature=0.0).get("temperature") == sent


def test_tools_rule_out_an_effort_where_the_service_refuses_both() -> None:
    chosen: dict[str, Any] = {"vendor": "openai", "model": "gpt-5.6", "reasoning_effort": "high"}
    assert _body(**chosen)["reasoning_effort"] == "high"
    assert _body(**chosen, tools=(TOOL,))["reasoning_effort"] == "none"


def test_a_choice_that_a_service_refuses_is_expressed_otherwise() -> None:
    offer: dict[str, Any] = {"vendor": "zhipu", "model": "glm-4.6", "tools": (TOOL,)}
    required = _body(**offer, tool_choice="required")
    assert "tools" in required
    assert "tool_choice" not in required
    assert "tools" not in _body(**offer, tool_choice="none")


@pytest.mark.parametrize(
    ("model", "effort", "is_sent"),
    [
        ("qwen-max", None, True),
        ("qwen-plus", "high", False),
        ("qwen3-32b", None, False),
        ("qwen3-32b", "none", True),
    ],
)
def test_a_tool_can_be_required_unless_the_model_thinks(
    model: str, effort: Literal["none", "high"] | None, is_sent: bool
) -> None:
    body = _body(
        vendor="dashscope",
        model=model,
        reasoning_effort=effort,
        tools=(TOOL,),
        tool_choice="required",
    )
    assert ("tool_choice" in body) is is_sent


def test_thinking_is_off_in_an_answer_in_one_piece_where_it_needs_a_stream() -> None:
    asked: dict[str, Any] = {
        "vendor": "dashscope",
        "model": "qwen3-32b",
        "reasoning_effort": "high",
    }
    assert _body(**asked, stream=True)["enable_thinking"] is True
    assert _body(**asked, stream=False)["enable_thinking"] is False


def test_late_messages_of_the_system_keep_their_place_as_the_users() -> None:
    history = (
        Message(role="system", content="a"),
        Message(role="system", content="b"),
        Message(role="user", content="hi"),
        Message(role="system", content="c"),
    )
    assert [message["role"] for message in _wire(*history, vendor="openai")] == [
        "system", "system", "user", "system",
    ]  # fmt: skip
    wire = _wire(*history, vendor="minimax")
    assert [message["role"] for message in wire] == ["system", "user", "user"]
    assert wire[0]["content"] == "a\n\nb"
    assert wire[2]["content"].endswith("c")


def test_images_are_named_where_only_text_is_accepted() -> None:
    shown = Message(role="user", content=(TextBlock("see"), replace(IMAGE, path="cat.png")))
    assert _wire(shown, vendor="deepseek")[0]["content"] == "see\n[image: cat.png]"


@pytest.mark.parametrize("name", ["ls", "2nd", "x__ls", "look", "x__"])
@pytest.mark.parametrize("vendor", ["moonshot", "gemini", "custom"])
def test_names_of_tools_come_back_as_they_were(vendor: str, name: str) -> None:
    dialect = dialect_of(vendor, "m")
    sent = wire_name(name, dialect)
    assert re.fullmatch(dialect.tool_name, sent)
    assert own_name(sent, dialect) == name


def test_a_call_of_another_model_is_marked_for_gemini_3() -> None:
    calls = (ToolCall("a", "look", {}), ToolCall("b", "look", {}))
    own: JsonObject = {"provider": "gemini", "call": 1, "extra_content": {"sig": "x"}}
    foreign = Message(role="assistant", tool_calls=calls)
    signed = replace(foreign, provider_blocks=(own,))
    sent = _wire(foreign, signed, vendor="gemini", model="gemini-3-pro")
    marks = [call.get("extra_content") for message in sent for call in message["tool_calls"]]
    skip = {"google": {"thought_signature": "skip_thought_signature_validator"}}
    assert marks == [skip, None, None, {"sig": "x"}]
    assert "extra_content" not in str(_wire(foreign, vendor="gemini", model="gemini-2.5-pro"))


def test_an_answer_is_asked_for_by_schema() -> None:
    schema: JsonObject = {
        "type": "object",
        "properties": {"age": {"type": "integer", "minimum": 0}, "any": {}},
        "required": ["age"],
    }
    loose = _body(vendor="openai", output_schema=schema)["response_format"]["json_schema"]
    assert (loose["name"], loose["strict"], loose["schema"]) == ("answer", False, schema)
    del schema["properties"]["any"]  # type: ignore[union-attr,arg-type]  # a dict, see above
    strict = _body(vendor="openai", output_schema=schema)["response_format"]["json_schema"]
    assert strict["strict"] is True
    assert strict["schema"]["additionalProperties"] is False


def test_extra_goes_over_the_rest_and_overrides_go_over_extra() -> None:
    spec = replace(SPECS["custom"], model_overrides=(("one", {"temperature": 1.0}),))
    asked: dict[str, Any] = {"spec": spec, "temperature": 0.1, "extra": {"temperature": 0.2}}
    assert _body(model="one", **asked)["temperature"] == 1.0
    assert _body(model="two", **asked)["temperature"] == 0.2


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_empty_content_is_never_sent_empty(role: Role) -> None:
    assert _wire(Message(role=role, tool_call_id="c"))[0]["content"] == "(empty)"
    blocks = Message(role=role, content=(TextBlock(""),), tool_call_id="c")
    assert _wire(blocks)[0]["content"] == "(empty)"


def test_an_assistant_that_only_calls_tools_has_null_content() -> None:
    call = ToolCall("c1", "look", {"at": "Köln"})
    wire = _wire(Message(role="assistant", tool_calls=(call,)))[0]
    assert wire["content"] is None
    assert wire["tool_calls"] == [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "look", "arguments": '{"at": "Köln"}'},
        }
    ]


def test_arguments_that_were_no_json_are_sent_as_json() -> None:
    call = ToolCall("c1", "look", {}, unparsed='{"at": ')
    wire = _wire(Message(role="assistant", tool_calls=(call,)))[0]
    assert json.loads(wire["tool_calls"][0]["function"]["arguments"]) == {}


def test_images_of_a_user_keep_their_place() -> None:
    message = Message(role="user", content=(IMAGE, TextBlock(""), TextBlock("what is it?")))
    assert _wire(message)[0]["content"] == [IMAGE_PART, {"type": "text", "text": "what is it?"}]


def test_texts_without_an_image_are_sent_as_one_text() -> None:
    message = Message(role="user", content=(TextBlock("a"), TextBlock("b")))
    assert _wire(message)[0]["content"] == "a\nb"


@pytest.mark.parametrize(
    ("vendor", "model", "is_answered"),
    [("mistral", "m", True), ("custom", "Devstral-24B", True), ("custom", "m", False)],
)
def test_mistral_gets_an_answer_between_a_result_and_the_user(
    vendor: str, model: str, is_answered: bool
) -> None:
    results = [Message(role="tool", content=(TextBlock("x"), IMAGE), tool_call_id="abcdefghi")]
    wire = _wire(*results, Message(role="user", content="go on"), vendor=vendor, model=model)

    roles = ["tool", "assistant", "user"] if is_answered else ["tool", "user", "user"]
    assert [message["role"] for message in wire] == roles
    assert all(message["content"] for message in wire)


def test_an_image_whose_data_is_gone_is_named() -> None:
    message = Message(role="user", content=(ImageBlock("image/png", "", path="cat.png"),))
    assert _wire(message)[0]["content"] == [{"type": "text", "text": "[image: cat.png]"}]


def test_images_of_tools_follow_the_last_result_as_the_users() -> None:
    results = [
        Message(role="tool", content=(TextBlock("seen"), IMAGE), tool_call_id="a"),
        Message(role="tool", content="done", tool_call_id="b"),
    ]
    for rest in ([], [Message(role="assistant", content="I see")]):
        wire = _wire(*results, *rest)
        assert wire[0] == {"role": "tool", "tool_call_id": "a", "content": "seen"}
        assert wire[1] == {"role": "tool", "tool_call_id": "b", "content": "done"}
        assert wire[2]["role"] == "user"
        assert wire[2]["content"][1] == IMAGE_PART
        assert len(wire) == 3 + len(rest)


@pytest.mark.parametrize(
    ("vendor", "thoughts"),
    [
        ("openai", [None, None, None, None]),
        ("mistral", [None, None, None]),  # the last two are merged
        ("zhipu", ["hm", None, None, None]),
        ("moonshot", ["hm", " ", None, None]),
        ("deepseek", ["hm", "", "so", ""]),
    ],
)
def test_thinking_goes_back_to_vendors_that_want_it(
    vendor: str, thoughts: list[str | None]
) -> None:
    """Guards against a refused history, also where another model, which does not think, called."""
    calls = (ToolCall("c", "look", {}),)
    wire = _wire(
        Message(role="assistant", tool_calls=calls, reasoning="hm"),
        Message(role="assistant", tool_calls=calls),
        Message(role="assistant", content="done", reasoning="so"),
        Message(role="assistant", content="done"),
        vendor=vendor,
    )
    assert [message.get("reasoning_content") for message in wire] == thoughts


@pytest.mark.parametrize(
    ("vendor", "model"),
    [("mistral", "large"), ("vllm", "Devstral-Small"), ("custom", "mistralai/Ministral-8B")],
)
@given(ids=st.lists(st.text(min_size=1), unique=True, max_size=5))
def test_ids_of_calls_are_nine_letters_and_digits_where_they_must_be(
    vendor: str, model: str, ids: list[str]
) -> None:
    calls = tuple(ToolCall(identity, "look", {}) for identity in [*ids, "aB3456789"])
    results = [Message(role="tool", content="seen", tool_call_id=call.id) for call in calls]
    wire = _wire(Message(role="assistant", tool_calls=calls), *results, vendor=vendor, model=model)
    asked = [call["id"] for call in wire[0]["tool_calls"]]
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", identity) for identity in asked)
    assert asked == [message["tool_call_id"] for message in wire[1:]]
    assert len(set(asked)) == len({call.id for call in calls})
    assert asked[-1] == "aB3456789"


def test_ids_of_calls_stay_as_they_are_elsewhere() -> None:
    call = ToolCall("functions.look:0", "look", {})
    wire = _wire(
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content="seen", tool_call_id=call.id),
        vendor="moonshot",
        model="kimi-k2",
    )
    assert wire[0]["tool_calls"][0]["id"] == wire[1]["tool_call_id"] == "functions.look:0"


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("no such file", "Error: no such file"),
        ("Error: no such file", "Error: no such file"),
        ("ERROR 5", "ERROR 5"),
        ("", "Error: (empty)"),
    ],
)
def test_a_failed_call_is_marked_in_the_text_of_its_result(text: str, sent: str) -> None:
    failed = Message(role="tool", content=text, tool_call_id="c", is_error=True)
    assert _wire(failed)[0]["content"] == sent
    done = Message(role="tool", content="no such file", tool_call_id="c")
    assert _wire(done)[0]["content"] == "no such file"


def test_blocks_go_back_to_the_provider_that_made_them_only() -> None:
    details = [{"type": "reasoning.text", "text": "hm"}]
    blocks: Any = (
        {"provider": "openrouter", "reasoning_details": details},
        {"provider": "openrouter", "call": 0, "extra_content": {"sig": "x"}},
        {"provider": "openrouter", "call": 7, "extra_content": {"sig": "lost"}},
        {"type": "thinking", "signature": "of another plugin"},
    )
    calling = Message(
        role="assistant", tool_calls=(ToolCall("c", "look", {}),), provider_blocks=blocks
    )
    spoken = Message(role="assistant", content="x", provider_blocks=blocks[:1])
    wire = _wire(calling, spoken, vendor="openrouter")
    assert wire[0]["reasoning_details"] == wire[1]["reasoning_details"] == details
    assert wire[0]["tool_calls"][0]["extra_content"] == {"sig": "x"}
    other = _wire(calling, vendor="openai")[0]
    assert "reasoning_details" not in other
    assert "extra_content" not in other["tool_calls"][0]


def test_claude_behind_openrouter_is_reported_where_to_cache() -> None:
    history = [
        Message(role="system", content="rules"),
        Message(role="user", content="old"),
        Message(role="user", content=(IMAGE, TextBlock("new"))),
    ]
    wire = _wire(*history, vendor="openrouter", model="anthropic/claude-sonnet")
    assert wire[0]["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert wire[1]["content"] == "old"
    assert wire[2]["content"][-1]["cache_control"] == {"type": "ephemeral"}
    result = Message(role="tool", tool_call_id="c", content="found")
    wire = _wire(*history, result, vendor="openrouter", model="anthropic/claude-sonnet")
    assert ["cache_control" in str(message) for message in wire] == [True, False, True, True]
    assert _wire(*history, vendor="openrouter", model="x-ai/grok")[0]["content"] == "rules"
    assert _wire(vendor="openrouter", model="claude") == []


_BLOCKS = st.lists(
    st.one_of(st.builds(TextBlock, st.text()), st.just(IMAGE), st.just(ImageBlock("image/png", "")))
).map(tuple)
_CALLS = st.lists(st.builds(ToolCall, st.text(), st.text(), st.just({}))).map(tuple)
_MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=st.one_of(st.text(), _BLOCKS),
    tool_calls=_CALLS,
)


@given(st.lists(_MESSAGES), st.sampled_from(sorted(SPECS)))
def test_every_message_has_content_and_only_known_keys(history: list[Message], vendor: str) -> None:
    for wire in _wire(*history, vendor=vendor, model="claude"):
        assert wire.keys() <= {
            "role", "content", "tool_calls", "tool_call_id", "reasoning_content",
        }  # fmt: skip
        assert wire["content"] or wire.get("tool_calls")


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=3), max_size=6))
def test_one_encoder_sends_the_tools_of_each_request(requests: list[list[str]]) -> None:
    known = {name: ToolDefinition(name=name, description="é", parameters={}) for name in "abc"}
    encoder = BodyEncoder(lambda tool: tool.to_schema())
    for names in requests:
        schemas = encoder.tools(tuple(known[name] for name in names))
        body: JsonObject = {"model": "m", "tools": schemas}
        sent = json.loads(encoder.encode(body))
        assert [tool["function"]["name"] for tool in sent["tools"]] == names
        replaced: JsonObject = {"model": "m", "tools": []}
        assert json.loads(encoder.encode(replaced)) == replaced


@given(st.data(), st.lists(_MESSAGES, min_size=1, max_size=5), st.sampled_from(sorted(SPECS)))
def test_earlier_requests_do_not_change_what_is_sent(
    data: st.DataObject, pool: list[Message], vendor: str
) -> None:
    mapper = MessageMapper(vendor)
    histories = st.lists(st.sampled_from(pool), max_size=6)
    for history in data.draw(st.lists(histories, max_size=6)):
        sent = _wire(*history, vendor=vendor, model="claude", mapper=mapper)
        assert sent == _wire(*history, vendor=vendor, model="claude")


class _Watched(dict[str, Any]):
    """Arguments that count how often they are written."""

    written = 0

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # dict_items cannot be named
        self.written += 1
        return super().items()


def test_concurrent_runs_map_each_of_their_messages_once() -> None:
    mapper = MessageMapper("custom")
    runs = [[Message(role="user", content=f"question {number}")] for number in range(5)]
    arguments = [_Watched(path=str(number)) for number in range(100)]
    for number, each in enumerate(arguments):
        history = runs[number % len(runs)]
        call = ToolCall(f"c{number}", "look", each)
        history.append(Message(role="assistant", tool_calls=(call,)))
        history.append(Message(role="tool", content="seen", tool_call_id=call.id))
        _wire(*history, mapper=mapper)
    assert {each.written for each in arguments} == {1}
