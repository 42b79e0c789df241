"""PluginContext: everything that the host provides to a plugin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from loguru import Logger
    from pydantic import BaseModel

    from nanobot_core.clock import Clock
    from nanobot_core.contracts.agent import AgentAccess
    from nanobot_core.contracts.service import GatewayAccess
    from nanobot_core.contracts.tool import LazyTool, Tool
    from nanobot_core.media import MediaStore
    from nanobot_core.messages import JsonObject, JsonValue
    from nanobot_core.net.policy import NetworkPolicy, PluginHosts

    SettingsT = TypeVar("SettingsT", bound=BaseModel)

SharedT = TypeVar("SharedT")
ContributionT = TypeVar("ContributionT")
ContributionT_co = TypeVar("ContributionT_co", covariant=True)
EventT = TypeVar("EventT")
EventT_contra = TypeVar("EventT_contra", contravariant=True)
AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Contributed(Generic[ContributionT]):
    """A contribution, and the id of its plugin."""

    plugin: str
    value: ContributionT


class ContributionHook(Protocol[ContributionT_co]):
    """A hook with which plugins contribute to another plugin, made by `declare_contribution`."""

    @property
    def name(self) -> str:
        """The hook's name."""

    @property
    def declaration(self) -> Callable[[PluginContext], Iterable[ContributionT_co]]:
        """The function whose signature and docstring are the contract."""


class EventHook(Protocol[EventT_contra, AnswerT_co]):
    """A hook that a plugin calls with an event.

    It is made by `declare_observer`, `declare_gate` or `declare_chain`.
    """

    @property
    def name(self) -> str:
        """The hook's name."""

    @property
    def unanswered(self) -> Callable[[EventT_contra], AnswerT_co]:
        """Returns the answer to an event if nothing implements the hook."""


class PluginState(Protocol):
    """A small store of one plugin's own, for JSON data: at most a million bytes together.

    A change is complete on disk when the call returns, and after a crash the store has the values
    before it or after it. Tasks and processes may use it at the same time. A damaged file is
    renamed and reported, and the store begins empty. For more data, use `PluginContext.data_dir`.

    All calls raise:
        PrivateFileRefused: other accounts have access to the file.
        OSError: it cannot be read or written.
    """

    async def get(self, key: str, default: JsonValue = None) -> JsonValue:
        """Return the value of a key, as a copy; `default` if it has none."""

    async def keys(self) -> tuple[str, ...]:
        """Return the keys, in the order of their first values."""

    async def set(self, key: str, value: JsonValue) -> None:
        """Store a value; errors as `update`."""

    async def delete(self, key: str) -> None:
        """Remove a key; without the key, nothing happens."""

    async def update(self, key: str, change: Callable[[JsonValue], JsonValue]) -> JsonValue:
        """Replace a value by what ``change(value)`` returns, and return that.

        Nothing else changes the store meanwhile, so that it can count.

        Args:
            key: what to change.
            change: called in the event loop; gets ``None`` if the key has no value.

        Raises:
            TypeError: the value is no JSON data.
            StateFull: the store would exceed its limit; it is unchanged.
            TimeoutError: another process works with the store for longer than 30 seconds.
        """


class ToolSet(Protocol):
    """The tools that a plugin publishes besides those it contributes at start."""

    def replace(self, tools: Iterable[Tool | LazyTool]) -> None:
        """Publish `tools` instead of the previous set, as one change of the registry.

        Raises:
            PluginRejected: a tool is malformed or its name does not match the declared pattern.
            NameConflict: another plugin has the name.
        """


