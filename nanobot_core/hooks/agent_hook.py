"""Hooks of a single run, for programs that use the agent without writing a plugin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from nanobot_core.hooks import specs
from nanobot_core.hooks.account import Circuit
from nanobot_core.hooks.implementation import Implementation
from nanobot_core.hooks.markers import HookPoint

if TYPE_CHECKING:
    from nanobot_core.clock import Clock
    from nanobot_core.contracts.plugin import ContextBlock, Decision, Ticket
    from nanobot_core.contracts.provider import ChatRequest, LLMResponse, ModelCallRequested
    from nanobot_core.events import (
        ApprovalRequested,
        ContentReady,
        ContextRequested,
        IterationFinished,
        IterationStarted,
        ModelRequested,
        StreamEnded,
        TextStreamed,
        ToolBatchStarted,
        ToolCallFinished,
        ToolCallProposed,
        ToolDefinition,
        ToolOutcome,
        ToolResultReady,
        ToolsOffered,
    )


class AgentHook:
    """The hooks of a run as methods. Override the ones you need; the others cost nothing.

    Each method works like the plugin hook of the same name, with the same order, time limits and
    isolation. To change the request to the model, override `wrap_model_call`.
    """

    async def gather_context(self, event: ContextRequested) -> Iterable[ContextBlock] | None:
        """See ``on.gather_context``."""

    async def rewrite_tools(self, event: ToolsOffered) -> tuple[ToolDefinition, ...] | None:
        """See ``on.rewrite_tools``."""

    async def choose_model(self, event: ModelRequested) -> str | None:
        """See ``on.choose_model``."""

    async def before_iteration(self, event: IterationStarted) -> None:
        """See ``on.before_iteration``."""

    async def wrap_model_call(
        self, event: ModelCallRequested, call_next: Callable[[ChatRequest], Awaitable[LLMResponse]]
    ) -> LLMResponse:
        """See ``on.wrap_model_call``."""
        return await call_next(event.request)

    async def on_stream(self, event: TextStreamed) -> None:
        """See ``on.on_stream``."""

    async def on_stream_end(self, event: StreamEnded) -> None:
        """See ``on.on_stream_end``."""

    async def after_iteration(self, event: IterationFinished) -> None:
        """See ``on.after_iteration``."""

    async def before_execute_tools(self, event: ToolBatchStarted) -> None:
        """See ``on.before_execute_tools``."""

    async def authorize_tool_call(self, event: ToolCallProposed) -> Decision | None:
        """See ``on.authorize_tool_call``."""

    async def rewrite_tool_result(self, event: ToolResultReady) -> ToolOutcome | None:
        """See ``on.rewrite_tool_result``."""

    async def choose_approval(self, event: ApprovalRequested) -> Ticket | None:
        """See ``on.choose_approval``."""

    async def after_execute_tool(self, event: ToolCallFinished) -> None:
        """See ``on.after_execute_tool``."""

    async def finalize_content(self, event: ContentReady) -> str | None:
        """See ``on.finalize_content``."""

    def implementations(self, clock: Clock) -> Mapping[str, Sequence[Implementation]]:
        """Return the overridden methods as implementations, by hook name."""
        found: dict[str, Sequence[Implementation]] = {}
        for name, method in vars(AgentHook).items():
            point = vars(specs).get(name)
            if isinstance(point, HookPoint) and getattr(type(self), name) is not method:
                found[name] = (
                    Implementation(
                        plugin="run",
                        hook=name,
                        function=getattr(self, name),
                        limit_s=point.limit_s,
                        circuit=Circuit(clock.monotonic_s),
                    ),
                )
        return found


class CompositeHook(AgentHook):
    """Several hooks as one; they are called in the order given."""

    def __init__(self, *hooks: AgentHook) -> None:
        self._hooks = hooks

    def implementations(self, clock: Clock) -> Mapping[str, Sequence[Implementation]]:
        """Return the implementations of all members, by hook name."""
        joined: dict[str, list[Implementation]] = {}
        for hook in self._hooks:
            for name, found in hook.implementations(clock).items():
                joined.setdefault(name, []).extend(found)
        return joined
