"""Every hook of nanobot. This module is also ``on``: ``@on.before_turn`` marks an implementation.

Each declaration is a contract: when it is called, what each return value means, what happens by
default. Order, time limit and failure follow from the kind (see ``kinds.py``). The first words of a
declaration tell the owner what implementing the hook lets a plugin do; they are empty for a hook
that neither sees, changes nor decides anything. Except contributions, hooks can be sync or async.
Events are frozen; new facts are new fields.
"""

# The parameters of a declaration are names for implementers, not for these empty bodies.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nanobot_core.contracts.plugin import Allow, Ask, ContextBlock, Deny, Refuse, Rewrite, Ticket
from nanobot_core.contracts.provider import LLMResponse
from nanobot_core.events import ToolOutcome
from nanobot_core.hooks.kinds import Kind
from nanobot_core.hooks.markers import HookPoint, declare
from nanobot_core.messages import InboundMessage, OutboundMessage
from nanobot_core.text import nearest

if TYPE_CHECKING:
    # Only named in signatures: what a process does not use it need not import.
    from collections.abc import Awaitable, Callable, Iterable

    from nanobot_core.contracts.channel import ChannelSpec
    from nanobot_core.contracts.context import ContributionHook, EventHook, PluginContext
    from nanobot_core.contracts.isolation import IsolatorSpec
    from nanobot_core.contracts.job import SystemJob, Trigger
    from nanobot_core.contracts.memory import MemorySpec
    from nanobot_core.contracts.panel import Panel
    from nanobot_core.contracts.plugin import (
        Applied,
        Check,
        CliGroup,
        Decision,
        Health,
        NeedsReload,
        PluginFacts,
        SettingsChange,
        SettingsSection,
        SlashCommand,
        StopCause,
    )
    from nanobot_core.contracts.provider import ChatRequest, ModelCallRequested, ProviderSpec
    from nanobot_core.contracts.service import Mount, ServiceSpec
    from nanobot_core.contracts.store import StoreSpec
    from nanobot_core.contracts.tool import LazyTool, Tool
    from nanobot_core.contracts.transcription import TranscriberSpec
    from nanobot_core.events import (
        ApprovalRequested,
        ApprovalResolved,
        AssignmentFinished,
        ContentReady,
        ContextRequested,
        DeliveryFinished,
        ErrorRaised,
        HookCalled,
        IterationFinished,
        IterationStarted,
        MessageComposed,
        MessageReceived,
        ModelRequested,
        StreamEnded,
        TextStreamed,
        ToolBatchStarted,
        ToolCallFinished,
        ToolCallProposed,
        ToolDefinition,
        ToolResultReady,
        ToolsOffered,
        TurnOutcome,
        TurnStarted,
        UsageRecorded,
        WorkStopped,
    )


def __getattr__(name: str) -> object:
    hooks = [hook for hook, point in globals().items() if isinstance(point, HookPoint)]
    close = " or ".join(f"'{hook}'" for hook in nearest(name, hooks))
    hint = f"; did you mean {close}?" if close else ""
    msg = f"there is no hook '{name}'{hint}"
    raise AttributeError(msg)


# --- what a plugin gives ---------------------------------------------------------------------


@declare(Kind.CONTRIBUTE)
def contribute_hookspecs() -> Iterable[ContributionHook[object] | EventHook[Any, object]]:
    """Contribute the hooks that the plugin declares for others.

    They are made by `declare_contribution`, `declare_observer`, `declare_gate` or `declare_chain`.
    Their names begin with the plugin's id and an underscore. Other plugins implement them; the
    plugin reads contributions with ``ctx.contributed`` and calls the others with ``ctx.call``.
    """


@declare(Kind.CONTRIBUTE)
def describe_plugin() -> PluginFacts:
    """Describe what the code does not show: requirements, order, what the plugin reaches."""


@declare(Kind.CONTRIBUTE)
def contribute_settings() -> Iterable[SettingsSection]:
    """Contribute sections of settings: their place in the configuration and their model."""


@declare(Kind.CONTRIBUTE, "gives the model tools")
def contribute_tools(ctx: PluginContext) -> Iterable[Tool | LazyTool]:
    """Contribute tools. Called before the first turn that may use tools."""


@declare(Kind.CONTRIBUTE, "receives and sends messages")
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    """Contribute channels. Each is created when its section enables it."""


@declare(Kind.CONTRIBUTE, "sends conversations to a model service")
def contribute_providers(ctx: PluginContext) -> Iterable[ProviderSpec]:
    """Contribute providers. One is created when a model resolves to it."""


@declare(Kind.CONTRIBUTE, "keeps what is remembered")
def contribute_memory(ctx: PluginContext) -> Iterable[MemorySpec]:
    """Contribute memory backends; ``memory.backend`` chooses one."""


@declare(Kind.CONTRIBUTE, "keeps conversations")
def contribute_stores(ctx: PluginContext) -> Iterable[StoreSpec]:
    """Contribute session stores and buses; the settings choose one of each."""


