"""Wrapping a model call: layers nest, ``call_next`` works once, no failure costs the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from nanobot_core import (
    BudgetExceeded,
    ChatRequest,
    LLMResponse,
    ModelCallRequested,
    Overloaded,
    TurnInfo,
    on,
)
from tests.unit.hooks.conftest import Bench

pytestmark = pytest.mark.anyio
Next = Callable[[ChatRequest], Awaitable[LLMResponse]]


def model_call(turn: TurnInfo) -> ModelCallRequested:
    request = ChatRequest(messages=(), model="m")
    return ModelCallRequested(turn=turn, iteration=1, provider="p", request=request)


async def answers(request: ChatRequest) -> LLMResponse:
    return LLMResponse(content=f"answer of {request.model}")


async def test_wrappers_nest_in_order_and_may_change_the_request(
    bench: Bench, turn: TurnInfo
) -> None:
    class Wraps:
        def __init__(self, name: str) -> None:
            self.name = name

        @on.wrap_model_call
        async def around(self, event: ModelCallRequested, call_next: Next) -> LLMResponse:
            changed = ChatRequest(messages=(), model=f"{event.request.model}{self.name}")
            inner = await call_next(changed)
            return LLMResponse(content=f"{self.name}({inner.content})")

    response = await bench.hooks(Wraps("a"), Wraps("b")).wrap_model_call(model_call(turn), answers)

    assert response.content == "a(b(answer of mab))"


async def test_a_plain_function_decides_for_each_call_whether_it_wraps(
    bench: Bench, turn: TurnInfo
) -> None:
    class Wraps:
        @on.wrap_model_call
        def around(
            self, event: ModelCallRequested, call_next: Next
        ) -> Awaitable[LLMResponse] | None:
            return call_next(event.request) if event.iteration == 1 else None

    hooks = bench.hooks(Wraps())
    for event in (model_call(turn), replace(model_call(turn), iteration=2)):
        response = await hooks.wrap_model_call(event, answers)
        assert response.content == "answer of m"
    assert bench.reported == []


async def test_a_wrapper_that_fails_before_the_call_is_skipped(
    bench: Bench, turn: TurnInfo
) -> None:
    class Fails:
        @on.wrap_model_call
        async def around(self, event: ModelCallRequested, call_next: Next) -> LLMResponse:
            raise ValueError("no")

    response = await bench.hooks(Fails()).wrap_model_call(model_call(turn), answers)

    assert response.content == "answer of m"
    assert bench.reported[0].plugin == "p0"


async def test_a_wrapper_that_fails_after_the_call_does_not_cost_the_answer(
    bench: Bench, turn: TurnInfo
) -> None:
    calls: list[str] = []

    class Fails:
        @on.wrap_model_call
        async def around(self, event: ModelCallRequested, call_next: Next) -> LLMResponse:
            await call_next(event.request)
            raise ValueError("no")

    async def counted(request: ChatRequest) -> LLMResponse:
        calls.append(request.model)
        return await answers(request)

    response = await bench.hooks(Fails()).wrap_model_call(model_call(turn), counted)

    assert response.content == "answer of m"
    assert calls == ["m"]


async def test_call_next_can_be_used_once(bench: Bench, turn: TurnInfo) -> None:
    class Twice:
        @on.wrap_model_call
        async def around(self, event: ModelCallRequested, call_next: Next) -> LLMResponse:
            await call_next(event.request)
            return await call_next(event.request)

    response = await bench.hooks(Twice()).wrap_model_call(model_call(turn), answers)

    assert response.content == "answer of m"
    assert "already used" in bench.reported[0].reason


async def test_errors_of_the_model_pass_through_and_are_not_booked_on_the_wrapper(
    bench: Bench, turn: TurnInfo
) -> None:
    class Plain:
        @on.wrap_model_call
        async def around(self, event: ModelCallRequested, call_next: Next) -> LLMResponse:
            return await call_next(event.request)

    async def overloaded(request: ChatRequest) -> LLMResponse:
        raise Overloaded("p", "busy")

    hooks = bench.hooks(Plain())
    for _ in range(5):
        with pytest.raises(Overloaded):
            await hooks.wrap_model_call(model_call(turn), overloaded)

    assert bench.reported == []
    assert hooks.wrap_model_call.implementations[0].circuit.state == "closed"


async def test_a_limit_error_ends_the_turn_on_purpose(bench: Bench, turn: TurnInfo) -> None:
    class Budget:
        @on.wrap_model_call
        async def around(self, event: ModelCallRequested, call_next: Next) -> LLMResponse:
            raise BudgetExceeded("day", "11 tokens", "10 tokens")

    with pytest.raises(BudgetExceeded):
        await bench.hooks(Budget()).wrap_model_call(model_call(turn), answers)
    assert bench.reported == []
