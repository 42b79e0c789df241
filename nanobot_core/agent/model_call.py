"""Model calls: choose the model, call it with retries and fallbacks, record usage."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from nanobot_core.agent.attempt import Attempt
from nanobot_core.agent.cool_down import CoolDowns
from nanobot_core.agent.run import AgentRunSpec, Model, ModelSource, Shape, unshaped
from nanobot_core.agent.shortening import has_documents, without_documents, without_images
from nanobot_core.clock import Clock
from nanobot_core.contracts.provider import ChatRequest, LLMResponse, ModelCallRequested, ModelInfo
from nanobot_core.errors import (
    AnswerTooLong,
    AuthenticationFailed,
    BadRequest,
    ContextTooLong,
    NoProvider,
    PluginError,
    ProviderError,
)
from nanobot_core.events import ModelRequested, NoticeGiven, ToolDefinition, UsageRecorded
from nanobot_core.messages import Message, Usage
from nanobot_core.record import dataclass
from nanobot_core.thoughts import split_thoughts

RETRY_DELAYS_S = (1.0, 2.0, 4.0)
LONGEST_RETRY_AFTER_S = 60.0
NOTICED_WAIT_S = 1.5
"""Seconds from which the user is notified of a wait, once for each call."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A response, who gave it, and how long it took."""

    response: LLMResponse
    model: Model
    duration_s: float
    first_token_s: float | None