@declare(Kind.CONTRIBUTE, "runs as long as the gateway")
def contribute_services(ctx: PluginContext) -> Iterable[ServiceSpec]:
    """Contribute services that run as long as the gateway."""


@declare(Kind.CONTRIBUTE, "answers slash commands")
def contribute_commands(ctx: PluginContext) -> Iterable[SlashCommand]:
    """Contribute slash commands."""


@declare(Kind.CONTRIBUTE, "adds commands to the terminal")
def contribute_cli() -> Iterable[CliGroup]:
    """Contribute subcommands of ``nanobot``."""


@declare(Kind.CONTRIBUTE, "answers HTTP requests")
def contribute_routes(ctx: PluginContext) -> Iterable[Mount]:
    """Contribute HTTP applications to mount in the gateway."""


@declare(Kind.CONTRIBUTE, "shows the owner pages")
def contribute_panels(ctx: PluginContext) -> Iterable[Panel]:
    """Contribute pages for the owner, plain data that a program such as nanobot-page shows.

    Such a plugin reads them with ``ctx.contributed(on.contribute_panels)``.
    """


@declare(Kind.CONTRIBUTE, "hears voice messages")
def contribute_transcribers(ctx: PluginContext) -> Iterable[TranscriberSpec]:
    """Contribute transcription providers."""


@declare(Kind.CONTRIBUTE)
def contribute_checks() -> Iterable[Check]:
    """Contribute checks for ``nanobot doctor``."""


@declare(Kind.CONTRIBUTE, "runs other plugins")
def contribute_isolators() -> Iterable[IsolatorSpec]:
    """Contribute ways to run tool plugins in their own process; the first by plugin id is used."""


@declare(Kind.CONTRIBUTE, "does work on a schedule")
def contribute_jobs(ctx: PluginContext) -> Iterable[SystemJob]:
    """Contribute jobs of the plugin's own. They run if a plugin such as nanobot-cron runs jobs.

    Such a plugin reads them with ``ctx.contributed(on.contribute_jobs)``.
    """


@declare(Kind.CONTRIBUTE, "starts jobs on events")
def contribute_triggers(ctx: PluginContext) -> Iterable[Trigger]:
    """Contribute kinds of events that can start jobs; read as those of `contribute_jobs`."""


# --- a plugin's own life ---------------------------------------------------------------------


@declare(Kind.OWN)
def start(ctx: PluginContext) -> None:
    """Called after the contributions are accepted, before they are visible; 30 s.

    If it raises, the plugin is left out and none of its contributions are published.
    """


@declare(Kind.OWN)
def check_health(ctx: PluginContext) -> Health:
    """Report the health of the plugin; called by ``nanobot doctor`` and after a hot load."""


@declare(Kind.OWN)
def settings_changed(ctx: PluginContext, change: SettingsChange) -> Applied | NeedsReload:
    """The plugin's own section changed in a running host. Default: the plugin is reloaded."""


@declare(Kind.OWN)
def stop(ctx: PluginContext, reason: StopCause) -> None:
    """Called once after the last use; 10 s. The host releases its resources in any case."""


# --- the work of the agent -------------------------------------------------------------------


def _refuse_message(plugin: str, reason: str) -> Refuse:
    return Refuse(
        reason,
        f"I cannot take messages now: plugin '{plugin}' must check them and does not work. "
        "`nanobot plugins list` shows my owner the reason.",
    )


@declare(
    Kind.GATE,
    "reads every message and decides who is admitted",
    Refuse,
    refuse=_refuse_message,
    judges="channel message",
)
def admit_message(event: MessageReceived) -> Refuse | None:
    """Refuse a message that the access lists admit; None accepts it."""


@declare(
    Kind.CHAIN,
    "reads and changes messages to the agent",
    InboundMessage,
    field="message",
    judges="channel message",
)
def rewrite_inbound(event: MessageReceived) -> InboundMessage | None:
    """Replace a message before it is stored; channel, chat and ids must stay as they are."""


@declare(Kind.OBSERVE, "reads messages")
def before_turn(event: TurnStarted) -> None:
    """The user's message is stored and the request is not yet built."""


@declare(Kind.DETACHED, "reads answers")
def after_turn(event: TurnOutcome) -> None:
    """A turn is over, its messages are stored and its reply is on the way."""


@declare(Kind.OBSERVE, "reads the results of scheduled and delegated work")
def after_assignment(event: AssignmentFinished) -> None:
    """Work ended, and its message is still stored: store its result here.

    If the process is killed meanwhile, the hook is called again with the same result.
    """


@declare(Kind.OBSERVE, "sees when people stop work")
def on_stop(event: WorkStopped) -> None:
    """A person stopped the work of a session: drop what waits to be done for it."""


@declare(Kind.DETACHED, "reads errors")
def on_error(event: ErrorRaised) -> None:
    """A turn failed."""


