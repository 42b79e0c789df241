"""The cost of calling hooks, compared with doing the same without them."""

from __future__ import annotations

import asyncio
import time
import timeit
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pluggy

from benchmarks.measure import Goal, Row, compare, interleave, interleave_async, single
from nanobot_core import (
    AgentRunSpec,
    Allow,
    ChatRequest,
    Completed,
    LLMProvider,
    LLMResponse,
    Message,
    PathGuard,
    StreamEvent,
    SystemClock,
    TextDelta,
    TextStreamed,
    ToolCall,
    ToolCallProposed,
    ToolRegistry,
    TurnInfo,
    TurnStarted,
    on,
)
from nanobot_core.agent.cool_down import CoolDowns
from nanobot_core.agent.model_call import ModelCaller
from nanobot_core.agent.results import ResultFiles
from nanobot_core.agent.run import Model
from nanobot_core.folder import Folder
from nanobot_core.hooks.caller import Hooks, declared_hooks
from nanobot_core.hooks.compilation import (
    HookStats,
    Registrant,
    build_hooks,
    compile_plugin,
    join_hooks,
)
from nanobot_core.hooks.implementation import HookRuntime
from nanobot_core.hooks.markers import PROJECT
from nanobot_core.tasks import TaskOwner

ROUNDS = 15
CALLS = 2_000
STATEMENTS = 10
DELTAS = 2_000
GENERATION = 20
NONE_OBSERVES_US = Goal(0.3, "value")
DELTA_US = Goal(10, "value")

TURN = TurnInfo(
    id="turn", session_key="bench", channel="sdk", chat_id="1", sender_id="1", source="sdk"
)
STARTED = TurnStarted(turn=TURN, message=Message(role="user", content="hello"))
PROPOSED = ToolCallProposed(
    turn=TURN,
    call=ToolCall(id="call", name="read_file", arguments={}),
    origin="files@1",
    read_only=True,
)


class Plugin:
    """Implements what is measured."""

    @on.before_turn
    async def before_turn(self, event: TurnStarted) -> None:
        """Observe."""

    @on.authorize_tool_call
    async def authorize_tool_call(self, event: ToolCallProposed) -> Allow:
        """Allow."""
        return Allow()


class Listener:
    """Listens to streams."""

    @on.on_stream
    def on_stream(self, event: TextStreamed) -> None:
        """Listen."""


def rows(scale: int) -> Iterator[Row]:
    """Measure in this process, on CPU time."""
    yield _guard_row(scale)
    for count, goal in ((1, Goal(4)), (10, Goal(4))):
        yield asyncio.run(_observe_row(count, goal, scale))
    yield asyncio.run(_gate_row(scale))
    yield asyncio.run(_delta_row(scale))
    yield _generation_row(scale)


def _guard_row(scale: int) -> Row:
    hooks = _hooks_of([])
    guard = timeit.Timer("if hooks.before_turn: pass\n" * STATEMENTS, globals={"hooks": hooks})
    by_hand = timeit.Timer("if nobody: pass\n" * STATEMENTS, globals={"nobody": ()})
    times = interleave(
        ROUNDS * scale,
        *(partial(timer.timeit, CALLS) for timer in (guard, by_hand)),
    )
    ours, floor = ([each / CALLS / STATEMENTS * 1e6 for each in side] for side in times)
    return compare("hook that nobody implements / if", "us", ours, floor, NONE_OBSERVES_US)


async def _observe_row(count: int, goal: Goal, scale: int) -> Row:
    plugins = [Plugin() for _ in range(count)]
    hooks = _hooks_of(plugins)

    async def tell(plugin: Plugin) -> None:
        await plugin.before_turn(STARTED)

    async def by_hand() -> None:
        for plugin in plugins:
            await asyncio.create_task(tell(plugin))

    ours, floor = await interleave_async(
        ROUNDS * scale,
        lambda: _us_per_call(lambda: hooks.before_turn(STARTED)),
        lambda: _us_per_call(by_hand),
    )
    return compare(f"observe, {count} implementations / a task each", "us", ours, floor, goal)


