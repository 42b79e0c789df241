"""`after_hook` hears of each call of all other hooks, with the answer that counted."""

from __future__ import annotations

import asyncio

import pytest

from nanobot_core import (
    ContentReady,
    ContextBlock,
    ContextRequested,
    Deny,
    ErrorRaised,
    HookCalled,
    HookError,
    ModelRequested,
    ToolCall,
    ToolCallProposed,
    TurnInfo,
    TurnStarted,
    on,
)
from nanobot_core.hooks.caller import Hooks
from nanobot_core.messages import Message
from tests.unit.hooks.conftest import Bench

pytestmark = pytest.mark.anyio


class Watcher:
    def __init__(self) -> None:
        self.calls: list[HookCalled] = []

    @on.after_hook
    def after_hook(self, event: HookCalled) -> None:
        self.calls.append(event)


class Talker:
    @on.gather_context
    def gather_context(self, event: ContextRequested) -> list[ContextBlock]:
        return [ContextBlock(name="Note", text="remember")]

    @on.finalize_content
    def finalize_content(self, event: ContentReady) -> str:
        return event.content.upper()

    @on.authorize_tool_call
    def authorize_tool_call(self, event: ToolCallProposed) -> Deny:
        return Deny("no")


def proposed(turn: TurnInfo) -> ToolCallProposed:
    return ToolCallProposed(turn=turn, call=ToolCall("1", "rm", {}), origin="x@1", read_only=False)


async def settled(hooks: Hooks) -> None:
    assert await hooks.queues.drain(5)


async def test_it_hears_events_and_combined_answers_in_order(bench: Bench, turn: TurnInfo) -> None:
    watcher = Watcher()
    hooks = bench.hooks(Talker(), watcher)
    started = TurnStarted(turn=turn, message=Message(role="user", content="hi"))
    context = ContextRequested(turn=turn, model="m", history=())

    await hooks.before_turn(started)
    await hooks.gather_context(context)
    changed, by = await hooks.finalize_content.traced(ContentReady(turn=turn, content="a"))
    verdict = await hooks.authorize_tool_call(proposed(turn))
    hooks.on_error(ErrorRaised(id="1", place="turn", error_type="X", message="m"))
    await settled(hooks)

    assert (changed, by) == ("A", ["p0@1.0"])
    assert [(call.number, call.hook) for call in watcher.calls] == [
        (1, "before_turn"),
        (2, "gather_context"),
        (3, "finalize_content"),
        (4, "authorize_tool_call"),
        (5, "on_error"),
    ]
    assert watcher.calls[0].event is started
    assert watcher.calls[1].answer == [("p0", ContextBlock(name="Note", text="remember"))]
    assert watcher.calls[2].answer == "A"
    assert watcher.calls[3].answer is verdict
    assert verdict.decision == Deny("no")


async def test_it_hears_hooks_that_nothing_implements(bench: Bench, turn: TurnInfo) -> None:
    watcher = Watcher()
    hooks = bench.hooks(watcher)

    assert hooks.choose_model
    assert await hooks.choose_model(ModelRequested(turn=turn, model="m", iteration=1)) is None
    await settled(hooks)

    assert [call.hook for call in watcher.calls] == ["choose_model"]


async def test_without_it_hooks_that_nothing_implements_stay_off(bench: Bench) -> None:
    hooks = bench.hooks(Talker())

    assert not hooks.choose_model
    assert not hooks.after_hook


async def test_it_hears_what_a_critical_failure_raises(bench: Bench, turn: TurnInfo) -> None:
    class Critical:
        @on.finalize_content(critical=True)
        def finalize_content(self, event: ContentReady) -> str:
            raise OSError("no disk")

    watcher = Watcher()
    hooks = bench.hooks(Critical(), watcher)

    with pytest.raises(HookError):
        await hooks.finalize_content(ContentReady(turn=turn, content="a"))
    await settled(hooks)

    assert "no disk" in (watcher.calls[0].error or "")


async def test_a_cancelled_call_stays_cancelled_and_is_left_out(
    bench: Bench, turn: TurnInfo
) -> None:
    class Slow:
        @on.finalize_content
        async def finalize_content(self, event: ContentReady) -> str:
            entered.set()
            await asyncio.Event().wait()
            return "never"

    entered = asyncio.Event()
    watcher = Watcher()
    hooks = bench.hooks(Slow(), watcher)
    call = asyncio.ensure_future(hooks.finalize_content(ContentReady(turn=turn, content="a")))
    await asyncio.wait_for(entered.wait(), 5)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await settled(hooks)

    assert watcher.calls == []


async def test_its_failures_reach_neither_callers_nor_itself(bench: Bench, turn: TurnInfo) -> None:
    class Broken:
        @on.after_hook
        def after_hook(self, event: HookCalled) -> None:
            raise OSError("disk full")

    hooks = bench.hooks(Talker(), Broken())

    assert await hooks.finalize_content(ContentReady(turn=turn, content="a")) == "A"
    await settled(hooks)

    assert [error.hook for error in bench.reported] == ["after_hook"]