class PluginContext(Protocol):
    """What a plugin may use of its host. It never hands over the application itself."""

    @property
    def id(self) -> str:
        """The plugin's id."""

    @property
    def version(self) -> str:
        """Version of the plugin's distribution."""

    @property
    def logger(self) -> Logger:
        """Logger whose records carry the plugin's id."""

    @property
    def clock(self) -> Clock:
        """Source of time."""

    @property
    def timezone(self) -> ZoneInfo:
        """The owner's time zone, ``agents.defaults.timezone``."""

    @property
    def workspace(self) -> Path:
        """The agent's working folder, absolute."""

    @property
    def restrict_to_workspace(self) -> bool:
        """Whether the owner confines files and commands to the workspace."""

    @property
    def protected_paths(self) -> Sequence[Path]:
        """Files and folders that no tool may read or write at the model's request.

        nanobot's own folder, the configuration and the files that it names. The workspace and the
        media store stay open even inside one of these folders.
        """

    @property
    def data_dir(self) -> Path:
        """A folder of the plugin's own that outlives the process; created on first use."""

    @property
    def prompts_dir(self) -> Path:
        """The owner's replacements of the plugin's prompt texts, see `prompt`; it may not exist."""

    @property
    def media(self) -> MediaStore:
        """Where files that people send and receive are kept."""

    @property
    def network(self) -> NetworkPolicy:
        """The addresses that a model's requests may reach; see `nanobot_core.net`."""

    @property
    def hosts(self) -> PluginHosts:
        """The hosts that the plugin's manifest and its settings name."""

    @property
    def state(self) -> PluginState:
        """A small durable store of the plugin's own."""

    @property
    def gateway(self) -> GatewayAccess | None:
        """The gateway that the plugin runs in; ``None`` outside a gateway."""

    @property
    def agent(self) -> AgentAccess:
        """The agent, for work that belongs to no conversation, such as a summary."""

    @property
    def tools(self) -> ToolSet:
        """Tools that change while the host runs."""

    def settings(self, model: type[SettingsT]) -> SettingsT:
        """Return the plugin's validated section.

        Args:
            model: the model that the plugin named in ``contribute_settings``.

        Raises:
            PluginRejected: the plugin contributes no settings of that model.
        """

    def shared(self, make: Callable[[PluginContext], SharedT]) -> SharedT:
        """Return the result of ``make(ctx)``, which is called once for this context.

        The tools and hooks of a plugin are created separately. With this they share an object,
        without state in a module, which two applications would share.
        """

    async def contributed(
        self, hook: ContributionHook[ContributionT]
    ) -> Sequence[Contributed[ContributionT]]:
        """Return what the enabled plugins contribute to a hook, in their order.

        The hook is one of this plugin, or one of the core whose contributions are objects, such as
        ``on.contribute_jobs``.

        They are activated if necessary; one that fails is reported and left out. Call it when the
        contributions are needed, not in ``start``: plugins may be added and removed. A plugin gives
        the same objects until it is replaced or applies other settings.

        Args:
            hook: see above; this plugin's own hooks are those in its ``contribute_hookspecs``.

        Raises:
            PluginRejected: it may not read this hook.
        """

    async def call(self, hook: EventHook[EventT, AnswerT], event: EventT) -> AnswerT:
        """Call a hook of this plugin's own and return the answer of those that implement it.

        The enabled plugins that implement it are activated if necessary, and called in their order,
        each with a time limit. One that fails is reported and passed over; of a gate, it refuses.
        Not in ``start``: the plugin is not active yet.

        Args:
            hook: one of those in this plugin's ``contribute_hookspecs``.
            event: passed to each implementation.

        Returns:
            Of a gate the first `Refuse` or None, of a chain the field as the last one left it, of
            an observer None.

        Raises:
            PluginRejected: the plugin does not declare the hook, or is not active.
            HookError: an implementation of a chain failed and is marked critical.
        """

    def environment(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return those of the named environment variables that are set."""

    def conceal(self, secrets: Iterable[str], *, name: str) -> None:
        """Mask `secrets` in logs, errors, and what models and people read.

        For secrets that are not part of the settings, such as the tokens of a login. They replace
        those of the previous call with the same `name`.
        """

    def redact(self, content: JsonObject) -> JsonObject:
        """Return a copy of `content` without secrets, to be stored or shown to a person.

        Masks the secrets of the configuration and of all plugins, also those concealed, and
        whatever a key names as one, such as ``api_key``.
        """

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run `work` beside the host until it ends or the plugin stops; a failure is reported."""

    def on_dispose(self, close: Callable[[], Awaitable[None] | None]) -> None:
        """Call `close` when the plugin stops, in reverse order of registration."""
