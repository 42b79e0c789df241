"""The settings of the core, and the base of every plugin's settings.

The file also contains the sections of plugins. The models here keep them unchanged, and
`Settings.section` returns one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
)
from pydantic.alias_generators import to_camel

from nanobot_core.config.legacy import known_effort, none_if_automatic, none_if_empty
from nanobot_core.config.tree import find_key, parse_path
from nanobot_core.messages import JsonObject

OptionalText = Annotated[str | None, BeforeValidator(none_if_empty)]
_Adapter = Annotated[str | None, BeforeValidator(none_if_automatic)]
_Effort = Annotated[Literal["none", "low", "medium", "high"] | None, BeforeValidator(known_effort)]
Section = dict[str, Any]
"""The raw mapping of a plugin; the plugin validates it."""


class PluginSettings(BaseModel):
    """Base of a plugin's settings: frozen, unknown keys are refused, and camelCase is accepted.

    A number is accepted where a text is expected, because YAML reads an unquoted chat id or token
    of digits as a number. In a file, ``timeout`` means ``timeout_s`` if that is a field.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        coerce_numbers_to_str=True,
        # Errors must not quote values, and most processes use few of the models.
        hide_input_in_errors=True,
        defer_build=True,
    )

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        """Leave out sections of plugins, which may contain secrets as plain text."""
        declared = type(self).model_fields
        return ((name, value) for name, value in super().__repr_args__() if name in declared)


class ProviderSettings(PluginSettings):
    """The section of a provider, ``providers.<name>``.

    Attributes:
        api_key: key of the service; by default the value of the vendor's environment variable.
        api_base: base URL instead of the vendor's.
        extra_headers: sent with each request.
        proxy: URL of an HTTP or SOCKS proxy.
        timeout_s: seconds that the service may send nothing.
        allow_http: send the key unencrypted to a public host.
        alternating_roles: merge neighbouring messages of the same role, for a service that refuses
            them.
    """

    api_key: Annotated[SecretStr | None, BeforeValidator(none_if_empty)] = None
    # These may contain keys as plain text.
    api_base: Annotated[OptionalText, Field(repr=False)] = None
    extra_headers: Annotated[dict[str, str], Field(repr=False)] = {}
    proxy: Annotated[OptionalText, Field(repr=False)] = None
    timeout_s: PositiveFloat = 120
    allow_http: bool = False
    alternating_roles: bool = False


class GroupSettings(PluginSettings):
    """One group chat, ``channels.<name>.groups.<chat id>``; the default is that of the channel.

    Attributes:
        policy: ``mention`` answers messages that mention the agent, ``open`` all, ``deny`` none.
        allow_from: ids or names of people who may write there.
    """

    policy: Literal["mention", "open", "deny"] | None = None
    allow_from: list[str] | None = None


class ChannelSettings(PluginSettings):
    """The section of a channel, ``channels.<name>``; channel plugins extend it.

    Attributes:
        enabled: the gateway starts the channel.
        allow_from: ids or names of people who may write; ``"*"`` means everyone.
        group_policy: ``mention`` answers messages that mention the agent, ``open`` all, ``deny``
            none.
        groups: chat id to the settings of that group.
        pairing: unknown people who write get a code that the owner can approve.
        send_progress: send the text that comes with tool calls; ``None`` as in ``channels``.
        send_tool_hints: send a line for each tool call; ``None`` as in ``channels``.
        streaming: show answers while they are written, if the platform supports it.
        rate_limit: messages per minute that one sender may send; more are refused.
    """

    enabled: bool = True
    allow_from: list[str] = []
    group_policy: Literal["mention", "open", "deny"] = "mention"
    groups: dict[str, GroupSettings] = {}
    pairing: bool = True
    send_progress: bool | None = None
    send_tool_hints: bool | None = None
    streaming: bool = True
    rate_limit: PositiveInt = 60