class ModelCaller:
    """Makes the model calls of one agent run."""

    def __init__(
        self, spec: AgentRunSpec, models: ModelSource, clock: Clock, cool_downs: CoolDowns
    ) -> None:
        self._spec = spec
        self._models = models
        self._clock = clock
        self._cool_downs = cool_downs
        self._without_images: set[str] = set()
        """Models that have refused a request for its images."""
        self._has_documents = has_documents(spec.messages)
        self._noticed: set[str] = set()
        """What the user has been notified of; once in a run is enough."""
        self.usage: Usage = Usage()
        """Of all calls so far."""

    async def call(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolDefinition],
        iteration: int,
        *,
        is_hidden: bool = False,
        shape: Shape = unshaped,
    ) -> ModelAnswer:
        """Return the answer of the chosen model, or of the first fallback that answers.

        A model that cools down after a failure is tried last.

        Args:
            messages: the request's history, system prompt first.
            tools: what may be called; empty for an answer in words.
            iteration: number of this model call, from 1.
            is_hidden: the user must not see the answer, so it is not streamed.
            shape: changes the request for the model that is tried.

        Raises:
            ProviderError: no model answered; the error of the last one.
            PluginError: the plugin of the last provider failed.
            NoProvider: no provider serves the model.
            LimitError: a hook ended the turn.
        """
        spec = replace(self._spec, stream=False) if is_hidden else self._spec
        attempt = Attempt(spec, iteration, has_other=bool(self._spec.fallback_models))
        failed: Model | None = None
        failure: ProviderError | PluginError | None = None
        refused: set[str] = set()
        cooling: list[Model] = []
        async with aclosing(self._chain(await self._chosen(iteration), cooling)) as chain:
            async for model in chain:
                if model.provider_name in refused:
                    continue
                if failed is not None and failure is not None:
                    await attempt.restart(failure.reason)
                    text = f"{failed.name}: {failure.reason}; trying {model.name}"
                    await self._notice_once(failed.name, text)
                elif cooling and model is not cooling[0]:
                    text = f"{cooling[0].name} failed a moment ago; trying {model.name}"
                    await self._notice_once(cooling[0].name, text)
                try:
                    request = self._request(model, messages, tools)
                    return await self._call_one(model, attempt, shape(model, request))
                except (ProviderError, PluginError) as error:
                    # Another model would refuse the same request.
                    if isinstance(error, BadRequest):
                        raise
                    if isinstance(error, AuthenticationFailed):
                        refused.add(model.provider_name)
                    failed, failure = model, error
        assert failure is not None  # noqa: S101 - the first name has returned, raised or failed
        raise failure

    async def _chain(self, chosen: str | None, cooling: list[Model]) -> AsyncGenerator[Model]:
        """Yield the models to call in order, each once; those that cool down come last.

        Args:
            chosen: name of the first.
            cooling: receives those that cool down.
        """
        names = dict.fromkeys((chosen, *self._spec.fallback_models))
        seen: set[tuple[str, str]] = set()
        for name in names:
            try:
                model = await self._models.model(name)
            except (NoProvider, PluginError) as error:
                if name == chosen:
                    raise
                await self._notice_once(str(name), str(error))
                continue
            if (key := (model.provider_name, model.wire_name)) in seen:
                continue
            seen.add(key)
            if len(names) > 1 and self._cool_downs.has(model):
                cooling.append(model)
            else:
                yield model
        for model in cooling:
            yield model

    def _request(
        self, model: Model, messages: Sequence[Message], tools: Sequence[ToolDefinition]
    ) -> ChatRequest:
        allowed = self._spec.max_tokens
        if self._has_documents and "documents" not in (model.abilities or ()):
            messages = without_documents(messages)
        return ChatRequest(
            messages=tuple(messages),
            model=model.wire_name,
            tools=tuple(tools),
            max_tokens=min(allowed, model.max_tokens or allowed),
            temperature=model.temperature,
            reasoning_effort=model.reasoning_effort,
            extra=model.overrides,
        )

    async def _chosen(self, iteration: int) -> str | None:
        """Return the name of the model that the hooks or the configuration choose."""
        if not self._spec.hooks.choose_model:
            return self._spec.model
        model = await self._models.model(self._spec.model)
        event = ModelRequested(turn=self._spec.turn, model=model.name, iteration=iteration)
        return await self._spec.hooks.choose_model(event) or self._spec.model

    async def _call_one(self, model: Model, attempt: Attempt, request: ChatRequest) -> ModelAnswer:
        paid: list[LLMResponse] = []

        async def with_retries(wanted: ChatRequest) -> LLMResponse:
            response = await self._with_cool_down(model, attempt, wanted)
            paid.append(replace(response, usage=_priced(response.usage, model.info)))
            return paid[0]

        started = time.perf_counter()
        hooks = self._spec.hooks
        if not hooks.wrap_model_call:
            response = await with_retries(request)
        else:
            event = ModelCallRequested(
                turn=self._spec.turn,
                iteration=attempt.iteration,
                provider=model.provider_name,
                request=request,
            )
            try:
                response = await hooks.wrap_model_call(event, with_retries)
            except BaseException:
                # A call whose answer a hook discards costs money too.
                for made in paid:
                    self._record_usage(model, made.usage)
                raise
        if paid:
            self._record_usage(model, response.usage)
        elapsed_s = time.perf_counter() - started
        return ModelAnswer(_without_thoughts(response), model, elapsed_s, attempt.first_token_s)

    async def _with_cool_down(
        self, model: Model, attempt: Attempt, request: ChatRequest
    ) -> LLMResponse:
        """Make the call; if the model fails for good, later calls leave it out for a while."""
        attempt.is_trial = attempt.has_other and self._cool_downs.begin_trial(model)
        try:
            response = await self._with_images_or_without(model, attempt, request)
        except (ProviderError, PluginError) as error:
            if attempt.has_other and not isinstance(error, BadRequest | AnswerTooLong):
                self._cool_downs.record(model, error)
            raise
        self._cool_downs.clear(model)
        return response

    async def _with_images_or_without(
        self, model: Model, attempt: Attempt, request: ChatRequest
    ) -> LLMResponse:
        """Make the call without images that the model is known not to accept.

        If it refuses the call, make it again without its images: services report only in free
        text that a model does not accept images, or not this one.
        """
        abilities = model.abilities
        if abilities is not None and "images" not in abilities:
            textual = without_images(request.messages)
            if textual != request.messages:
                text = f"{model.name} accepts no images; it answers without them"
                await self._notice_once(text, text)
            return await self._with_retries(model, attempt, replace(request, messages=textual))
        if model.name not in self._without_images:
            try:
                return await self._with_retries(model, attempt, request)
            except BadRequest as error:
                textual = without_images(request.messages)
                if isinstance(error, ContextTooLong) or textual == request.messages:
                    raise
                await attempt.restart(error.reason)
        textual = without_images(request.messages)
        response = await self._with_retries(model, attempt, replace(request, messages=textual))
        if model.name not in self._without_images:
            self._without_images.add(model.name)
            await self._notice(f"{model.name} refused the images; it answers without them")
        return response

    async def _with_retries(
        self, model: Model, attempt: Attempt, request: ChatRequest
    ) -> LLMResponse:
        for delay_s in () if attempt.is_trial else RETRY_DELAYS_S:
            try:
                return await attempt.make(model, request)
            except ProviderError as error:
                if not error.retryable or isinstance(error, ContextTooLong):
                    raise
                if attempt.has_other and (error.retry_after_s or 0) > LONGEST_RETRY_AFTER_S:
                    raise
                wait_s = _wait_s(error, delay_s)
                await attempt.restart(error.reason)
                if wait_s >= NOTICED_WAIT_S and not attempt.is_noticed:
                    # The reason is in the error that follows if no attempt succeeds.
                    attempt.is_noticed = True
                    failed = f"the call to provider '{model.provider_name}' failed"
                    await self._notice(f"{failed}; trying again in {wait_s:.0f} s")
                await self._clock.sleep(wait_s)
        return await attempt.make(model, request)

    async def _notice(self, text: str) -> None:
        await self._spec.on_event(NoticeGiven(text=text))

    async def _notice_once(self, subject: str, text: str) -> None:
        if subject not in self._noticed:
            self._noticed.add(subject)
            await self._notice(text)

    def _record_usage(self, model: Model, usage: Usage) -> None:
        self.usage = self.usage + usage
        if self._spec.hooks.on_usage:
            self._spec.hooks.on_usage(
                UsageRecorded(
                    session_key=self._spec.turn.session_key,
                    source=self._spec.turn.source,
                    model=model.name,
                    provider=model.provider_name,
                    plugin=model.plugin,
                    usage=usage,
                    turn_id=self._spec.turn.id,
                )
            )


