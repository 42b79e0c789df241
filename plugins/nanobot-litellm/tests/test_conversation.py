"""Requests and answers of whole conversations, before services that refuse anything irregular."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest

from nanobot_core import (
    BadRequest,
    ChatRequest,
    Completed,
    ConfigError,
    ImageBlock,
    JsonObject,
    LLMProvider,
    LLMResponse,
    Message,
    ProviderError,
    TextBlock,
    ToolDefinition,
)
from nanobot_core.testing import (
    AnthropicServer,
    GeminiServer,
    ModelServer,
    OpenAIServer,
    Reply,
    ScriptedCall,
)
from nanobot_litellm.answer import Answer
from nanobot_litellm.library import Library
from nanobot_litellm.mapping import arguments_of
from nanobot_litellm.vendors import VENDORS

pytestmark = pytest.mark.anyio

Serving = Callable[..., AbstractAsyncContextManager[tuple[LLMProvider, ModelServer]]]
Build = Callable[..., LLMProvider]
LOOK = ToolDefinition(
    name="look",
    description="Look at a place.",
    parameters={
        "type": "object",
        "properties": {"at": {"type": "string"}, "deep": {"type": ["boolean", "null"]}},
        "required": ["at"],
        "additionalProperties": False,
    },
)
PIXEL = ImageBlock("image/png", "iVBORw0KGgo=")
ASK = Message(role="user", content=(TextBlock("What is this?"), PIXEL))
SYSTEM = Message(role="system", content="Be brief.")


def _request(*messages: Message, **fields: Any) -> ChatRequest:
    fields = {"model": "gemini-2.5-flash", "tools": (LOOK,)} | fields
    return ChatRequest(messages=(SYSTEM, *messages), **fields)


async def _stream(provider: LLMProvider, request: ChatRequest) -> LLMResponse:
    async with asyncio.timeout(10):
        async for event in provider.chat_stream(request):
            if isinstance(event, Completed):
                return event.response
    raise AssertionError("no answer")


def _as_message(response: LLMResponse) -> Message:
    return Message(
        role="assistant",
        content=response.content or "",
        tool_calls=response.tool_calls,
        provider_blocks=response.provider_blocks,
        reasoning=response.reasoning,
    )


def _results(response: LLMResponse) -> list[Message]:
    return [
        Message(
            role="tool", tool_call_id=call.id, name=call.name, content=(TextBlock("seen"), PIXEL)
        )
        for call in response.tool_calls
    ]


@pytest.mark.parametrize("kind", [AnthropicServer, GeminiServer, OpenAIServer])
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_conversation_with_tools_images_and_thinking_is_accepted(
    serving: Serving, kind: type[ModelServer], streamed: bool
) -> None:
    calls = tuple(
        ScriptedCall(name="look", arguments=f'{{"at": "{place}"}}', id=place)
        for place in ("here", "there")
    )
    script = [
        Reply(text="I look.", reasoning="Where?", calls=calls),
        Reply(calls=(replace(calls[0], id="again"),)),
        Reply(text="A dot."),
    ]
    async with serving(*script, kind=kind) as (provider, server):
        history: list[Message] = [ASK]
        while True:
            request = _request(*history, reasoning_effort="low", max_tokens=99, temperature=0.5)
            response = await (_stream(provider, request) if streamed else provider.chat(request))
            history += [_as_message(response), *_results(response)]
            if not response.has_tool_calls:
                break
        assert response.content == "A dot."
        assert len(server.requests) == 3
        assert all(
            "__thought__" not in call.id for message in history for call in message.tool_calls
        )


async def test_the_request_to_gemini_holds_everything(serving: Serving) -> None:
    async with serving(Reply(text="x"), extra_headers={"X-Team": "blue"}) as (provider, server):
        request = _request(ASK, tool_choice="required", max_tokens=99, temperature=0.5)
        await _stream(provider, replace(request, extra={"top_p": 0.9}))
    (seen,) = server.requests
    assert seen.headers["x-goog-api-key"] == "sk-test"
    assert seen.headers["x-team"] == "blue"
    assert seen.headers["accept-encoding"] == "identity"
    assert "sk-test" not in seen.path
    body = seen.body
    assert body["system_instruction"] == {"parts": [{"text": "Be brief."}]}
    assert body["contents"][0]["parts"][0] == {"text": "What is this?"}
    assert body["contents"][0]["parts"][1]["inline_data"]["data"] == PIXEL.data
    assert body["generationConfig"] == {"max_output_tokens": 99, "temperature": 0.5, "top_p": 0.9}
    assert body["toolConfig"]["functionCallingConfig"]["mode"] == "ANY"


async def test_usage_is_counted_and_priced_for_a_known_model(serving: Serving) -> None:
    usage: JsonObject = {
        "prompt_tokens": 1_000_000,
        "completion_tokens": 300,
        "total_tokens": 1_000_300,
        "prompt_tokens_details": {"cached_tokens": 400_000},
        "completion_tokens_details": {"reasoning_tokens": 200},
    }
    reply = Reply(text="x", usage=usage)
    async with serving(reply, reply, reply) as (provider, _):
        streamed = (await _stream(provider, _request(ASK))).usage
        whole = (await provider.chat(_request(ASK))).usage
        unknown = (await provider.chat(_request(ASK, model="test"))).usage
    assert (streamed.prompt_tokens, streamed.cached_tokens) == (1_000_000, 400_000)
    assert (streamed.completion_tokens, streamed.reasoning_tokens) == (300, 200)
    assert streamed.estimated_usd is not None
    assert 0 < streamed.estimated_usd < 1
    assert whole == streamed
    assert unknown == replace(streamed, estimated_usd=None)


async def test_an_answer_without_usage_counts_nothing(serving: Serving) -> None:
    async with serving(Reply(text="x", usage=None)) as (provider, _):
        usage = (await _stream(provider, _request(ASK))).usage
    assert (usage.total_tokens, usage.estimated_usd) == (0, None)


@pytest.mark.parametrize(
    ("finish_reason", "expected"),
    [("length", "length"), ("content_filter", "content_filter"), ("RECITATION", "content_filter")],
)
async def test_the_reason_for_the_end_is_passed_on(
    serving: Serving, finish_reason: str, expected: str
) -> None:
    async with serving(Reply(text="x", finish_reason=finish_reason)) as (provider, _):
        assert (await _stream(provider, _request(ASK))).finish_reason == expected


def test_claude_gets_marks_for_its_cache_and_other_models_none() -> None:
    spec = VENDORS[0]
    result = Message(role="tool", tool_call_id="c", content="seen")
    marked = arguments_of(_request(ASK, result, model="anthropic/claude-opus-4-5"), spec, {})
    plain = arguments_of(_request(ASK, result, model="gemini/gemini-2.5-pro"), spec, {})
    assert str(marked).count("cache_control") == 3
    assert "cache_control" not in str(plain)


@pytest.mark.parametrize("last", ["", "one two"])
def test_streamed_thinking_is_joined_and_handed_back_with_its_signature(last: str) -> None:
    answer = Answer("litellm")
    for block in (
        {"type": "thinking", "thinking": "one ", "signature": ""},
        {"type": "thinking", "thinking": "two", "signature": ""},
        {"type": "thinking", "thinking": last, "signature": "sig"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "thinking", "thinking": "unsigned"},
    ):
        list(answer.feed({"choices": [{"delta": {"thinking_blocks": [block]}}]}))
    message = _as_message(answer.response(None))
    sent: Any = arguments_of(_request(ASK, message), VENDORS[0], {})["messages"]
    assert sent[-1]["thinking_blocks"] == [
        {"type": "thinking", "thinking": "one two", "signature": "sig"},
        {"type": "redacted_thinking", "data": "xyz"},
    ]
    other: Any = arguments_of(_request(ASK, message), VENDORS[1], {})["messages"]
    assert "thinking_blocks" not in other[-1]


async def test_what_litellm_is_given_is_not_the_requests_own() -> None:
    blocks: tuple[JsonObject] = ({"provider": "litellm", "thinking_blocks": [{"signature": "s"}]},)
    message = Message(role="assistant", content="x", provider_blocks=blocks)
    sent: Any = arguments_of(_request(ASK, message), VENDORS[0], {})
    sent["tools"][0]["function"]["parameters"].clear()
    sent["messages"][-1]["thinking_blocks"].clear()
    assert LOOK.parameters
    assert blocks[0]["thinking_blocks"]


async def test_a_model_of_no_known_service_is_refused_with_the_reason(build: Build) -> None:
    provider = build()
    with pytest.raises(ProviderError, match=r"litellm/<service>/<model>") as raised:
        await _stream(provider, _request(ASK, model="nonsense"))
    # Another model is tried after it.
    assert not isinstance(raised.value, BadRequest)
    await provider.aclose()


async def test_a_missing_key_is_reported_with_a_remedy(build: Build) -> None:
    provider = build(options={"custom_llm_provider": "azure", "api_version": "2025-01-01"})
    with pytest.raises(ProviderError, match="Missing credentials"):
        await _stream(provider, _request(ASK, model="gpt-5"))
    await provider.aclose()
    with pytest.raises(ConfigError, match=r"set providers\.azure\.api_key or AZURE_API_KEY"):
        build("azure")


def test_a_key_is_not_sent_unencrypted_to_a_public_host(build: Build) -> None:
    with pytest.raises(ConfigError, match="unencrypted"):
        build(api_base="http://example.com", api_key="k")


async def test_secret_options_are_hidden(serving: Serving) -> None:
    options = {"custom_llm_provider": "gemini", "aws_secret_access_key": "canary"}
    reply = Reply(status=400, body=b'{"error": {"message": "the canary sings"}}')
    async with serving(reply, options=options) as (provider, _):
        with pytest.raises(BadRequest, match=r"the \[secret\] sings"):
            await _stream(provider, _request(ASK))


async def test_loading_leaves_environment_loggers_and_output_as_they_were(
    library: None, capfd: pytest.CaptureFixture[str]
) -> None:
    before = dict(os.environ)
    Library()
    logging.getLogger("LiteLLM").error("nobody reads it")
    assert dict(os.environ) == before
    assert capfd.readouterr() == ("", "")
    assert not {"LITELLM_LOCAL_MODEL_COST_MAP", "LITELLM_MODE"} & os.environ.keys()
