"""What all answers of this package share: text in pieces, and usage by estimate."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace

from nanobot_core import ChatRequest, LLMResponse, TextDelta, ToolCall, Usage

_PIECE_CHARS = 24
_CHARS_PER_TOKEN = 4


def text_pieces(text: str) -> Iterator[TextDelta]:
    """Yield `text` in pieces of a few words, as a model would."""
    for start in range(0, len(text), _PIECE_CHARS):
        yield TextDelta(text[start : start + _PIECE_CHARS])


def with_usage(response: LLMResponse, request: ChatRequest) -> LLMResponse:
    """Return `response` with tokens estimated at four characters each, and without cost."""
    sent = sum(len(message.text) + _call_chars(message.tool_calls) for message in request.messages)
    sent += sum(len(json.dumps(tool.to_schema())) for tool in request.tools)
    thought = len(response.reasoning or "")
    received = len(response.content or "") + thought + _call_chars(response.tool_calls)
    usage = Usage(
        prompt_tokens=_tokens(sent),
        completion_tokens=_tokens(received),
        reasoning_tokens=_tokens(thought),
        cost_usd=0.0,
    )
    return replace(response, usage=usage)


def _call_chars(calls: Iterable[ToolCall]) -> int:
    return sum(len(call.name) + len(json.dumps(call.arguments)) for call in calls)


def _tokens(chars: int) -> int:
    return -(-chars // _CHARS_PER_TOKEN)
