"""How hooks are called: a class for each kind, and `Hooks`, which has one call point for each hook.

Each class differs in what it does with the answers. `invoke` makes the single call, and counts,
times and contains it. A call point without implementations is false.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from nanobot_core.contracts.plugin import Allow, Ask, Decision, Deny, Refuse, Rewrite
from nanobot_core.errors import HookError
from nanobot_core.hooks import specs
from nanobot_core.hooks.implementation import (
    HookRuntime,
    Implementation,
    ModelCall,
    NextCall,
    invoke,
)
from nanobot_core.hooks.kinds import Kind
from nanobot_core.hooks.markers import HookPoint
from nanobot_core.hooks.watching import Watch, Watched, WatchedDetached
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core import events
    from nanobot_core.contracts.plugin import ContextBlock, Ticket
    from nanobot_core.contracts.provider import LLMResponse, ModelCallRequested
    from nanobot_core.messages import InboundMessage, JsonValue, OutboundMessage, ToolCall

CallerT = TypeVar("CallerT", bound="Caller")
E = TypeVar("E")
V = TypeVar("V")
QUEUE_LIMIT = 1_000
"""Queued events of one plugin; older ones are dropped and counted."""
SETTLE_LIMIT_S = 4.0
"""Seconds that `DetachedQueues.settle` waits at most."""
_Entry = tuple[Implementation, Any] | asyncio.Future[None]


class Caller:
    """Base of the call points: the implementations of one hook in their order.

    Attributes:
        implementations: never changes, so that a call in progress keeps those it began with.
    """

    __slots__ = ("implementations", "point", "runtime")

    def __init__(
        self,
        point: HookPoint[..., Any],
        implementations: Sequence[Implementation],
        runtime: HookRuntime,
    ) -> None:
        self.point: HookPoint[..., Any] = point
        self.implementations: tuple[Implementation, ...] = tuple(implementations)
        self.runtime: HookRuntime = runtime

    def __bool__(self) -> bool:
        return bool(self.implementations)

    async def _ask(self, implementation: Implementation, event: object) -> Any:
        """Return an answer; after a failure ``None``, or the refusal of a gate.

        Raises:
            HookError: the implementation failed and is marked critical.
        """
        try:
            return await invoke(implementation, self.runtime, event, check=self._check)
        except HookError as error:
            self.runtime.report(error)
            failure = implementation.failure
            if failure == "open":
                return None
            if self.point.kind is Kind.CHAIN and (implementation.options.critical or failure):
                raise
            refuse = self.point.refuse
            if refuse is None:
                return None
            return refuse(implementation.plugin, _unable(implementation))

    def _check(self, value: Any) -> Any:
        """Return `value`, or raise if the hook may not return it."""
        if value is None or not self.point.result or isinstance(value, self.point.result):
            return value
        wanted = " or ".join(kind.__name__ for kind in self.point.result)
        msg = f"returned {type(value).__name__} instead of {wanted} or None"
        raise TypeError(msg)


class Observe(Caller, Generic[E]):
    """Calls every implementation in order."""

    async def __call__(self, event: E) -> None:
        """Call all of them; a failure does not affect the others."""
        for implementation in self.implementations:
            await self._ask(implementation, event)


class Chain(Caller, Generic[E, V]):
    """Passes one field of the event from implementation to implementation."""

    async def __call__(self, event: E) -> V:
        """Return the field as the last implementation left it; raises as `traced`."""
        return (await self.traced(event))[0]

    async def traced(self, event: E) -> tuple[V, list[JsonValue]]:
        """Return the field as the last implementation left it, and who changed it: ``id@version``.

        Raises:
            HookError: an implementation marked critical failed.
        """
        name = self.point.field
        changed: list[JsonValue] = []
        for implementation in self.implementations:
            value = await self._ask(implementation, event)
            if value is not None and value != getattr(event, name):
                changed.append(implementation.label)
                event = dataclasses.replace(event, **{name: value})  # type: ignore[type-var]  # events are dataclasses
        result: V = getattr(event, name)
        return result, changed


class First(Caller, Generic[E, V]):
    """Calls implementations in order until one answers."""

    async def __call__(self, event: E) -> V | None:
        """Return the first answer, or ``None``."""
        for implementation in self.implementations:
            value: V | None = await self._ask(implementation, event)
            if value is not None:
                return value
        return None


class Gather(Caller, Generic[E, V]):
    """Calls all concurrently and collects their items.

    Without a second implementation that waits, they need no tasks and are called in order.
    """

    async def __call__(self, event: E) -> list[tuple[str, V]]:
        """Return (plugin id, item) pairs, ordered by the implementations."""
        if sum(map(_waits, self.implementations)) < 2:
            answers = [await self._ask(each, event) for each in self.implementations]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._ask(each, event)) for each in self.implementations]
            answers = [task.result() for task in tasks]
        return [
            (implementation.plugin, item)
            for implementation, answer in zip(self.implementations, answers, strict=True)
            for item in answer or ()
        ]

    def _check(self, value: Any) -> list[V]:
        found = value if isinstance(value, Iterable) else (value,)
        return [super(Gather, self)._check(item) for item in found if item is not None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The combined decision of all policies on a call.

    Attributes:
        decision: whether it may run.
        call: the call as the policies have rewritten it.
    """

    decision: Allow | Ask | Deny
    call: ToolCall