class OpenSection(PluginSettings):
    """A section of the core whose unknown mappings belong to plugins."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")


def _check_timezone(name: str) -> str:
    if name != "UTC":
        from zoneinfo import ZoneInfo

        try:
            ZoneInfo(name)
        except (ValueError, OSError, LookupError):
            msg = "not a time zone of the IANA database such as 'Europe/Berlin'"
            raise ValueError(msg) from None
    return name


class AgentDefaults(PluginSettings):
    """``agents.defaults``: what an agent uses by default.

    Attributes:
        workspace: folder in which the agent works.
        provider: adapter to use; ``None`` chooses it by the model.
        model: name of a model, or of a preset in ``models``.
        fallback_models: models or presets to try in order if `model` is not available.
        max_tokens: most tokens of one answer.
        context_window_tokens: most tokens of one request and its answer; a model whose window is
            known to be smaller gets less.
        temperature: ``None`` uses the default of the service.
        reasoning_effort: how much a model that can reason does so; ``None`` uses its default.
        max_tool_iterations: requests to the model in one turn; it has to answer then.
        timezone: IANA name, of the times in prompts and of jobs.
        streaming: show answers while they are written.
        max_image_side: pixels of the longer side of an image; larger ones are scaled, which needs
            the extra ``nanobot-core[images]``.
        session_store: name of the session store.
        steering: a message that arrives during a turn is added to that turn.
        transcriber: name of the transcriber; ``None`` uses the installed one if there is only one.
    """

    workspace: str = "~/.nanobot/workspace"
    model: OptionalText = None
    provider: _Adapter = None
    fallback_models: list[str] = []
    max_tokens: PositiveInt = 8192
    context_window_tokens: PositiveInt = 65_536
    temperature: NonNegativeFloat | None = None
    reasoning_effort: _Effort = None
    max_tool_iterations: PositiveInt = 200
    timezone: Annotated[str, AfterValidator(_check_timezone)] = "UTC"
    streaming: bool = True
    max_image_side: PositiveInt = 1_568
    session_store: str = "jsonl"
    steering: bool = False
    transcriber: OptionalText = None


class ModelPreset(PluginSettings):
    """One entry of ``models``: a model with its own settings.

    The name of the entry can be used wherever the name of a model can. An absent setting is that of
    ``agents.defaults``.

    Attributes:
        model: name of the model.
        provider: adapter to use; ``None`` chooses it by the model.
        fallback_models: models or presets to try in order if `model` is not available.
        max_tokens: most tokens of one answer.
        context_window_tokens: most tokens of one request and its answer.
        temperature: as in ``agents.defaults``.
        reasoning_effort: as in ``agents.defaults``.
    """

    model: str
    provider: _Adapter = None
    fallback_models: list[str] | None = None
    max_tokens: PositiveInt | None = None
    context_window_tokens: PositiveInt | None = None
    temperature: NonNegativeFloat | None = None
    reasoning_effort: _Effort = None


class AgentsSettings(PluginSettings):
    """``agents``.

    Attributes:
        max_concurrent_turns: most turns of all chats that run at the same time.
    """

    defaults: AgentDefaults = AgentDefaults.model_construct()
    max_concurrent_turns: PositiveInt = 16


class ChannelsSettings(OpenSection):
    """``channels``: the extra messages of chats. Each channel has its section here.

    Attributes:
        send_progress: send the text that comes with tool calls.
        send_tool_hints: send a line for each tool call.
        send_final_after_message: send the reply also if a tool has written to the chat.
        media_keep_days: days after which received and sent files are deleted.
    """

    send_progress: bool = True
    send_tool_hints: bool = False
    send_final_after_message: bool = False
    media_keep_days: PositiveFloat = 30


class GatewaySettings(OpenSection):
    """``gateway``: the process that runs channels and services.

    Attributes:
        host: address of its HTTP server.
        port: port of its HTTP server; 0 means a free one.
        secret: callers of the HTTP server from other machines must send it.
        bus: name of the message queue.
        max_waiting: number of waiting messages from which channels are asked to slow down.
        grace_s: seconds that turns have to finish when the gateway stops.
        patience_s: seconds after which the sender of a waiting message is notified.
        give_up_after_s: seconds after which an undelivered reply becomes a dead letter.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 18_790
    secret: Annotated[SecretStr | None, BeforeValidator(none_if_empty)] = None
    bus: str = "sqlite"
    max_waiting: PositiveInt = 10_000
    grace_s: NonNegativeFloat = 30
    patience_s: PositiveFloat = 30
    give_up_after_s: PositiveFloat = 86_400


