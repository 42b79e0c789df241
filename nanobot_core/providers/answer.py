"""Gathering one answer from what a service sends, within the limits of an answer."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from nanobot_core.contracts.provider import (
    MAX_ARGUMENT_CHARS,
    MAX_TOOL_CALLS,
    FinishReason,
    LLMResponse,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
)
from nanobot_core.errors import AnswerTooLong
from nanobot_core.messages import JsonObject, ToolCall, Usage
from nanobot_core.text import repair_json_object

_NO_ARGUMENTS = ("", "null")
"""Arguments that models write for a tool without parameters, apart from an empty object."""
_REPAIR_CHARS = 100_000
"""The arguments of one answer are repaired up to this length in all, because it takes time."""
MAX_ANSWER_BYTES: Final = 16_000_000
"""Longest answer in one piece, unpacked."""
MAX_STREAM_BYTES: Final = 64_000_000
"""Longest streamed answer, unpacked."""
MAX_EVENT_BYTES: Final = 8_000_000
"""Longest event of a stream."""
MAX_COUNT: Final = 1 << 53
"""Tokens or dollars that no service can mean; larger numbers do not fit into what counts them."""


class AnswerReader(ABC):
    """Reads one answer: the JSON of its events in order, or of the whole answer as the only one."""

    @abstractmethod
    def feed(self, payload: dict[str, Any]) -> Iterator[StreamEvent]:
        """Read one JSON object and yield the deltas in it.

        Raises:
            ProviderError: the object reports a failure, or the answer exceeds a limit.
        """

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """Whether the answer is complete, so that the stream may end here."""

    @property
    def has_ended(self) -> bool:
        """Whether no part of the answer can follow, so that reading stops."""
        return False

    @abstractmethod
    def response(self) -> LLMResponse:
        """Return the complete answer.

        Raises:
            ProviderError: the service failed in the middle of it, or sent no answer.
        """


@dataclass(slots=True)
class _Call:
    """A tool call that is being gathered."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class AnswerBuilder:
    """Gathers text, thinking and tool calls, and applies the limits of `LLMProvider`.

    Args:
        provider: name of the provider, for errors.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._argument_chars = 0

    @property
    def call_count(self) -> int:
        """How many tool calls there are so far."""
        return len(self._calls)

    def text(self, piece: str) -> TextDelta:
        """Add `piece`, not empty, to the text."""
        self._text.append(piece)
        return TextDelta(piece)

    def reasoning(self, piece: str) -> ReasoningDelta:
        """Add `piece`, not empty, to the thinking."""
        self._reasoning.append(piece)
        return ReasoningDelta(piece)

    def open_call(self) -> int:
        """Add a tool call and return its position.

        Raises:
            AnswerTooLong: the answer asks for more calls than it may.
        """
        if len(self._calls) == MAX_TOOL_CALLS:
            reason = f"its answer asks for more than {MAX_TOOL_CALLS} tool calls"
            raise AnswerTooLong(self._provider, reason)
        self._calls.append(_Call())
        return len(self._calls) - 1

    def add_to_call(
        self, position: int, *, call_id: str = "", name: str = "", arguments: str = ""
    ) -> ToolCallDelta | None:
        """Add parts of a call; return a delta when the name is among them.

        The first id and the first name count, and pieces of arguments are joined.

        Raises:
            AnswerTooLong: all arguments together are longer than they may be.
        """
        call = self._calls[position]
        call.id = call.id or call_id
        self._argument_chars += len(arguments)
        if self._argument_chars > MAX_ARGUMENT_CHARS:
            reason = f"the arguments of its calls are longer than {MAX_ARGUMENT_CHARS:,} characters"
            raise AnswerTooLong(self._provider, reason)
        call.arguments.append(arguments)
        if not name or call.name:
            return None
        call.name = name
        return ToolCallDelta(position, name)

    def identity_of(self, position: int) -> tuple[str, str]:
        """Return the id and the name of a call as far as they are known."""
        call = self._calls[position]
        return call.id, call.name

    def response(
        self,
        finish_reason: FinishReason,
        usage: Usage,
        blocks: tuple[JsonObject, ...] = (),
    ) -> LLMResponse:
        """Return the complete answer.

        Args:
            finish_reason: ``stop`` becomes ``tool_calls`` when there are calls.
            usage: tokens.
            blocks: what the provider gets back in the next request.
        """
        reason = "tool_calls" if finish_reason == "stop" and self._calls else finish_reason
        return LLMResponse(
            content="".join(self._text) or None,
            tool_calls=tuple(self._finished_calls(is_cut=reason in ("length", "content_filter"))),
            finish_reason=reason,
            usage=usage,
            reasoning="".join(self._reasoning) or None,
            provider_blocks=blocks,
        )

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


def count_of(usage: object, *path: str) -> int:
    """Return the number of tokens at `path` in a service's usage object; 0 if it is missing."""
    value = usage
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, int) and 0 < value < MAX_COUNT else 0


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
