"""A plugin's context and its gateway, without a host."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from zoneinfo import ZoneInfo

from nanobot_core.assignment import Assignment, Requester
from nanobot_core.clock import Clock
from nanobot_core.config.secrets import Redactor, mask_tree
from nanobot_core.contracts.agent import AgentTask, TaskOutcome
from nanobot_core.contracts.bus import BusDepth
from nanobot_core.contracts.service import AsgiApp, GatewayStatus, Mount, Route
from nanobot_core.contracts.tool import LazyTool, Tool
from nanobot_core.errors import PluginRejected
from nanobot_core.events import TurnInfo, TurnOutcome
from nanobot_core.media import MediaStore
from nanobot_core.messages import InboundMessage, JsonObject, JsonValue, Usage
from nanobot_core.net.policy import NetworkPolicy, PluginHosts
from nanobot_core.paths import PathGuard
from nanobot_core.plugins.context import configured_hosts
from nanobot_core.plugins.state import STATE_FILE, FileState
from nanobot_core.testing.clock import FakeClock

if TYPE_CHECKING:
    from loguru import Logger
    from pydantic import BaseModel, SecretStr

    from nanobot_core.contracts.client import AgentClient, EventSink
    from nanobot_core.contracts.context import (
        Contributed,
        ContributionHook,
        EventHook,
        PluginContext,
    )
    from nanobot_core.contracts.operation import Operations
    from nanobot_core.contracts.service import GatewayAccess

    SettingsT = TypeVar("SettingsT", bound=BaseModel)

SharedT = TypeVar("SharedT")
ContributionT = TypeVar("ContributionT")
EventT = TypeVar("EventT")
AnswerT = TypeVar("AnswerT")


SETTLE_LIMIT_S = 10.0
_START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeGateway:
    """A `GatewayAccess` whose state a test sets.

    Attributes:
        address: host and port that the owner has set for the HTTP server.
        secret: what callers of the HTTP server must know, or ``None``.
        current: what `status` returns.
        offered: what `commands` returns.
        mounted: what `routes` returns, sorted.
        assigned: messages of the work that plugins assigned, in order.
        stopped: plugin and id of the work that plugins stopped.
        shown: chat and text of the lines that plugins showed.
        notices: to the owner, by key.
        owners_chat: channel and chat in which the owner last wrote.

    Args:
        address: see above; a free port of the loopback by default.
        secret: see above.
        client: what `client` returns.
        operations: what `operations` returns.
    """

    def __init__(
        self,
        address: tuple[str, int] = ("127.0.0.1", 0),
        secret: SecretStr | None = None,
        *,
        client: AgentClient | None = None,
        operations: Operations | None = None,
    ) -> None:
        self._client = client
        self._operations = operations
        self.address: tuple[str, int] = address
        self.secret: SecretStr | None = secret
        self.current: GatewayStatus = GatewayStatus(
            version="0.0.0",
            pid=1,
            started_at=_START,
            ready=True,
            running=(),
            depth=BusDepth(inbound=0, outbound=0, dead=0),
            turns=0,
        )
        self.offered: dict[str, str] = {}
        self.mounted: list[Route] = []
        self.assigned: list[InboundMessage] = []
        self.stopped: list[tuple[str, str]] = []
        self.shown: list[tuple[str, str]] = []
        self.notices: dict[str, str] = {}
        self.owners_chat: tuple[str, str] | None = None
        self._instances: Counter[str] = Counter()

    def mount(
        self,
        path: str,
        load: Callable[[], Awaitable[AsgiApp]],
        *,
        access: Literal["open", "token"] = "token",
        plugin: str = "example",
        start_limit_s: float | None = None,
        max_body_bytes: int | None = None,
        encoded_slash: bool = False,
    ) -> None:
        """Add a route; one that was mounted before counts as reloaded."""
        mount = Mount(
            path=path,
            app=f"{plugin}:app",
            access=access,
            start_limit_s=start_limit_s,
            max_body_bytes=max_body_bytes,
            encoded_slash=encoded_slash,
        )
        self._instances[path] += 1
        route = Route(plugin=plugin, mount=mount, load=load, instance=self._instances[path])
        self.mounted.append(route)

    @property
    def client(self) -> AgentClient:
        """What the test has given."""
        assert self._client is not None, "give the FakeGateway a client"
        return self._client

    @property
    def operations(self) -> Operations:
        """What the test has given."""
        assert self._operations is not None, "give the FakeGateway operations"
        return self._operations

    async def status(self) -> GatewayStatus:
        """Return what the test has set."""
        return self.current

    def commands(self) -> Mapping[str, str]:
        """Return what the test has set."""
        return self.offered

    def routes(self) -> Sequence[Route]:
        """Return what is mounted, longest paths first."""
        return sorted(self.mounted, key=lambda route: -len(route.mount.path))

    async def assign(self, assignment: Assignment, content: str) -> bool:
        """Keep work as its message; the same work is a repetition."""
        message = InboundMessage.of(assignment, content)
        if any(message.id == known.id for known in self.assigned):
            return False
        self.assigned.append(message)
        return True

    async def stop_work(self, plugin: str, work_id: str) -> bool:
        """Keep the name of the work; whether it was given."""
        self.stopped.append((plugin, work_id))
        return any(message.id == f"{plugin}/{work_id}" for message in self.assigned)

    async def show(self, requester: Requester, text: str) -> None:
        """Keep a line."""
        self.shown.append((requester.chat_id, text))

    async def notify_owner(self, text: str, key: str) -> None:
        """Keep a notice, once for each key."""
        self.notices.setdefault(key, text)


class FakeAgent:
    """An `AgentAccess` without a model.

    Attributes:
        tasks: what was asked for, in order.
        answer: returns the answer to a task, or raises; by default the text of its last message.
        budget: what `context_budget` returns.
        assignments: what the plugin gave with `work`, in order.
        deleted: keys of sessions that the plugin has deleted.
    """

    def __init__(self) -> None:
        self.tasks: list[AgentTask] = []
        self.assignments: list[tuple[Assignment, str]] = []
        self.deleted: list[str] = []
        self.answer: Callable[[AgentTask], str | TaskOutcome] = lambda task: task.messages[-1].text
        self.budget: int = 40_000

    async def run(self, task: AgentTask, on_event: EventSink | None = None) -> TaskOutcome:
        """Keep the task and answer it; its tools are not called, and there are no events."""
        self.tasks.append(task)
        answer = self.answer(task)
        if isinstance(answer, TaskOutcome):
            return answer
        return TaskOutcome(content=answer, stop_reason="completed", usage=Usage())

    async def work(self, assignment: Assignment, content: str) -> TurnOutcome:
        """Keep the assignment and repeat its task as the answer."""
        self.assignments.append((assignment, content))
        turn = TurnInfo(
            id=assignment.id,
            session_key=assignment.session_key,
            channel=assignment.requester.channel,
            chat_id=assignment.requester.chat_id,
            sender_id=assignment.requester.sender_id,
            source=assignment.source,
            assignment=assignment,
        )
        return TurnOutcome(turn=turn, reply=content)

    async def delete_session(self, key: str) -> bool:
        """Keep the key."""
        self.deleted.append(key)
        return True

    def context_budget(self) -> int:
        """Return what the test has set."""
        return self.budget


class FakeToolSet:
    """Keeps what a plugin published.

    Attributes:
        published: the sets in the order in which they replaced each other.
    """

    def __init__(self) -> None:
        self.published: list[tuple[Tool | LazyTool, ...]] = []

    def replace(self, tools: Iterable[Tool | LazyTool]) -> None:
        """Record `tools` as the newest set."""
        self.published.append(tuple(tools))


class FakePluginContext:
    """A `PluginContext` on a temporary folder.

    ``async with`` is the plugin's life: at its end, spawned work is cancelled, then the
    registered closers run in reverse order. A failure of spawned work fails the test.

    Attributes:
        id: the plugin's id.
        version: version of the plugin's distribution.
        clock: source of time.
        workspace: the agent's working folder, exists.
        restrict_to_workspace: whether files and commands are confined to it.
        media: a store below the folder of the test.
        network: which addresses are allowed; loopback by default.
        timezone: the owner's time zone, UTC unless a test sets it.
        gateway: the gateway, or ``None``.
        agent: keeps the tasks that the plugin gives to the agent, and answers as a test says.
        tools: keeps the tools that the plugin publishes.
        declared_hosts: what the plugin's manifest declares; a test sets it.
        state: the plugin's small store, as a host provides it.
        concealed: the secrets that the plugin conceals, by name.
        implementations: what implements the plugin's own hooks, by name: functions of the event
            that a test sets.

    Args:
        tmp_path: folder of the test; workspace and data folder are made below it.
        settings: the plugin's section, as in a configuration or as an instance.
        plugin_id: the plugin's id.
        environment: the environment variables that are set.
        clock: source of time; a `FakeClock` by default.
        restrict_to_workspace: see above.
        network: see above.
        gateway: see above.
        contributions: contributions of other plugins, by name of the hook.
    """

    def __init__(
        self,
        tmp_path: Path,
        *,
        settings: BaseModel | Mapping[str, JsonValue] | None = None,
        plugin_id: str = "example",
        environment: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        restrict_to_workspace: bool = False,
        network: NetworkPolicy | None = None,
        gateway: GatewayAccess | None = None,
        contributions: Mapping[str, Sequence[Contributed[Any]]] | None = None,
    ) -> None:
        self.id = plugin_id
        self.version = "0.0.0"
        self.clock: Clock = clock or FakeClock()
        self.workspace: Path = tmp_path.resolve() / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.restrict_to_workspace = restrict_to_workspace
        self.media: MediaStore = MediaStore(tmp_path.resolve() / "media")
        self.network: NetworkPolicy = network or NetworkPolicy(("127.0.0.0/8", "::1/128"))
        self.timezone: ZoneInfo = ZoneInfo("UTC")
        self.gateway: GatewayAccess | None = gateway
        self.agent: FakeAgent = FakeAgent()
        self.tools: FakeToolSet = FakeToolSet()
        self.concealed: dict[str, frozenset[str]] = {}
        self.declared_hosts: tuple[str, ...] = ()
        self._data_dir = tmp_path.resolve() / "data" / plugin_id
        self.implementations: dict[str, Callable[[Any], Any]] = {}
        self._contributions = dict(contributions or {})
        self._settings = {} if settings is None else settings
        self.state: FileState = FileState(plugin_id, self._data_dir / STATE_FILE, self.logger)
        self._environment = dict(environment or {})
        self._shared: dict[Callable[[PluginContext], Any], Any] = {}
        self._group: asyncio.TaskGroup | None = None
        self._spawned: list[asyncio.Task[None]] = []
        self._closers = AsyncExitStack()

    @property
    def logger(self) -> Logger:
        """Logger whose records carry the plugin's id."""
        from loguru import logger

        return logger.bind(plugin=self.id)

    @property
    def protected_paths(self) -> Sequence[Path]:
        """A configuration file in the folder of the test."""
        return (self._data_dir.parent / "config.yaml",)

    @property
    def files(self) -> PathGuard:
        """What the owner's calls may use: see `ToolContext.files`."""
        return PathGuard(
            self.workspace,
            restricted=self.restrict_to_workspace,
            protected=self.protected_paths,
            unlisted=self.media.folder,
        )

    @property
    def hosts(self) -> PluginHosts:
        """The hosts that the test declares, and those of addresses in the given settings."""
        return PluginHosts(self.declared_hosts, configured_hosts([self._settings]))

    @property
    def prompts_dir(self) -> Path:
        """A folder that a test can fill."""
        return self._data_dir.parents[1] / "prompts" / self.id

    @property
    def data_dir(self) -> Path:
        """A folder of the plugin's own; created on first use."""
        self._data_dir.mkdir(parents=True, exist_ok=True)
        return self._data_dir

    def settings(self, model: type[SettingsT]) -> SettingsT:
        """Return the given section as an instance of `model`.

        Raises:
            PluginRejected: the given instance is one of another model.
        """
        if isinstance(self._settings, Mapping):
            return model.model_validate(self._settings)
        if not isinstance(self._settings, model):
            found = type(self._settings).__name__
            raise PluginRejected(self.id, f"settings are a {found}, wanted {model.__name__}")
        return self._settings

    def shared(self, make: Callable[[PluginContext], SharedT]) -> SharedT:
        """Return the result of ``make(ctx)``, called once for this context."""
        if make not in self._shared:
            self._shared[make] = make(self)
        found: SharedT = self._shared[make]
        return found

    async def contributed(
        self, hook: ContributionHook[ContributionT]
    ) -> Sequence[Contributed[ContributionT]]:
        """Return the contributions to that hook."""
        return self._contributions.get(hook.name, ())

    async def call(self, hook: EventHook[EventT, AnswerT], event: EventT) -> AnswerT:
        """Return the answer of the function that the test set, else that of nothing."""
        function = self.implementations.get(hook.name)
        answer: AnswerT | None = None if function is None else function(event)
        return hook.unanswered(event) if answer is None else answer

    def environment(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return those of the named variables that were given."""
        return {name: self._environment[name] for name in names if name in self._environment}

    def conceal(self, secrets: Iterable[str], *, name: str) -> None:
        """Keep `secrets` instead of those of the previous call with the same `name`."""
        self.concealed[name] = frozenset(secrets)

    def redact(self, content: JsonObject) -> JsonObject:
        """Mask what is concealed, and what a key names as a secret."""
        concealed = frozenset[str]().union(*self.concealed.values())
        return mask_tree(content, Redactor(concealed))

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run `work` until it ends or the context is left.

        Raises:
            RuntimeError: the context was not entered.
        """
        if self._group is None:
            work.close()
            msg = f"cannot spawn '{name}': enter the context first (async with)"
            raise RuntimeError(msg)
        self._spawned.append(self._group.create_task(work, name=name))

    def on_dispose(self, close: Callable[[], Awaitable[None] | None]) -> None:
        """Call `close` when the context is left, in reverse order of registration."""
        self._closers.push_async_callback(_close, close)

    async def settle(self) -> None:
        """Wait until the spawned work has ended.

        Raises:
            TimeoutError: it takes longer than `SETTLE_LIMIT_S`.
        """
        async with asyncio.timeout(SETTLE_LIMIT_S):
            while running := [task for task in self._spawned if not task.done()]:
                await asyncio.wait(running)

    async def __aenter__(self) -> FakePluginContext:
        self._group = await asyncio.TaskGroup().__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        group, self._group = self._group, None
        for task in self._spawned:
            task.cancel()
        try:
            if group is not None:
                # A task group wraps what the body raises, so it sees only its own cancellation.
                if isinstance(error, asyncio.CancelledError):
                    await group.__aexit__(kind, error, traceback)
                else:
                    await group.__aexit__(None, None, None)
        finally:
            await self._closers.aclose()


async def _close(close: Callable[[], Awaitable[None] | None]) -> None:
    result = close()
    if inspect.isawaitable(result):
        await result
