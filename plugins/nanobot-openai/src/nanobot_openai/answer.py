"""From chunks of ``chat.completion`` to stream events and the complete answer.

A whole answer is read as one chunk, so that both forms go through the same code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from nanobot_core import (
    MAX_ARGUMENT_CHARS,
    MAX_TOOL_CALLS,
    AnswerTooLong,
    FinishReason,
    JsonObject,
    LLMResponse,
    ProviderProtocolError,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    repair_json_object,
)
from nanobot_openai.mapping import BLOCK_OWNER

_FINISH_REASONS: dict[str, FinishReason] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",  # Mistral
    "content_filter": "content_filter",
    "sensitive": "content_filter",  # Zhipu
}
"""Other reasons are a plain end; whether tools were called is seen in the answer."""

_NO_ARGUMENTS = ("", "null")
"""Arguments that models write for a tool without parameters, apart from an empty object."""
_REPAIR_CHARS = 100_000
"""The arguments of one answer are repaired when all of them are no longer: it takes its time."""

_TOO_MANY = 1 << 53
"""Tokens or dollars that no service can mean; larger numbers do not fit into what counts them."""

FAILED_REASONS = frozenset({"error", "network_error", "insufficient_system_resource"})
"""Ends that mean the service failed: OpenRouter and Mistral, Zhipu, DeepSeek."""


@dataclass(slots=True)
class _Call:
    """A tool call in the making."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra_content: JsonObject | None = None


class Answer:
    """One answer in the making.

    Attributes:
        finish_reason: the service's own word for why it stopped, once it has said so.
        begun: a chunk with a choice has come.

    Args:
        provider: name of the provider, kept in blocks that only it may get back.
        cost_field: field of ``usage`` that holds US dollars, or ``None``.
    """

    def __init__(self, provider: str, cost_field: str | None = None) -> None:
        self.finish_reason: str | None = None
        self.begun = False
        self._provider = provider
        self._cost_field = cost_field
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._argument_chars = 0
        self._call_of_index: dict[int, int] = {}
        self._details: list[JsonObject] = []
        self._usage = Usage()

    def feed(self, chunk: dict[str, Any]) -> Iterator[StreamEvent]:
        """Take in one chunk and yield what it adds.

        Raises:
            AnswerTooLong: with it the answer asks for more calls than an answer may.
        """
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else {}
        # Moonshot puts the usage into the choice and Groq under its own key.
        for holder in (chunk, choice, chunk.get("x_groq")):
            usage = holder.get("usage") if isinstance(holder, dict) else None
            if isinstance(usage, dict):
                self._usage = read_usage(usage, self._cost_field)
        if not isinstance(choice, dict) or not choice:
            return
        self.begun = True
        if isinstance(reason := choice.get("finish_reason"), str) and reason:
            self.finish_reason = reason
        delta = choice.get("delta")
        if isinstance(delta, dict):
            yield from self._take(delta)
        elif isinstance(message := choice.get("message"), dict):
            yield from self._take(_as_delta(message))

    def response(self) -> LLMResponse:
        """Return the complete answer."""
        reason = _FINISH_REASONS.get(self.finish_reason or "", "stop")
        if reason == "stop" and self._calls:
            reason = "tool_calls"
        return LLMResponse(
            content="".join(self._text) or None,
            tool_calls=tuple(self._finished_calls(is_cut=reason in ("length", "content_filter"))),
            finish_reason=reason,
            usage=self._usage,
            reasoning="".join(self._reasoning) or None,
            provider_blocks=tuple(self._blocks()),
        )

    def _take(self, delta: dict[str, Any]) -> Iterator[StreamEvent]:
        thought, text = _split_content(delta.get("content"))
        thought = _text(delta.get("reasoning_content") or delta.get("reasoning")) + thought
        text = text or _text(delta.get("refusal"))
        if isinstance(details := delta.get("reasoning_details"), list):
            self._details += [detail for detail in details if isinstance(detail, dict)]
        if thought:
            self._reasoning.append(thought)
            yield ReasoningDelta(thought)
        if text:
            self._text.append(text)
            yield TextDelta(text)
        calls = delta.get("tool_calls")
        for fragment in calls if isinstance(calls, list) else ():
            if isinstance(fragment, dict):
                yield from self._take_call(fragment)

    def _take_call(self, fragment: dict[str, Any]) -> Iterator[StreamEvent]:
        function = fragment.get("function")
        function = function if isinstance(function, dict) else {}
        identity, name = _text(fragment.get("id")), _text(function.get("name"))
        position = self._position(fragment.get("index"), identity, name)
        call = self._calls[position]
        call.id = call.id or identity
        if name and not call.name:
            call.name = name
            yield ToolCallDelta(position, name)
        call.arguments.append(self._argument_text(function.get("arguments")))
        if isinstance(extra := fragment.get("extra_content"), dict):
            call.extra_content = extra

    def _argument_text(self, arguments: object) -> str:
        try:
            text = json.dumps(arguments) if isinstance(arguments, dict) else _text(arguments)
        except RecursionError:
            reason = "the arguments of a call are nested too deeply"
            raise ProviderProtocolError(self._provider, reason) from None
        self._argument_chars += len(text)
        if self._argument_chars > MAX_ARGUMENT_CHARS:
            reason = f"the arguments of its calls are longer than {MAX_ARGUMENT_CHARS:,} characters"
            raise AnswerTooLong(self._provider, reason)
        return text

    def _position(self, index: object, identity: str, name: str) -> int:
        """Return the place of the call that a fragment belongs to, a new one where it opens one.

        Some vendors leave out the index or give every call the same; there another name with
        another id, or with none and no index, shows that the next call has begun.
        """
        known = len(self._calls) - 1
        if isinstance(index, int):
            known = self._call_of_index.get(index, -1)
        if known >= 0:
            call = self._calls[known]
            is_other = identity != call.id if identity else index is None
            if not (is_other and name and call.name):
                return known
        if len(self._calls) == MAX_TOOL_CALLS:
            reason = f"its answer asks for more than {MAX_TOOL_CALLS} tool calls"
            raise AnswerTooLong(self._provider, reason)
        self._calls.append(_Call())
        if isinstance(index, int):
            self._call_of_index[index] = len(self._calls) - 1
        return len(self._calls) - 1

    def _finished_calls(self, *, is_cut: bool) -> Iterator[ToolCall]:
        """Yield the calls; arguments that the service may have cut are never completed by guess."""
        is_repaired = not is_cut and self._argument_chars <= _REPAIR_CHARS
        for call in self._calls:
            text = "".join(call.arguments)
            if text.strip() in _NO_ARGUMENTS and not is_cut:
                yield ToolCall(call.id, call.name, {})
                continue
            limit_chars = _REPAIR_CHARS if is_repaired else 0
            arguments = repair_json_object(text, max_repair_chars=limit_chars)
            unparsed = text if arguments is None else None
            yield ToolCall(call.id, call.name, arguments or {}, unparsed)

    def _blocks(self) -> Iterator[JsonObject]:
        """Yield what must be handed back unchanged: OpenRouter's reasoning, Gemini's signatures."""
        if self._details:
            yield {BLOCK_OWNER: self._provider, "reasoning_details": list(_joined(self._details))}
        for position, call in enumerate(self._calls):
            if call.extra_content:
                yield {
                    BLOCK_OWNER: self._provider,
                    "call": position,
                    "extra_content": call.extra_content,
                }