def _wait_s(error: ProviderError, delay_s: float) -> float:
    """Return how long to wait: as long as the service asks, bounded, else back-off with jitter."""
    if error.retry_after_s is not None:
        return min(max(error.retry_after_s, 0.0), LONGEST_RETRY_AFTER_S)
    return delay_s * random.uniform(0.75, 1.25)  # noqa: S311 - jitter, no secret


def _priced(usage: Usage, info: ModelInfo | None) -> Usage:
    """Return `usage` with what it costs by the list prices, if the service names no cost."""
    if usage.cost_usd is not None or info is None:
        return usage
    if info.input_usd is None or info.output_usd is None:
        return usage
    cached_usd = info.input_usd if info.cached_usd is None else info.cached_usd
    for_million_usd = (
        max(usage.prompt_tokens - usage.cached_tokens, 0) * info.input_usd
        + usage.cached_tokens * cached_usd
        + usage.completion_tokens * info.output_usd
    )
    return replace(usage, estimated_usd=for_million_usd / 1_000_000)


def _without_thoughts(response: LLMResponse) -> LLMResponse:
    """Return the response with passages of thinking moved from the content to the reasoning."""
    if not response.content:
        return response
    content, thought = split_thoughts(response.content)
    if content == response.content:
        return response
    reasoning = "\n".join(part for part in (response.reasoning, thought) if part)
    return replace(response, content=content or None, reasoning=reasoning or None)
