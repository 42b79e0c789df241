"""What every provider must do, as tests that its plugin inherits."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import pytest

from nanobot_core.contracts.provider import (
    ChatRequest,
    Completed,
    LLMProvider,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
)
from nanobot_core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextTooLong,
    Overloaded,
    ProviderError,
    ProviderProtocolError,
    ProviderTimeout,
    RateLimited,
    Unreachable,
)
from nanobot_core.events import ToolDefinition
from nanobot_core.messages import JsonObject, Message
from nanobot_core.testing.suite import ConformanceSuite

_LIMIT_S = 5.0


class ServiceBehaviour(StrEnum):
    """What the service behind the provider does with each request of a test."""

    ANSWER = "streams ProviderContract.TEXT after ProviderContract.THOUGHT, in several pieces"
    CALL = "calls the tool `lookup` with ProviderContract.ARGUMENTS and says nothing"
    ECHO = "repeats the user's text once ProviderContract.CALLS_AT_ONCE requests have come in"
    RATE_LIMITED = "refuses more requests for ProviderContract.RETRY_AFTER_S seconds"
    OVERLOADED = "reports a failure on its side"
    REFUSED_KEY = "does not accept the credentials"
    REFUSED_REQUEST = "does not accept the request"
    TOO_LONG = "says that the prompt exceeds the context window"
    GARBAGE = "answers with a page of HTML"
    CUT = "ends the connection within the answer, after some text"
    SILENT = "sends some text and then nothing more, with the connection open"
    STALLED = "as SILENT, and the provider's own time limit is far below a second"
    ABSENT = "does not listen"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedProvider:
    """A provider with the service behind it.

    Attributes:
        provider: what is tested; the suite closes it.
        client_gone: returns when the service has seen a client leave a silent answer.
    """

    provider: LLMProvider
    client_gone: Callable[[], Awaitable[None]]


class ProviderContract(ConformanceSuite):
    """Subclass it as ``TestMyProvider`` and supply `serve`."""

    TEXT = "Grüße aus Köln: the answer is 42. 🦀"
    THOUGHT = "The user wants a number."
    ARGUMENTS: ClassVar[JsonObject] = {"city": "Köln", "days": 2}
    RETRY_AFTER_S = 7.0
    CALLS_AT_ONCE = 8

    @abstractmethod
    def serve(self, behaviour: ServiceBehaviour) -> AbstractAsyncContextManager[ServedProvider]:
        """Return a provider that speaks to a service which does as `behaviour` says."""

    async def test_a_stream_ends_with_exactly_one_completed(self) -> None:
        async with self.serve(ServiceBehaviour.ANSWER) as served:
            events = await _collect(served.provider, _request())
        assert [isinstance(event, Completed) for event in events].count(True) == 1
        assert isinstance(events[-1], Completed)

    async def test_deltas_add_up_to_the_answer(self) -> None:
        async with self.serve(ServiceBehaviour.ANSWER) as served:
            events = await _collect(served.provider, _request())
        texts = [event.text for event in events if isinstance(event, TextDelta)]
        thoughts = [event.text for event in events if isinstance(event, ReasoningDelta)]
        response = _completed(events).response
        assert "".join(texts) == response.content == self.TEXT
        assert "".join(thoughts) == (response.reasoning or "")
        assert all(texts)
        assert response.finish_reason == "stop"

    async def test_a_call_without_streaming_gives_the_same_answer(self) -> None:
        async with self.serve(ServiceBehaviour.ANSWER) as served:
            streamed = _completed(await _collect(served.provider, _request())).response
            async with asyncio.timeout(_LIMIT_S):
                whole = await served.provider.chat(_request())
        assert whole == streamed

    async def test_a_tool_call_comes_with_parsed_arguments(self) -> None:
        lookup = ToolDefinition(
            name="lookup", description="Look up.", parameters={"type": "object", "properties": {}}
        )
        async with self.serve(ServiceBehaviour.CALL) as served:
            events = await _collect(served.provider, _request(tools=(lookup,)))
        response = _completed(events).response
        assert [event.name for event in events if isinstance(event, ToolCallDelta)] == ["lookup"]
        assert [(call.name, call.arguments) for call in response.tool_calls] == [
            ("lookup", self.ARGUMENTS)
        ]
        assert response.finish_reason == "tool_calls"
        assert response.content is None

    @pytest.mark.parametrize(
        ("behaviour", "error", "retryable"),
        [
            (ServiceBehaviour.RATE_LIMITED, RateLimited, True),
            (ServiceBehaviour.OVERLOADED, Overloaded, True),
            (ServiceBehaviour.REFUSED_KEY, AuthenticationFailed, False),
            (ServiceBehaviour.REFUSED_REQUEST, BadRequest, False),
            (ServiceBehaviour.TOO_LONG, ContextTooLong, False),
            (ServiceBehaviour.GARBAGE, ProviderProtocolError, True),
            (ServiceBehaviour.STALLED, ProviderTimeout, True),
            (ServiceBehaviour.ABSENT, Unreachable, True),
        ],
    )
    async def test_a_failure_has_the_type_that_says_what_to_do(
        self, behaviour: ServiceBehaviour, error: type[ProviderError], retryable: bool
    ) -> None:
        async with self.serve(behaviour) as served:
            with pytest.raises(ProviderError) as raised:
                await _collect(served.provider, _request())
        assert type(raised.value) is error
        assert raised.value.retryable is retryable
        assert raised.value.provider == served.provider.name

    async def test_a_failure_without_streaming_has_its_type_too(self) -> None:
        async with self.serve(ServiceBehaviour.RATE_LIMITED) as served:
            with pytest.raises(RateLimited):
                async with asyncio.timeout(_LIMIT_S):
                    await served.provider.chat(_request())

    async def test_a_rate_limit_says_how_long_to_wait(self) -> None:
        async with self.serve(ServiceBehaviour.RATE_LIMITED) as served:
            with pytest.raises(RateLimited) as raised:
                await _collect(served.provider, _request())
        assert raised.value.retry_after_s == self.RETRY_AFTER_S

    async def test_a_cut_stream_raises_and_never_completes(self) -> None:
        seen: list[StreamEvent] = []
        async with self.serve(ServiceBehaviour.CUT) as served:
            with pytest.raises(ProviderError) as raised:
                await _collect(served.provider, _request(), seen)
        assert any(isinstance(event, TextDelta) for event in seen)
        assert not any(isinstance(event, Completed) for event in seen)
        assert raised.value.retryable

    async def test_cancelling_a_call_closes_its_connection(self) -> None:
        begun = asyncio.Event()

        async def listen(provider: LLMProvider) -> None:
            async for _ in provider.chat_stream(_request()):
                begun.set()

        async with self.serve(ServiceBehaviour.SILENT) as served, asyncio.timeout(_LIMIT_S):
            async with asyncio.TaskGroup() as group:
                listener = group.create_task(listen(served.provider))
                await begun.wait()
                listener.cancel()
            await served.client_gone()
        assert listener.cancelled()

    async def test_calls_run_side_by_side_and_do_not_mix(self) -> None:
        questions = [f"question {number}" for number in range(self.CALLS_AT_ONCE)]
        async with self.serve(ServiceBehaviour.ECHO) as served, asyncio.TaskGroup() as group:
            calls = [
                group.create_task(_collect(served.provider, _request(question)))
                for question in questions
            ]
        assert [_completed(call.result()).response.content for call in calls] == questions

    async def test_a_provider_can_be_warmed_up_again_and_closed_twice(self) -> None:
        async with self.serve(ServiceBehaviour.ANSWER) as served, asyncio.timeout(_LIMIT_S):
            await served.provider.warm_up()
            await served.provider.warm_up()
            await served.provider.chat(_request())
            await served.provider.aclose()
            await served.provider.aclose()

    async def test_a_provider_that_was_never_used_can_be_closed(self) -> None:
        async with self.serve(ServiceBehaviour.ANSWER) as served, asyncio.timeout(_LIMIT_S):
            await served.provider.aclose()


def _request(text: str = "hello", tools: tuple[ToolDefinition, ...] = ()) -> ChatRequest:
    return ChatRequest(
        messages=(Message(role="user", content=text),), model="contract-model", tools=tools
    )


async def _collect(
    provider: LLMProvider, request: ChatRequest, seen: list[StreamEvent] | None = None
) -> list[StreamEvent]:
    events = [] if seen is None else seen
    async with asyncio.timeout(_LIMIT_S):
        # A list comprehension would lose the events before a failure.
        async for event in provider.chat_stream(request):
            events.append(event)
    return events


def _completed(events: list[StreamEvent]) -> Completed:
    last = events[-1]
    assert isinstance(last, Completed), f"the last event must be Completed, found {last!r}"
    return last
