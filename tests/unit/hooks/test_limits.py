"""No hook holds up what it is called from, whatever it does with its cancellation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from nanobot_core import (
    ChatRequest,
    ContentReady,
    ContextBlock,
    ContextRequested,
    Decision,
    Deny,
    LLMResponse,
    Message,
    ModelCallRequested,
    ModelRequested,
    ToolCall,
    ToolCallProposed,
    TurnInfo,
    TurnOutcome,
    TurnStarted,
    hookimpl,
    on,
)
from nanobot_core.hooks.account import FAILURES_TO_OPEN, LONGEST_PAUSE_S
from nanobot_core.hooks.caller import Hooks, declared_hooks
from nanobot_core.hooks.implementation import CANCEL_GRACE_S, NAMED_AFTER_S, HookRuntime
from nanobot_core.hooks.kinds import RULES, Kind
from nanobot_core.testing import FakeClock
from tests.unit.hooks.conftest import Bench

pytestmark = pytest.mark.anyio
T = TypeVar("T")
Next = Callable[[ChatRequest], Awaitable[LLMResponse]]


@dataclass
class Timed(Bench):
    """A bench whose time moves only when a test moves it."""

    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ledger.now_s = self.clock.monotonic_s
        self.runtime = HookRuntime(spawn=self.spawn, report=self.reported.append, clock=self.clock)

    async def pass_limits(self, call: Coroutine[Any, Any, T], passing_s: float = 100.0) -> T:
        """Return what `call` returns while time passes for as long as anything waits for it."""
        task = self.spawn(call, name="turn")
        async with asyncio.timeout(5):
            while not task.done():
                await self.clock.advance(0)
                if not task.done() and self.clock.sleeper_count:
                    await self.clock.advance(passing_s)
        return task.result()


@pytest.fixture
async def timed(bench: Bench) -> Timed:
    return Timed(tasks=bench.tasks)


class Hangs:
    """Never answers, on any hook; says how many calls are going on."""

    def __init__(self, *, is_stubborn: bool) -> None:
        self.is_stubborn = is_stubborn
        self.release = asyncio.Event()
        self.going_on = 0
        self.calls = 0

    async def _hang(self) -> None:
        self.going_on += 1
        self.calls += 1
        try:
            while not self.release.is_set():
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    if not self.is_stubborn:
                        raise
        finally:
            self.going_on -= 1

    @on.before_turn
    async def before_turn(self, event: TurnStarted) -> None:
        await self._hang()

    @on.after_turn
    async def after_turn(self, event: TurnOutcome) -> None:
        await self._hang()

    @on.finalize_content
    async def finalize_content(self, event: ContentReady) -> str:
        await self._hang()
        return "late"

    @on.authorize_tool_call
    async def authorize_tool_call(self, event: ToolCallProposed) -> Decision | None:
        await self._hang()
        return None

    @on.choose_model
    async def choose_model(self, event: ModelRequested) -> str:
        await self._hang()
        return "late"

    @on.gather_context
    async def gather_context(self, event: ContextRequested) -> list[ContextBlock]:
        await self._hang()
        return []

    @on.wrap_model_call
    async def wrap_model_call(self, event: ModelCallRequested, call_next: Next) -> LLMResponse:
        await self._hang()
        return await call_next(event.request)


async def _answer(request: ChatRequest) -> LLMResponse:
    return LLMResponse(content="answer")


async def _after_turn(hooks: Hooks, turn: TurnInfo) -> None:
    hooks.after_turn(TurnOutcome(turn=turn, reply=""))
    await hooks.queues.drain(5)


CALLS: dict[Kind, tuple[str, Callable[[Hooks, TurnInfo], Coroutine[Any, Any, Any]]]] = {
    Kind.OBSERVE: (
        "before_turn",
        lambda hooks, turn: hooks.before_turn(
            TurnStarted(turn=turn, message=Message(role="user", content="x"))
        ),
    ),
    Kind.DETACHED: ("after_turn", _after_turn),
    Kind.CHAIN: (
        "finalize_content",
        lambda hooks, turn: hooks.finalize_content(ContentReady(turn=turn, content="as it was")),
    ),
    Kind.GATE: (
        "authorize_tool_call",
        lambda hooks, turn: hooks.authorize_tool_call(
            ToolCallProposed(turn=turn, call=ToolCall("1", "x", {}), origin="a", read_only=True)
        ),
    ),
    Kind.FIRST: (
        "choose_model",
        lambda hooks, turn: hooks.choose_model(ModelRequested(turn=turn, model="m", iteration=1)),
    ),
    Kind.GATHER: (
        "gather_context",
        lambda hooks, turn: hooks.gather_context(
            ContextRequested(turn=turn, model="m", history=())
        ),
    ),
    Kind.WRAP: (
        "wrap_model_call",
        lambda hooks, turn: hooks.wrap_model_call(
            ModelCallRequested(
                turn=turn, iteration=1, provider="p", request=ChatRequest(messages=(), model="m")
            ),
            _answer,
        ),
    ),
}
"""A call of each kind that is awaited; plugins' own hooks and contributions have tests of hosts."""


