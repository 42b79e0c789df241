"""A provider with scripted answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TypeAlias

from nanobot_core.contracts.provider import (
    ChatRequest,
    Completed,
    FinishReason,
    LLMProvider,
    LLMResponse,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
)
from nanobot_core.errors import ProviderError
from nanobot_core.messages import JsonObject, ToolCall, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeReply:
    """One answer of a `FakeProvider`.

    Attributes:
        pieces: the text, in the pieces in which it streams.
        tool_calls: the calls it asks for.
        reasoning: the thinking, streamed before the text.
        finish_reason: ``None`` means ``tool_calls`` if there are calls, else ``stop``.
        usage: what the call consumed.
        provider_blocks: opaque parts.
        error: raised after the pieces instead of a completion: a stream that breaks.
        gate: waited for before the first piece.
    """

    pieces: tuple[str, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    finish_reason: FinishReason | None = None
    usage: Usage = field(default_factory=Usage)
    provider_blocks: tuple[JsonObject, ...] = ()
    error: ProviderError | None = None
    gate: asyncio.Event | None = None


FakeStep: TypeAlias = str | ToolCall | ProviderError | FakeReply


class FakeProvider(LLMProvider):
    """An `LLMProvider` that takes one step of a script with each request.

    Attributes:
        requests: all requests so far, in order.
        closed: `aclose` was called.

    Args:
        steps: texts, single tool calls, errors to raise, or whole replies.
        name: the provider's name.
    """

    def __init__(self, *steps: FakeStep, name: str = "fake") -> None:
        self.name = name
        self.requests: list[ChatRequest] = []
        self.closed: bool = False
        self._steps = [_as_reply(step) for step in steps]

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        """Yield the next step.

        Raises:
            AssertionError: there is no step left.
        """
        position = len(self.requests)
        self.requests.append(request)
        if position >= len(self._steps):
            msg = f"request {position + 1} came, but the script has {len(self._steps)} steps"
            raise AssertionError(msg)
        reply = self._steps[position]
        if reply.gate is not None:
            await reply.gate.wait()
        if reply.reasoning:
            yield ReasoningDelta(reply.reasoning)
        for piece in reply.pieces:
            yield TextDelta(piece)
        if reply.error is not None:
            raise reply.error
        for index, call in enumerate(reply.tool_calls):
            yield ToolCallDelta(index, call.name)
        yield Completed(_response(reply))

    async def aclose(self) -> None:
        """Record that the provider was closed."""
        self.closed = True


def _as_reply(step: FakeStep) -> FakeReply:
    if isinstance(step, str):
        return FakeReply(pieces=(step,))
    if isinstance(step, ToolCall):
        return FakeReply(tool_calls=(step,))
    if isinstance(step, ProviderError):
        return FakeReply(error=step)
    return step


def _response(reply: FakeReply) -> LLMResponse:
    return LLMResponse(
        content="".join(reply.pieces) or None,
        tool_calls=reply.tool_calls,
        finish_reason=reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop"),
        usage=reply.usage,
        reasoning=reply.reasoning,
        provider_blocks=reply.provider_blocks,
    )
