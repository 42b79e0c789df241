"""nanobot-core: a kernel that finds plugins and runs an agent.

What this package exports is the public surface, together with the modules `nanobot_core.net`,
`nanobot_core.providers`, `nanobot_core.tools` and `nanobot_core.testing`. Names are imported when
first used (PEP 562), so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib

from nanobot_core._version import __version__ as __version__

# Type checkers know this name; importing it from typing would cost every command milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from nanobot_core.agent.loop import AgentRunner as AgentRunner
    from nanobot_core.agent.run import (
        AgentRunResult as AgentRunResult,
        AgentRunSpec as AgentRunSpec,
    )
    from nanobot_core.app.application import Nanobot as Nanobot, isolated_agent as isolated_agent
    from nanobot_core.app.structured import NoOutput as NoOutput, OutputInvalid as OutputInvalid
    from nanobot_core.assignment import (
        Assignment as Assignment,
        Authority as Authority,
        Delivery as Delivery,
        Requester as Requester,
        ToolRule as ToolRule,
    )
    from nanobot_core.clock import Clock as Clock, SystemClock as SystemClock
    from nanobot_core.config.models import (
        Budget as Budget,
        BudgetsSettings as BudgetsSettings,
        ChannelSettings as ChannelSettings,
        GroupSettings as GroupSettings,
        PluginSettings as PluginSettings,
        ProviderSettings as ProviderSettings,
        Settings as Settings,
    )
    from nanobot_core.config.secrets import MASK as MASK
    from nanobot_core.contracts.agent import (
        AgentAccess as AgentAccess,
        AgentTask as AgentTask,
        TaskOutcome as TaskOutcome,
    )
    from nanobot_core.contracts.bus import (
        Bus as Bus,
        BusDepth as BusDepth,
        DeadLetter as DeadLetter,
        InboundLease as InboundLease,
        Lease as Lease,
        OutboundLease as OutboundLease,
    )
    from nanobot_core.contracts.channel import (
        Channel as Channel,
        ChannelCapabilities as ChannelCapabilities,
        ChannelSpec as ChannelSpec,
        Complete as Complete,
        Draft as Draft,
        Inbox as Inbox,
    )
    from nanobot_core.contracts.client import (
        AgentClient as AgentClient,
        Decide as Decide,
        DirectTurn as DirectTurn,
        EventSink as EventSink,
        OfferedTool as OfferedTool,
        SessionAccess as SessionAccess,
        SessionEntry as SessionEntry,
        SessionHit as SessionHit,
        SessionPage as SessionPage,
    )
    from nanobot_core.contracts.context import (
        Contributed as Contributed,
        ContributionHook as ContributionHook,
        EventHook as EventHook,
        PluginContext as PluginContext,
        PluginState as PluginState,
        ToolSet as ToolSet,
    )
    from nanobot_core.contracts.isolation import (
        IsolatedPlugin as IsolatedPlugin,
        IsolatorSpec as IsolatorSpec,
    )
    from nanobot_core.contracts.job import (
        CronExpression as CronExpression,
        Every as Every,
        Fire as Fire,
        SystemJob as SystemJob,
        Trigger as Trigger,
        TriggerEvent as TriggerEvent,
    )
    from nanobot_core.contracts.login import (
        LoginFlow as LoginFlow,
        LoginPrompt as LoginPrompt,
        ProviderLogin as ProviderLogin,
    )
    from nanobot_core.contracts.memory import (
        OWNERS_MEMORY as OWNERS_MEMORY,
        Consolidated as Consolidated,
        Forgotten as Forgotten,
        HistorySpan as HistorySpan,
        MemoryAbility as MemoryAbility,
        MemoryBackend as MemoryBackend,
        MemoryEntry as MemoryEntry,
        MemoryScope as MemoryScope,
        MemorySpec as MemorySpec,
    )
    from nanobot_core.contracts.operation import (
        Configuration as Configuration,
        InstallPlan as InstallPlan,
        OpenQuestion as OpenQuestion,
        Operations as Operations,
        PlannedPlugin as PlannedPlugin,
        PluginChange as PluginChange,
        PluginEntry as PluginEntry,
        SettingsForm as SettingsForm,
        VersionChange as VersionChange,
    )
    from nanobot_core.contracts.panel import (
        Panel as Panel,
        PanelAction as PanelAction,
        PanelBars as PanelBars,
        PanelDiff as PanelDiff,
        PanelLink as PanelLink,
        PanelPart as PanelPart,
        PanelRow as PanelRow,
        PanelTable as PanelTable,
        PanelText as PanelText,
        PanelView as PanelView,
    )
    from nanobot_core.contracts.plugin import (
        Allow as Allow,
        Applied as Applied,
        Ask as Ask,
        Check as Check,
        CheckResult as CheckResult,
        CliGroup as CliGroup,
        CommandCall as CommandCall,
        CommandLine as CommandLine,
        ContextBlock as ContextBlock,
        Decision as Decision,
        Deny as Deny,
        Health as Health,
        NeedsReload as NeedsReload,
        PluginFacts as PluginFacts,
        Refuse as Refuse,
        Rewrite as Rewrite,
        SettingsChange as SettingsChange,
        SettingsSection as SettingsSection,
        SlashCommand as SlashCommand,
        StopCause as StopCause,
        Ticket as Ticket,
    )
    from nanobot_core.contracts.provider import (
        MAX_ANSWER_CHARS as MAX_ANSWER_CHARS,
        MAX_ARGUMENT_CHARS as MAX_ARGUMENT_CHARS,
        MAX_TOOL_CALLS as MAX_TOOL_CALLS,
        Ability as Ability,
        ChatRequest as ChatRequest,
        Completed as Completed,
        FinishReason as FinishReason,
        LLMProvider as LLMProvider,
        LLMResponse as LLMResponse,
        ModelCallRequested as ModelCallRequested,
        ModelInfo as ModelInfo,
        ProviderSpec as ProviderSpec,
        ReasoningDelta as ReasoningDelta,
        StreamEvent as StreamEvent,
        TextDelta as TextDelta,
        ToolCallDelta as ToolCallDelta,
    )
    from nanobot_core.contracts.service import (
        AsgiApp as AsgiApp,
        GatewayAccess as GatewayAccess,
        GatewayStatus as GatewayStatus,
        GatewayTotals as GatewayTotals,
        Mount as Mount,
        Route as Route,
        RunState as RunState,
        RunStatus as RunStatus,
        Service as Service,
        ServiceSpec as ServiceSpec,
    )
    from nanobot_core.contracts.store import (
        Checkpoint as Checkpoint,
        SessionState as SessionState,
        SessionStore as SessionStore,
        SessionSummary as SessionSummary,
        StoredSession as StoredSession,
        StoreSpec as StoreSpec,
    )
    from nanobot_core.contracts.tool import (
        DeclaredTool as DeclaredTool,
        LazyTool as LazyTool,
        Review as Review,
        Tool as Tool,
        ToolContext as ToolContext,
        ToolOutput as ToolOutput,
        ToolResult as ToolResult,
    )
    from nanobot_core.contracts.transcription import (
        TranscriberSpec as TranscriberSpec,
        TranscriptionProvider as TranscriptionProvider,
    )
    from nanobot_core.disk import corrupt_name as corrupt_name, replace_file as replace_file
    from nanobot_core.errors import (
        AnswerTooLong as AnswerTooLong,
        AuthenticationFailed as AuthenticationFailed,
        BadRequest as BadRequest,
        BudgetExceeded as BudgetExceeded,
        BusError as BusError,
        BusFull as BusFull,
        ChannelError as ChannelError,
        ConfigError as ConfigError,
        ConfigInvalid as ConfigInvalid,
        ConfigProblem as ConfigProblem,
        ConfigUnreadable as ConfigUnreadable,
        ContextTooLong as ContextTooLong,
        DeliveryError as DeliveryError,
        HookError as HookError,
        LimitError as LimitError,
        NameConflict as NameConflict,
        NanobotError as NanobotError,
        NoProvider as NoProvider,
        Overloaded as Overloaded,
        PanelError as PanelError,
        PluginError as PluginError,
        PluginLoadFailed as PluginLoadFailed,
        PluginNotFound as PluginNotFound,
        PluginRejected as PluginRejected,
        ProviderError as ProviderError,
        ProviderProtocolError as ProviderProtocolError,
        ProviderTimeout as ProviderTimeout,
        RateLimited as RateLimited,
        SessionError as SessionError,
        StateFull as StateFull,
        ToolDenied as ToolDenied,
        ToolError as ToolError,
        ToolFailed as ToolFailed,
        ToolInputError as ToolInputError,
        ToolTimeout as ToolTimeout,
        Unreachable as Unreachable,
    )
    from nanobot_core.events import (
        ApprovalRequested as ApprovalRequested,
        ApprovalResolved as ApprovalResolved,
        AssignmentFinished as AssignmentFinished,
        ContentReady as ContentReady,
        ContextRequested as ContextRequested,
        DeliveryFinished as DeliveryFinished,
        ErrorRaised as ErrorRaised,
        HookCalled as HookCalled,
        IterationFinished as IterationFinished,
        IterationStarted as IterationStarted,
        MessageComposed as MessageComposed,
        MessageReceived as MessageReceived,
        MessageSent as MessageSent,
        ModelRequested as ModelRequested,
        NoticeGiven as NoticeGiven,
        ProgressMade as ProgressMade,
        RunEvent as RunEvent,
        StopReason as StopReason,
        StreamEnded as StreamEnded,
        StreamRestarted as StreamRestarted,
        StructuredOutcome as StructuredOutcome,
        TextStreamed as TextStreamed,
        ToolBatchStarted as ToolBatchStarted,
        ToolCallFinished as ToolCallFinished,
        ToolCallProposed as ToolCallProposed,
        ToolCallStarted as ToolCallStarted,
        ToolDefinition as ToolDefinition,
        ToolOutcome as ToolOutcome,
        ToolResultReady as ToolResultReady,
        ToolsOffered as ToolsOffered,
        TurnInfo as TurnInfo,
        TurnOutcome as TurnOutcome,
        TurnSource as TurnSource,
        TurnStarted as TurnStarted,
        UsageRecorded as UsageRecorded,
        WorkStopped as WorkStopped,
    )
    from nanobot_core.folder import Folder as Folder
    from nanobot_core.hooks import specs as on
    from nanobot_core.hooks.agent_hook import AgentHook as AgentHook, CompositeHook as CompositeHook
    from nanobot_core.hooks.markers import (
        declare_chain as declare_chain,
        declare_contribution as declare_contribution,
        declare_gate as declare_gate,
        declare_observer as declare_observer,
        hookimpl as hookimpl,
    )
    from nanobot_core.media import MediaStore as MediaStore, MediaTooLarge as MediaTooLarge
    from nanobot_core.messages import (
        Button as Button,
        Content as Content,
        ContentBlock as ContentBlock,
        ImageBlock as ImageBlock,
        InboundMessage as InboundMessage,
        JsonObject as JsonObject,
        JsonValue as JsonValue,
        Message as Message,
        OutboundMessage as OutboundMessage,
        Role as Role,
        TextBlock as TextBlock,
        ToolCall as ToolCall,
        Usage as Usage,
        message_from_json as message_from_json,
        message_to_json as message_to_json,
    )
    from nanobot_core.paths import Judged as Judged, PathGuard as PathGuard
    from nanobot_core.plugins.examine import examine_plugin as examine_plugin
    from nanobot_core.plugins.manifest import (
        Declaration as Declaration,
        Manifest as Manifest,
        manifest_to_json as manifest_to_json,
    )
    from nanobot_core.private_file import (
        PrivateFile as PrivateFile,
        PrivateFileRefused as PrivateFileRefused,
        ReservedSpace as ReservedSpace,
    )
    from nanobot_core.prompts import prompt as prompt
    from nanobot_core.sign_in import (
        SignIn as SignIn,
        Tokens as Tokens,
        TokenSource as TokenSource,
        login_command as login_command,
        read_tokens as read_tokens,
        store_tokens as store_tokens,
        token_file as token_file,
    )
    from nanobot_core.tasks import (
        GatheredWork as GatheredWork,
        finish_in_thread as finish_in_thread,
    )
    from nanobot_core.text import (
        as_label as as_label,
        repair_json_object as repair_json_object,
        shorten as shorten,
        truncate_middle as truncate_middle,
    )
    from nanobot_core.thoughts import split_thoughts as split_thoughts
    from nanobot_core.tools.function import tool as tool
    from nanobot_core.tools.model import ModelTool as ModelTool
    from nanobot_core.tools.registry import ToolRegistry as ToolRegistry

_HOMES = {
    name: module
    for module, names in {
        "nanobot_core.agent.loop": "AgentRunner",
        "nanobot_core.agent.run": "AgentRunResult AgentRunSpec",
        "nanobot_core.app.application": "Nanobot isolated_agent",
        "nanobot_core.app.structured": "NoOutput OutputInvalid",
        "nanobot_core.assignment": "Assignment Authority Delivery Requester ToolRule",
        "nanobot_core.clock": "Clock SystemClock",
        "nanobot_core.config.secrets": "MASK",
        "nanobot_core.config.models": (
            "Budget BudgetsSettings ChannelSettings GroupSettings PluginSettings "
            "ProviderSettings Settings"
        ),
        "nanobot_core.contracts.bus": "Bus BusDepth DeadLetter InboundLease Lease OutboundLease",
        "nanobot_core.contracts.channel": (
            "Channel ChannelCapabilities ChannelSpec Complete Draft Inbox"
        ),
        "nanobot_core.contracts.context": (
            "Contributed ContributionHook EventHook PluginContext PluginState ToolSet"
        ),
        "nanobot_core.contracts.client": (
            "AgentClient Decide DirectTurn EventSink OfferedTool SessionAccess SessionEntry "
            "SessionHit SessionPage"
        ),
        "nanobot_core.contracts.isolation": "IsolatedPlugin IsolatorSpec",
        "nanobot_core.contracts.agent": "AgentAccess AgentTask TaskOutcome",
        "nanobot_core.contracts.login": "LoginFlow LoginPrompt ProviderLogin",
        "nanobot_core.contracts.memory": (
            "Consolidated Forgotten HistorySpan MemoryAbility MemoryBackend MemoryEntry "
            "MemoryScope MemorySpec OWNERS_MEMORY"
        ),
        "nanobot_core.contracts.operation": (
            "Configuration InstallPlan OpenQuestion Operations PlannedPlugin PluginChange "
            "PluginEntry SettingsForm VersionChange"
        ),
        "nanobot_core.contracts.panel": (
            "Panel PanelAction PanelBars PanelDiff PanelLink PanelPart PanelRow PanelTable "
            "PanelText PanelView"
        ),
        "nanobot_core.contracts.plugin": (
            "Allow Applied Ask Check CheckResult CliGroup CommandCall CommandLine ContextBlock "
            "Decision Deny Health NeedsReload PluginFacts Refuse Rewrite SettingsChange "
            "SettingsSection SlashCommand StopCause Ticket"
        ),
        "nanobot_core.contracts.provider": (
            "Ability ChatRequest Completed FinishReason LLMProvider LLMResponse MAX_ANSWER_CHARS "
            "MAX_ARGUMENT_CHARS MAX_TOOL_CALLS ModelCallRequested ModelInfo ProviderSpec "
            "ReasoningDelta StreamEvent TextDelta ToolCallDelta"
        ),
        "nanobot_core.contracts.job": "CronExpression Every Fire SystemJob Trigger TriggerEvent",
        "nanobot_core.contracts.service": (
            "AsgiApp GatewayAccess GatewayStatus GatewayTotals Mount Route RunState RunStatus "
            "Service ServiceSpec "
        ),
        "nanobot_core.contracts.store": (
            "Checkpoint SessionState SessionStore SessionSummary StoreSpec StoredSession"
        ),
        "nanobot_core.contracts.tool": (
            "DeclaredTool LazyTool Review Tool ToolContext ToolOutput ToolResult"
        ),
        "nanobot_core.contracts.transcription": "TranscriberSpec TranscriptionProvider",
        "nanobot_core.disk": "corrupt_name replace_file",
        "nanobot_core.errors": (
            "AnswerTooLong AuthenticationFailed BadRequest BudgetExceeded BusError BusFull "
            "ChannelError ConfigError ConfigInvalid ConfigProblem ConfigUnreadable ContextTooLong "
            "DeliveryError HookError LimitError NameConflict NanobotError NoProvider "
            "Overloaded PanelError PluginError PluginLoadFailed PluginNotFound "
            "PluginRejected ProviderError ProviderProtocolError ProviderTimeout RateLimited "
            "SessionError StateFull ToolDenied ToolError ToolFailed ToolInputError ToolTimeout "
            "Unreachable"
        ),
        "nanobot_core.events": (
            "ApprovalRequested ApprovalResolved AssignmentFinished "
            "ContentReady ContextRequested DeliveryFinished ErrorRaised "
            "HookCalled IterationFinished IterationStarted MessageReceived MessageComposed "
            "MessageSent ModelRequested NoticeGiven ProgressMade RunEvent StopReason "
            "StreamEnded StreamRestarted StructuredOutcome TextStreamed "
            "ToolBatchStarted ToolCallFinished ToolCallProposed ToolCallStarted ToolDefinition "
            "ToolOutcome ToolResultReady ToolsOffered TurnInfo TurnOutcome TurnSource TurnStarted "
            "UsageRecorded WorkStopped"
        ),
        "nanobot_core.folder": "Folder",
        "nanobot_core.hooks": "on",
        "nanobot_core.hooks.agent_hook": "AgentHook CompositeHook",
        "nanobot_core.hooks.markers": (
            "declare_chain declare_contribution declare_gate declare_observer hookimpl"
        ),
        "nanobot_core.media": "MediaStore MediaTooLarge",
        "nanobot_core.messages": (
            "Button Content ContentBlock ImageBlock InboundMessage JsonObject JsonValue "
            "Message OutboundMessage Role TextBlock ToolCall Usage message_from_json "
            "message_to_json"
        ),
        "nanobot_core.paths": "Judged PathGuard",
        "nanobot_core.plugins.examine": "examine_plugin",
        "nanobot_core.plugins.manifest": "Declaration Manifest manifest_to_json",
        "nanobot_core.private_file": "PrivateFile PrivateFileRefused ReservedSpace",
        "nanobot_core.prompts": "prompt",
        "nanobot_core.tasks": "GatheredWork finish_in_thread",
        "nanobot_core.text": "as_label repair_json_object shorten truncate_middle",
        "nanobot_core.thoughts": "split_thoughts",
        "nanobot_core.sign_in": (
            "SignIn TokenSource Tokens login_command read_tokens store_tokens token_file"
        ),
        "nanobot_core.tools.function": "tool",
        "nanobot_core.tools.model": "ModelTool",
        "nanobot_core.tools.registry": "ToolRegistry",
    }.items()
    for name in names.split()
}
"""Public name to the module that defines it."""

if not TYPE_CHECKING:  # type checkers take the imports above for the list
    __all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> object:
    from nanobot_core.deprecation import find_deprecation, importing_package, warn_once

    home = _HOMES.get(name)
    deprecation = find_deprecation(f"nanobot_core.{name}")
    if home is None:
        if deprecation is not None:
            # An AttributeError would become an ImportError that does not name the replacement.
            raise ImportError(deprecation.farewell)
        msg = f"module 'nanobot_core' has no attribute '{name}'"
        raise AttributeError(msg)
    module = importlib.import_module(home)
    # `on` is a submodule, the rest are attributes of one.
    value = importlib.import_module(f"{home}.specs") if name == "on" else getattr(module, name)
    if deprecation is None:
        globals()[name] = value
    else:
        # Not kept, so that each plugin that imports it is named.
        warn_once(importing_package(), deprecation)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
