"""Messages of Anthropic's API over the wire: pieces do not matter, and the result can be stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from nanobot_anthropic.provider import AnthropicProvider
from tests.fuzz.answers import KINDS, FuzzedService
from tests.fuzz.choices import Choices

TOKENS: Final = (
    b"data: ", b"event: error\n", b"event: ping\n", b"\r\n\r\n", b": x", b'"type": "',
    b'{"type": "message_start", "message": {"usage": {', b'"input_tokens": ', b'"index": 0',
    b'{"type": "content_block_start", "index": 0, "content_block": {',
    b'{"type": "content_block_delta", "index": 0, "delta": {', b'{"type": "content_block_stop"',
    b'{"type": "message_delta", "delta": {"stop_reason": "', b'{"type": "message_stop"}',
    b'"text_delta"', b'"thinking_delta"', b'"signature_delta"', b'"input_json_delta"',
    b'"tool_use"', b'"redacted_thinking"', b'"partial_json": "', b'"stop_details": {',
    b'{"type": "error", "error": {"type": "overloaded_error"', b"1e999", b"NaN", b"\\ud83d",
    b"[[[[[[[[[[[[[[[[", b'{"a":{"a":{"a":{"a":', b"9" * 200,
)  # fmt: skip
_MODELS: Final = ("claude-opus-5-5", "claude-haiku-4-5", "other")


def fuzz_one(data: bytes) -> None:
    """Let a service answer with any bytes, at once and in pieces."""
    choices = Choices(data)
    kind = KINDS[choices.byte() % 3]
    model = _MODELS[choices.byte() % 3]
    size = 1 + choices.byte()
    service = FuzzedService(AnthropicProvider, "anthropic", model)
    service.check(kind, choices.rest(), size)


def seeds() -> Iterator[bytes]:
    """Yield a stream with blocks of each type, an error, and a whole message."""
    blocks: list[dict[str, object]] = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "t", "name": "look", "input": {"a": 1}},
    ]
    usage = {"input_tokens": 3, "cache_read_input_tokens": 2, "output_tokens": 1}
    events: list[dict[str, object]] = [{"type": "message_start", "message": {"usage": usage}}]
    deltas = (
        {"type": "thinking_delta", "thinking": "x"},
        {"type": "signature_delta", "signature": "y"},
        {"type": "text_delta", "text": "z"},
        {"type": "input_json_delta", "partial_json": '{"b": 2}'},
    )
    for index, (block, delta) in enumerate(zip(blocks, deltas, strict=True)):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": "refusal", "stop_details": {"explanation": "no"}}
    events.append({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 9}})
    events.append({"type": "message_stop"})
    stream = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
    failed = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n'
    for model in range(len(_MODELS)):
        yield bytes([0, model, 7]) + stream
    yield b"\x00\x00\x10" + failed
    whole = {"type": "message", "content": blocks, "stop_reason": "tool_use", "usage": usage}
    yield b"\x01\x00\x10" + json.dumps(whole).encode()
