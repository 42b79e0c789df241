"""Provider: an adapter to a model service."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import field
from typing import Final, Literal, TypeAlias

from nanobot_core.errors import ProviderProtocolError
from nanobot_core.events import ToolDefinition, TurnInfo
from nanobot_core.messages import JsonObject, Message, ToolCall, Usage
from nanobot_core.record import dataclass
from nanobot_core.text import Repaired

ReasoningEffort: TypeAlias = Literal["none", "low", "medium", "high"]
Ability: TypeAlias = Literal["tools", "images", "documents", "reasoning", "json_schema"]
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]

MAX_ANSWER_CHARS: Final = 4_000_000
"""Characters of text and thinking in one answer; four times what today's models can produce."""
MAX_TOOL_CALLS: Final = 128
"""Tool calls in one answer."""
MAX_ARGUMENT_CHARS: Final = 1_000_000
"""Characters of the arguments of all calls in one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One model call.

    Attributes:
        messages: history in order; the first may be the system prompt. Each request of a session
            begins with the same messages as the one before it, unless the history was summarised.
        model: model name as the service knows it (prefixes already handled).
        tools: what the model may call; empty means no tool field is sent.
        max_tokens: most tokens to answer with.
        temperature: sampling temperature, or ``None`` for the service's default.
        reasoning_effort: how hard to think, or ``None`` for the service's default.
        tool_choice: ``auto``, ``none`` or ``required``.
        output_schema: JSON Schema of an object that the answer, unless it calls tools, must be as
            text; set only for a model that can be made to answer by one, see `ProviderSpec`. It has
            no references. `nanobot_core.tools.strict_schema` returns the form that a service with
            strict schemas requires, or ``None`` if it is impossible: then the service gets the
            schema as it is, without strictness. The core validates the answer.
        extra: further body fields, merged over the rest.
    """

    messages: tuple[Message, ...]
    model: str
    tools: tuple[ToolDefinition, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: ReasoningEffort | None = None
    tool_choice: Literal["auto", "none", "required"] = "auto"
    output_schema: JsonObject | None = None
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallRequested:
    """A model call with its whole request; the event of `wrap_model_call`."""

    turn: TurnInfo
    iteration: int
    provider: str
    request: ChatRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMResponse(Repaired):
    """A complete answer.

    Attributes:
        content: text, or ``None``.
        tool_calls: calls in order, ids as the service gave them (they may be empty or double).
        finish_reason: why the service stopped; ``length`` means that the answer is cut.
        usage: tokens; zeros if the service does not report them.
        reasoning: thinking text, or ``None``.
        provider_blocks: opaque parts to return in the next request.
    """

    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: FinishReason = "stop"
    usage: Usage = field(default_factory=Usage)
    reasoning: str | None = None
    provider_blocks: tuple[JsonObject, ...] = ()

    @property
    def has_tool_calls(self) -> bool:
        """Whether the model asked for tools."""
        return bool(self.tool_calls)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the answer; a surrogate pair may be split between two of them."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """The next piece of the thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A tool call has begun; arguments follow in the completed response."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class Completed:
    """The last event of every stream: the whole answer."""

    response: LLMResponse


StreamEvent: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta | Completed


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What is known of one model, from a provider's data or from its service.

    Attributes:
        name: as the service knows it.
        window_tokens: most tokens of a request and its answer, or ``None`` if unknown.
        max_answer_tokens: most tokens of an answer, or ``None`` if unknown.
        input_usd: US dollars for a million tokens of a request, or ``None`` if unknown.
        cached_usd: the same for tokens that the service had cached; ``None`` means `input_usd`.
        output_usd: the same for tokens of an answer, thinking included, or ``None`` if unknown.
        abilities: what it can do, or ``None`` if unknown.
    """

    name: str
    window_tokens: int | None = None
    max_answer_tokens: int | None = None
    input_usd: float | None = None
    cached_usd: float | None = None
    output_usd: float | None = None
    abilities: frozenset[Ability] | None = None


class LLMProvider(ABC):
    """An adapter to a model service. One instance serves all sessions, calls run concurrently.

    The core makes retries and fallbacks: a provider makes one attempt and raises a typed error. The
    core raises `AnswerTooLong` for an answer that exceeds `MAX_ANSWER_CHARS`, `MAX_TOOL_CALLS` or
    `MAX_ARGUMENT_CHARS`, or takes longer than `longest_call_s`. A provider that gathers an answer
    raises it as soon as the answer exceeds a limit, so that it does not store more than that.

    Attributes:
        name: the provider's name, as in its `ProviderSpec`.
        longest_call_s: seconds from the start of one call to the end of its answer.
    """

    name: str
    longest_call_s: float = 1_200.0

    @abstractmethod
    def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        """Make one call and yield its answer in pieces.

        Yields:
            Deltas in order, then exactly one `Completed`. A stream that the service cuts before
            its end raises and never yields `Completed`.

        Raises:
            ProviderError: one of its subclasses, by what the caller should do.

        Cancellation:
            The connection is closed at once.
        """

    async def chat(self, request: ChatRequest) -> LLMResponse:
        """Make one call and return the complete answer.

        Raises:
            ProviderError: as `chat_stream`.
        """
        async for event in self.chat_stream(request):
            if isinstance(event, Completed):
                return event.response
        raise ProviderProtocolError(self.name, "the stream ended without a complete answer")

    async def list_models(self) -> Sequence[ModelInfo]:
        """Return the models that the service offers to this key, without a paid call.

        Optional; a provider that cannot do it returns nothing. `nanobot doctor --online` uses it to
        check the key, and `nanobot onboard` to find local servers.

        Raises:
            ProviderError: as `chat_stream`.
        """
        return ()

    async def warm_up(self) -> None:
        """Open connections or import an SDK while the request is being built. May do nothing."""

    async def aclose(self) -> None:
        """Close connections. Called once, after the last call has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSpec:
    """How models find their provider: a row of data, no code.

    Attributes:
        name: provider name; its settings are in ``providers.<name>``.
        factory: ``package.module:name`` of a callable ``(ctx, spec, settings)`` that returns an
            `LLMProvider`; `settings` is an instance of the `settings` model.
        summary: one line for ``nanobot providers list``.
        settings: dotted name of the settings model, a subclass of ``ProviderSettings``.
        keywords: parts of model names that belong to this provider.
        api_key_env: environment variables with its key; the first that is set applies.
        default_base: base URL if the settings have none, or ``None``; empty if the provider finds
            it by itself.
        needs_key: it cannot be used without a key.
        is_local: it runs on the owner's machine and serves any model name.
        is_gateway: it serves the models of others.
        key_prefixes: beginnings of keys by which a gateway is recognised.
        base_keywords: parts of base URLs by which a gateway is recognised.
        add_prefix: prefix that the service wants before model names, such as ``openrouter/``.
        strip_prefix: whether a vendor prefix (``vendor/model``) is removed before sending.
        model_overrides: (part of a model name, request fields) pairs that are forced.
        json_schema: the service can be made to answer by a JSON Schema,
            `ChatRequest.output_schema`; the core gives the models of other services a tool for it.
        models: data of its models that ships with the plugin, as ``package:file.json``: a list of
            objects with the fields of `ModelInfo`, or an object with such a list by provider name.
        login: ``package.module:name`` of a callable ``(ctx, spec, settings)`` that returns a
            `ProviderLogin`, for ``nanobot providers login``. A provider with a login needs no key
            and is used only if it is named.
        prompt_cache: the service caches prompts at marked places; the provider marks the system
            prompt, the newest message of the user, and the newest message.
        demo: not a real model; used only if it is named or nothing else is configured.
    """

    name: str
    factory: str
    summary: str = ""
    settings: str = "nanobot_core:ProviderSettings"
    keywords: tuple[str, ...] = ()
    api_key_env: tuple[str, ...] = ()
    default_base: str | None = None
    needs_key: bool = True
    is_local: bool = False
    is_gateway: bool = False
    key_prefixes: tuple[str, ...] = ()
    base_keywords: tuple[str, ...] = ()
    add_prefix: str = ""
    strip_prefix: bool = False
    model_overrides: tuple[tuple[str, JsonObject], ...] = ()
    json_schema: bool = False
    models: str = ""
    login: str = ""
    prompt_cache: bool = False
    demo: bool = False
