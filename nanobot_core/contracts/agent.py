"""AgentTask: work that a plugin gives to the agent, outside of any conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from nanobot_core.assignment import Assignment
from nanobot_core.events import StopReason, ToolDefinition, TurnOutcome
from nanobot_core.messages import Message, ToolCall, Usage
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from pydantic import BaseModel

    from nanobot_core.contracts.client import EventSink
    from nanobot_core.contracts.tool import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTask:
    """Work for the agent. It belongs to no session, and is not stored.

    Hooks see its model calls and tool calls like those of a turn: budgets end it, and policies
    authorise its calls. A call that needs an approval is denied.

    Attributes:
        purpose: what it is for, in a word: ``dream``. Its model calls are counted under the session
            key ``<plugin id>:<purpose>`` and the source ``plugin``.
        messages: the request, the system prompt first.
        tools: what the model may call; without tools it is one answer. They act for the plugin,
            and get no other files than it gives them.
        model: name of the model or preset, or ``None`` for the configured one.
        max_iterations: model calls before the task is ended with a summary.
        max_tokens: most tokens of one model call, or ``None`` for the configured number.
        continues: ask for the rest of an answer that was cut off; otherwise the task then ends with
            the stop reason ``token_limit``.
        output: pydantic model of the object to end with, or ``None`` for an answer in words.
        caller_tools: tools that the caller runs: the task ends when the model calls one, with
             `TaskOutcome.calls`. Not together with `tools` or `output`.
    """

    purpose: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    model: str | None = None
    max_iterations: int = 10
    max_tokens: int | None = None
    output: type[BaseModel] | None = None
    caller_tools: tuple[ToolDefinition, ...] = ()
    continues: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """The result of an `AgentTask`.

    Attributes:
        content: the final text.
        stop_reason: why it ended; the text is an answer only if this is ``completed``.
        usage: tokens and money of all its model calls.
        tools_used: names of the tools that were called, in order of first use.
        output: the object, if the task had to end with one and did.
        calls: of `AgentTask.caller_tools`, with which the task ended.
        model: model that answered last.
    """

    content: str
    stop_reason: StopReason
    usage: Usage
    tools_used: tuple[str, ...] = ()
    output: BaseModel | None = None
    calls: tuple[ToolCall, ...] = ()
    model: str = ""


class AgentAccess(Protocol):
    """The agent, for plugins."""

    async def run(self, task: AgentTask, on_event: EventSink | None = None) -> TaskOutcome:
        """Do `task` and return its result.

        Args:
            task: the work.
            on_event: receives the events, streamed text among them; without it the model is not
                asked for a stream.

        Raises:
            ValueError: `AgentTask.caller_tools` together with what they exclude.
            ProviderError: no model answered.
            NoProvider: no provider serves the model.
            PluginError: the provider's plugin failed.
            RuntimeError: the agent is not started or is being stopped.

        Cancellation:
            The model call and running tools are ended.
        """

    async def work(self, assignment: Assignment, content: str) -> TurnOutcome:
        """Do work in a turn of its own, now, and return the outcome; no chat gets the answer.

        It is part of what calls this: cancellation ends it, and a crash does too. The hook
        ``after_assignment`` is not called.

        Args:
            assignment: with an id and a session of its own for each call.
            content: the task, for the model.

        Raises:
            ValueError: the session is that of the requester.
            RuntimeError: the agent is not started or is being stopped.
        """

    async def delete_session(self, key: str) -> bool:
        """Delete a session of the plugin's own work; False if it does not exist.

        Args:
            key: begins with the plugin's id and a colon.

        Raises:
            SessionError: a turn of it is under way, or the store cannot delete it.
            ValueError: the session is not the plugin's.
        """

    def context_budget(self) -> int:
        """Return the tokens that the messages of a task may have together."""
