"""Every vendor accepts what it gets, whatever the history: checked by services that are strict."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from nanobot_core import (
    BadRequest,
    ChatRequest,
    ImageBlock,
    JsonObject,
    LLMProvider,
    Message,
    TextBlock,
    ToolCall,
    ToolDefinition,
)
from nanobot_core.testing import (
    OpenAIServer,
    Reply,
    ScriptedCall,
    StrictService,
    irregularity,
    strict_dialects,
    strict_rules,
)
from nanobot_openai.dialect import dialect_of
from nanobot_openai.mapping import MessageMapper, body_of, render_tool
from nanobot_openai.vendors import VENDORS

SPECS = {spec.name: spec for spec in VENDORS}
Serving = Callable[..., AbstractAsyncContextManager[tuple[LLMProvider, OpenAIServer]]]
PROVIDERS = {"gemma": "vllm"}
"""Dialects of models that another vendor's servers run."""
MODELS = [
    pytest.param(dialect, model, id=f"{dialect}-{model}")
    for dialect in strict_dialects()
    for model in strict_rules(dialect)["models"]
]

_PIXEL = ImageBlock("image/png", "QUJD")
_TEXTS = st.sampled_from(["hi", "", "two\nlines", "é\U0001f600", "Error: no"])
_SAID = st.sampled_from(["hi", "two\nlines", "é\U0001f600"])
_IMAGES = st.sampled_from([_PIXEL, ImageBlock("image/jpeg", "", "a.jpg")])
_BLOCKS = st.lists(st.builds(TextBlock, _TEXTS) | _IMAGES, min_size=1, max_size=3).map(tuple)
_CONTENTS = _TEXTS | _BLOCKS
_NAMES = st.sampled_from(["look", "ls", "2nd_try", "x__y", "mcp_files_read-file", "n" * 60])
_IDS = st.one_of(
    st.from_regex("[a-zA-Z0-9_-]{1,9}", fullmatch=True),
    st.from_regex("[a-zA-Z0-9_-]{41,64}", fullmatch=True),
)
_SIGNED: list[JsonObject] = [
    {"provider": "gemini", "call": 0, "extra_content": {"google": {"thought_signature": "s"}}},
    {"provider": "openrouter", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
    {"provider": "anthropic", "type": "thinking", "signature": "of another plugin"},
]
_REASONING = st.sampled_from([None, "", "hm"])
_FOREIGN = st.lists(st.sampled_from(_SIGNED), max_size=2).map(tuple)


@st.composite
def _answers(draw: st.DrawFn, taken: set[str]) -> list[Message]:
    """What the model said, with the results of its calls in order, as the core stores it."""
    ids = draw(st.lists(_IDS.filter(lambda each: each not in taken), unique=True, max_size=2))
    taken.update(ids)
    calls = tuple(ToolCall(each, draw(_NAMES), {"at": draw(_TEXTS)}) for each in ids)
    said = Message(
        role="assistant",
        content=draw(_TEXTS if calls else _SAID),
        tool_calls=calls,
        reasoning=draw(_REASONING),
        provider_blocks=draw(_FOREIGN),
    )
    results = [
        Message(
            role="tool",
            tool_call_id=call.id,
            name=call.name,
            content=draw(_CONTENTS),
            is_error=draw(st.booleans()),
        )
        for call in calls
    ]
    return [said, *results]


@st.composite
def histories(draw: st.DrawFn) -> tuple[Message, ...]:
    """Any history that the core sends, with messages of the system that plugins add."""
    taken: set[str] = set()
    messages = [Message(role="system", content=draw(_TEXTS))] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 3))):
        messages += [
            Message(role="user", content=draw(_CONTENTS)) for _ in range(draw(st.integers(1, 2)))
        ]
        if draw(st.booleans()):
            messages.append(Message(role="system", content="Keep to the point."))
        for _ in range(draw(st.integers(0, 2))):
            messages += draw(_answers(taken))
    if messages[-1].role in {"assistant", "system"}:
        messages.append(Message(role="user", content="go on"))
    return tuple(messages)


_LEAVES: st.SearchStrategy[JsonObject] = st.sampled_from(
    [
        {"type": "string", "minLength": 1, "maxLength": 9_000, "pattern": "^a", "format": "uri"},
        {"type": "integer", "exclusiveMinimum": 0, "maximum": 9, "multipleOf": 3, "default": 3},
        {"type": ["string", "null"], "description": "maybe", "default": None},
        {"type": ["integer", "string"], "minimum": 1, "maxLength": 3},
        {"enum": ["a", "b", None]},
        {"enum": [1, 2], "type": "integer"},
        {"enum": [1, "a", True]},
        {"const": "only"},
        {"const": True, "description": "always"},
        {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "T"},
        {"type": "string", "anyOf": [{"minLength": 2}, {"enum": ["x"]}]},
        {"oneOf": [{"type": "boolean"}, {"type": "number", "exclusiveMaximum": 1.5}]},
        {"$ref": "#/$defs/node", "description": "a tree"},
        {"type": "array"},
        {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "minItems": 2},
        {"type": "array", "prefixItems": [{"type": "string"}], "uniqueItems": True},
        {"type": "object", "required": ["lost"]},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"description": "anything"},
        {},
    ]
)