async def _gate_row(scale: int) -> Row:
    hooks = _hooks_of([Plugin()])

    async def allow(event: ToolCallProposed) -> Allow:
        return Allow()

    async def by_hand() -> None:
        await asyncio.create_task(allow(PROPOSED))

    ours, floor = await interleave_async(
        ROUNDS * scale,
        lambda: _us_per_call(lambda: hooks.authorize_tool_call(PROPOSED)),
        lambda: _us_per_call(by_hand),
    )
    return compare("gate / one task", "us", ours, floor, Goal(3))


async def _delta_row(scale: int) -> Row:
    """Compare streams with and without a listener, which gets deltas in batches."""
    silent, heard = (_caller_with(plugins) for plugins in ([], [Listener()]))
    without, with_listener = await interleave_async(
        ROUNDS * scale, lambda: _us_of_stream(silent), lambda: _us_of_stream(heard)
    )
    added = [b - a for a, b in zip(without, with_listener, strict=True)]
    return single("on_stream listener, added per delta", "us", added, DELTA_US)


def _generation_row(scale: int) -> Row:
    """Load one plugin into a host with 19 others; pluggy registers all of them again."""
    plugins = [Plugin() for _ in range(GENERATION)]
    ledger = HookStats(time.monotonic)
    registrants = [Registrant(f"plugin{n}", "1", plugin) for n, plugin in enumerate(plugins)]
    others = [compile_plugin(registrant, ledger) for registrant in registrants[1:]]
    runtime = HookRuntime(spawn=TaskOwner().spawn, report=_fail)

    def in_ours() -> None:
        join_hooks([compile_plugin(registrants[0], ledger), *others], runtime)

    declarations = ModuleType("declarations")
    for name, point in declared_hooks().items():
        setattr(declarations, name, point.declaration)

    def in_pluggy() -> None:
        manager = pluggy.PluginManager(PROJECT)
        manager.add_hookspecs(declarations)
        for number, plugin in enumerate(plugins):
            manager.register(plugin, name=f"plugin{number}")
        manager.check_pending()

    ours, floor = interleave(ROUNDS * scale, lambda: _cpu_ms(in_ours), lambda: _cpu_ms(in_pluggy))
    return compare(f"a plugin more, {GENERATION} in all / pluggy", "ms", ours, floor, Goal(2))


def _hooks_of(plugins: list[Plugin] | list[Listener]) -> Hooks:
    registrants = [Registrant(f"plugin{i}", "1", plugin) for i, plugin in enumerate(plugins)]
    runtime = HookRuntime(spawn=TaskOwner().spawn, report=_fail)
    return build_hooks(registrants, runtime, HookStats(time.monotonic))


def _fail(error: Exception) -> None:
    raise error


class _Stream(LLMProvider):
    """A provider that streams at once."""

    name = "stream"

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        for _ in range(DELTAS):
            yield TextDelta("word ")
        yield Completed(LLMResponse(content="word " * DELTAS))

    async def model(self, name: str | None) -> Model:
        return Model(
            name="bench", wire_name="bench", provider=self, provider_name="stream", plugin="bench"
        )


def _caller_with(plugins: list[Listener]) -> ModelCaller:
    spec = AgentRunSpec(
        turn=TURN,
        messages=(),
        tools=ToolRegistry(),
        hooks=_hooks_of(plugins),
        files=PathGuard(Path.cwd()),
        results=ResultFiles(Folder(Path.cwd())),
    )
    clock = SystemClock()
    return ModelCaller(spec, _Stream(), clock, CoolDowns(clock))


async def _us_of_stream(caller: ModelCaller) -> float:
    started_s = time.process_time()
    await caller.call((), (), 1)
    return (time.process_time() - started_s) / DELTAS * 1e6


async def _us_per_call(call: Callable[[], Awaitable[object]]) -> float:
    started_s = time.process_time()
    for _ in range(CALLS):
        await call()
    return (time.process_time() - started_s) / CALLS * 1e6


def _cpu_ms(work: Callable[[], object]) -> float:
    started_s = time.process_time()
    work()
    return (time.process_time() - started_s) * 1e3