class AuthorizeToolCall(Caller):
    """Asks whether a tool call may run; the strongest answer wins, a failure denies."""

    async def __call__(self, event: events.ToolCallProposed) -> Verdict:
        """Return the verdict: Deny, else Ask, else Allow; a later policy sees earlier rewrites."""
        asked: Ask | None = None
        for implementation in self.implementations:
            decision: Decision | None = await self._ask(implementation, event)
            if isinstance(decision, Deny):
                return Verdict(decision, event.call)
            if isinstance(decision, Ask):
                asked = asked or decision
            elif isinstance(decision, Rewrite):
                call = dataclasses.replace(event.call, arguments=decision.arguments)
                event = dataclasses.replace(event, call=call)
        return Verdict(asked or Allow(), event.call)


class WrapModelCall(Caller):
    """Wraps a model call."""

    async def __call__(self, event: ModelCallRequested, inner: ModelCall) -> LLMResponse:
        """Run `inner` inside all implementations, the first one outermost.

        Raises:
            LimitError: an implementation ended the turn.
            Exception: what `inner` raised.
        """
        return await self._layer(0, event, inner)

    async def _layer(self, index: int, event: ModelCallRequested, inner: ModelCall) -> LLMResponse:
        if index == len(self.implementations):
            return await inner(event.request)
        call_next = NextCall(
            lambda request: self._layer(
                index + 1, dataclasses.replace(event, request=request), inner
            )
        )
        try:
            response: LLMResponse | None = await invoke(
                self.implementations[index],
                self.runtime,
                event,
                check=self._check,
                call_next=call_next,
            )
        except HookError as error:
            self.runtime.report(error)
            if call_next.error is not None:
                raise call_next.error from error
            response = None
        return response or call_next.response or await self._layer(index + 1, event, inner)


class Detached(Generic[E]):
    """Calls every implementation later, in order, from a bounded queue of its plugin."""

    __slots__ = ("implementations", "queues")

    def __init__(self, implementations: Sequence[Implementation], queues: DetachedQueues) -> None:
        self.implementations: tuple[Implementation, ...] = tuple(implementations)
        self.queues: DetachedQueues = queues

    def __bool__(self) -> bool:
        return bool(self.implementations)

    def __call__(self, event: E) -> None:
        """Put `event` into the queues; returns at once."""
        for implementation in self.implementations:
            self.queues.put(implementation, event)

    async def settle(self) -> None:
        """Wait until the events queued so far have been handled, within a limit."""
        await self.queues.settle(each.plugin for each in self.implementations)


