"""The provider before a service with the Responses API, which refuses what is irregular."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from nanobot_core import (
    AuthenticationFailed,
    BadRequest,
    ChatRequest,
    Completed,
    ContextTooLong,
    LLMProvider,
    LLMResponse,
    Message,
    ModelInfo,
    Overloaded,
    ProviderError,
    ProviderProtocolError,
    RateLimited,
    StreamEvent,
    ToolCallDelta,
    ToolDefinition,
    Usage,
)
from nanobot_core.providers import FailureReader
from nanobot_core.testing import (
    FakeClock,
    FakePluginContext,
    HTTPFaultContract,
    HTTPProviderContract,
    Reply,
    Responder,
    ResponsesServer,
    ScriptedCall,
)
from nanobot_openai.responses import OpenAIService, build_service
from nanobot_openai.responses_request import ResponsesWire
from nanobot_openai.settings import OpenAISettings
from nanobot_openai.vendors import VENDORS

pytestmark = pytest.mark.anyio

Serving = Callable[..., AbstractAsyncContextManager[tuple[LLMProvider, ResponsesServer]]]
Build = Callable[..., OpenAIService]
EVENTS = "text/event-stream"
LOOK = ToolDefinition(
    name="look", description="Look.", parameters={"type": "object", "properties": {}}
)


@pytest.fixture(name="build_service")
def _build_service(tmp_path: Path) -> Build:
    """Builds a provider as the host does: ``build_service(vendor, **section)``."""
    specs = {spec.name: spec for spec in VENDORS}

    def build(vendor: str = "openai", **section: Any) -> OpenAIService:
        settings = OpenAISettings.model_validate({"api_key": "sk-test"} | section)
        return build_service(FakePluginContext(tmp_path), specs[vendor], settings)

    return build


@pytest.fixture(name="serving_responses")
def _serving_responses(build_service: Build) -> Serving:
    """A provider before a scripted service: ``serving_responses(*replies, **section)``."""

    @asynccontextmanager
    async def serving(
        *replies: Reply, default: Reply | Responder | None = None, **section: Any
    ) -> AsyncIterator[tuple[LLMProvider, ResponsesServer]]:
        async with ResponsesServer(replies, default=default) as server, asyncio.timeout(10):
            provider = build_service(**{"api_base": server.url, "api": "responses"} | section)
            try:
                yield provider, server
            finally:
                await provider.aclose()

    return serving


def _request(*messages: Message, model: str = "gpt-5.6", **fields: Any) -> ChatRequest:
    history = messages or (Message(role="user", content="hello"),)
    return ChatRequest(messages=history, model=model, **fields)


async def _stream(provider: LLMProvider, request: ChatRequest) -> list[StreamEvent]:
    return [event async for event in provider.chat_stream(request)]


async def _answer(provider: LLMProvider, request: ChatRequest) -> LLMResponse:
    last = (await _stream(provider, request))[-1]
    assert isinstance(last, Completed)
    return last.response


def _events(*payloads: dict[str, Any]) -> Reply:
    """Return a stream that the script writes event by event."""
    lines = (f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in payloads)
    return Reply(body="".join(lines).encode(), content_type=EVENTS)


def _end(status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{status}", "response": {"status": status, "output": [], **fields}}


async def test_a_conversation_with_reasoning_and_calls_is_accepted(
    serving_responses: Serving,
) -> None:
    calls = tuple(ScriptedCall(name="look", id=f"call_{n}") for n in range(2))
    script = [
        Reply(reasoning="Look.", text="I look.", calls=calls),
        Reply(reasoning="Look again.", calls=(ScriptedCall(name="look", id="call_9"),)),
        Reply(reasoning="I know.", text="A door."),
        Reply(text="Bye."),
    ]
    async with serving_responses(*script) as (provider, server):
        history = [Message(role="system", content="S"), Message(role="user", content="where?")]
        for index in range(len(script)):
            request = _request(*history, tools=(LOOK,))
            response = await (provider.chat if index % 2 else _chat(provider))(request)
            history.append(
                Message(
                    role="assistant",
                    content=response.content or "",
                    tool_calls=response.tool_calls,
                    provider_blocks=response.provider_blocks,
                )
            )
            history += [
                Message(role="tool", content="a wall", tool_call_id=call.id)
                for call in response.tool_calls
            ]
            if not response.tool_calls:
                history.append(Message(role="user", content="and now?"))
        items = server.requests[-1].body["input"]
    assert [item["type"] for item in items] == [
        *("message", "reasoning", "message", "function_call", "function_call"),
        *("function_call_output", "function_call_output"),
        *("reasoning", "function_call", "function_call_output"),
        *("reasoning", "message", "message"),
    ]


def _chat(provider: LLMProvider) -> Callable[[ChatRequest], Any]:
    return lambda request: _answer(provider, request)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("length", "length"), ("content_filter", "content_filter"), (None, "tool_calls")],
)
async def test_an_incomplete_answer_names_its_reason_and_completes_no_call(
    serving_responses: Serving, reason: str | None, expected: str
) -> None:
    call = ScriptedCall(name="look", arguments='{"at": "the wa' if reason else '{"at": "it"}')
    async with serving_responses(Reply(calls=(call,), finish_reason=reason)) as (provider, _):
        response = await _answer(provider, _request(tools=(LOOK,)))
    assert response.finish_reason == expected
    found = response.tool_calls[0]
    assert (found.arguments, found.unparsed) == (
        ({}, call.arguments) if reason else ({"at": "it"}, None)
    )


async def test_usage_is_read_with_its_parts(serving_responses: Serving) -> None:
    usage: Any = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 80},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 15},
        "total_tokens": 120,
    }
    async with serving_responses(Reply(text="x", usage=usage), Reply(usage=None)) as (provider, _):
        responses = [await _answer(provider, _request()) for _ in range(2)]
    assert [response.usage for response in responses] == [Usage(100, 20, 80, 15), Usage()]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("rate_limit_exceeded", RateLimited),
        ("server_error", Overloaded),
        ("server_is_overloaded", Overloaded),
        ("context_length_exceeded", ContextTooLong),
        ("insufficient_quota", AuthenticationFailed),
        ("invalid_prompt", BadRequest),
        ("image_parse_error", BadRequest),
    ],
)
@pytest.mark.parametrize("form", ["failed", "error", "unnamed", "whole"])
async def test_a_failure_within_an_answer_has_the_type_of_its_code(
    serving_responses: Serving, form: str, code: str, error: type[ProviderError]
) -> None:
    event = {"type": "error", "code": code, "message": "m", "param": None, "sequence_number": 3}
    replies = {
        "error": _events(event),
        "unnamed": Reply(body=f"data: {json.dumps(event)}\n\n".encode(), content_type=EVENTS),
    }
    reply = replies.get(form, Reply(text="some text", finish_reason=code))
    async with serving_responses(reply) as (provider, _):
        with pytest.raises(ProviderError) as raised:
            await (provider.chat(_request()) if form == "whole" else _stream(provider, _request()))
    assert type(raised.value) is error


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        pytest.param(
            Reply(body=b'{"object": "response", "status": "in_progress"}'), Overloaded, id="begun"
        ),
        pytest.param(_events(_end("failed")), Overloaded, id="failed without a reason"),
        pytest.param(_events({"type": "response.completed"}), ProviderProtocolError, id="no end"),
        pytest.param(
            Reply(body=b"data: [DONE]\n\n", content_type=EVENTS), ProviderProtocolError, id="done"
        ),
    ],
)
async def test_an_answer_without_its_end_is_an_error(
    serving_responses: Serving, reply: Reply, error: type[ProviderError]
) -> None:
    async with serving_responses(reply) as (provider, _):
        with pytest.raises(error) as raised:
            await _stream(provider, _request())
    assert raised.value.retryable


def _item(index: int, item: dict[str, Any], kind: str = "done") -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "output_index": index, "item": item}


def _delta(index: int, kind: str, delta: str) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": delta}


async def test_items_without_deltas_are_read_from_their_end(serving_responses: Serving) -> None:
    part = {"type": "output_text", "text": "I look."}
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"a": 1}'}
    output: list[dict[str, Any]] = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Look."}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "message", "role": "assistant", "content": [part]},
        call,
    ]
    replies = [
        _events(*(_item(index, item) for index, item in enumerate(output)), _end()),
        _events(_end(output=output)),
        Reply(body=json.dumps({**_end(output=output)["response"], "object": "response"}).encode()),
    ]
    async with serving_responses(*replies) as (provider, _):
        events = [await _stream(provider, _request()) for _ in replies]
    assert events[0] == events[1] == events[2]
    last = events[0][-1]
    assert isinstance(last, Completed)
    response = last.response
    assert (response.reasoning, response.content) == ("Look.", "I look.")
    assert [(found.id, found.arguments) for found in response.tool_calls] == [("c1", {"a": 1})]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "text", "summary", "status"]), inner, max_size=2)
    ),
    max_leaves=4,
)
_ITEM_EVENTS = (
    *("output_item.added", "output_item.done", "output_text.delta", "refusal.delta"),
    *("reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_text.delta"),
    *("function_call_arguments.delta", "function_call_arguments.done", "unknown"),
)
_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "reasoning", "function_call"]) | _VALUES,
        **dict.fromkeys(
            ("content", "summary", "encrypted_content", "phase", "name", "arguments"), _VALUES
        ),
    },
)
_ANY_EVENTS = st.builds(
    lambda kind, index, item, delta: {
        "type": f"response.{kind}",
        "output_index": index,
        "item": item,
        "delta": delta,
    },
    st.sampled_from(_ITEM_EVENTS),
    st.integers(0, 2) | _VALUES,
    _FIELDS | _VALUES,
    _VALUES,
)
_ANY_ENDS = st.builds(
    lambda kind, response: {"type": f"response.{kind}", "response": response},
    st.sampled_from(["completed", "incomplete", "failed"]),
    st.fixed_dictionaries(
        {"status": st.sampled_from(["completed", "incomplete", "failed"])},
        optional=dict.fromkeys(("error", "usage", "incomplete_details"), _VALUES)
        | {"output": st.lists(_FIELDS | _VALUES, max_size=2) | _VALUES},
    )
    | _VALUES,
)


@given(st.lists(_ANY_EVENTS, max_size=6), _ANY_ENDS)
def test_any_events_give_a_response_or_a_typed_error(
    events: list[dict[str, Any]], end: dict[str, Any]
) -> None:
    failures = FailureReader(provider="openai", key_hint="", secrets=(), clock=FakeClock())
    reader = ResponsesWire("openai").reader(failures)
    with suppress(ProviderError):
        for event in [*events, end]:
            list(reader.feed(event))
        response = reader.response()
        history = Message(role="assistant", provider_blocks=response.provider_blocks)
        ResponsesWire("openai").encode(_request(history), stream=False)


async def test_several_messages_and_summaries_are_kept_apart(serving_responses: Serving) -> None:
    summaries = [
        {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": n}
        for n in range(2)
    ]
    reply = _events(
        *(summaries[0], _delta(0, "reasoning_summary_text", "One.")),
        *(summaries[1], _delta(0, "reasoning_summary_text", "Two.")),
        _item(1, {"type": "message", "phase": "commentary"}, "added"),
        *(_delta(1, "output_text", "Fir"), _delta(1, "output_text", "st.")),
        _item(1, {"type": "message", "phase": "commentary"}),
        *(_delta(2, "refusal", "No."), _end()),
    )
    async with serving_responses(reply) as (provider, _):
        response = await _answer(provider, _request())
    assert (response.reasoning, response.content) == ("One.\n\nTwo.", "First.\n\nNo.")
    assert response.provider_blocks[0]["output"] == [
        {"type": "message", "chars": 6, "phase": "commentary"},
        {"type": "message", "chars": 3},
    ]


async def test_calls_in_pieces_that_mix_are_put_together(serving_responses: Serving) -> None:
    reply = _events(
        *(
            _item(index, {"type": "function_call", "call_id": f"c{index}", "name": name}, "added")
            for index, name in ((4, "look"), (7, "listen"))
        ),
        _delta(4, "function_call_arguments", '{"at'),
        _delta(7, "function_call_arguments", "{}"),
        _delta(4, "function_call_arguments", '": 1}'),
        _end(),
    )
    async with serving_responses(reply) as (provider, _):
        *deltas, last = await _stream(provider, _request())
    assert deltas == [ToolCallDelta(0, "look"), ToolCallDelta(1, "listen")]
    assert isinstance(last, Completed)
    calls = [(call.id, call.name, call.arguments) for call in last.response.tool_calls]
    assert calls == [("c4", "look", {"at": 1}), ("c7", "listen", {})]


@pytest.mark.parametrize(
    ("vendor", "section", "model", "path"),
    [
        ("openai", {}, "gpt-5.3-codex", "/responses"),
        ("openai", {}, "o3-pro-2025-06-10", "/responses"),
        ("openai", {}, "gpt-5.5-pro", "/responses"),
        ("openai", {}, "o4-mini-deep-research", "/responses"),
        ("openai", {}, "gpt-5.6-sol", "/responses"),
        ("openai", {}, "gpt-6-luna", "/responses"),
        ("openai", {"api_base": "https://eu.api.openai.com/v1"}, "gpt-5.4", "/responses"),
        ("openai", {"api_base": "https://llm.example/v1"}, "gpt-5.4", "/chat/completions"),
        ("openai", {"api_base": "https://llm.example/v1"}, "gpt-5-pro", "/responses"),
        ("openai", {}, "gpt-5.1", "/chat/completions"),
        ("openai", {}, "gpt-4o", "/chat/completions"),
        ("openai", {}, "gpt-5.3-chat-latest", "/chat/completions"),
        ("openai", {"api": "chat"}, "o3-pro", "/chat/completions"),
        ("openai", {"api": "responses"}, "gpt-4o", "/responses"),
        ("custom", {"api_base": "https://llm.example/v1"}, "x-pro", "/chat/completions"),
        (
            "custom",
            {"api_base": "https://llm.example/v1/responses", "api": "responses"},
            "x",
            "/responses",
        ),
    ],
)
def test_a_request_goes_to_the_api_that_serves_its_model(
    build_service: Build, vendor: str, section: dict[str, Any], model: str, path: str
) -> None:
    provider = build_service(vendor, **section).provider_for(model)
    assert provider.path == path
    assert provider.endpoint.url(provider.path).count("/v1") == 1
    assert provider.endpoint.url(provider.path).endswith(f"/v1{path}")


async def test_both_apis_have_one_key_and_one_list_of_models(build_service: Build) -> None:
    async with ResponsesServer(models=["gpt-5.6", "gpt-4o"]) as server, asyncio.timeout(10):
        service = build_service(api_base=server.url)
        assert await service.list_models() == [ModelInfo(name="gpt-5.6"), ModelInfo(name="gpt-4o")]
        await service.chat(_request(model="gpt-5.3-codex"))
        assert server.requests[0].headers["authorization"] == "Bearer sk-test"
        await service.aclose()


class _Responses:
    @pytest.fixture(autouse=True)
    def _take(self, build_service: Build) -> None:
        self._build = build_service

    def make_server(self, *replies: Reply) -> ResponsesServer:
        return ResponsesServer(replies)

    def make_provider(self, folder: Path, **section: object) -> LLMProvider:
        return self._build(**({"api": "responses"} | section))


class TestResponses(_Responses, HTTPProviderContract):
    pass


class TestFaultsOfResponses(_Responses, HTTPFaultContract):
    pass
