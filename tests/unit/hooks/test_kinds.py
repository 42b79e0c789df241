"""Each kind of hook keeps its promise on order, limits and failure."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

import pytest

from nanobot_core import (
    Allow,
    ApprovalRequested,
    Ask,
    ContentReady,
    ContextBlock,
    ContextRequested,
    Decision,
    Deny,
    HookError,
    Message,
    ModelRequested,
    Rewrite,
    Ticket,
    ToolCall,
    ToolCallProposed,
    TurnInfo,
    TurnOutcome,
    TurnStarted,
    hookimpl,
    on,
)
from nanobot_core.hooks.caller import QUEUE_LIMIT
from tests.unit.hooks.conftest import Bench

pytestmark = pytest.mark.anyio


def started(turn: TurnInfo) -> TurnStarted:
    return TurnStarted(turn=turn, message=Message(role="user", content="hi"))


def proposed(turn: TurnInfo, **arguments: Any) -> ToolCallProposed:
    return ToolCallProposed(
        turn=turn, call=ToolCall("c1", "exec", arguments), origin="shell@1", read_only=False
    )


# --- observe ---------------------------------------------------------------------------------


@pytest.mark.promise(7)
async def test_observers_are_told_in_order_whether_sync_or_async(
    bench: Bench, turn: TurnInfo
) -> None:
    heard: list[str] = []

    class Sync:
        @on.before_turn
        def note(self, event: TurnStarted) -> None:
            heard.append(f"sync {event.message.text}")

    class Async:
        @on.before_turn
        async def note(self, event: TurnStarted) -> None:
            await asyncio.sleep(0)
            heard.append(f"async {event.message.text}")

    await bench.hooks(Async(), Sync()).before_turn(started(turn))

    assert heard == ["async hi", "sync hi"]


class Raises:
    @on.before_turn
    async def fail(self, event: TurnStarted) -> None:
        raise ValueError("no")


class Exits:
    @on.before_turn
    def fail(self, event: TurnStarted) -> None:
        sys.exit(3)


class Interrupts:
    @on.before_turn
    def fail(self, event: TurnStarted) -> None:
        raise KeyboardInterrupt


class CancelsItself:
    @on.before_turn
    async def fail(self, event: TurnStarted) -> None:
        raise asyncio.CancelledError


@pytest.mark.promise(9)
@pytest.mark.parametrize("faulty", [Raises(), Exits(), Interrupts(), CancelsItself()])
async def test_a_failing_observer_is_named_and_the_others_are_told(
    bench: Bench, turn: TurnInfo, faulty: object
) -> None:
    heard: list[str] = []

    class Listener:
        @on.before_turn
        def note(self, event: TurnStarted) -> None:
            heard.append("told")

    await bench.hooks(faulty, Listener()).before_turn(started(turn))

    assert heard == ["told"]
    assert [(error.plugin, error.hook) for error in bench.reported] == [("p0", "before_turn")]


async def test_the_hosts_own_cancellation_reaches_the_plugin_and_goes_on(
    bench: Bench, turn: TurnInfo
) -> None:
    entered = asyncio.Event()
    seen: list[str] = []

    class Waits:
        @on.before_turn
        async def wait(self, event: TurnStarted) -> None:
            entered.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

    hooks = bench.hooks(Waits())
    task = bench.spawn(hooks.before_turn(started(turn)), name="turn")
    await asyncio.wait_for(entered.wait(), 5)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]
    assert bench.reported == []


async def test_a_blocking_implementation_leaves_the_loop_free(bench: Bench, turn: TurnInfo) -> None:
    loop = asyncio.get_running_loop()
    reached = asyncio.Event()

    class Blocks:
        @on.before_turn(blocking=True)
        def wait(self, event: TurnStarted) -> None:
            # Comes back only if the loop turns while this thread waits.
            asyncio.run_coroutine_threadsafe(set_event(), loop).result(5)

    async def set_event() -> None:
        reached.set()

    await bench.hooks(Blocks()).before_turn(started(turn))

    assert reached.is_set()


@pytest.mark.promise(8)
async def test_a_hook_that_nobody_implements_is_false(bench: Bench) -> None:
    assert not bench.hooks().before_turn
    assert bench.hooks(Raises()).before_turn


# --- chain -----------------------------------------------------------------------------------


async def test_each_link_sees_what_the_former_one_made(bench: Bench, turn: TurnInfo) -> None:
    class Louder:
        @on.finalize_content
        def change(self, event: ContentReady) -> str:
            return f"{event.content}!"

    class Silent:
        @on.finalize_content
        def change(self, event: ContentReady) -> None:
            return None

    hooks = bench.hooks(Louder(), Silent(), Louder())

    assert await hooks.finalize_content(ContentReady(turn=turn, content="yes")) == "yes!!"


@pytest.mark.promise(9)
async def test_a_failing_link_is_skipped_unless_it_is_critical(
    bench: Bench, turn: TurnInfo
) -> None:
    class Fails:
        @on.finalize_content
        def change(self, event: ContentReady) -> str:
            raise ValueError("no")

    class MustWork:
        @on.finalize_content(critical=True)
        def change(self, event: ContentReady) -> str:
            raise ValueError("cannot redact")

    event = ContentReady(turn=turn, content="secret")

    assert await bench.hooks(Fails()).finalize_content(event) == "secret"
    with pytest.raises(HookError, match="cannot redact"):
        await bench.hooks(MustWork()).finalize_content(event)


async def test_rubbish_from_a_link_counts_as_its_failure(bench: Bench, turn: TurnInfo) -> None:
    class Rubbish:
        @hookimpl
        def finalize_content(self, event: ContentReady) -> int:
            return 42

    result = await bench.hooks(Rubbish()).finalize_content(ContentReady(turn=turn, content="a"))

    assert result == "a"
    assert "returned int instead of str" in bench.reported[0].reason


async def test_a_plugins_own_timeout_error_is_not_taken_for_the_hosts(
    bench: Bench, turn: TurnInfo
) -> None:
    class TimesOut:
        @on.finalize_content
        async def change(self, event: ContentReady) -> str:
            raise TimeoutError("mine")

    await bench.hooks(TimesOut()).finalize_content(ContentReady(turn=turn, content="a"))

    assert bench.reported[0].reason == "TimeoutError: mine"


# --- first and gather ------------------------------------------------------------------------


async def test_the_first_answer_counts_and_failures_ask_the_next(
    bench: Bench, turn: TurnInfo
) -> None:
    class Fails:
        @on.choose_model
        async def choose(self, event: ModelRequested) -> str:
            raise ValueError("no")

    class Nothing:
        @on.choose_model
        async def choose(self, event: ModelRequested) -> None:
            return None

    class Answers:
        def __init__(self, answer: str) -> None:
            self.answer = answer

        @on.choose_model
        async def choose(self, event: ModelRequested) -> str:
            return self.answer

    event = ModelRequested(turn=turn, model="m", iteration=1)
    hooks = bench.hooks(Fails(), Nothing(), Answers("a"), Answers("b"))

    assert await hooks.choose_model(event) == "a"
    assert await bench.hooks(Nothing()).choose_model(event) is None


async def test_gathering_runs_side_by_side_and_names_who_gave_what(
    bench: Bench, turn: TurnInfo
) -> None:
    barrier = asyncio.Barrier(2)

    class Meets:
        @on.gather_context
        async def give(self, event: ContextRequested) -> list[ContextBlock]:
            await asyncio.wait_for(barrier.wait(), 5)
            return [ContextBlock(name="a", text="x")]

    class Fails:
        @on.gather_context
        async def give(self, event: ContextRequested) -> list[ContextBlock]:
            raise ValueError("no")

    event = ContextRequested(turn=turn, model="m", history=())
    found = await bench.hooks(Meets(), Fails(), Meets()).gather_context(event)

    assert [plugin for plugin, _ in found] == ["p0", "p2"]
    assert bench.reported[0].plugin == "p1"


@pytest.mark.promise(7)
async def test_a_plain_generator_gathers_and_its_failure_is_contained(
    bench: Bench, turn: TurnInfo
) -> None:
    class Yields:
        @on.gather_context
        def give(self, event: ContextRequested) -> Iterable[ContextBlock]:
            yield ContextBlock(name="a", text="x")

    class Fails:
        @on.gather_context
        def give(self, event: ContextRequested) -> Iterable[ContextBlock]:
            yield ContextBlock(name="a", text="x")
            raise ValueError("no")

    event = ContextRequested(turn=turn, model="m", history=())
    found = await bench.hooks(Yields(), Fails()).gather_context(event)

    assert [plugin for plugin, _ in found] == ["p0"]
    assert bench.reported[0].plugin == "p1"


async def test_asking_the_owner_has_no_limit_of_the_kind(bench: Bench, turn: TurnInfo) -> None:
    class Owner:
        @on.choose_approval
        async def ask(self, event: ApprovalRequested) -> Ticket:
            return Ticket(allowed=True, by="owner")

    hooks = bench.hooks(Owner())

    assert hooks.choose_approval.implementations[0].limit_s is None


# --- gate ------------------------------------------------------------------------------------


class Decides:
    def __init__(self, decision: Decision | None) -> None:
        self.decision = decision
        self.seen: list[dict[str, Any]] = []

    @on.authorize_tool_call
    async def decide(self, event: ToolCallProposed) -> Decision | None:
        self.seen.append(dict(event.call.arguments))
        return self.decision


@pytest.mark.parametrize(
    ("decisions", "expected"),
    [
        ([None], Allow()),
        ([Allow(), Deny("no"), Ask("sure?")], Deny("no")),
        ([Ask("sure?"), Rewrite({"a": 1}), Allow()], Ask("sure?")),
        ([Allow(), Rewrite({"a": 1})], Allow()),
    ],
)
async def test_the_strongest_decision_wins(
    bench: Bench, turn: TurnInfo, decisions: list[Decision | None], expected: Decision
) -> None:
    hooks = bench.hooks(*[Decides(decision) for decision in decisions])

    verdict = await hooks.authorize_tool_call(proposed(turn))

    assert verdict.decision == expected


async def test_a_second_policy_sees_the_first_ones_arguments(bench: Bench, turn: TurnInfo) -> None:
    later = Decides(None)

    hooks = bench.hooks(Decides(Ask("sure?")), Decides(Rewrite({"a": 2})), later)

    verdict = await hooks.authorize_tool_call(proposed(turn, a=1))

    assert later.seen == [{"a": 2}]
    assert verdict.call.arguments == {"a": 2}
    assert verdict.decision == Ask("sure?")


@pytest.mark.promise(9)
async def test_a_failing_policy_denies(bench: Bench, turn: TurnInfo) -> None:
    class Fails:
        @on.authorize_tool_call
        async def decide(self, event: ToolCallProposed) -> Decision:
            raise ValueError("no database")

    decision = (await bench.hooks(Fails()).authorize_tool_call(proposed(turn))).decision

    assert isinstance(decision, Deny)
    assert "p0" in decision.reason
    assert "no database" in decision.reason


# --- detached --------------------------------------------------------------------------------


async def test_detached_events_come_later_in_order_and_can_be_waited_for(
    bench: Bench, turn: TurnInfo
) -> None:
    heard: list[str | None] = []

    class Listens:
        @on.after_turn
        async def note(self, event: TurnOutcome) -> None:
            await asyncio.sleep(0)
            heard.append(event.reply)

    hooks = bench.hooks(Listens())
    for number in range(3):
        hooks.after_turn(TurnOutcome(turn=turn, reply=str(number)))

    assert heard == []
    assert await hooks.queues.drain(5)
    assert heard == ["0", "1", "2"]


async def test_a_slow_listener_loses_the_oldest_events_and_the_loss_is_counted(
    bench: Bench, turn: TurnInfo
) -> None:
    heard: list[str | None] = []

    class Listens:
        @on.after_turn
        async def note(self, event: TurnOutcome) -> None:
            heard.append(event.reply)

    hooks = bench.hooks(Listens())
    for number in range(QUEUE_LIMIT + 5):
        hooks.after_turn(TurnOutcome(turn=turn, reply=str(number)))
    await hooks.queues.drain(5)

    assert heard[0] == "5"
    assert len(heard) == QUEUE_LIMIT
    assert hooks.after_turn.implementations[0].account.dropped == 5


async def test_draining_a_hanging_listener_ends_in_time(bench: Bench, turn: TurnInfo) -> None:
    class Hangs:
        @on.after_turn
        async def note(self, event: TurnOutcome) -> None:
            await asyncio.Event().wait()

    hooks = bench.hooks(Hangs())
    hooks.after_turn(TurnOutcome(turn=turn, reply=""))

    assert not await hooks.queues.drain(0.01)