def _check_network(network: str) -> str:
    from ipaddress import ip_network

    try:
        ip_network(network, strict=False)
    except ValueError as error:
        msg = "expected a network in CIDR form such as '192.168.0.0/16'"
        raise ValueError(msg) from error
    return network


def _refuse_argument(_pattern: object) -> None:
    msg = (
        "expected the name of the argument and a glob for its whole value, such as "
        'arguments: {path: "*.md"}'
    )
    raise ValueError(msg)


class ApprovalRule(PluginSettings):
    """What happens to matching calls; an absent condition matches everything.

    A pattern is a glob (``*``, ``?``, ``[...]``) that must match the whole value.

    Attributes:
        tool: glob of tool names. ``deny`` and ``ask`` apply to a tool under each of its names.
        arguments: argument to glob, such as ``{path: "notes/*"}``; all must match. Paths are
            relative to the workspace, or absolute if they are outside; ``allow`` must match each
            command of a command line.
        argument: refused. It was searched in every argument, so an attacker's text could match.
        channel: name of the channel of the call.
        sender: id of the sender. Without one, ``allow`` applies to the owner only.
        action: run the call, ask the owner, or refuse.
    """

    tool: str
    arguments: dict[str, str] = {}
    argument: Annotated[None, BeforeValidator(_refuse_argument)] = None
    channel: str | None = None
    sender: str | None = None
    action: Literal["allow", "ask", "deny"]


class GuestsSettings(PluginSettings):
    """``tools.guests``: what senders other than the owner may use.

    Attributes:
        allow: globs of tools for guests, besides those that are meant for guests.
        files: ``own`` gives each guest a separate folder, ``workspace`` the agent's; in both,
            changes to the agent's instructions need the owner's approval.
    """

    allow: list[str] = []
    files: Literal["own", "workspace"] = "own"


class ToolsSettings(OpenSection):
    """``tools``: settings of all tools. Each family of tools has its section here.

    Attributes:
        restrict_to_workspace: refuse files outside the workspace; otherwise the owner is asked.
        allow: globs of tools that a turn may use.
        deny: globs of tools that it must not use; they override `allow`.
        aliases: name for the model to full name of the tool.
        timeout_s: seconds for a tool without its own limit.
        max_tool_result_chars: longer results are cut, and kept completely in a file.
        result_keep_days: days after which those files are deleted.
        max_repeats: equal calls with equal results after which the call is refused; after twice
            as many the run ends.
        max_parallel: calls that run concurrently in one turn.
        guests: what senders other than the owner may use.
        approval: rules in order; the first that matches decides.
        approval_timeout_s: seconds after which an unanswered question means no.
        ssrf_whitelist: private networks (CIDR) that guarded requests may reach.
    """

    restrict_to_workspace: bool = False
    allow: list[str] = ["*"]
    deny: list[str] = []
    aliases: dict[str, str] = {}
    timeout_s: PositiveFloat = 120
    max_tool_result_chars: PositiveInt = 16_000
    result_keep_days: PositiveFloat = 7
    max_repeats: PositiveInt = 6
    max_parallel: PositiveInt = 8
    guests: GuestsSettings = GuestsSettings.model_construct()
    approval: list[ApprovalRule] = []
    approval_timeout_s: PositiveFloat = 300
    ssrf_whitelist: list[Annotated[str, AfterValidator(_check_network)]] = []


class Budget(PluginSettings):
    """Limits; ``None`` means no limit.

    Attributes:
        tokens: of requests and answers together.
        usd: US dollars.
    """

    tokens: NonNegativeInt | None = None
    usd: NonNegativeFloat | None = None


class BudgetsSettings(PluginSettings):
    """``budgets``: limits for each turn, session and day."""

    turn: Budget = Budget.model_construct()
    session: Budget = Budget.model_construct()
    day: Budget = Budget.model_construct()


