"""The protocols as OpenAI's own package knows them: what is sent and what the servers answer.

The types of the package are generated from OpenAI's specification, so these tests fail when our
reading of a protocol and the protocol come apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from nanobot_core import (
    ChatRequest,
    ImageBlock,
    JsonObject,
    LLMResponse,
    Message,
    TextBlock,
    ToolCall,
    ToolDefinition,
)
from nanobot_core.testing import (
    FakePluginContext,
    ModelServer,
    OpenAIServer,
    Reply,
    ResponsesServer,
    ScriptedCall,
)
from nanobot_openai.responses import OpenAIService, build_service
from nanobot_openai.settings import OpenAISettings
from nanobot_openai.vendors import VENDORS

pytestmark = pytest.mark.anyio

SERVERS: dict[str, type[ModelServer]] = {"chat": OpenAIServer, "responses": ResponsesServer}
CALL = ScriptedCall(name="look", arguments='{"at": "Köln"}')
REPLIES = [
    Reply(text="Grüße 🦀"),
    Reply(text="I look.", calls=(CALL, ScriptedCall(name="look", id="call_2"))),
    Reply(text="cut", finish_reason="length"),
    Reply(text="no", finish_reason="content_filter", usage=None),
]
SCHEMA: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": []}
LOOK = ToolDefinition(name="look", description="Look.", parameters=SCHEMA)


@dataclass(frozen=True, slots=True)
class Package:
    """OpenAI's package.

    Attributes:
        client: its class of clients.
        bodies: API and whether it streams to the type of a body.
        whole: API to the type of an answer.
        event: API to the type of a streamed event.
    """

    client: Any
    bodies: dict[tuple[str, bool], TypeAdapter[Any]]
    whole: dict[str, TypeAdapter[Any]]
    event: dict[str, TypeAdapter[Any]]


@pytest.fixture(scope="module", name="package")
def _package() -> Package:
    # Here, because the import takes a second of each process that collects tests.
    openai = pytest.importorskip("openai")
    chat = pytest.importorskip("openai.types.chat")
    responses = pytest.importorskip("openai.types.responses")
    chat_body, response_body = chat.completion_create_params, responses.response_create_params
    return Package(
        partial(openai.AsyncOpenAI, api_key="x", max_retries=0),
        {
            ("chat", False): TypeAdapter(chat_body.CompletionCreateParamsNonStreaming),
            ("chat", True): TypeAdapter(chat_body.CompletionCreateParamsStreaming),
            ("responses", False): TypeAdapter(response_body.ResponseCreateParamsNonStreaming),
            ("responses", True): TypeAdapter(response_body.ResponseCreateParamsStreaming),
        },
        {"chat": TypeAdapter(chat.ChatCompletion), "responses": TypeAdapter(responses.Response)},
        {
            "chat": TypeAdapter(chat.ChatCompletionChunk),
            "responses": TypeAdapter(responses.ResponseStreamEvent),
        },
    )


@asynccontextmanager
async def _service(
    folder: Path, api: str, *script: Reply
) -> AsyncIterator[tuple[OpenAIService, ModelServer]]:
    spec = next(spec for spec in VENDORS if spec.name == "openai")
    async with SERVERS[api](script) as server, asyncio.timeout(10):
        section = {"api_base": server.url, "api_key": "sk-test", "api": api}
        settings = OpenAISettings.model_validate(section)
        service = build_service(FakePluginContext(folder), spec, settings)
        try:
            yield service, server
        finally:
            await service.aclose()


def _history(answer: LLMResponse) -> tuple[Message, ...]:
    """Return a history with everything that a message can contain, around `answer`."""
    image = ImageBlock("image/png", "QUJD")
    return (
        Message(role="system", content="Be brief."),
        Message(role="user", content=(TextBlock("What is this?"), image)),
        Message(
            role="assistant",
            content=answer.content or "",
            tool_calls=answer.tool_calls,
            provider_blocks=answer.provider_blocks,
        ),
        *(
            Message(role="tool", content=(TextBlock("seen"), image), tool_call_id=call.id)
            for call in answer.tool_calls
        ),
        Message(role="assistant", tool_calls=(ToolCall("odd/id", "look", {}),)),
        Message(role="tool", content="", tool_call_id="odd/id", is_error=True),
        Message(role="system", content="Be careful."),
        Message(role="user", content="And this?"),
    )


def _exhausted(value: object) -> object:
    """Return `value` with the elements that pydantic validates only when they are read."""
    if isinstance(value, dict):
        return {key: _exhausted(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_exhausted(item) for item in value]
    return value


def _unknown_fields(value: object, path: str = "") -> list[str]:
    """Return the fields of a parsed answer that the package does not know."""
    if isinstance(value, list):
        return [found for item in value for found in _unknown_fields(item, path)]
    if not isinstance(value, BaseModel):
        return []
    unknown = [f"{path}.{name}" for name in value.model_extra or ()]
    known = ((name, getattr(value, name)) for name in type(value).model_fields)
    return unknown + [
        found for name, item in known for found in _unknown_fields(item, f"{path}.{name}")
    ]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", SERVERS)
async def test_requests_have_the_fields_that_the_package_knows(
    tmp_path: Path, package: Package, api: str, stream: bool
) -> None:
    first = Reply(reasoning="Look.", text="I look.", calls=(CALL,))
    fields: dict[str, Any] = {
        "model": "gpt-5.1" if api == "responses" else "gpt-4o",
        "tools": (LOOK,),
        "tool_choice": "required",
        "max_tokens": 100,
        "output_schema": SCHEMA,
        "reasoning_effort": "low",
    }
    question = (Message(role="user", content="hello"),)
    async with _service(tmp_path, api, first, Reply(text="A door.")) as (service, server):
        answer = await service.chat(ChatRequest(messages=question, **fields))
        request = ChatRequest(messages=_history(answer), **fields)
        if stream:
            _ = [event async for event in service.chat_stream(request)]
        else:
            await service.chat(request)
    body = server.requests[-1].body
    # Fields that the package does not know are missing in what it has validated.
    assert _exhausted(package.bodies[api, stream].validate_python(body)) == body


@pytest.mark.parametrize("reply", REPLIES, ids=["text", "calls", "length", "filter"])
@pytest.mark.parametrize("api", SERVERS)
async def test_the_servers_send_what_the_package_knows(
    package: Package, api: str, reply: Reply
) -> None:
    if api == "responses":  # thinking has no field in OpenAI's chat completions
        reply = replace(reply, reasoning="Look first.")
    read = _read_chat if api == "chat" else _read_response
    async with SERVERS[api]([reply, reply]) as server, asyncio.timeout(10):
        found = [await read(package, server.url, stream=stream) for stream in (False, True)]
        request = server.requests[0]
        # The client builds its objects without validating them.
        whole = package.whole[api].validate_python(server.render(reply, request))
        lines = [event.split("data: ")[1] for event in server.render_events(reply, request)]
    events = [package.event[api].validate_json(line) for line in lines if line != "[DONE]"]
    assert _unknown_fields([whole, *events]) == []
    assert found == [(reply.text, [call.arguments for call in reply.calls])] * 2


async def _read_response(package: Package, url: str, *, stream: bool) -> tuple[str, list[str]]:
    """Return the text and the arguments of an answer as the package's client reads it."""
    async with package.client(base_url=url) as client:
        create = partial(client.responses.create, model="gpt-4o", input="hi", store=False)
        if not stream:
            whole = await create()
            calls = [item.arguments for item in whole.output if item.type == "function_call"]
            return whole.output_text, calls
        events = [event async for event in await create(stream=True)]
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    arguments: dict[int, str] = {}
    for event in events:
        if event.type == "response.function_call_arguments.delta":
            arguments[event.output_index] = arguments.get(event.output_index, "") + event.delta
    return "".join(texts), list(arguments.values())


async def _read_chat(package: Package, url: str, *, stream: bool) -> tuple[str, list[str]]:
    """Return the text and the arguments of an answer as the package's client reads it."""
    async with package.client(base_url=url) as client:
        messages = [{"role": "user", "content": "hi"}]
        create = partial(client.chat.completions.create, model="gpt-4o", messages=messages)
        if not stream:
            message = (await create()).choices[0].message
            return message.content, [call.function.arguments for call in message.tool_calls or ()]
        chunks = [chunk async for chunk in await create(stream=True)]
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    arguments: dict[int, str] = {}
    for call in (call for delta in deltas for call in delta.tool_calls or ()):
        arguments[call.index] = arguments.get(call.index, "") + call.function.arguments
    return "".join(delta.content or "" for delta in deltas), list(arguments.values())