@declare(Kind.GATHER, "reads conversations and adds to what the model reads", ContextBlock)
def gather_context(event: ContextRequested) -> Iterable[ContextBlock] | None:
    """Add passages to what the model reads; None or empty adds nothing.

    Blocks are ordered by ``plugin-id/name``. A stable block that differs from the turn before
    voids the provider's prompt cache and is reported with the plugin's name.
    """


@declare(Kind.CHAIN, "takes tools from the model", tuple, field="tools", judges="turn")
def rewrite_tools(event: ToolsOffered) -> tuple[ToolDefinition, ...] | None:
    """Return fewer tools than ``event.tools``; additions are ignored.

    Called once a turn. The answer should be the same in every turn of a session, because a
    changed tool list voids the provider's prompt cache.
    """


@declare(Kind.FIRST, "chooses the model", str)
def choose_model(event: ModelRequested) -> str | None:
    """Name another model for this call; None leaves the choice to others and the configuration."""


@declare(Kind.OBSERVE, "follows each model call")
def before_iteration(event: IterationStarted) -> None:
    """A model call is about to be made."""


@declare(Kind.WRAP, "reads and changes model requests and responses", LLMResponse)
def wrap_model_call(
    event: ModelCallRequested, call_next: Callable[[ChatRequest], Awaitable[LLMResponse]]
) -> LLMResponse:
    """Wrap a model call with its retries.

    ``await call_next(event.request)`` makes the call, with this request or a changed one, and
    returns its response. To end the turn with a message, raise a `LimitError` before it; to answer
    instead of the model, return without it. Return None to leave this call as it is.
    """


@declare(Kind.DETACHED, "reads answers while they are written")
def on_stream(event: TextStreamed) -> None:
    """A piece of the answer was streamed: the text of the last 50 ms or more."""


@declare(Kind.DETACHED, "follows each model call")
def on_stream_end(event: StreamEnded) -> None:
    """The stream of one model call is over."""


@declare(Kind.OBSERVE, "reads tool calls")
def after_iteration(event: IterationFinished) -> None:
    """A model call has returned an answer."""


@declare(Kind.OBSERVE, "reads tool calls")
def before_execute_tools(event: ToolBatchStarted) -> None:
    """The tool calls of one response are about to run; `authorize_tool_call` is the veto."""


@declare(
    Kind.GATE,
    "decides on tool calls and changes them",
    *(Allow, Rewrite, Ask, Deny),
    refuse=lambda _plugin, reason: Deny(reason),
    judges="tool call",
)
def authorize_tool_call(event: ToolCallProposed) -> Decision | None:
    """Allow, rewrite, ask about or deny one call, on every path that can run a tool.

    None means no opinion. Without any opinion the call is allowed. Rewritten arguments are
    validated again; a second rewrite sees the first one's arguments.
    """


@declare(
    Kind.CHAIN, "reads and changes tool results", ToolOutcome, field="result", judges="tool result"
)
def rewrite_tool_result(event: ToolResultReady) -> ToolOutcome | None:
    """Replace a result before the model, the store or any other hook sees it."""


@declare(Kind.DETACHED, "reads tool calls and their results")
def after_execute_tool(event: ToolCallFinished) -> None:
    """A call is over and its result stored."""


@declare(
    Kind.FIRST, "answers approval questions in the owner's name", Ticket, waits_for_person=True
)
def choose_approval(event: ApprovalRequested) -> Ticket | None:
    """Ask the owner about a call and wait for the answer; no answer means no.

    Unlike other hooks of its kind it may take as long as ``tools.approval_timeout_s``.
    """


@declare(Kind.DETACHED, "reads approval questions and their answers")
def after_approval(event: ApprovalResolved) -> None:
    """A question about a call was answered or expired."""


@declare(Kind.CHAIN, "reads and changes answers", str, field="content", judges="answer")
def finalize_content(event: ContentReady) -> str | None:
    """Replace the complete answer before it is stored and sent."""


@declare(
    Kind.CHAIN,
    "reads and changes messages from the agent",
    OutboundMessage,
    field="message",
    judges="message to a channel",
)
def rewrite_outbound(event: MessageComposed) -> OutboundMessage | None:
    """Replace a message before it is stored for delivery; without content nothing is sent."""


@declare(Kind.DETACHED, "reads messages from the agent")
def after_delivery(event: DeliveryFinished) -> None:
    """A message was delivered, or its delivery was given up."""


@declare(Kind.DETACHED, "reads what model calls cost")
def on_usage(event: UsageRecorded) -> None:
    """A model call was made and has to be paid for."""


@declare(Kind.DETACHED, "reads everything that the hooks of all plugins see and answer")
def after_hook(event: HookCalled) -> None:
    """A hook of this section, or one that a plugin declares, was called.

    Not called for itself. While a plugin implements it, events are made for all hooks, also for
    those that nothing else implements: use it for diagnosis.
    """
