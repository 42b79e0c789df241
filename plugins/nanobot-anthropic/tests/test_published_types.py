"""The official package, whose types are the published form of the protocol.

It fails when our reading of the protocol drifts from it. Its import takes seconds, so no other
module imports it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

anthropic = pytest.importorskip("anthropic")

from anthropic.types import MessageCreateParams  # noqa: E402 - after the check
from pydantic import TypeAdapter  # noqa: E402 - as above

from nanobot_core import (  # noqa: E402 - as above
    ChatRequest,
    ImageBlock,
    JsonObject,
    LLMProvider,
    Message,
    TextBlock,
    ToolCall,
    ToolDefinition,
)
from nanobot_core.providers import HTTPProvider  # noqa: E402 - as above
from nanobot_core.testing import (  # noqa: E402 - as above
    AnthropicServer,
    Reply,
    ScriptedCall,
    anthropic_error,
)

pytestmark = pytest.mark.anyio

_LOOKUP = ToolDefinition(
    name="lookup",
    description="Look up.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}},
)
_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
_REPLY = Reply(
    text="Grüße",
    reasoning="hm",
    calls=(ScriptedCall(name="lookup", arguments='{"city": "Köln"}', id="toolu_1"),),
    usage={"input_tokens": 3, "output_tokens": 9, "cache_read_input_tokens": 2},
)


@pytest.fixture(scope="module")
def params() -> TypeAdapter[Any]:
    """The published type of a request."""
    return TypeAdapter(MessageCreateParams)


def _settled(value: object) -> object:
    """Read iterators, which are validated only while they are read."""
    if isinstance(value, dict):
        return {key: _settled(item) for key, item in value.items()}
    if isinstance(value, str | int | float | None):
        return value
    return [_settled(item) for item in cast("Iterator[object]", value)]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="tools"),
        pytest.param({"reasoning_effort": "high"}, id="adaptive thinking"),
        pytest.param({"model": "claude-haiku-4-5", "reasoning_effort": "low"}, id="budget"),
        pytest.param(
            {"model": "claude-sonnet-5-5", "reasoning_effort": "none"}, id="between tools"
        ),
        pytest.param({"model": "claude-opus-5", "tool_choice": "required"}, id="forced call"),
        pytest.param({"tool_choice": "none"}, id="no call"),
        pytest.param({"output_schema": _SCHEMA}, id="schema"),
        pytest.param({"tools": ()}, id="tools that are gone"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_our_requests_have_the_published_form(
    build: Callable[..., LLMProvider],
    params: TypeAdapter[Any],
    fields: dict[str, Any],
    stream: bool,
) -> None:
    image, pdf = ImageBlock("image/png", "cG5n"), ImageBlock("application/pdf", "cGRm")
    thought: JsonObject = {
        "provider": "anthropic",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "d"},
        ],
    }
    call = ToolCall("toolu_1", "lookup", {"city": "Köln"})
    defaults: dict[str, Any] = {
        "model": "claude-opus-4-8",
        "tools": (_LOOKUP,),
        "max_tokens": 9_000,
    }
    request = ChatRequest(
        messages=(
            Message(role="system", content="Be kind."),
            Message(role="user", content=(TextBlock("look"), image, pdf)),
            Message(role="assistant", tool_calls=(call,), provider_blocks=(thought,)),
            Message(role="tool", tool_call_id="toolu_1", content=(TextBlock("x"), image)),
        ),
        **(defaults | fields),
    )
    provider = build()
    assert isinstance(provider, HTTPProvider)
    sent = json.loads(provider.encode(request, stream=stream))
    # Unknown fields would be left out of what comes back.
    assert _settled(params.validate_python(sent)) == sent


def _client(server: AnthropicServer) -> Any:  # noqa: ANN401 - known only where it is installed
    """Return the package's client; the header makes it send the key as we do."""
    return anthropic.AsyncAnthropic(
        api_key="sk-test",
        base_url=server.url,
        max_retries=0,
        default_headers={"x-api-key": "sk-test"},
        _strict_response_validation=True,
    )


async def test_the_package_reads_the_stand_in_and_is_read_by_it() -> None:
    asked: dict[str, Any] = {
        "model": "claude-opus-5-5",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": "look"}],
        "tools": [{"name": "lookup", "input_schema": _SCHEMA}],
    }
    async with (
        AnthropicServer([_REPLY] * 2, models=["claude-opus-5-5"]) as server,
        _client(server) as client,
    ):
        whole = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            streamed = await stream.get_final_message()
        # What it gives back must pass the rules of the stand-in.
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "found"}
        asked["messages"] += [whole.to_param(), {"role": "user", "content": [result]}]
        echoed = await client.messages.create(**asked)
        models = [model.id async for model in client.models.list()]
    for message in (whole, streamed):
        assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
        assert message.content[0].signature
        assert message.content[2].input == {"city": "Köln"}
        assert message.stop_reason == "tool_use"
        assert message.usage.output_tokens == 9
    assert echoed.content[0].text == "found"
    assert models == ["claude-opus-5-5"]


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (401, "authentication_error", "AuthenticationError"),
        (429, "rate_limit_error", "RateLimitError"),
        (529, "overloaded_error", "OverloadedError"),
        (400, "invalid_request_error", "BadRequestError"),
    ],
)
async def test_the_package_reads_the_errors_of_the_stand_in(
    status: int, kind: str, error: str
) -> None:
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    async with (
        AnthropicServer([anthropic_error(status, kind, "no")]) as server,
        _client(server) as client,
    ):
        with pytest.raises(anthropic.APIStatusError) as raised:
            await client.messages.create(**asked)
    assert type(raised.value).__name__ == error
    assert raised.value.type == kind
