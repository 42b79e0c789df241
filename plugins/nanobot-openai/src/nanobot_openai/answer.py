"""From chunks of ``chat.completion`` to stream events and the complete answer.

A whole answer is read as one chunk, so that both forms go through the same code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nanobot_core import (
    FinishReason,
    JsonObject,
    LLMResponse,
    Overloaded,
    ProviderProtocolError,
    StreamEvent,
    Usage,
)
from nanobot_core.providers import AnswerBuilder, AnswerReader, count_of
from nanobot_openai.mapping import BLOCK_OWNER, own_name

if TYPE_CHECKING:
    from nanobot_openai.dialect import Dialect

_FINISH_REASONS: dict[str, FinishReason] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",  # Mistral
    "content_filter": "content_filter",
    "sensitive": "content_filter",  # Zhipu
}
"""Other reasons are a plain end; whether tools were called is seen in the answer."""

_FAILED_REASONS = frozenset({"error", "network_error", "insufficient_system_resource"})
"""Ends that mean the service failed: OpenRouter and Mistral, Zhipu, DeepSeek."""

_MAX_USD = 1 << 53
"""A price that no service can mean."""


class CompletionReader(AnswerReader):
    """Reads chunks of a chat completion, or a whole one.

    Args:
        provider: name of the provider, kept in blocks that only it may get back.
        dialect: of the vendor.
    """

    def __init__(self, provider: str, dialect: Dialect) -> None:
        self._finish_reason: str | None = None
        self._begun = False
        self._provider = provider
        self._dialect = dialect
        self._answer = AnswerBuilder(provider)
        self._extras: dict[int, JsonObject] = {}
        """Call position to what goes back with that call."""
        self._call_of_index: dict[int, int] = {}
        self._details: list[JsonObject] = []
        self._usage = Usage()

    @property
    def is_complete(self) -> bool:
        """Whether the service has said why it stopped."""
        return self._finish_reason is not None

    def feed(self, payload: dict[str, Any]) -> Iterator[StreamEvent]:
        """Read one chunk and yield what it adds; see `AnswerReader.feed`."""
        choices = payload.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else {}
        # Moonshot puts the usage into the choice and Groq under its own key.
        for holder in (payload, choice, payload.get("x_groq")):
            usage = holder.get("usage") if isinstance(holder, dict) else None
            if isinstance(usage, dict):
                self._usage = read_usage(usage, self._dialect.cost_field)
        if not isinstance(choice, dict) or not choice:
            return
        self._begun = True
        if isinstance(reason := choice.get("finish_reason"), str) and reason:
            self._finish_reason = reason
        delta = choice.get("delta")
        if isinstance(delta, dict):
            yield from self._take(delta)
        elif isinstance(message := choice.get("message"), dict):
            yield from self._take(_as_delta(message))

    def response(self) -> LLMResponse:
        """Return the complete answer; see `AnswerReader.response`."""
        if self._finish_reason in _FAILED_REASONS:
            reason = f"it gave up within the answer ({self._finish_reason})"
            raise Overloaded(self._provider, reason)
        if not self._begun:
            raise ProviderProtocolError(self._provider, "its answer contains no choice")
        found = _FINISH_REASONS.get(self._finish_reason or "", "stop")
        return self._answer.response(found, self._usage, tuple(self._blocks()))

    def _take(self, delta: dict[str, Any]) -> Iterator[StreamEvent]:
        thought, text = _split_content(delta.get("content"))
        thought = _text(delta.get("reasoning_content") or delta.get("reasoning")) + thought
        text = text or _text(delta.get("refusal"))
        if isinstance(details := delta.get("reasoning_details"), list):
            self._details += [detail for detail in details if isinstance(detail, dict)]
        if thought:
            yield self._answer.reasoning(thought)
        if text:
            yield self._answer.text(text)
        calls = delta.get("tool_calls")
        for fragment in calls if isinstance(calls, list) else ():
            if isinstance(fragment, dict):
                yield from self._take_call(fragment)

    def _take_call(self, fragment: dict[str, Any]) -> Iterator[StreamEvent]:
        function = fragment.get("function")
        function = function if isinstance(function, dict) else {}
        identity, name = _text(fragment.get("id")), _text(function.get("name"))
        name = own_name(name, self._dialect)
        position = self._position(fragment.get("index"), identity, name)
        begun = self._answer.add_to_call(
            position,
            call_id=identity,
            name=name,
            arguments=self._argument_text(function.get("arguments")),
        )
        if begun is not None:
            yield begun
        if isinstance(extra := fragment.get("extra_content"), dict) and extra:
            self._extras[position] = extra

    def _argument_text(self, arguments: object) -> str:
        try:
            return json.dumps(arguments) if isinstance(arguments, dict) else _text(arguments)
        except RecursionError:
            reason = "the arguments of a call are nested too deeply"
            raise ProviderProtocolError(self._provider, reason) from None

    def _position(self, index: object, identity: str, name: str) -> int:
        """Return the place of the call that a fragment belongs to, a new one where it opens one.

        Some vendors leave out the index or give every call the same; there another name with
        another id, or with none and no index, shows that the next call has begun.
        """
        known = self._answer.call_count - 1
        if isinstance(index, int):
            known = self._call_of_index.get(index, -1)
        if known >= 0:
            known_id, known_name = self._answer.identity_of(known)
            is_other = identity != known_id if identity else index is None
            if not (is_other and name and known_name):
                return known
        position = self._answer.open_call()
        if isinstance(index, int):
            self._call_of_index[index] = position
        return position

    def _blocks(self) -> Iterator[JsonObject]:
        """Yield what must be handed back unchanged: OpenRouter's reasoning, Gemini's signatures."""
        if self._details:
            yield {BLOCK_OWNER: self._provider, "reasoning_details": list(_joined(self._details))}
        for position, extra in self._extras.items():
            yield {BLOCK_OWNER: self._provider, "call": position, "extra_content": extra}


def read_usage(usage: dict[str, Any], cost_field: str | None = None) -> Usage:
    """Return a usage object in our terms.

    xAI and Gemini count thinking in the total only; the contract counts it as completion.
    """
    prompt = count_of(usage, "prompt_tokens")
    completion = max(count_of(usage, "completion_tokens"), count_of(usage, "total_tokens") - prompt)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=count_of(usage, "prompt_tokens_details", "cached_tokens")
        or count_of(usage, "prompt_cache_hit_tokens")  # DeepSeek
        or count_of(usage, "cached_tokens"),  # Moonshot
        reasoning_tokens=count_of(usage, "completion_tokens_details", "reasoning_tokens"),
        cost_usd=_cost(usage.get(cost_field)) if cost_field else None,
    )


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


def _cost(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _MAX_USD else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
