"""From the events of a message to stream events and the complete answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from nanobot_anthropic.mapping import BLOCK_OWNER
from nanobot_core import (
    FinishReason,
    JsonObject,
    JsonValue,
    LLMResponse,
    ProviderProtocolError,
    StreamEvent,
    Usage,
)
from nanobot_core.providers import AnswerBuilder, AnswerReader, count_of

_FINISH_REASONS: dict[str, FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
"""Other reasons are a plain end."""
_THINKING = ("thinking", "redacted_thinking")


@dataclass(slots=True)
class _Part:
    """One block of the answer, as far as it comes back in the next request.

    Attributes:
        kind: the block's type.
        chars: length of a text; the text itself is that of the answer.
        thinking: pieces of thinking.
        signature: pieces of its signature.
        data: thinking that cannot be read.
    """

    kind: str
    chars: int = 0
    thinking: list[str] = field(default_factory=list)
    signature: list[str] = field(default_factory=list)
    data: str = ""

    def to_json(self) -> JsonObject:
        """Return it; thinking in the form that the service gets back."""
        record: JsonObject = {"type": self.kind}
        if self.kind == "text":
            record["chars"] = self.chars
        elif self.kind == "thinking":
            record["thinking"] = "".join(self.thinking)
            record["signature"] = "".join(self.signature)
        elif self.kind == "redacted_thinking":
            record["data"] = self.data
        return record


class MessageReader(AnswerReader):
    """Reads one message: its events, or the whole object.

    Args:
        provider: name of the provider, kept in blocks that only it gets back.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._builder = AnswerBuilder(provider)
        self._layout: list[_Part] = []
        """All blocks in order."""
        self._parts: dict[int, _Part] = {}
        """The same by the service's index of a block."""
        self._calls: dict[int, int] = {}
        """Position of a call by the same index."""
        self._usage: JsonObject = {}
        self._stop_reason: str | None = None
        self._has_ended = False

    @property
    def is_complete(self) -> bool:
        """Whether the service has reported why it stopped."""
        return self._stop_reason is not None

    @property
    def has_ended(self) -> bool:
        """Whether the last event has arrived."""
        return self._has_ended

    def feed(self, payload: dict[str, Any]) -> Iterator[StreamEvent]:
        """Read one event or a whole message; events of unknown types are ignored."""
        kind = payload.get("type")
        if kind == "message":
            yield from self._read_whole(payload)
        elif kind == "message_start":
            message = payload.get("message")
            self._count(message.get("usage") if isinstance(message, dict) else None)
        elif kind == "content_block_start":
            yield from self._open(_index(payload), payload.get("content_block"))
        elif kind == "content_block_delta":
            yield from self._add(_index(payload), payload.get("delta"))
        elif kind == "message_delta":
            yield from self._stop(payload.get("delta"))
            self._count(payload.get("usage"))
        elif kind == "message_stop":
            self._has_ended = True

    def response(self) -> LLMResponse:
        """Return the complete answer."""
        if self._stop_reason is None:
            raise ProviderProtocolError(self._provider, "its answer has no stop reason")
        has_thought = any(part.kind in _THINKING for part in self._layout)
        content: list[JsonValue] = [part.to_json() for part in self._layout]
        kept: JsonObject = {BLOCK_OWNER: self._provider, "content": content}
        return self._builder.response(
            finish_reason=_FINISH_REASONS.get(self._stop_reason, "stop"),
            usage=self._read_usage(),
            blocks=(kept,) if has_thought else (),
        )

    def _read_whole(self, message: dict[str, Any]) -> Iterator[StreamEvent]:
        content = message.get("content")
        for index, block in enumerate(content if isinstance(content, list) else ()):
            yield from self._open(index, block)
        yield from self._stop(message)
        self._count(message.get("usage"))

    def _open(self, index: int, block: object) -> Iterator[StreamEvent]:
        """Begin a block, which holds all of its content in a whole message."""
        if not isinstance(block, dict):
            return
        kind = block.get("type")
        if kind == "tool_use":
            self._place(index, _Part(kind))
            position = self._calls[index] = self._builder.open_call()
            given = block.get("input")
            arguments = self._json(given) if isinstance(given, dict) and given else ""
            name, call_id = _text(block, "name"), _text(block, "id")
            delta = self._builder.add_to_call(
                position, call_id=call_id, name=name, arguments=arguments
            )
            if delta is not None:
                yield delta
        elif kind == "text":
            self._place(index, _Part(kind))
            yield from self._add(index, {"type": "text_delta", "text": block.get("text")})
        elif kind == "thinking":
            self._place(index, _Part(kind, signature=[_text(block, "signature")]))
            thought = {"type": "thinking_delta", "thinking": block.get("thinking")}
            yield from self._add(index, thought)
        elif kind == "redacted_thinking":
            self._place(index, _Part(kind, data=_text(block, "data")))

    def _add(self, index: int, delta: object) -> Iterator[StreamEvent]:
        part = self._parts.get(index)
        if not isinstance(delta, dict) or part is None:
            return
        kind = delta.get("type")
        if kind == "text_delta" and (text := _text(delta, "text")) and part.kind == "text":
            part.chars += len(text)
            yield self._builder.text(text)
        elif kind == "thinking_delta" and (thought := _text(delta, "thinking")):
            part.thinking.append(thought)
            yield self._builder.reasoning(thought)
        elif kind == "signature_delta":
            part.signature.append(_text(delta, "signature"))
        elif kind == "input_json_delta" and index in self._calls:
            arguments = _text(delta, "partial_json")
            self._builder.add_to_call(self._calls[index], arguments=arguments)

    def _place(self, index: int, part: _Part) -> None:
        self._parts[index] = part
        self._layout.append(part)

    def _stop(self, delta: object) -> Iterator[StreamEvent]:
        """Take over why the service stopped; a refusal without a text is explained by it."""
        if not isinstance(delta, dict):
            return
        self._stop_reason = _text(delta, "stop_reason") or self._stop_reason
        details = delta.get("stop_details")
        explanation = _text(details, "explanation") if isinstance(details, dict) else ""
        if explanation and not any(part.chars for part in self._layout):
            yield self._builder.text(explanation)

    def _count(self, usage: object) -> None:
        """Take over `usage`, whose figures are those of the answer so far."""
        if isinstance(usage, dict):
            self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _read_usage(self) -> Usage:
        cached = count_of(self._usage, "cache_read_input_tokens")
        written = count_of(self._usage, "cache_creation_input_tokens")
        return Usage(
            prompt_tokens=count_of(self._usage, "input_tokens") + cached + written,
            completion_tokens=count_of(self._usage, "output_tokens"),
            cached_tokens=cached,
            reasoning_tokens=count_of(self._usage, "output_tokens_details", "thinking_tokens"),
        )

    def _json(self, arguments: JsonObject) -> str:
        try:
            return json.dumps(arguments, ensure_ascii=False)
        except RecursionError:
            reason = "the arguments of a call are nested too deeply"
            raise ProviderProtocolError(self._provider, reason) from None


def _index(payload: dict[str, Any]) -> int:
    index = payload.get("index")
    return index if isinstance(index, int) else -1


def _text(record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    return value if isinstance(value, str) else ""
