"""PluginTasks: runs of the agent that plugins ask for, outside of turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from nanobot_core.agent.shortening import room_of
from nanobot_core.contracts.agent import AgentTask, TaskOutcome
from nanobot_core.contracts.client import ignore_event
from nanobot_core.events import TurnInfo, TurnOutcome
from nanobot_core.ids import new_id
from nanobot_core.messages import InboundMessage
from nanobot_core.tools.registry import ToolRegistry
from nanobot_core.turns.assigned import REVOKED
from nanobot_core.turns.request import TurnRequest

if TYPE_CHECKING:
    from nanobot_core.assignment import Assignment
    from nanobot_core.contracts.client import EventSink
    from nanobot_core.turns.pipeline import TurnPipeline


class PluginTasks:
    """The agent as one plugin may use it; an `AgentAccess`.

    Args:
        plugin: id of the plugin.
        pipeline: returns what turns use; raises `RuntimeError` while the agent is not running.
    """

    def __init__(self, plugin: str, pipeline: Callable[[], TurnPipeline]) -> None:
        self._plugin = plugin
        self._pipeline = pipeline

    async def run(self, task: AgentTask, on_event: EventSink | None = None) -> TaskOutcome:
        """Do `task`; see `AgentAccess.run`."""
        if task.caller_tools and (task.tools or task.output):
            msg = "a task with tools of its caller cannot have others, or end with an object"
            raise ValueError(msg)
        pipeline = self._pipeline()
        turn = TurnInfo(
            id=new_id(),
            session_key=f"{self._plugin}:{task.purpose}",
            channel=self._plugin,
            chat_id=task.purpose,
            sender_id=self._plugin,
            source="plugin",
        )
        setup = pipeline.setup
        files = await asyncio.to_thread(setup.reach.guard_for_plugin)
        choice = await setup.models.choice(task.model)
        spec = setup.run_spec(turn, pipeline.host.hooks, self._registry(task), files, choice)
        done = await setup.runner.run(
            replace(
                spec,
                messages=task.messages,
                max_iterations=task.max_iterations,
                max_tokens=task.max_tokens or spec.max_tokens,
                max_continuations=spec.max_continuations if task.continues else 0,
                output=task.output,
                caller_tools=task.caller_tools,
                redact=pipeline.redact,
                stream=on_event is not None,
                on_event=on_event or ignore_event,
            )
        )
        return TaskOutcome(
            content=done.content,
            stop_reason=done.stop_reason,
            usage=done.usage,
            tools_used=done.tools_used,
            output=done.output,
            calls=done.calls,
            model=done.model,
        )

    async def work(self, assignment: Assignment, content: str) -> TurnOutcome:
        """Do work in a turn; see `AgentAccess.work`."""
        if assignment.session_key in {"", assignment.requester.session_key}:
            msg = f"work {assignment.id!r} needs a session of its own: a turn may hold this one"
            raise ValueError(msg)
        pipeline, message = self._pipeline(), InboundMessage.of(assignment, content)
        standing = await pipeline.ports.standing(message)
        return await pipeline.process(
            TurnRequest(
                message=message,
                is_owner=standing == "owner",
                refusal=REVOKED if standing == "revoked" else "",
            )
        )

    async def delete_session(self, key: str) -> bool:
        """Delete a session of the plugin; see `AgentAccess.delete_session`."""
        if not key.startswith(f"{self._plugin}:"):
            msg = f"session '{key}' does not belong to plugin '{self._plugin}'"
            raise ValueError(msg)
        return await self._pipeline().delete_session(key)

    def context_budget(self) -> int:
        """Return the tokens that the messages of a task may have together."""
        return room_of(self._pipeline().setup.models.known_choice(None))

    def _registry(self, task: AgentTask) -> ToolRegistry:
        registry = ToolRegistry()
        for tool in task.tools:
            registry.register(tool, plugin=self._plugin)
        return registry