class DetachedQueues:
    """One bounded queue and one worker for each plugin; order is kept within a plugin."""

    def __init__(self, runtime: HookRuntime) -> None:
        self._runtime = runtime
        self._waiting: dict[str, deque[_Entry]] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self.numbers: Iterator[int] = count(1)

    def put(self, implementation: Implementation, event: object) -> None:
        """Queue a call; the oldest one is dropped when the plugin is too slow."""
        plugin = implementation.plugin
        queue = self._waiting.setdefault(plugin, deque())
        if len(queue) >= QUEUE_LIMIT:
            dropped = queue.popleft()
            if isinstance(dropped, asyncio.Future):
                dropped.set_result(None)
            else:
                dropped[0].account.dropped += 1
        queue.append((implementation, event))
        worker = self._workers.get(plugin)
        if worker is None or worker.done():
            self._workers[plugin] = self._runtime.spawn(self._work(queue), name=f"hooks:{plugin}")

    async def drain(self, limit_s: float) -> bool:
        """Wait until all queues are empty; False when that takes longer than `limit_s` seconds."""
        workers = [worker for worker in self._workers.values() if not worker.done()]
        if not workers:
            return True
        _, pending = await asyncio.wait(workers, timeout=limit_s)
        return not pending

    async def settle(self, plugins: Iterable[str]) -> None:
        """Wait until `plugins` have handled the events queued so far, up to `SETTLE_LIMIT_S`."""
        marks: list[asyncio.Future[None]] = []
        for plugin in set(plugins):
            worker = self._workers.get(plugin)
            if worker is not None and not worker.done():
                marks.append(asyncio.get_running_loop().create_future())
                self._waiting[plugin].append(marks[-1])
        if marks:
            await asyncio.wait(marks, timeout=SETTLE_LIMIT_S)

    async def _work(self, queue: deque[_Entry]) -> None:
        while queue:
            entry = queue.popleft()
            if isinstance(entry, asyncio.Future):
                entry.set_result(None)
                continue
            implementation, event = entry
            try:
                await invoke(implementation, self._runtime, event)
            except HookError as error:
                self._runtime.report(error)


EventCaller = Observe[Any] | Chain[Any, Any] | First[Any, Any]
OwnCaller = EventCaller | Watched
CALLERS: dict[Kind, type[EventCaller]] = {
    Kind.OBSERVE: Observe,
    Kind.CHAIN: Chain,
    # Of a gate, the first refusal is the answer.
    Kind.GATE: First,
    Kind.FIRST: First,
}
"""How hooks with one event are called, those that plugins declare included."""


_SPECIAL: dict[str, type[Caller]] = {
    "authorize_tool_call": AuthorizeToolCall,
    "gather_context": Gather,
    "wrap_model_call": WrapModelCall,
}
"""Those that are called in a way of their own."""


