"""PluginContext as the host implements it, and what is taken back when the plugin goes."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from nanobot_core.clock import Clock
from nanobot_core.contracts.tool import LazyTool, Tool
from nanobot_core.disk import make_folder
from nanobot_core.errors import FOREIGN_ERRORS, HookError, PluginRejected
from nanobot_core.hooks.implementation import HookRuntime
from nanobot_core.net.policy import PluginHosts
from nanobot_core.plugins.manifest import ANY_VARIABLE
from nanobot_core.record import dataclass
from nanobot_core.tasks import TASKS_END_S

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from loguru import Logger
    from pydantic import BaseModel

    from nanobot_core.contracts.agent import AgentAccess
    from nanobot_core.contracts.context import (
        Contributed,
        ContributionHook,
        EventHook,
        PluginContext,
    )
    from nanobot_core.contracts.service import GatewayAccess
    from nanobot_core.media import MediaStore
    from nanobot_core.messages import JsonObject
    from nanobot_core.net.policy import NetworkPolicy
    from nanobot_core.plugins.state import FileState


class PluginResources:
    """The tasks and closers of one plugin.

    Args:
        plugin_id: whose they are.
        runtime: starts tasks and receives failures.
    """

    def __init__(self, plugin_id: str, runtime: HookRuntime) -> None:
        self._plugin_id = plugin_id
        self._runtime = runtime
        self._closers: list[Callable[[], Awaitable[None] | None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run `work` until it ends or is taken back; a failure is reported."""
        task = self._runtime.spawn(self._contained(work, name), name=f"{self._plugin_id}:{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def on_dispose(self, close: Callable[[], Awaitable[None] | None]) -> None:
        """Call `close` at the end, in reverse order of registration."""
        self._closers.append(close)

    async def take_back(self) -> None:
        """Cancel the tasks, then call the closers, newest first; what fails is reported."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=TASKS_END_S)
            for task in stuck:
                self._report(task.get_name(), TimeoutError("does not end when it is cancelled"))
        while self._closers:
            close = self._closers.pop()
            try:
                async with asyncio.timeout(TASKS_END_S):
                    result = close()
                    if inspect.isawaitable(result):
                        await result
            except FOREIGN_ERRORS as error:
                self._report("on_dispose", error)

    async def _contained(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except FOREIGN_ERRORS as error:
            self._report(name, error)

    def _report(self, place: str, error: BaseException) -> None:
        problem = HookError(place, self._plugin_id, f"{type(error).__name__}: {error}")
        problem.__cause__ = error
        self._runtime.report(problem)


SettingsT = TypeVar("SettingsT", bound="BaseModel")
SharedT = TypeVar("SharedT")
ContributionT = TypeVar("ContributionT")
EventT = TypeVar("EventT")
AnswerT = TypeVar("AnswerT")
Contributions = Callable[[Any], Awaitable["Sequence[Contributed[Any]]"]]
Calls = Callable[[str, Any, object], Awaitable[Any]]

AgentOf = Callable[[str], "AgentAccess"]

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
NETWORK_VARIABLES = frozenset((*_PROXIES, *(name.lower() for name in _PROXIES)))
"""How this machine reaches the network: every plugin may know that, without declaring it."""


class PublishedTools:
    """The tools that a plugin publishes besides those it contributes."""

    def __init__(self, publish: Callable[[tuple[Tool | LazyTool, ...]], None]) -> None:
        self._publish = publish

    def replace(self, tools: Iterable[Tool | LazyTool]) -> None:
        """Publish `tools` instead of the previous set."""
        self._publish(tuple(tools))


class HostContext:
    """What one plugin may use.

    Attributes:
        id: the plugin's id.
        version: version of the plugin's distribution.
        clock: source of time.
        workspace: the agent's working folder, absolute.
        restrict_to_workspace: whether the owner confines files and commands to the workspace.
        protected_paths: files that no tool may read or write at the model's request.
        media: where files that people send and receive are kept.
        network: what may be reached at the model's request.
        tools: tools that change while the host runs.
        resources: what is released when the plugin stops.
    """

    def __init__(
        self,
        plugin_id: str,
        version: str,
        host: HostFacts,
        settings: Mapping[str, BaseModel],
        publish: Callable[[tuple[Tool | LazyTool, ...]], None],
        *,
        variables: Collection[str] = (),
        readable_hooks: Collection[str] = (),
        hosts: tuple[str, ...] = (),
    ) -> None:
        self.id = plugin_id
        self.version = version
        self.clock: Clock = host.runtime.clock
        self.workspace: Path = host.workspace
        self.restrict_to_workspace: bool = host.restrict_to_workspace
        self.protected_paths: Sequence[Path] = host.protected_paths
        self.media: MediaStore = host.media
        self.network: NetworkPolicy = host.network
        self.tools: PublishedTools = PublishedTools(publish)
        self._host = host
        self._settings = settings
        self._variables = frozenset((*variables, *NETWORK_VARIABLES))
        self._declared_hosts = hosts
        self._readable_hooks = frozenset(readable_hooks)
        self._sharing = threading.RLock()
        self._shared: dict[Callable[[PluginContext], Any], Any] = {}
        self.resources: PluginResources = PluginResources(plugin_id, host.runtime)

    @cached_property
    def logger(self) -> Logger:
        """Logger whose records carry the plugin's id."""
        from loguru import logger

        return logger.bind(plugin=self.id)

    @property
    def hosts(self) -> PluginHosts:
        """The hosts that the plugin's manifest and its settings name."""
        return PluginHosts(self._declared_hosts, configured_hosts(self._settings.values()))

    @cached_property
    def state(self) -> FileState:
        """A small durable store of the plugin's own."""
        # Most plugins do not use it.
        from nanobot_core.plugins.state import STATE_FILE, FileState

        return FileState(self.id, self.data_dir / STATE_FILE, self.logger)

    @property
    def gateway(self) -> GatewayAccess | None:
        """The gateway that the plugin runs in, or ``None``."""
        return self._host.gateway()

    @property
    def agent(self) -> AgentAccess:
        """The agent, for work that belongs to no conversation."""
        return self._host.agent(self.id)

    @property
    def timezone(self) -> ZoneInfo:
        """The owner's time zone."""
        return self._host.timezone

    @property
    def prompts_dir(self) -> Path:
        """Where the owner's replacements of the plugin's prompt texts are."""
        return self._host.home / "prompts" / self.id

    @property
    def data_dir(self) -> Path:
        """A folder of the plugin's own, created on first use."""
        folder = self._host.home / "plugins" / self.id
        make_folder(folder)
        return folder

    def settings(self, model: type[SettingsT]) -> SettingsT:
        """Return the plugin's validated section of that model."""
        for found in self._settings.values():
            if isinstance(found, model):
                return found
        raise PluginRejected(
            self.id,
            f"it asks for settings of type {model.__name__}, which it does not contribute",
            "name the model in contribute_settings",
        )

    def section(self, path: str) -> BaseModel | None:
        """Return the validated section at a key path, for the host's own use."""
        return self._settings.get(path)

    def shared(self, make: Callable[[PluginContext], SharedT]) -> SharedT:
        """Return what ``make(ctx)`` gives, made once for this context."""
        # Factories of lazy tools run in threads, and one may ask for what another is making.
        with self._sharing:
            if make not in self._shared:
                self._shared[make] = make(self)
            found: SharedT = self._shared[make]
            return found

    def adopt_settings(self, settings: Mapping[str, BaseModel]) -> Mapping[str, BaseModel]:
        """Hand out `settings` from now on; return those that were handed out so far."""
        former, self._settings = self._settings, settings
        return former

    async def contributed(
        self, hook: ContributionHook[ContributionT]
    ) -> Sequence[Contributed[ContributionT]]:
        """Return what the enabled plugins give by a hook of this plugin's own."""
        self._must_declare(hook.name, "asks for what others contribute by")
        return await self._host.contributed(hook)

    async def call(self, hook: EventHook[EventT, AnswerT], event: EventT) -> AnswerT:
        """Call a hook of this plugin's own and return the answer of those that implement it."""
        self._must_declare(hook.name, "calls")
        answer: AnswerT = await self._host.call(self.id, hook, event)
        return answer

    def _must_declare(self, hook: str, doing: str) -> None:
        if hook not in self._readable_hooks:
            raise PluginRejected(
                self.id,
                f"it {doing} '{hook}', which it does not declare",
                "name its own hooks in contribute_hookspecs, the core's in PluginFacts.reads",
            )

    def environment(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return those of the named environment variables that are set and declared."""
        found = self._host.environment(names)
        if ANY_VARIABLE in self._variables:
            return found
        if withheld := sorted(set(found) - self._variables):
            log = self.logger.warning
            log(
                "plugin '{}' asks for {}, which its manifest does not declare; its author should "
                "name it in SettingsSection.environment",
                self.id,
                ", ".join(withheld),
            )
        return {name: value for name, value in found.items() if name in self._variables}

    def conceal(self, secrets: Iterable[str], *, name: str) -> None:
        """Mask `secrets` instead of those of the previous call with the same `name`."""
        self._host.conceal(f"{self.id}:{name}", secrets)

    def redact(self, content: JsonObject) -> JsonObject:
        """Return a copy of `content` without secrets."""
        return self._host.redact(content)

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run `work` until it ends or the plugin stops; a failure is reported."""
        self.resources.spawn(work, name=name)

    def on_dispose(self, close: Callable[[], Awaitable[None] | None]) -> None:
        """Call `close` when the plugin goes, in reverse order of registration."""
        self.resources.on_dispose(close)


def configured_hosts(settings: Iterable[BaseModel | Mapping[str, object]]) -> frozenset[str]:
    """Return the hosts of the addresses in `settings`, without those of default values."""
    from pydantic import BaseModel

    found: set[str] = set()
    waiting: list[object] = list(settings)
    while waiting:
        value = waiting.pop()
        if isinstance(value, BaseModel):
            waiting.append(value.model_dump(exclude_unset=True))
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
        elif "://" in (text := str(value)):
            with suppress(ValueError):  # not an address
                found.add((urlsplit(text).hostname or "").rstrip("."))
    return frozenset(found - {""})


async def _nothing(hook: object) -> Sequence[Contributed[Any]]:
    """Return nothing: in an examination, no other plugin runs."""
    return ()


async def _unanswered(owner: str, hook: EventHook[EventT, AnswerT], event: EventT) -> AnswerT:
    """Return the answer that nothing gives: in an examination, no other plugin runs."""
    return hook.unanswered(event)


def _conceal_nothing(owner: str, secrets: Iterable[str]) -> None:
    """Do nothing: in an examination, nothing is shown."""


def no_agent(plugin_id: str) -> AgentAccess:
    """Refuse: the host belongs to no agent."""
    msg = f"plugin '{plugin_id}' asks for the agent, but none is running"
    raise RuntimeError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What all contexts of one host share.

    Attributes:
        gateway: returns the gateway that plugins run in, or ``None``.
        agent: returns the agent as the plugin of an id may use it.
        contributed: returns what plugins contribute by a hook of another plugin.
        call: calls a hook of the plugin of an id with an event.
        conceal: masks the present secrets of an owner in all texts.
        redact: returns a copy of data without secrets.
    """

    runtime: HookRuntime
    home: Path
    workspace: Path
    restrict_to_workspace: bool
    protected_paths: Sequence[Path]
    media: MediaStore
    network: NetworkPolicy
    timezone: ZoneInfo
    environment: Callable[[Iterable[str]], Mapping[str, str]]
    gateway: Callable[[], GatewayAccess | None] = lambda: None
    agent: AgentOf = no_agent
    contributed: Contributions = _nothing
    call: Calls = _unanswered
    conceal: Callable[[str, Iterable[str]], None] = _conceal_nothing
    redact: Callable[[JsonObject], JsonObject] = lambda content: content
