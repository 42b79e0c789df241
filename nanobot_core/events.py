"""Events for hooks and for programs that watch a turn. Frozen plain data.

A new fact is a new field with a default, so that the signature of a hook never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Generic, Literal, TypeAlias, TypeVar

from nanobot_core.assignment import Assignment, AssignmentSource, Authority, Requester, ToolRule
from nanobot_core.messages import (
    InboundMessage,
    JsonObject,
    Message,
    OutboundMessage,
    ToolCall,
    Usage,
)
from nanobot_core.record import dataclass
from nanobot_core.text import Repaired

OutputT = TypeVar("OutputT")
TurnSource: TypeAlias = Literal["chat", "cli", "sdk", "api", AssignmentSource, "plugin"]
"""What started a turn.

``chat``: the message queue of a channel; ``cli``: a program whose user answers questions, such as
the terminal or an editor; ``api``: another program; ``plugin``: an `AgentTask`, not a turn.
"""
StopReason: TypeAlias = Literal[
    "completed", "iteration_limit", "token_limit", "budget", "repetition", "cancelled", "failed"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnInfo:
    """Who wrote to the agent, and where; the same in every event of a turn.

    Attributes:
        id: unique id of the turn, also in the log.
        session_key: session that the turn belongs to.
        channel: name of the channel.
        chat_id: chat on that channel.
        sender_id: who wrote.
        source: what started the turn.
        message_id: platform id of the inbound message, or ``None``.
        is_owner: the owner wrote: in a chat one of ``owner``, elsewhere the user of the machine.
        memory: name of the memory that the turn may read and add to, see `MemoryScope`; ``None``
            for none.
        is_group: the chat has more people than the sender.
        assignment: the work, if no person's message started the turn.
        tools: what limits the tools of a program's turn.
        folder: working folder of a program's turn instead of the workspace, or empty.
    """

    id: str
    session_key: str
    channel: str
    chat_id: str
    sender_id: str
    source: TurnSource
    message_id: str | None = None
    is_owner: bool = False
    memory: str | None = None
    is_group: bool = False
    assignment: Assignment | None = None
    tools: tuple[ToolRule, ...] = ()
    folder: str = ""

    @property
    def requester(self) -> Requester:
        """Who asks in this turn, with the rights that work for them may have."""
        given = self.assignment
        if not self.is_owner:
            authority: Authority = "guest"
        elif given is not None:
            authority = given.requester.authority
        else:
            authority = "owner" if self.source == "chat" else "machine"
        return Requester(
            channel=self.channel,
            chat_id=self.chat_id,
            sender_id=self.sender_id,
            session_key=self.session_key,
            authority=authority,
            is_group=self.is_group,
            tools=(*given.requester.tools, *given.tools) if given else self.tools,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition(Repaired):
    """What the model sees of a tool: name, description, JSON Schema of the parameters."""

    name: str
    description: str
    parameters: JsonObject

    def to_schema(self) -> JsonObject:
        """Return the OpenAI function-calling form."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome(Repaired):
    """The result of a tool call as the model will read it.

    Attributes:
        text: the result.
        is_error: the call failed.
        origin: ``plugin@version`` that the tool comes from, or ``None`` if there is no such tool.
    """

    text: str
    is_error: bool = False
    origin: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """The access lists of its channel let a message in.

    `admit_message` sees it before its files are fetched, `rewrite_inbound` complete.
    """

    message: InboundMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageComposed:
    """A message to a chat is about to be stored for delivery."""

    message: OutboundMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFinished:
    """A message was delivered, or given up.

    Attributes:
        message: the message.
        attempts: how often its delivery was tried.
        error: why it was given up, ``None`` if it was delivered.
    """

    message: OutboundMessage
    attempts: int
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted:
    """The user's message is stored; the request is not yet built."""

    turn: TurnInfo
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """The result of a turn.

    Attributes:
        turn: the turn.
        reply: the answer, or ``None``.
        usage: tokens and money of all its model calls.
        iterations: number of model calls that took part in the loop.
        tools_used: names of the tools in order of their first call.
        duration_s: wall time from admission to the stored reply.
        stop_reason: why it ended.
        error: sentence for the user when it failed, else ``None``.
        error_id: id under which the log has the details, else ``None``.
        model: model that gave the answer, or ``None``.
        outbound: messages that tools sent on the way, in order.
        has_spoken: a tool has written to the chat of the turn, so that the reply may repeat it.
        findings: what is wrong with the answer of a turn that had to give an object.
    """

    turn: TurnInfo
    reply: str | None
    usage: Usage = field(default_factory=Usage)
    iterations: int = 0
    tools_used: tuple[str, ...] = ()
    duration_s: float = 0.0
    stop_reason: StopReason = "completed"
    error: str | None = None
    error_id: str | None = None
    model: str | None = None
    outbound: tuple[OutboundMessage, ...] = ()
    has_spoken: bool = False
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentFinished:
    """Work was done, failed, was stopped, or was refused because its requester lost the right.

    Attributes:
        assignment: the work.
        outcome: its result; ``stop_reason`` says whether the answer is complete.
    """

    assignment: Assignment
    outcome: TurnOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkStopped:
    """A person stopped everything that is done for a session."""

    session_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutcome(TurnOutcome, Generic[OutputT]):
    """The result of a turn that gave an object: ``bot.run(..., output=MyModel)``.

    Attributes:
        output: the validated object; `reply` is its JSON.
    """

    output: OutputT


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRaised:
    """A turn failed.

    Attributes:
        id: under which the log has the details; the user is shown it too.
        place: what failed: ``turn``.
        error_type: class of the exception.
        message: its text.
        turn: the turn.
    """

    id: str
    place: str
    error_type: str
    message: str
    turn: TurnInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRequested:
    """A request is being built for `model`.

    Attributes:
        turn: the turn.
        model: the model that the configuration names.
        history: earlier messages; read-only.
        tools: names of the tools that the model is offered.
    """

    turn: TurnInfo
    model: str
    history: Sequence[Message]
    tools: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsOffered:
    """The tools that the model will be offered, in their stable order."""

    turn: TurnInfo
    tools: tuple[ToolDefinition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequested:
    """A model is about to be called; `model` is the one that the configuration names."""

    turn: TurnInfo
    model: str
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationStarted:
    """A model call is about to be made.

    Attributes:
        turn: the turn.
        iteration: number of the call within the turn, from 1.
        model: the model that the configuration names.
        messages: how many messages the request has.
    """

    turn: TurnInfo
    iteration: int
    model: str
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TextStreamed:
    """The next piece of an answer and of the thinking before it; either may be empty.

    The event stream of a run gets each piece as it comes, hooks get all of the last 50 ms as one.
    """

    turn: TurnInfo
    iteration: int
    text: str
    reasoning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnded:
    """The stream of one model call is over; with `tool_calls` the turn continues."""

    turn: TurnInfo
    iteration: int
    tool_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationFinished:
    """A model call gave an answer.

    Attributes:
        turn: the turn.
        iteration: number of the call within the turn, from 1.
        model: model that answered.
        provider: its provider.
        usage: tokens and money.
        finish_reason: why the service stopped, see `LLMResponse`.
        tool_calls: the calls that the model asks for.
        duration_s: seconds from the request to the whole answer.
        first_token_s: seconds to the first delta, ``None`` without streaming.
    """

    turn: TurnInfo
    iteration: int
    model: str
    provider: str
    usage: Usage
    finish_reason: str
    tool_calls: tuple[ToolCall, ...]
    duration_s: float
    first_token_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolBatchStarted:
    """The tool calls of one response are about to run."""

    turn: TurnInfo
    iteration: int
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallProposed:
    """One call, arguments cast and valid, before it runs.

    Attributes:
        turn: the turn.
        call: the call.
        origin: ``plugin@version`` that the tool comes from.
        read_only: the tool promises to change nothing.
    """

    turn: TurnInfo
    call: ToolCall
    origin: str
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultReady:
    """A result before the model, the log and the store see it."""

    turn: TurnInfo
    call: ToolCall
    result: ToolOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFinished:
    """A call is over and its result stored."""

    turn: TurnInfo
    call: ToolCall
    result: ToolOutcome
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequested:
    """Someone must be asked about a call, whose arguments are frozen.

    Attributes:
        turn: the turn.
        id: of the question.
        call: the call.
        question: one line for the owner.
        may_always: the answer may be "always", which is then remembered.
    """

    turn: TurnInfo
    id: str
    call: ToolCall
    question: str
    may_always: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalResolved:
    """A question about a call was answered, or expired as no.

    Attributes:
        turn: the turn.
        id: that of the `ApprovalRequested`.
        call: the call.
        allowed: whether it may run.
        by: who answered, such as a sender id or ``terminal``; if no one did, the reason.
    """

    turn: TurnInfo
    id: str
    call: ToolCall
    allowed: bool
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentReady:
    """The complete answer before it is stored and sent."""

    turn: TurnInfo
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRecorded:
    """One model call of any source was paid for.

    Attributes:
        session_key: session that it belongs to; of an `AgentTask`, ``<plugin id>:<purpose>``.
        source: what started the turn or task.
        model: name of the model.
        provider: name of the provider.
        plugin: id of the plugin that the provider comes from.
        usage: tokens and money.
        turn_id: the turn, or ``None``.
    """

    session_key: str
    source: TurnSource
    model: str
    provider: str
    plugin: str
    usage: Usage
    turn_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCalled:
    """A hook of the agent's work was called.

    Attributes:
        number: counts these events from 1; a gap means that the queue of the plugin was full.
        hook: name of the hook.
        revision: generation of the hook's declaration.
        event: its argument. What `wrap_model_call` wraps is not part of it.
        answer: what the call returned: of a chain the field as the last plugin left it, of a gate
            the strictest answer, of one that gathers pairs of plugin and item, else ``None``.
        error: type and message of what the call raised, or ``None``.
    """

    number: int
    hook: str
    revision: int
    event: object
    answer: object = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRestarted:
    """What was streamed of the present answer is void.

    It was thinking, or the call is made again.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressMade(Repaired):
    """Words that came with tool calls or from a tool at work."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted:
    """A call begins; `hint` is it in a few characters, such as ``web_search("query")``."""

    call: ToolCall
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeGiven(Repaired):
    """Something that the user should know while waiting."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSent:
    """A tool has sent a message to the chat of the turn, which shows it itself."""

    message: OutboundMessage


RunEvent: TypeAlias = (
    TextStreamed
    | StreamRestarted
    | ProgressMade
    | ToolCallStarted
    | ToolCallFinished
    | NoticeGiven
    | MessageSent
    | TurnOutcome
)
"""What a program that watches a turn receives, in order; the outcome comes last."""