class MemorySettings(PluginSettings):
    """``memory``: backend and whose memories are shared; other keys are a plugin's.

    Attributes:
        backend: name of the backend, or ``none``; ``None`` uses the installed one if there is only
            one.
        scope: who shares a memory.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

    backend: OptionalText = None
    scope: Literal["shared", "channel", "chat", "sender"] = "sender"


def _by_id(value: object) -> object:
    """Read a list of ids as a mapping without values."""
    return dict.fromkeys(value) if isinstance(value, list) else value


class PluginsSettings(PluginSettings):
    """``plugins``: which plugins run.

    Attributes:
        policy: ``direct`` leaves out plugins that were installed only as a dependency, ``listed``
            runs only those in `enabled`, ``all`` runs all.
        enabled: ids of plugins that run although the policy leaves them out.
        disabled: ids of plugins that never run.
        required: the start fails if one of these cannot run.
        order: hook to plugins in the order in which they are called.
        isolate: tool plugins that run in a separate process and environment, each with the path of
            its interpreter; by default that of ``environments/<id>``.
        install: requirements that ``nanobot plugins sync`` installs, such as ``nanobot-web>=0.1``
            or ``nanobot-weather @ file:../weather``; paths start at the folder of the file.
        indexes: URLs and paths of further indexes of plugins.
        local: paths of single-file plugins.
        limits: hook to seconds one implementation may take.
        failures: hook to ``closed`` (a gate that fails refuses, a chain that fails stops what it
            processes) or ``open`` (what they process passes), instead of the rule of its kind.
            Keys as those of `limits`: ``weather.authorize_tool_call`` is for one plugin.
    """

    policy: Literal["direct", "listed", "all"] = "direct"
    enabled: list[str] = []
    disabled: list[str] = []
    required: list[str] = []
    order: dict[str, list[str]] = {}
    isolate: Annotated[dict[str, OptionalText], BeforeValidator(_by_id)] = {}
    install: list[str] = []
    indexes: list[str] = []
    local: list[str] = []
    limits: dict[str, PositiveFloat] = {}
    failures: dict[str, Literal["open", "closed"]] = {}


class LoggingSettings(PluginSettings):
    """``logging``: what the log of a gateway contains.

    Attributes:
        level: lowest level.
        as_json: write JSON lines into the file.
        file: write a file besides standard error.
    """

    level: Literal["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    as_json: Annotated[bool, Field(alias="json")] = False
    file: bool = True


class Settings(OpenSection):
    """The whole configuration; unknown keys at the top belong to plugins.

    Attributes:
        profiles: name to an overlay of this whole structure, not yet expanded.
        providers: name to the raw section of a provider.
        models: name to a preset: the name of a model, or a model with its own settings.
        owner: sender ids that may control the agent from a chat.
    """

    agents: AgentsSettings = AgentsSettings.model_construct()
    channels: ChannelsSettings = ChannelsSettings.model_construct()
    gateway: GatewaySettings = GatewaySettings.model_construct()
    tools: ToolsSettings = ToolsSettings.model_construct()
    budgets: BudgetsSettings = BudgetsSettings.model_construct()
    memory: MemorySettings = MemorySettings.model_construct()
    plugins: PluginsSettings = PluginsSettings.model_construct()
    profiles: Annotated[dict[str, Section], Field(repr=False)] = {}
    providers: Annotated[dict[str, Section], Field(repr=False)] = {}
    models: dict[str, ModelPreset | str] = {}
    logging: LoggingSettings = LoggingSettings.model_construct()
    owner: list[str] = []

    def preset(self, name: str | None) -> ModelPreset | None:
        """Return the preset with this name, or ``None``."""
        found = self.models.get(name or "")
        return ModelPreset(model=found) if isinstance(found, str) else found

    def section(self, path: str) -> JsonObject | None:
        """Return the mapping at a key path such as ``channels.telegram``, placeholders expanded.

        Args:
            path: keys joined by dots, in any spelling.

        Returns:
            The raw mapping, or ``None`` if it is absent or not a mapping. A section of the
            core has only the keys that are configured.
        """
        current: object = self
        for step in parse_path(path):
            if isinstance(current, BaseModel):
                current = {**dict(current), **(current.model_extra or {})}
            key = find_key(current, str(step)) if isinstance(current, dict) else None
            if key is None or not isinstance(current, dict):
                return None
            current = current[key]
        if isinstance(current, BaseModel):
            return current.model_dump(exclude_unset=True)
        return current if isinstance(current, dict) else None