@pytest.mark.promise(10)
def test_every_kind_that_is_awaited_is_tried_here_and_has_a_limit() -> None:
    assert set(CALLS) == set(Kind) - {Kind.OWN, Kind.CONTRIBUTE}
    assert set(RULES) == set(Kind)
    unlimited = [name for name, point in declared_hooks().items() if point.limit_s is None]
    assert unlimited == ["choose_approval"]


@pytest.mark.promise(10)
@pytest.mark.parametrize("is_stubborn", [False, True])
@pytest.mark.parametrize("kind", CALLS)
async def test_a_hook_that_never_answers_is_named_counted_and_left_out(
    timed: Timed, turn: TurnInfo, kind: Kind, is_stubborn: bool
) -> None:
    name, call = CALLS[kind]
    plugin = Hangs(is_stubborn=is_stubborn)
    hooks = timed.hooks(plugin)
    (implementation,) = hooks.implementations[name]

    for _ in range(FAILURES_TO_OPEN + 2):
        answer = await timed.pass_limits(call(hooks, turn), RULES[kind].limit_s)
        if kind is Kind.GATE:
            assert isinstance(answer.decision, Deny)
        elif kind is Kind.CHAIN:
            assert answer == "as it was"

    assert plugin.calls == implementation.account.timeouts == FAILURES_TO_OPEN
    assert implementation.circuit.state == "open"
    assert implementation.account.skipped == 2
    assert {error.plugin for error in timed.reported} == {"p0"}
    assert plugin.going_on == (FAILURES_TO_OPEN if is_stubborn else 0)
    plugin.release.set()


@pytest.mark.promise(10)
@pytest.mark.parametrize("kind", CALLS)
async def test_a_hook_that_holds_somebody_up_is_named_within_five_seconds(
    timed: Timed, turn: TurnInfo, kind: Kind
) -> None:
    plugin = Hangs(is_stubborn=True)
    name, call = CALLS[kind]
    task = timed.spawn(call(timed.hooks(plugin), turn), name="turn")
    await timed.clock.wait_for_sleepers()

    await timed.clock.advance(NAMED_AFTER_S)
    await timed.clock.advance(CANCEL_GRACE_S)

    assert NAMED_AFTER_S + CANCEL_GRACE_S <= 5
    assert (timed.reported[0].plugin, timed.reported[0].hook) == ("p0", name)
    plugin.release.set()
    await timed.pass_limits(asyncio.wait_for(task, None))


@pytest.mark.promise(12)
async def test_calls_that_cannot_be_stopped_do_not_add_up_between_good_ones(
    timed: Timed, turn: TurnInfo
) -> None:
    release = asyncio.Event()
    going_on: list[int] = []

    class Now:
        calls = 0

        @on.authorize_tool_call
        async def decide(self, event: ToolCallProposed) -> None:
            self.calls += 1
            if self.calls % 2:
                going_on.append(self.calls)
                while not release.is_set():
                    try:
                        await release.wait()
                    except asyncio.CancelledError:
                        continue

    hooks = timed.hooks(Now())
    circuit = hooks.authorize_tool_call.implementations[0].circuit
    for _ in range(40):
        await timed.pass_limits(CALLS[Kind.GATE][1](hooks, turn), LONGEST_PAUSE_S)

    states = [circuit.state]
    assert len(going_on) == FAILURES_TO_OPEN
    release.set()
    await timed.clock.advance(LONGEST_PAUSE_S)
    verdict = await CALLS[Kind.GATE][1](hooks, turn)
    assert not isinstance(verdict.decision, Deny)
    assert [*states, circuit.state] == ["open", "closed"]