def read_usage(usage: dict[str, Any], cost_field: str | None = None) -> Usage:
    """Return a usage object in our terms.

    xAI and Gemini count thinking in the total only; the contract counts it as completion.
    """
    prompt = _count(usage, "prompt_tokens")
    completion = max(_count(usage, "completion_tokens"), _count(usage, "total_tokens") - prompt)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=_count(usage, "prompt_tokens_details", "cached_tokens")
        or _count(usage, "prompt_cache_hit_tokens")  # DeepSeek
        or _count(usage, "cached_tokens"),  # Moonshot
        reasoning_tokens=_count(usage, "completion_tokens_details", "reasoning_tokens"),
        cost_usd=_cost(usage.get(cost_field)) if cost_field else None,
    )


def parse_payload(text: str | bytes | bytearray) -> object:
    """Return the JSON in `text`; NaN and infinite numbers, which are not JSON, become ``None``.

    They could neither be stored nor sent back.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    parsed: object = json.loads(text, parse_constant=_no_number, parse_float=_finite)
    return parsed


def _no_number(_name: str) -> None:
    return None


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _as_delta(message: dict[str, Any]) -> dict[str, Any]:
    """Return a whole message as a delta, its calls numbered so that equal ids stay apart."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    numbered = [
        {**call, "index": index} for index, call in enumerate(calls) if isinstance(call, dict)
    ]
    return {**message, "tool_calls": numbered}


def _split_content(content: object) -> tuple[str, str]:
    """Return (thought, text) of a content, which Mistral may send as a list of parts."""
    if not isinstance(content, list):
        return "", _text(content)
    thought: list[str] = []
    text: list[str] = []
    for part in content:
        if not isinstance(part, dict):
            continue
        if isinstance(inner := part.get("thinking"), list):
            thought += [_text(item.get("text")) for item in inner if isinstance(item, dict)]
        else:
            text.append(_text(part.get("text")))
    return "".join(thought), "".join(text)


def _joined(details: list[JsonObject]) -> Iterator[JsonObject]:
    """Yield reasoning details with the streamed pieces of one passage put together."""
    pieces: list[JsonObject] = []
    for detail in details:
        if pieces and not _same_passage(pieces[0], detail):
            yield _passage(pieces)
            pieces = []
        pieces.append(detail)
    if pieces:
        yield _passage(pieces)


def _passage(pieces: list[JsonObject]) -> JsonObject:
    if len(pieces) == 1:
        return pieces[0]
    whole: JsonObject = dict(pieces[0])
    for piece in pieces:
        whole |= {key: value for key, value in piece.items() if value}
    return {**whole, "text": "".join(_text(piece.get("text")) for piece in pieces)}


def _same_passage(first: JsonObject, second: JsonObject) -> bool:
    return all(first.get(key) == second.get(key) for key in ("type", "index")) and all(
        isinstance(detail.get("text"), str) for detail in (first, second)
    )


def _count(usage: dict[str, Any], *path: str) -> int:
    value: object = usage
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, int) and 0 < value < _TOO_MANY else 0


def _cost(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _TOO_MANY else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
