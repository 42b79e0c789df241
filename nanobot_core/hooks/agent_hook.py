"""Hooks of a single run, for programs that use the agent without writing a plugin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nanobot_core.hooks import specs
from nanobot_core.hooks.account import Circuit
from nanobot_core.hooks.implementation import Implementation
from nanobot_core.hooks.markers import HookPoint

if TYPE_CHECKING:
    from nanobot_core.clock import Clock
    from nanobot_core.contracts.plugin import Decision
    from nanobot_core.events import (
        ContentReady,
        IterationFinished,
        IterationStarted,
        StreamEnded,
        TextStreamed,
        ToolBatchStarted,
        ToolCallProposed,
    )

RUN_HOOKS = (
    "before_iteration",
    "on_stream",
    "on_stream_end",
    "before_execute_tools",
    "authorize_tool_call",
    "after_iteration",
    "finalize_content",
)


class AgentHook:
    """Override what you want to hear; order, limits and isolation are those of the plugin hooks.

    Methods that a subclass does not override cost nothing.
    """

    async def before_iteration(self, event: IterationStarted) -> None:
        """A model call is about to be made."""

    async def on_stream(self, event: TextStreamed) -> None:
        """Deltas of the last 50 ms or more."""

    async def on_stream_end(self, event: StreamEnded) -> None:
        """The stream of one model call is over."""

    async def before_execute_tools(self, event: ToolBatchStarted) -> None:
        """The tool calls of one response are about to run."""

    async def authorize_tool_call(self, event: ToolCallProposed) -> Decision | None:
        """Allow, rewrite, ask about or deny a call; None means no opinion."""

    async def after_iteration(self, event: IterationFinished) -> None:
        """A model call gave an answer."""

    async def finalize_content(self, event: ContentReady) -> str | None:
        """Replace the complete answer; None leaves it."""

    def implementations(self, clock: Clock) -> Mapping[str, Sequence[Implementation]]:
        """Return what this object implements, by hook name."""
        found: dict[str, Sequence[Implementation]] = {}
        for name in RUN_HOOKS:
            if getattr(type(self), name) is getattr(AgentHook, name):
                continue
            point = getattr(specs, name)
            limit_s = point.limit_s if isinstance(point, HookPoint) else None
            found[name] = (
                Implementation(
                    plugin="run",
                    hook=name,
                    function=getattr(self, name),
                    limit_s=limit_s,
                    circuit=Circuit(clock.monotonic_s),
                ),
            )
        return found


class CompositeHook(AgentHook):
    """Several hooks as one; they are called in the order given."""

    def __init__(self, *hooks: AgentHook) -> None:
        self._hooks = hooks

    def implementations(self, clock: Clock) -> Mapping[str, Sequence[Implementation]]:
        """Return what the members implement, by hook name."""
        joined: dict[str, list[Implementation]] = {}
        for hook in self._hooks:
            for name, found in hook.implementations(clock).items():
                joined.setdefault(name, []).extend(found)
        return joined
