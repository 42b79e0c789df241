"""Hooks: all call points with their types, as one generation of plugins implements them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nanobot_core.hooks import callers, specs
from nanobot_core.hooks.account import Circuit
from nanobot_core.hooks.callers import (
    AdmitMessage,
    AuthorizeToolCall,
    Chain,
    Detached,
    First,
    Gather,
    Observe,
    WrapModelCall,
)
from nanobot_core.hooks.detached import DetachedQueues
from nanobot_core.hooks.implementation import HookRuntime, Implementation
from nanobot_core.hooks.kinds import Kind
from nanobot_core.hooks.markers import HookPoint
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core import events
    from nanobot_core.contracts.plugin import ContextBlock, Ticket
    from nanobot_core.messages import InboundMessage, OutboundMessage

_CALLERS: dict[Kind, type[callers.Caller]] = {
    Kind.OBSERVE: Observe,
    Kind.CHAIN: Chain,
    Kind.FIRST: First,
    Kind.GATHER: Gather,
    Kind.WRAP: WrapModelCall,
}
_GATES: dict[str, type[callers.Gate]] = {
    "admit_message": AdmitMessage,
    "authorize_tool_call": AuthorizeToolCall,
}
"""Each gate combines its answers in its own way."""


@functools.cache
def declared_hooks() -> dict[str, HookPoint[..., Any]]:
    """Return every hook of ``specs.py`` by name, in the order of the file."""
    return {name: point for name, point in vars(specs).items() if isinstance(point, HookPoint)}


@dataclass(frozen=True, slots=True)
class Refusal:
    """An implementation that always gives the same refusal."""

    answer: object

    def __call__(self, event: object) -> object:
        """Return the answer."""
        return self.answer


def closed_gate(hook: str, plugin: str, reason: str) -> Implementation:
    """Return the replacement for a gate whose plugin does not run; it refuses with `reason`."""
    refusal = Refusal(_GATES[hook].refusal(reason))
    return Implementation(plugin=plugin, hook=hook, function=refusal, circuit=Circuit(lambda: 0.0))


GATES: frozenset[str] = frozenset(_GATES)
"""Hooks that may refuse: a plugin that has one and does not run refuses all that it would judge."""


def judged_by(hook: str) -> str:
    """Return what a gate judges, in words for people: ``tool call``."""
    return _GATES[hook].judged


class Hooks:
    """The call points of one generation.

    Call a hook behind its guard, so that the event is built only for listeners::

        if hooks.before_turn:
            await hooks.before_turn(TurnStarted(...))

    Args:
        runtime: what calling needs of the application.
        implementations: by hook name, in calling order.
    """

    admit_message: AdmitMessage
    rewrite_inbound: Chain[events.MessageReceived, InboundMessage]
    before_turn: Observe[events.TurnStarted]
    after_turn: Detached[events.TurnOutcome]
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

    def __init__(
        self,
        runtime: HookRuntime,
        implementations: Mapping[str, Sequence[Implementation]] | None = None,
        queues: DetachedQueues | None = None,
    ) -> None:
        self.implementations: dict[str, Sequence[Implementation]] = dict(implementations or {})
        self.runtime = runtime
        self.queues: DetachedQueues = queues or DetachedQueues(runtime)
        for name, point in declared_hooks().items():
            found = self.implementations.get(name, ())
            if point.kind is Kind.DETACHED:
                setattr(self, name, Detached(point, found, runtime, self.queues))
            elif point.kind is Kind.GATE:
                setattr(self, name, _GATES[name](point, found, runtime))
            elif point.kind in _CALLERS:
                setattr(self, name, _CALLERS[point.kind](point, found, runtime))

    def extended(self, more: Mapping[str, Sequence[Implementation]]) -> Hooks:
        """Return the same call points with `more` implementations behind the present ones."""
        joined = {
            name: (*self.implementations.get(name, ()), *more.get(name, ()))
            for name in {*self.implementations, *more}
        }
        return Hooks(self.runtime, joined, self.queues)
