"""Attempt: one model call as it streams, within the limits of an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from nanobot_core.agent.run import AgentRunSpec, Model
from nanobot_core.contracts.provider import (
    MAX_ANSWER_CHARS,
    MAX_ARGUMENT_CHARS,
    MAX_TOOL_CALLS,
    ChatRequest,
    Completed,
    LLMResponse,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
)
from nanobot_core.errors import (
    FOREIGN_ERRORS,
    AnswerTooLong,
    PluginError,
    ProviderError,
    ProviderProtocolError,
)
from nanobot_core.events import StreamEnded, StreamRestarted, TextStreamed
from nanobot_core.text import MAX_JSON_DEPTH, PairJoiner, count_chars, is_deeper, is_finite
from nanobot_core.thoughts import Portion, ThoughtFilter

BATCH_S = 0.05
"""Deltas reach the hooks in batches of at least this many seconds."""
IT_WAS_THINKING = "the text so far was the model's thinking"


class Attempt:
    """One model call, tried one or more times; streams into the run's events and hooks."""

    def __init__(self, spec: AgentRunSpec, iteration: int, *, has_other: bool) -> None:
        self._spec = spec
        self._batch: list[tuple[str, str]] = []
        self._batch_since_s = 0.0
        self._streamed = False
        self.iteration = iteration
        self.first_token_s: float | None = None
        self.is_noticed = False
        self.has_other = has_other
        """Whether another model can answer instead."""
        self.is_trial = False
        """Whether the model has failed before, and gets one attempt."""

    async def restart(self, reason: str) -> None:
        """Report that the text streamed so far is void, if there is any."""
        self._batch = []
        if self._streamed:
            self._streamed = False
            await self._spec.on_event(StreamRestarted(reason=reason))

    async def make(self, model: Model, request: ChatRequest) -> LLMResponse:
        """Make the call once.

        Raises:
            ProviderError: the service gave no usable answer.
            PluginError: the provider broke its contract.
        """
        limit_s = model.provider.longest_call_s
        try:
            async with asyncio.timeout(limit_s) as limit:
                return await self._listen(model, request)
        except TimeoutError:
            if not limit.expired():
                raise
        reason = f"its answer was not complete within {limit_s:g} seconds"
        raise AnswerTooLong(model.provider_name, reason)

    async def _listen(self, model: Model, request: ChatRequest) -> LLMResponse:
        """Pass on what streams, and return the answer at its end."""
        started = time.perf_counter()
        thoughts, text, reasoning = ThoughtFilter(), PairJoiner(), PairJoiner()
        received_chars = 0
        async with aclosing(self._provided(model, request)) as events:
            async for event in events:
                if self.first_token_s is None and self._spec.stream:
                    self.first_token_s = time.perf_counter() - started
                if isinstance(event, TextDelta | ReasoningDelta):
                    received_chars += len(event.text)
                    _check_length(model, received_chars)
                if isinstance(event, TextDelta):
                    await self._show(thoughts.feed(text.feed(event.text)))
                elif isinstance(event, ReasoningDelta):
                    await self._emit("", reasoning.feed(event.text))
                elif isinstance(event, Completed):
                    _check_size(model, event.response)
                    await self._show(thoughts.feed(text.finish()))
                    await self._show(thoughts.finish())
                    await self._emit("", reasoning.finish())
                    self._flush()
                    self._end(event.response)
                    return event.response
        raise ProviderProtocolError(
            model.provider_name, "the stream ended without a complete answer"
        )

    async def _provided(self, model: Model, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the provider's events; other exceptions are failures of its plugin."""
        stream: AsyncIterator[StreamEvent] | None = None
        try:
            if not self._spec.stream:
                yield _completed(await model.provider.chat(request))
            else:
                stream = model.provider.chat_stream(request)
                async for event in stream:
                    yield _completed(event.response) if isinstance(event, Completed) else event
        except ProviderError:
            raise
        except FOREIGN_ERRORS as error:
            raise PluginError(
                model.plugin,
                f"its provider '{model.provider_name}' failed with {type(error).__name__}",
                "see the log",
            ) from error
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    async def _show(self, portion: Portion) -> None:
        if portion.is_void:
            await self.restart(IT_WAS_THINKING)
        await self._emit(portion.visible, portion.thought)

    async def _emit(self, text: str, reasoning: str) -> None:
        if not text and not reasoning:
            return
        self._streamed = self._streamed or bool(text)
        await self._spec.on_event(self._streamed_event(text, reasoning))
        if self._spec.hooks.on_stream:
            now_s = time.monotonic()
            if not self._batch:
                self._batch_since_s = now_s
            self._batch.append((text, reasoning))
            if now_s - self._batch_since_s >= BATCH_S:
                self._flush()

    def _flush(self) -> None:
        if self._batch:
            text, reasoning = map("".join, zip(*self._batch, strict=True))
            self._spec.hooks.on_stream(self._streamed_event(text, reasoning))
            self._batch = []

    def _streamed_event(self, text: str, reasoning: str) -> TextStreamed:
        return TextStreamed(
            turn=self._spec.turn, iteration=self.iteration, text=text, reasoning=reasoning
        )

    def _end(self, response: LLMResponse) -> None:
        if self._spec.stream and self._spec.hooks.on_stream_end:
            self._spec.hooks.on_stream_end(
                StreamEnded(
                    turn=self._spec.turn,
                    iteration=self.iteration,
                    tool_calls=len(response.tool_calls),
                )
            )


def _completed(response: object) -> Completed:
    """Return the last event for the response of a plugin."""
    if not isinstance(response, LLMResponse):
        msg = f"it returned {type(response).__name__} instead of LLMResponse"
        raise TypeError(msg)
    return Completed(response)


def _check_size(model: Model, response: LLMResponse) -> None:
    """Refuse an answer that exceeds a limit or cannot be stored; none of its calls may run.

    Raises:
        AnswerTooLong: it exceeds a limit.
        ProviderProtocolError: parts of it are nested too deeply, or contain numbers that JSON
            cannot represent.
    """
    kept = [response.content, response.reasoning, *response.provider_blocks]
    _check_length(model, count_chars(kept))
    calls = response.tool_calls
    if is_deeper(kept, MAX_JSON_DEPTH) or any(
        is_deeper(call.arguments, MAX_JSON_DEPTH) for call in calls
    ):
        raise ProviderProtocolError(model.provider_name, "its answer is nested too deeply")
    if not (is_finite(kept) and all(is_finite(call.arguments) for call in calls)):
        reason = "its answer contains NaN or an infinite number, which JSON cannot represent"
        raise ProviderProtocolError(model.provider_name, reason)
    if len(calls) > MAX_TOOL_CALLS:
        reason = f"its answer asks for {len(calls):,} tool calls; the limit is {MAX_TOOL_CALLS}"
        raise AnswerTooLong(model.provider_name, reason)
    chars = sum(count_chars(call.arguments) + len(call.unparsed or "") for call in calls)
    if chars > MAX_ARGUMENT_CHARS:
        reason = f"the arguments of its calls are longer than {MAX_ARGUMENT_CHARS:,} characters"
        raise AnswerTooLong(model.provider_name, reason)


def _check_length(model: Model, chars: int) -> None:
    if chars > MAX_ANSWER_CHARS:
        reason = f"its answer is longer than {MAX_ANSWER_CHARS:,} characters"
        raise AnswerTooLong(model.provider_name, reason)