def _around(inner: st.SearchStrategy[JsonObject]) -> st.SearchStrategy[JsonObject]:
    return st.one_of(
        inner.map(lambda each: {"type": "array", "items": each, "maxItems": 5_000}),
        inner.map(lambda each: {"allOf": [each, {"description": "also"}]}),
        st.lists(inner, min_size=1, max_size=2).map(lambda each: {"anyOf": [*each]}),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
            lambda each: {"type": "object", "properties": {**each}, "required": [*each][:1]}
        ),
    )


# To make a strategy takes far longer than to draw from it.
_PROPERTIES = st.dictionaries(
    st.sampled_from("abcd"), st.recursive(_LEAVES, _around, max_leaves=4), max_size=3
)
_NODE: JsonObject = {
    "type": "object",
    "properties": {"next": {"$ref": "#/$defs/node"}},
    "additionalProperties": False,
}
_ROOTS: st.SearchStrategy[JsonObject] = st.sampled_from(
    [
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Params"},
        {"additionalProperties": False, "required": ["a", "lost"]},
        {"anyOf": [{"required": ["a"]}, {"properties": {"z": {"type": "string"}}}]},
        {
            "allOf": [{"properties": {"z": {"const": 1}}, "required": ["z"]}],
            "not": {"type": "null"},
        },
    ]
)


@st.composite
def parameters(draw: st.DrawFn) -> JsonObject:
    """Schemas of the parameters of tools, as MCP servers and pydantic write them."""
    properties, root = draw(_PROPERTIES), draw(_ROOTS)
    return {"type": "object", "properties": {**properties}, "$defs": {"node": _NODE}, **root}


_TOOLS = st.lists(
    st.builds(ToolDefinition, name=_NAMES, description=_TEXTS, parameters=parameters()),
    max_size=2,
    unique_by=lambda tool: tool.name,
).map(tuple)
_REQUESTS = st.builds(
    ChatRequest,
    messages=histories(),
    model=st.just("m"),
    tools=_TOOLS,
    max_tokens=st.sampled_from([None, 1, 8_192]),
    temperature=st.sampled_from([None, 0.0, 0.1, 1.0, 2.0]),
    reasoning_effort=st.sampled_from([None, "none", "low", "medium", "high"]),
    tool_choice=st.sampled_from(["auto", "none", "required"]),
    output_schema=st.none() | parameters(),
)


def _body(request: ChatRequest, provider: str, model: str, *, stream: bool) -> JsonObject:
    spec, dialect = SPECS[provider], dialect_of(provider, model)
    schema = request.output_schema if spec.json_schema else None
    wanted = replace(request, model=model, output_schema=schema)
    return body_of(
        wanted,
        spec=spec,
        dialect=dialect,
        mapper=MessageMapper(provider),
        stream=stream,
        tools=[render_tool(tool, dialect) for tool in wanted.tools],
    )


@pytest.mark.parametrize(("dialect", "model"), MODELS)
@settings(max_examples=8)
@given(request=_REQUESTS, stream=st.booleans())
def test_each_vendor_accepts_each_request(
    dialect: str, model: str, request: ChatRequest, stream: bool
) -> None:
    body = _body(request, PROVIDERS.get(dialect, dialect), model, stream=stream)
    assert irregularity(dialect, body) is None, json.dumps(body, indent=1)


@pytest.mark.parametrize("vendor", ["mistral", "moonshot", "gemini", "deepseek"])
async def test_a_conversation_with_tools_is_accepted(
    vendor: str,
    serving: Callable[..., AbstractAsyncContextManager[tuple[LLMProvider, OpenAIServer]]],
) -> None:
    called = ScriptedCall(
        name="x__ls" if vendor in {"moonshot", "gemini"} else "ls", arguments="{}"
    )
    service = StrictService(vendor, [Reply(calls=(called,)), Reply(text="two files")])
    tool = ToolDefinition(name="ls", description="List.", parameters={"type": "object"})
    request = ChatRequest(
        model=strict_rules(vendor)["models"][-1],
        messages=(Message(role="user", content="which files exist?"),),
        tools=(tool,),
        temperature=0.1,
        max_tokens=100,
    )
    async with serving(default=service, vendor=vendor) as (provider, _):
        first = await provider.chat(request)
        call = replace(first.tool_calls[0], id="call_0")
        said = Message(role="assistant", tool_calls=(call,), reasoning=first.reasoning)
        result = Message(role="tool", content=(TextBlock("a b"), _PIXEL), tool_call_id="call_0")
        answer = await provider.chat(replace(request, messages=(*request.messages, said, result)))

    assert call.name == "ls"
    assert answer.content == "two files"
    assert service.refusals == []


@pytest.mark.parametrize("vendor", sorted(set(strict_dialects()) & SPECS.keys()))
async def test_a_refusal_says_why_in_the_words_of_the_vendor(
    vendor: str,
    serving: Callable[..., AbstractAsyncContextManager[tuple[LLMProvider, OpenAIServer]]],
) -> None:
    request = ChatRequest(
        model="m", messages=(Message(role="user", content="hi"),), extra={"bogus": 1}
    )
    async with serving(default=StrictService(vendor), vendor=vendor) as (provider, _):
        with pytest.raises(BadRequest, match="extra inputs: bogus"):
            await provider.chat(request)
