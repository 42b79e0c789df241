"""From LiteLLM's pieces of an answer to deltas and an `LLMResponse`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from nanobot_core import FinishReason, JsonObject, JsonValue, LLMResponse, StreamEvent, Usage
from nanobot_core.providers import AnswerBuilder, count_of
from nanobot_litellm.mapping import BLOCK_OWNER

_FINISH_REASONS: dict[str, FinishReason] = {
    "length": "length",
    "content_filter": "content_filter",
}
"""Other reasons are a plain end; whether tools were called is seen in the answer."""
_THOUGHT_FIELDS = ("type", "thinking", "signature", "data")
_ID_END = "__thought__"
"""LiteLLM appends the signature of a call to its id behind this; here it is kept in a block."""


@dataclass(slots=True)
class _Thought:
    """One block of thinking.

    Attributes:
        fields: all but its text.
        pieces: of its text.
    """

    fields: JsonObject
    pieces: list[str] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether more of it can follow: it is whole with its signature."""
        return self.fields.get("type") == "thinking" and not self.fields.get("signature")

    def add(self, block: JsonObject) -> None:
        """Add a streamed piece.

        With the signature some services send nothing else, and some the whole text again.
        """
        added = _text(block.get("thinking"))
        if block.get("signature") and added.startswith("".join(self.pieces)):
            self.pieces = []
        self.pieces.append(added)
        self.fields |= {name: value for name, value in block.items() if name != "thinking"}

    def to_json(self) -> JsonObject:
        """Return it as the service gets it back."""
        text: JsonObject = {"thinking": "".join(self.pieces)} if self.pieces else {}
        return self.fields | text


class Answer:
    """Reads one answer, streamed or whole, in OpenAI's format.

    Attributes:
        begun: a part of the answer has come.
        usage: the tokens, as LiteLLM counts them.

    Args:
        provider: name of the provider, kept in blocks that only it may get back.
    """

    def __init__(self, provider: str) -> None:
        self.begun = False
        self.usage: dict[str, Any] = {}
        self._provider = provider
        self._builder = AnswerBuilder(provider)
        self._reason: FinishReason = "stop"
        self._positions: dict[int, int] = {}
        self._thoughts: list[_Thought] = []
        self._fields: dict[int | None, JsonObject] = {}
        """Position of a call, or ``None`` for the message, to what belongs to it."""

    def feed(self, payload: dict[str, Any]) -> Iterator[StreamEvent]:
        """Take in one piece, or the whole answer, and yield what it adds.

        Raises:
            AnswerTooLong: with it the answer exceeds a limit.
        """
        if isinstance(usage := payload.get("usage"), dict):
            self.usage = usage
        choices = payload.get("choices")
        for choice in choices[:1] if isinstance(choices, list) else ():
            self.begun = True
            # The true reason may come before pieces into which LiteLLM puts "stop".
            self._reason = _FINISH_REASONS.get(str(choice.get("finish_reason")), self._reason)
            yield from self._take(choice["delta"])

    def response(self, estimated_usd: float | None) -> LLMResponse:
        """Return the complete answer."""
        usage = read_usage(self.usage, estimated_usd)
        return self._builder.response(self._reason, usage, tuple(self._blocks()))

    def _take(self, delta: dict[str, Any]) -> Iterator[StreamEvent]:
        self._keep_thoughts(delta.get("thinking_blocks"))
        self._keep_signatures(None, delta.get("provider_specific_fields"))
        if thought := _text(delta.get("reasoning_content")):
            yield self._builder.reasoning(thought)
        if text := _text(delta.get("content")):
            yield self._builder.text(text)
        for call in delta.get("tool_calls") or ():
            yield from self._take_call(call)

    def _take_call(self, call: dict[str, Any]) -> Iterator[StreamEvent]:
        index, function = call.get("index"), call.get("function") or {}
        position = self._positions.get(index, -1) if isinstance(index, int) else -1
        if position < 0:
            position = self._builder.open_call()
            if isinstance(index, int):
                self._positions[index] = position
        self._keep_signatures(position, call.get("provider_specific_fields"))
        opened = self._builder.add_to_call(
            position,
            call_id=_text(call.get("id")).partition(_ID_END)[0],
            name=_text(function.get("name")),
            arguments=_text(function.get("arguments")),
        )
        if opened:
            yield opened

    def _keep_thoughts(self, blocks: object) -> None:
        """Join the streamed pieces of thinking."""
        for piece in blocks if isinstance(blocks, list) else ():
            block = {name: piece[name] for name in _THOUGHT_FIELDS if name in piece}
            is_thinking = block.get("type") == "thinking"
            if not (is_thinking and self._thoughts and self._thoughts[-1].is_open):
                self._thoughts.append(_Thought({}))
            if is_thinking:
                self._thoughts[-1].add(block)
            else:
                self._thoughts[-1].fields |= block

    def _keep_signatures(self, position: int | None, fields: object) -> None:
        """Keep Gemini's signatures; the other fields are not needed again."""
        for name in ("thought_signature", "thought_signatures"):
            if isinstance(fields, dict) and (found := fields.get(name)):
                self._fields[position] = self._fields.get(position, {}) | {name: found}

    def _blocks(self) -> Iterator[JsonObject]:
        """Yield what must be handed back unchanged."""
        # A service refuses thinking without its signature.
        kept: list[JsonValue] = [
            thought.to_json()
            for thought in self._thoughts
            if thought.fields.get("signature") or thought.fields.get("data")
        ]
        if kept:
            yield {BLOCK_OWNER: self._provider, "thinking_blocks": kept}
        for position, fields in self._fields.items():
            place: JsonObject = {} if position is None else {"call": position}
            yield {BLOCK_OWNER: self._provider, **place, "provider_specific_fields": fields}


def read_usage(usage: dict[str, Any], estimated_usd: float | None) -> Usage:
    """Return LiteLLM's usage object in our terms."""
    return Usage(
        prompt_tokens=count_of(usage, "prompt_tokens"),
        completion_tokens=count_of(usage, "completion_tokens"),
        cached_tokens=count_of(usage, "prompt_tokens_details", "cached_tokens")
        or count_of(usage, "cache_read_input_tokens"),
        reasoning_tokens=count_of(usage, "completion_tokens_details", "reasoning_tokens"),
        estimated_usd=estimated_usd if usage else None,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
