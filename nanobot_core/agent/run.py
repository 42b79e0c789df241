"""Input and result of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from nanobot_core.agent.results import ResultFiles
from nanobot_core.contracts.client import EventSink, ignore_event
from nanobot_core.contracts.provider import (
    Ability,
    ChatRequest,
    LLMProvider,
    ModelInfo,
    ReasoningEffort,
)
from nanobot_core.contracts.tool import no_chat
from nanobot_core.events import StopReason, ToolDefinition, TurnInfo
from nanobot_core.hooks.caller import Hooks
from nanobot_core.messages import JsonObject, Message, OutboundMessage, ToolCall, Usage
from nanobot_core.paths import PathGuard
from nanobot_core.prompts import packaged_text
from nanobot_core.record import dataclass
from nanobot_core.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model ready to be called.

    Attributes:
        name: its name in the configuration.
        wire_name: its name for the service.
        provider: the adapter.
        provider_name: name of the provider.
        plugin: id of the plugin that contributes the provider.
        overrides: request fields that are forced for it.
        json_schema: its service can be made to answer by a JSON Schema; `info` may say that the
            model cannot.
        info: what is known of it, or ``None``.
        max_tokens: most tokens of one answer, or ``None`` for as many as the run allows.
        temperature: sampling temperature, or ``None``.
        reasoning_effort: how hard to think, or ``None``.
    """

    name: str
    wire_name: str
    provider: LLMProvider
    provider_name: str
    plugin: str
    overrides: JsonObject = field(default_factory=dict)
    json_schema: bool = False
    info: ModelInfo | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: ReasoningEffort | None = None

    @property
    def abilities(self) -> frozenset[Ability] | None:
        """What the model can do, or ``None`` if that is unknown."""
        return self.info.abilities if self.info else None


Shape = Callable[[Model, ChatRequest], ChatRequest]
"""Changes a request for the model that receives it."""


def unshaped(_model: Model, request: ChatRequest) -> ChatRequest:
    """Return `request` unchanged."""
    return request


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """What a run needs of the model that is chosen for it, before the model is called.

    Attributes:
        name: its name, or that of its preset; ``None`` if no model is configured.
        fallback_models: models to try, in order, when it fails for good.
        max_tokens: most tokens of one answer.
        context_window_tokens: most tokens of one request and its answer.
        documents: it is known to read PDF documents itself.
    """

    name: str | None = None
    fallback_models: tuple[str, ...] = ()
    max_tokens: int = 8_192
    context_window_tokens: int = 65_536
    documents: bool = False


class ModelSource(Protocol):
    """Finds the provider of a model."""

    async def model(self, name: str | None) -> Model:
        """Return the model or that of the preset; ``None`` names the configured default.

        Raises:
            NoProvider: nothing serves it.
            PluginError: its plugin cannot run.
        """


class ModelChoices(Protocol):
    """Knows what the configuration and the models' data say of a model."""

    async def choice(self, name: str | None) -> ModelChoice:
        """Return what a run needs of a model; ``None`` names the configured default."""

    def known_choice(self, name: str | None) -> ModelChoice:
        """Return the same as far as it is known without reading a file."""

    def warm_up(self, name: str | None) -> None:
        """Prepare the provider of a model in the background, while its request is being built."""


async def _nothing_more() -> Sequence[Message]:
    """Return no further messages."""
    return ()


async def _record_nothing(messages: Sequence[Message], running: Sequence[ToolCall]) -> None:
    """Store nothing."""


async def _same_tools() -> ToolRegistry | None:
    """Report that the tools have not changed."""
    return None


Send = Callable[[OutboundMessage], Awaitable[None]]
Recorder = Callable[[Sequence[Message], Sequence[ToolCall]], Awaitable[None]]
"""Stores new messages; the calls are those that run next and have no result yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRunSpec:
    """One run of the agent. It is independent of channels.

    Attributes:
        turn: whose turn it is.
        messages: history in order, the system prompt first; the user's message last, or before
            the messages of an interrupted run.
        tools: those that the model may call.
        hooks: call points, those of the run included.
        files: decides what tools may read and write.
        results: keeps results that are too long for the model.
        redact: removes secrets from results of tools.
        model: model name, or ``None`` for the configured one.
        fallback_models: models to try, in order, when the first one fails for good.
        max_iterations: model calls before the run is ended with a summary.
        max_tokens: most tokens of one answer.
        max_continuations: how often the model is asked for the rest of an answer that was cut off.
        context_window_tokens: size of the model's window.
        stream: ask the provider for a stream.
        tool_timeout_s: limit for tools without one of their own.
        max_tool_result_chars: longer results are shortened, and the whole goes to a file.
        max_parallel: calls that run at the same time.
        max_repeats: equal calls with equal results after which the call is refused.
        output: class of the object that the run ends with, or ``None`` for an answer in words.
        caller_tools: tools that the caller runs; a call to one ends the run.
        summary_instruction: asks the model for a summary of the oldest messages.
        pending: calls of the last assistant message to run before the first model call.
        more: called between iterations; returns new messages of the user, which the run records.
        newer_tools: called between iterations; returns the tools if they have changed, else
            ``None``.
        send: see `ToolContext.send`.
    """

    turn: TurnInfo
    messages: Sequence[Message]
    tools: ToolRegistry
    hooks: Hooks
    files: PathGuard
    results: ResultFiles
    model: str | None = None
    fallback_models: Sequence[str] = ()
    max_iterations: int = 200
    max_tokens: int = 8_192
    max_continuations: int = 3
    context_window_tokens: int = 65_536
    stream: bool = True
    tool_timeout_s: float = 120.0
    max_tool_result_chars: int = 16_000
    max_parallel: int = 8
    max_repeats: int = 6
    output: type[BaseModel] | None = None
    caller_tools: Sequence[ToolDefinition] = ()
    summary_instruction: str = field(default_factory=partial(packaged_text, "summary"))
    pending: Sequence[ToolCall] = ()
    more: Callable[[], Awaitable[Sequence[Message]]] = _nothing_more
    newer_tools: Callable[[], Awaitable[ToolRegistry | None]] = _same_tools
    send: Send = no_chat
    redact: Callable[[str], str] = str
    on_event: EventSink = ignore_event
    record: Recorder = _record_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The oldest messages of a run's history, replaced in the request by a summary.

    Attributes:
        messages: how many messages after the system prompt are replaced; a user message follows
            them. Iterations of the run itself that the summary covers do not count.
        summary: of their content.
    """

    messages: int
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRunResult:
    """The result of a run.

    Attributes:
        content: the final answer.
        messages: what the run added to the history, in order, the final answer included.
        stop_reason: why it ended.
        usage: tokens and money of all model calls.
        tools_used: names in order of first use.
        iterations: model calls made by the loop.
        model: model that answered last.
        compaction: how the history was shortened, or ``None``.
        iteration_s: seconds of each iteration, tools included.
        output: the object, if the run had to end with one and did.
        findings: what is wrong with the answer of a run that had to end with an object.
        calls: of `AgentRunSpec.caller_tools`, with which the run ended.
    """

    content: str
    messages: tuple[Message, ...]
    stop_reason: StopReason
    usage: Usage
    tools_used: tuple[str, ...]
    iterations: int
    model: str
    compaction: Compaction | None = None
    iteration_s: tuple[float, ...] = ()
    output: BaseModel | None = None
    findings: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