class Hooks:
    """The call points of one generation.

    Call a hook behind its guard, so that the event is built only for listeners::

        if hooks.before_turn:
            await hooks.before_turn(TurnStarted(...))

    Args:
        runtime: what calls need from the application.
        implementations: by hook name, in calling order.

    Attributes:
        own: by name, those hooks that plugins declare and have called in this generation.
    """

    admit_message: First[events.MessageReceived, Refuse]
    rewrite_inbound: Chain[events.MessageReceived, InboundMessage]
    before_turn: Observe[events.TurnStarted]
    after_turn: Detached[events.TurnOutcome]
    after_assignment: Observe[events.AssignmentFinished]
    on_stop: Observe[events.WorkStopped]
    on_error: Detached[events.ErrorRaised]
    gather_context: Gather[events.ContextRequested, ContextBlock]
    rewrite_tools: Chain[events.ToolsOffered, tuple[events.ToolDefinition, ...]]
    choose_model: First[events.ModelRequested, str]
    before_iteration: Observe[events.IterationStarted]
    wrap_model_call: WrapModelCall
    on_stream: Detached[events.TextStreamed]
    on_stream_end: Detached[events.StreamEnded]
    after_iteration: Observe[events.IterationFinished]
    before_execute_tools: Observe[events.ToolBatchStarted]
    authorize_tool_call: AuthorizeToolCall
    rewrite_tool_result: Chain[events.ToolResultReady, events.ToolOutcome]
    after_execute_tool: Detached[events.ToolCallFinished]
    choose_approval: First[events.ApprovalRequested, Ticket]
    after_approval: Detached[events.ApprovalResolved]
    finalize_content: Chain[events.ContentReady, str]
    rewrite_outbound: Chain[events.MessageComposed, OutboundMessage]
    after_delivery: Detached[events.DeliveryFinished]
    on_usage: Detached[events.UsageRecorded]
    after_hook: Detached[events.HookCalled]

    def __init__(
        self,
        runtime: HookRuntime,
        implementations: Mapping[str, Sequence[Implementation]] | None = None,
        queues: DetachedQueues | None = None,
    ) -> None:
        self.implementations: dict[str, Sequence[Implementation]] = dict(implementations or {})
        self.runtime = runtime
        self.queues: DetachedQueues = queues or DetachedQueues(runtime)
        self.own: dict[str, OwnCaller] = {}
        after_hook: Detached[events.HookCalled] = Detached(
            self.implementations.get("after_hook", ()), self.queues
        )
        self._watch = watch = Watch(after_hook, self.queues.numbers) if after_hook else None
        for name, point in declared_hooks().items():
            found = self.implementations.get(name, ())
            if (caller := _SPECIAL.get(name) or CALLERS.get(point.kind)) is not None:
                setattr(self, name, self.watched(caller(point, found, runtime)))
            elif point.kind is Kind.DETACHED:
                later: Detached[Any] = Detached(found, self.queues)
                if watch is None or name == "after_hook":
                    setattr(self, name, later)
                else:
                    setattr(self, name, WatchedDetached(point, later, watch))

    def watched(self, caller: CallerT) -> CallerT | Watched:
        """Return a call point of this generation, announced if a plugin implements `after_hook`."""
        return caller if self._watch is None else Watched(caller, self._watch)

    def extended(self, more: Mapping[str, Sequence[Implementation]]) -> Hooks:
        """Return the same call points with `more` implementations behind the present ones.

        Where the first answer counts they come first: the program that runs a turn answers for its
        user, before a plugin that answers for all turns.
        """
        joined: dict[str, Sequence[Implementation]] = dict(self.implementations)
        for name, added in more.items():
            present = self.implementations.get(name, ())
            is_first = declared_hooks()[name].kind is Kind.FIRST
            joined[name] = (*added, *present) if is_first else (*present, *added)
        return Hooks(self.runtime, joined, self.queues)


@functools.cache
def declared_hooks() -> dict[str, HookPoint[..., Any]]:
    """Return every hook of ``specs.py`` by name, in the order of the file."""
    return {name: point for name, point in vars(specs).items() if isinstance(point, HookPoint)}


GATES: frozenset[str] = frozenset(
    name for name, point in declared_hooks().items() if point.kind is Kind.GATE
)
"""Hooks that may refuse. If a plugin with such a hook does not run, the hook refuses everything."""


def _waits(implementation: Implementation) -> bool:
    """Whether an implementation is declared as one that waits: with ``async``, or as blocking."""
    is_async = inspect.iscoroutinefunction(implementation.function)
    return is_async or implementation.options.blocking


def _unable(implementation: Implementation) -> str:
    """Return the reason of a gate that cannot judge, and how to do without it."""
    plugin, last = implementation.plugin, implementation.account.last_error
    is_open = implementation.circuit.state != "closed"
    reason = f"it is left out after repeated failures, the last one: {last}" if is_open else last
    return (
        f"the policy of plugin '{plugin}' failed: {reason}; to do without it, run nanobot plugins "
        f"disable {plugin}"
    )
