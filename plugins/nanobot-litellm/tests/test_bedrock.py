"""Amazon Bedrock, whose streams are frames of bytes instead of server-sent events."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable

import pytest

from nanobot_core import (
    ChatRequest,
    Completed,
    JsonObject,
    LLMProvider,
    LLMResponse,
    Message,
    ProviderError,
    ToolCall,
)
from nanobot_core.testing import OpenAIServer, RecordedRequest, Reply

pytestmark = pytest.mark.anyio

REQUEST = ChatRequest(
    messages=(Message(role="user", content="hello"),),
    model="bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0",
)
OPTIONS = {
    "aws_access_key_id": "AKIATEST",
    "aws_secret_access_key": "secret",
    "aws_region_name": "us-east-1",
}


class _Bedrock(OpenAIServer):
    """Sends bodies as they are scripted."""

    def is_request(self, request: RecordedRequest) -> bool:
        return request.path.endswith("/converse-stream")


def _frame(kind: str, payload: JsonObject) -> bytes:
    fields = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        bytes([len(name)])
        + name.encode()
        + b"\x07"
        + struct.pack(">H", len(value))
        + value.encode()
        for name, value in fields.items()
    )
    body = json.dumps(payload).encode()
    head = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    frame = head + struct.pack(">I", zlib.crc32(head)) + headers + body
    return frame + struct.pack(">I", zlib.crc32(frame))


def _delta(index: int, delta: JsonObject) -> bytes:
    return _frame("contentBlockDelta", {"contentBlockIndex": index, "delta": delta})


USAGE: JsonObject = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
ANSWER = [
    _frame("messageStart", {"role": "assistant"}),
    _delta(0, {"reasoningContent": {"text": "hm "}}),
    _delta(0, {"reasoningContent": {"signature": "sig"}}),
    _delta(1, {"text": "I look."}),
    _frame(
        "contentBlockStart",
        {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "t", "name": "look"}}},
    ),
    _delta(2, {"toolUse": {"input": '{"a":'}}),
    _delta(2, {"toolUse": {"input": "1}"}}),
    _frame("contentBlockStop", {"contentBlockIndex": 2}),
    _frame("messageStop", {"stopReason": "tool_use"}),
    _frame("metadata", {"usage": USAGE, "metrics": {"latencyMs": 1}}),
]


async def _stream(provider: LLMProvider) -> LLMResponse:
    async for event in provider.chat_stream(REQUEST):
        if isinstance(event, Completed):
            return event.response
    raise AssertionError("no answer")


async def test_a_stream_of_frames_is_read_and_refused_where_it_is_cut(
    build: Callable[..., LLMProvider],
) -> None:
    media_type = "application/vnd.amazon.eventstream"
    cuts = [b"".join(ANSWER[:count]) for count in range(len(ANSWER) - 1)]
    bodies = [b"".join(ANSWER), *cuts]
    script = [Reply(body=body, content_type=media_type) for body in bodies]
    async with _Bedrock(script) as server:
        provider = build("bedrock", api_base=server.origin, options=OPTIONS)
        response = await _stream(provider)
        for _ in cuts:
            with pytest.raises(ProviderError):
                await _stream(provider)
        await provider.aclose()
    assert response.tool_calls == (ToolCall("t", "look", {"a": 1}),)
    assert (response.content, response.reasoning) == ("I look.", "hm ")
    assert response.provider_blocks[0]["thinking_blocks"] == [
        {"type": "thinking", "thinking": "hm ", "signature": "sig"}
    ]
    assert response.usage.total_tokens == 15
    assert response.usage.estimated_usd
    assert server.requests[0].headers["authorization"].startswith("AWS4-HMAC-SHA256")
