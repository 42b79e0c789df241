"""The limits of a run, applied to its model calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from nanobot_core import ChatRequest, LimitError, LLMResponse, Message, shorten
from nanobot_subagents.result import TIME_USED_UP, TOKENS_USED_UP

if TYPE_CHECKING:
    from nanobot_core import ModelCallRequested
    from nanobot_subagents.run import Run
    from nanobot_subagents.runs import Runs

ANSWER_NOW = (
    "Your tokens for this task are used up, so no more tools are run. Give your result now, from "
    "what you know, and say what is missing."
)
_CALLS_BEYOND = 2
"""Calls after the tokens are used up: the result, and one that makes the history fit."""
_MAX_STEP_CHARS = 120
CallNext = Callable[[ChatRequest], Awaitable[LLMResponse]]


class TokenLimit:
    """Ends runs that have used up their tokens or were stopped.

    Args:
        runs: the runs.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._beyond: dict[str, int] = {}

    async def call(self, run: Run, event: ModelCallRequested, call_next: CallNext) -> LLMResponse:
        """Make a model call of a run, count it, and keep the tool calls that it asks for.

        A run whose tokens are used up has one more call, without tools, to give its result.

        Raises:
            LimitError: the run ends.
        """
        if run.ending:
            raise LimitError(TIME_USED_UP if run.ending == "time" else "a person stopped it")
        request = event.request
        if run.tokens >= self._runs.settings.max_tokens:
            request = await self._last(run, request)
        response = await call_next(request)
        for call in response.tool_calls:
            texts = (value for value in call.arguments.values() if isinstance(value, str))
            step = shorten(f"{call.name}({next(texts, '')})", _MAX_STEP_CHARS)
            self._runs.note_step(run.id, step)
        run = self._runs.get(run.id) or run
        await self._runs.note(run, tokens=run.tokens + response.usage.total_tokens)
        return response

    async def _last(self, run: Run, request: ChatRequest) -> ChatRequest:
        beyond = self._beyond[run.id] = self._beyond.get(run.id, 0) + 1
        if beyond > _CALLS_BEYOND or (run.cause and request.tools):
            raise LimitError(TOKENS_USED_UP)
        if not request.tools:  # a summary
            return request
        await self._runs.note(run, cause=TOKENS_USED_UP)
        return replace(
            request,
            messages=(*request.messages, Message(role="user", content=ANSWER_NOW)),
            tools=(),
        )

    def forget(self, run_id: str) -> None:
        """Forget a run that has ended."""
        self._beyond.pop(run_id, None)
