"""From requests to bodies, judged by the stand-in, which is as strict as the service."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from nanobot_core import (
    ChatRequest,
    Content,
    ImageBlock,
    JsonObject,
    LLMProvider,
    Message,
    TextBlock,
    ToolCall,
    ToolDefinition,
)
from nanobot_core.providers import HTTPProvider
from nanobot_core.testing import AnthropicServer, RecordedRequest, Reply, ScriptedCall

Build = Callable[..., LLMProvider]
Body = Callable[..., dict[str, Any]]
Effort = Literal["none", "low", "medium", "high"]
Choice = Literal["auto", "none", "required"]
Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
MODELS = (
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
    "claude-fable-5-1",
    "claude-opus-5",
    "claude-opus-4-8",
    "claude-sonnet-4-6",
    "claude-opus-4-5-20251101",
    "claude-haiku-4-5",
    "another-model",
)
LOOKUP = ToolDefinition(
    name="lookup",
    description="Look up.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}},
)
PNG = base64.b64encode(b"png").decode()


@pytest.fixture
def body(build: Build) -> Body:
    """Returns the body for messages, after the stand-in has accepted it."""
    provider = build()

    def body(*messages: Message, **fields: Any) -> dict[str, Any]:
        request = ChatRequest(messages=messages, **({"model": "claude-opus-4-8"} | fields))
        return accepted(provider, request)

    return body


def accepted(provider: LLMProvider, request: ChatRequest) -> dict[str, Any]:
    assert isinstance(provider, HTTPProvider)
    sent: dict[str, Any] = json.loads(provider.encode(request, stream=False))
    refusal = AnthropicServer().refusal(recorded(sent))
    assert refusal is None, (refusal.body, sent)
    return sent


def recorded(sent: dict[str, Any]) -> RecordedRequest:
    headers = {"x-api-key": "sk-test", "anthropic-version": "2023-06-01"}
    return RecordedRequest(
        method="POST", path="/v1/messages", headers=headers, body=sent, received_at_s=0.0
    )


def user(text: str) -> Message:
    return Message(role="user", content=text)


def calls(*ids: str, text: str = "", **fields: Any) -> Message:
    found = tuple(ToolCall(call_id, "lookup", {}) for call_id in ids)
    return Message(role="assistant", content=text, tool_calls=found, **fields)


def result(call_id: str, content: Content = "found", **fields: Any) -> Message:
    return Message(role="tool", content=content, tool_call_id=call_id, name="lookup", **fields)


def texts(message: JsonObject) -> list[Any]:
    content = message["content"]
    assert isinstance(content, list)
    return [block.get("text", block.get("type")) for block in content if isinstance(block, dict)]


def kinds(message: JsonObject) -> list[Any]:
    content = message["content"]
    assert isinstance(content, list)
    return [block["type"] for block in content if isinstance(block, dict)]


def test_the_leading_system_messages_become_the_system_prompt(body: Body) -> None:
    sent = body(
        Message(role="system", content="Be kind."),
        user("hello"),
        Message(role="assistant", content="hi"),
        Message(role="system", content="Be brief."),
        user("bye"),
    )
    assert texts({"content": sent["system"]}) == ["Be kind."]
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
    assert texts(sent["messages"][2]) == ["Be brief.", "bye"]


def test_all_results_of_a_message_come_first_in_one_message(body: Body) -> None:
    image = ImageBlock("image/png", PNG)
    sent = body(
        user("look"),
        calls("a", "b"),
        result("b", (TextBlock("b is"), image)),
        result("a", (TextBlock("failed"), image), is_error=True),
        user("and now?"),
        tools=(LOOKUP,),
    )
    newest = sent["messages"][2]
    assert kinds(newest) == ["tool_result", "tool_result", "image", "text"]
    assert [block.get("tool_use_id") for block in newest["content"][:2]] == ["b", "a"]
    assert kinds(newest["content"][0]) == ["text", "image"]
    assert kinds(newest["content"][1]) == ["text"]


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        pytest.param((), ["(empty)"], id="nothing"),
        pytest.param((user("  "),), ["(empty)"], id="white space"),
        pytest.param(
            (Message(role="user", content=(TextBlock(""), TextBlock("x"))),), ["x"], id="blocks"
        ),
        pytest.param(
            (user("x"), Message(role="assistant", content="done ")), ["Continue."], id="model last"
        ),
        pytest.param((user("x"), calls("a")), ["tool_result"], id="no result"),
        pytest.param(
            (user("x"), result("zzz", "orphan")), ["x", "[result of lookup]", "orphan"], id="orphan"
        ),
        pytest.param((user("x"), user("y")), ["x", "y"], id="neighbours"),
    ],
)
def test_an_irregular_history_becomes_one_that_is_accepted(
    body: Body, history: tuple[Message, ...], expected: list[str]
) -> None:
    assert texts(body(*history)["messages"][-1]) == expected


def test_foreign_ids_and_names_are_replaced_the_same_way_each_time(body: Body) -> None:
    odd = Message(role="assistant", tool_calls=(ToolCall("ä:1", "look up!", {}),))
    history = (user("x"), odd, result("ä:1"), calls("ok_1"), result("ok_1"), calls("ok_1"))
    first, second = body(*history), body(*history)
    assert first == second
    made = [message["content"][0] for message in first["messages"] if message["role"] != "user"]
    assert made[0]["name"] == "look_up_"
    assert made[1]["id"] == "ok_1"
    assert len({block["id"] for block in made}) == 3


def test_files_go_out_as_images_and_documents_or_by_name(body: Body) -> None:
    sent = body(
        Message(
            role="user",
            content=(
                ImageBlock("image/webp", PNG),
                ImageBlock("application/pdf", PNG),
                ImageBlock("image/png", "", "/tmp/cat.png"),
                ImageBlock("image/tiff", PNG),
            ),
        )
    )
    message = sent["messages"][0]
    assert kinds(message) == ["image", "document", "text", "text"]
    assert texts(message)[2:] == ["[file: /tmp/cat.png]", "[file: image/tiff]"]
    assert message["content"][1]["source"]["media_type"] == "application/pdf"


def test_calls_in_a_history_without_tools_keep_a_list_of_tools(body: Body) -> None:
    sent = body(user("x"), calls("a"), result("a"))
    assert [tool["name"] for tool in sent["tools"]] == ["lookup"]
    assert sent["tool_choice"] == {"type": "none"}


def test_marks_for_the_cache_are_where_the_next_request_finds_them(body: Body) -> None:
    history = (
        Message(role="system", content="Be kind."),
        user("one"),
        calls("a"),
        result("a"),
        calls("b"),
        result("b"),
    )
    sent = body(*history, tools=(LOOKUP,))
    assert "cache_control" in sent["system"][-1]
    assert "cache_control" not in sent["tools"][-1]
    marked = [
        index
        for index, message in enumerate(sent["messages"])
        if "cache_control" in message["content"][-1]
    ]
    assert marked == [0, 4]
    assert "cache_control" in body(user("x"), tools=(LOOKUP,))["tools"][-1]


@pytest.mark.parametrize(
    ("model", "wanted", "sent"),
    [
        ("claude-opus-5-5", None, 128_000),
        ("claude-haiku-4-5-20251001", 100_000, 64_000),
        ("claude-opus-4-8", 4_096, 4_096),
        ("another-model", None, 8_192),
        ("another-model", 500_000, 500_000),
    ],
)
def test_the_limit_of_an_answer_is_one_that_the_model_accepts(
    body: Body, model: str, wanted: int | None, sent: int
) -> None:
    assert body(user("x"), model=model, max_tokens=wanted)["max_tokens"] == sent


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "sent_effort"),
    [
        ("claude-opus-5-5", "high", "adaptive", "high"),
        ("claude-opus-5-5", "none", None, "low"),
        ("claude-opus-5-5", None, None, None),
        ("claude-opus-6", "none", None, "low"),
        ("claude-sonnet-5-5", "none", "between_tools", None),
        ("us.anthropic.claude-sonnet-5-5", "none", "between_tools", None),
        ("claude-opus-5", "none", "disabled", None),
        ("claude-haiku-5-5", "low", "adaptive", "low"),
        ("claude-opus-4-8", "none", None, None),
        ("claude-sonnet-4-6", "medium", "adaptive", "medium"),
        ("claude-opus-4-5-20251101", "medium", "enabled", "medium"),
        ("claude-haiku-4-5", "low", "enabled", None),
        ("another-model", "high", "enabled", None),
    ],
)
def test_thinking_is_requested_in_the_form_of_the_model(
    body: Body, model: str, effort: str | None, thinking: str | None, sent_effort: str | None
) -> None:
    sent = body(user("x"), model=model, reasoning_effort=effort, max_tokens=8_192)
    assert sent.get("thinking", {}).get("type") == thinking
    assert sent.get("output_config", {}).get("effort") == sent_effort
    if thinking == "enabled":
        assert 1_024 <= sent["thinking"]["budget_tokens"] < 8_192


def test_an_answer_too_short_to_think_in_is_requested_without_thinking(body: Body) -> None:
    sent = body(user("x"), model="claude-haiku-4-5", reasoning_effort="high", max_tokens=1_024)
    assert "thinking" not in sent


def test_a_budget_is_left_out_when_the_answer_began_without_thinking(body: Body) -> None:
    history = (user("x"), calls("a"), result("a"))
    fields: dict[str, Any] = {"model": "claude-haiku-4-5", "reasoning_effort": "high"}
    assert "thinking" not in body(*history, **fields)
    assert "thinking" not in body(*history, user(" "), **fields)
    assert "thinking" in body(*history, user("and?"), **fields)


@pytest.mark.parametrize(
    ("model", "effort", "expected"),
    [
        ("claude-opus-4-8", None, None),
        ("claude-sonnet-4-6", None, 0.3),
        ("claude-sonnet-4-6", "low", None),
        ("another-model", None, 0.3),
    ],
)
def test_a_temperature_is_sent_only_where_it_is_accepted(
    body: Body, model: str, effort: str | None, expected: float | None
) -> None:
    sent = body(user("x"), model=model, temperature=0.3, reasoning_effort=effort)
    assert sent.get("temperature") == expected
    assert body(user("x"), model="another-model", temperature=1.7)["temperature"] == 1.0


@pytest.mark.parametrize(
    ("model", "choice", "expected"),
    [
        ("claude-opus-5-5", "required", None),
        ("claude-opus-5", "required", {"type": "any"}),
        ("claude-haiku-4-5", "required", {"type": "any"}),
        ("claude-opus-5-5", "none", {"type": "none"}),
        ("claude-opus-5-5", "auto", None),
    ],
)
def test_a_call_is_forced_where_the_model_allows_it(
    body: Body, model: str, choice: str, expected: JsonObject | None
) -> None:
    sent = body(
        user("x"), model=model, tools=(LOOKUP,), tool_choice=choice, reasoning_effort="high"
    )
    assert sent.get("tool_choice") == expected


def test_a_schema_of_the_answer_is_sent_in_its_strict_form(body: Body) -> None:
    schema: JsonObject = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
        "required": ["city", "days"],
    }
    sent = body(user("x"), output_schema=schema, reasoning_effort="low")
    assert sent["output_config"]["effort"] == "low"
    assert sent["output_config"]["format"]["schema"]["additionalProperties"] is False
    anything = body(user("x"), output_schema={"type": "object"})
    assert "output_config" not in anything
    assert "JSON Schema" in anything["system"][-1]["text"]


def test_further_fields_and_overrides_go_over_the_rest(body: Body) -> None:
    sent = body(user("x"), extra={"max_tokens": 5, "metadata": {"user_id": "u"}})
    assert (sent["max_tokens"], sent["metadata"]) == (5, {"user_id": "u"})


async def _thoughtful(build: Build, model: str, *history: Message) -> tuple[LLMProvider, Message]:
    """Return a provider and the message for a thoughtful answer to `history`."""
    reply = Reply(reasoning="hm", text="I look. ", calls=(ScriptedCall(name="lookup", id="a"),))
    async with AnthropicServer([reply]) as server:
        provider = build(api_base=server.url)
        answer = await provider.chat(ChatRequest(messages=history, model=model, tools=(LOOKUP,)))
        await provider.aclose()
    message = calls("a", text=answer.content or "", provider_blocks=answer.provider_blocks)
    return provider, message


@pytest.mark.anyio
@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-haiku-4-5", "another-model"])
async def test_thinking_is_handed_back_unchanged_with_the_results(build: Build, model: str) -> None:
    provider, answer = await _thoughtful(build, model, user("x"))
    history = (user("x"), answer, result("a"))
    sent = accepted(provider, ChatRequest(messages=history, model=model, tools=(LOOKUP,)))
    block = sent["messages"][1]["content"][0]
    assert (block["type"], block["thinking"]) == ("thinking", "hm")
    assert kinds(sent["messages"][1]) == ["thinking", "text", "tool_use"]


@pytest.mark.anyio
async def test_thinking_that_another_provider_made_is_left_out(build: Build, body: Body) -> None:
    _, answer = await _thoughtful(build, "claude-haiku-4-5", user("x"))
    foreign = calls("a", provider_blocks=({**answer.provider_blocks[0], "provider": "openrouter"},))
    assert kinds(body(user("x"), foreign, result("a"))["messages"][1]) == ["tool_use"]


@pytest.mark.anyio
@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-haiku-5-5"])
async def test_thinking_after_a_changed_message_is_left_out_where_it_would_be_refused(
    build: Build, model: str
) -> None:
    provider, answer = await _thoughtful(build, model, user("x"))
    for history in (
        (user("changed"), answer, result("a")),
        (Message(role="system", content="new"), user("x"), answer, result("a")),
    ):
        sent = accepted(provider, ChatRequest(messages=history, model=model, tools=(LOOKUP,)))
        assert kinds(sent["messages"][1]) == ["text", "tool_use"]


@pytest.mark.anyio
async def test_a_changed_text_follows_the_thinking(build: Build) -> None:
    provider, answer = await _thoughtful(build, "claude-haiku-4-5", user("x"))
    changed = calls("a", text="Rewritten.", provider_blocks=answer.provider_blocks)
    request = ChatRequest(messages=(user("x"), changed, result("a")), model="claude-haiku-4-5")
    assert texts(accepted(provider, request)["messages"][1]) == [
        "thinking",
        "Rewritten.",
        "tool_use",
    ]


_TEXT = st.sampled_from(["", " ", "hello", "Grüße\n", "\t"])
_CALL_ID = st.sampled_from(["a", "b", "ä:1", "", "x" * 80])
_BLOCK = st.one_of(
    st.builds(TextBlock, _TEXT),
    st.builds(
        ImageBlock,
        st.sampled_from(["image/png", "application/pdf", "image/tiff"]),
        st.sampled_from(["", PNG]),
    ),
)
_CONTENT = st.one_of(_TEXT, st.lists(_BLOCK, max_size=3).map(tuple))
_CALLS = st.lists(
    st.builds(
        ToolCall,
        _CALL_ID,
        st.sampled_from(["lookup", "no such tool!", ""]),
        st.just({}),
        st.sampled_from([None, "{broken"]),
    ),
    max_size=3,
).map(tuple)
_THOUGHT: JsonObject = {
    "provider": "anthropic",
    "content": [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "chars": 5}],
}


def test_what_was_mapped_before_is_used_for_the_same_messages_only(build: Build) -> None:
    provider = build()
    system, start = Message(role="system", content="s"), user("x")
    branches: tuple[tuple[Message, ...], ...] = (
        (calls("a"), result("a")),
        (calls("a"), result("a"), result("zzz"), user("y")),
        (Message(role="assistant", content="z"),),
        (user("y"), calls("b", "c"), result("c")),
    )
    for branch in branches:
        for length in range(len(branch) + 1):
            request = ChatRequest(
                messages=(system, start, *branch[:length]), model="claude-opus-4-8"
            )
            assert accepted(provider, request) == accepted(build(), request)


def _message(role: Role) -> st.SearchStrategy[Message]:
    extra: dict[str, st.SearchStrategy[Any]] = {}
    if role == "assistant":
        blocks = st.sampled_from([(), (_THOUGHT,), ({"provider": "anthropic"},)])
        extra = {"tool_calls": _CALLS, "provider_blocks": blocks}
    elif role == "tool":
        extra = {"tool_call_id": _CALL_ID, "is_error": st.booleans()}
    return st.builds(Message, role=st.just(role), content=_CONTENT, **extra)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    history=st.lists(st.one_of(*map(_message, ROLES)), max_size=9),
    model=st.sampled_from(MODELS),
    effort=st.sampled_from([None, "none", "low", "high"]),
    choice=st.sampled_from(["auto", "none", "required"]),
    has_tools=st.booleans(),
)
def test_any_history_becomes_a_request_that_the_service_accepts(
    build: Build,
    history: list[Message],
    model: str,
    effort: Effort | None,
    choice: Choice,
    has_tools: bool,
) -> None:
    provider = build()
    request = ChatRequest(
        messages=tuple(history),
        model=model,
        tools=(LOOKUP,) if has_tools else (),
        temperature=0.5,
        reasoning_effort=effort,
        tool_choice=choice,
    )
    sent = json.dumps(accepted(provider, request), ensure_ascii=False)
    for length in range(len(history) + 1):
        # Thinking goes back to this model whatever has been sent before.
        part = replace(request, messages=tuple(history[:length]), model="claude-opus-4-8")
        assert accepted(provider, part) == accepted(build(), part)
    for message in history:
        if message.role != "assistant":
            assert all(line.strip() in sent for line in message.text.splitlines())


@pytest.mark.parametrize("model", [model for model in MODELS if "claude" in model])
def test_no_request_of_a_conversation_that_is_edited_is_refused(build: Build, model: str) -> None:
    """Results are left out, prompts change, and the process starts again, with thinking around."""
    rng, server, provider = random.Random(model), AnthropicServer(), build()
    history = [Message(role="system", content="s"), user("x")]
    for step in range(40):
        request = ChatRequest(
            messages=tuple(history), model=model, tools=(LOOKUP,), reasoning_effort="high"
        )
        asked = recorded(accepted(provider, request))
        found = [ScriptedCall(name="lookup", id=f"c{step}_{n}") for n in range(rng.randint(0, 2))]
        reply = Reply(reasoning=rng.choice(["", "hm"]), text="ok", calls=tuple(found))
        reader = provider.reader() if isinstance(provider, HTTPProvider) else None
        assert reader is not None
        list(reader.feed(server.render(reply, asked)))
        ids = [call.id for call in found]
        history.append(calls(*ids, text="ok", provider_blocks=reader.response().provider_blocks))
        history += [result(call_id) for call_id in ids] or [user("and?")]
        edit = rng.randrange(12)
        if edit == 0:
            history[0] = Message(role="system", content=f"s{step}")
        elif edit == 1:
            history = [
                replace(message, content="[omitted]") if message.role == "tool" else message
                for message in history
            ]
        elif edit == 2:
            provider = build()
        elif edit == 3 and len(history) > 9:
            history = [history[0], user("summary"), *history[-3:]]
