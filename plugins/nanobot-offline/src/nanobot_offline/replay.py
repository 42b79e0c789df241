"""The replay of a script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from nanobot_core import (
    AuthenticationFailed,
    BadRequest,
    ChatRequest,
    Clock,
    Completed,
    ContextTooLong,
    LLMProvider,
    LLMResponse,
    Overloaded,
    ProviderError,
    ProviderProtocolError,
    ProviderTimeout,
    RateLimited,
    ReasoningDelta,
    StreamEvent,
    ToolCall,
    ToolCallDelta,
    Unreachable,
)
from nanobot_offline.answer import newest_words, text_pieces, with_usage
from nanobot_offline.script import (
    CallPart,
    DelayPart,
    ErrorName,
    ErrorPart,
    Part,
    Step,
    TextPart,
    ThinkPart,
)

_ERRORS: dict[ErrorName, type[ProviderError]] = {
    "AuthenticationFailed": AuthenticationFailed,
    "BadRequest": BadRequest,
    "ContextTooLong": ContextTooLong,
    "Overloaded": Overloaded,
    "ProviderProtocolError": ProviderProtocolError,
    "ProviderTimeout": ProviderTimeout,
    "RateLimited": RateLimited,
    "Unreachable": Unreachable,
}


class ScriptedProvider(LLMProvider):
    """Replays a script: each call takes its next step, whichever session it comes from.

    Args:
        clock: source of time for delays.
        file: path of the script, for messages.
    """

    def __init__(self, name: str, clock: Clock, file: str, steps: Sequence[Step]) -> None:
        self.name = name
        self._clock = clock
        self._file = file
        self._steps = steps
        self._position = 0

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        """Yield the next step of the script.

        Raises:
            ProviderError: as the script says; `BadRequest` when it is at its end.
        """
        position = self._position
        self._position += 1
        if position >= len(self._steps):
            raise BadRequest(
                self.name, f"the script '{self._file}' has ended after {len(self._steps)} steps"
            )
        parts = self._steps[position]
        words, _ = newest_words(request)
        for event in _events(self.name, parts, words):
            if isinstance(event, DelayPart):
                await self._clock.sleep(event.delay_s)
            else:
                yield event
                await self._clock.sleep(0)
        yield Completed(with_usage(_response(position, parts, words), request))


def _events(provider: str, parts: Sequence[Part], words: str) -> Iterator[StreamEvent | DelayPart]:
    """Yield the events in order, and the waits between; raise where the script has an error."""
    calls = 0
    for part in parts:
        match part:
            case TextPart():
                yield from text_pieces(_filled(part, words))
            case ThinkPart():
                yield ReasoningDelta(part.think)
            case CallPart():
                yield ToolCallDelta(calls, part.call)
                calls += 1
            case DelayPart():
                yield part
            case ErrorPart():
                raise _error(provider, part)


def _response(position: int, parts: Sequence[Part], words: str) -> LLMResponse:
    texts = [_filled(part, words) for part in parts if isinstance(part, TextPart)]
    thoughts = [part.think for part in parts if isinstance(part, ThinkPart)]
    calls = [part for part in parts if isinstance(part, CallPart)]
    return LLMResponse(
        content="".join(texts) or None,
        reasoning="".join(thoughts) or None,
        tool_calls=tuple(
            ToolCall(f"script_{position}_{index}", call.call, call.arguments)
            for index, call in enumerate(calls)
        ),
        finish_reason="tool_calls" if calls else "stop",
    )


def _filled(part: TextPart, words: str) -> str:
    return part.text.replace("{user}", words)


def _error(provider: str, part: ErrorPart) -> ProviderError:
    kind = _ERRORS[part.error]
    return kind(provider, part.reason, retry_after_s=part.retry_after_s, status=part.status)