async def test_an_answer_that_comes_after_the_limit_does_not_count(
    timed: Timed, turn: TurnInfo
) -> None:
    class Late:
        @on.finalize_content
        async def change(self, event: ContentReady) -> str:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return "late"

    hooks = timed.hooks(Late())

    assert await timed.pass_limits(CALLS[Kind.CHAIN][1](hooks, turn)) == "as it was"
    assert hooks.finalize_content.implementations[0].account.timeouts == 1


async def test_a_stopped_turn_counts_a_hook_that_ignores_it(timed: Timed, turn: TurnInfo) -> None:
    plugin = Hangs(is_stubborn=True)
    hooks = timed.hooks(plugin)
    (implementation,) = hooks.before_turn.implementations

    for _ in range(FAILURES_TO_OPEN):
        task = timed.spawn(CALLS[Kind.OBSERVE][1](hooks, turn), name="turn")
        await timed.clock.wait_for_sleepers()
        task.cancel()
        await timed.clock.advance(0)
        await timed.clock.advance(CANCEL_GRACE_S)
        with pytest.raises(asyncio.CancelledError):
            await task

    assert (implementation.circuit.state, plugin.going_on) == ("open", FAILURES_TO_OPEN)
    assert "does not end when it is cancelled" in timed.reported[0].reason
    plugin.release.set()


async def test_a_blocking_function_that_never_returns_is_left_behind_and_counts(
    timed: Timed, turn: TurnInfo
) -> None:
    release = threading.Event()

    class Blocks:
        calls = 0

        @on.before_turn(blocking=True)
        def wait(self, event: TurnStarted) -> None:
            self.calls += 1
            release.wait(20)

    plugin = Blocks()
    hooks = timed.hooks(plugin)
    circuit = hooks.before_turn.implementations[0].circuit
    try:
        for _ in range(6):
            await timed.pass_limits(CALLS[Kind.OBSERVE][1](hooks, turn))

        assert (plugin.calls, circuit.left_behind) == (FAILURES_TO_OPEN, FAILURES_TO_OPEN)
    finally:
        release.set()
    async with asyncio.timeout(5):
        while circuit.left_behind:  # noqa: ASYNC110 - the threads end by themselves
            await asyncio.sleep(0)


async def test_the_time_of_the_model_is_not_that_of_the_wrapper(
    timed: Timed, turn: TurnInfo
) -> None:
    class Plain:
        @on.wrap_model_call
        async def around(self, event: ModelCallRequested, call_next: Next) -> LLMResponse:
            return await call_next(event.request)

    async def slow(request: ChatRequest) -> LLMResponse:
        await timed.clock.sleep(600)
        return LLMResponse(content="after ten minutes")

    event = ModelCallRequested(
        turn=turn, iteration=1, provider="p", request=ChatRequest(messages=(), model="m")
    )
    response = await timed.pass_limits(timed.hooks(Plain()).wrap_model_call(event, slow))

    assert response.content == "after ten minutes"
    assert timed.reported == []


@pytest.mark.parametrize("hangs", ["before", "after"])
async def test_a_wrapper_that_hangs_costs_neither_the_answer_nor_a_second_call(
    timed: Timed, turn: TurnInfo, hangs: str
) -> None:
    asked: list[str] = []
    refused: list[str] = []

    class Wraps:
        @hookimpl
        async def wrap_model_call(self, event: ModelCallRequested, call_next: Next) -> LLMResponse:
            found = await call_next(event.request) if hangs == "after" else LLMResponse()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                try:
                    await call_next(event.request)
                except RuntimeError as error:
                    refused.append(str(error))
            return found

    async def counted(request: ChatRequest) -> LLMResponse:
        asked.append(request.model)
        return LLMResponse(content="answer")

    event = ModelCallRequested(
        turn=turn, iteration=1, provider="p", request=ChatRequest(messages=(), model="m")
    )
    response = await timed.pass_limits(timed.hooks(Wraps()).wrap_model_call(event, counted))

    assert (response.content, asked) == ("answer", ["m"])
    assert refused == [
        "call_next came too late" if hangs == "before" else "call_next was already used"
    ]
