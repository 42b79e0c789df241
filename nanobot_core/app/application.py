"""Nanobot: the agent with its plugins, and the interface of the Python SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from nanobot_core.agent.always import AlwaysAllowed
from nanobot_core.agent.approval import ApprovalPolicy
from nanobot_core.agent.cool_down import CoolDowns
from nanobot_core.agent.instructions import Instructions
from nanobot_core.agent.loop import AgentRunner
from nanobot_core.agent.request import RequestBuilder
from nanobot_core.agent.results import ResultFiles
from nanobot_core.app.direct import DirectClient
from nanobot_core.app.logging import configure_logging, quiet_unless_configured
from nanobot_core.app.models import ConfiguredModels
from nanobot_core.app.slots import create_memory, create_session_store, create_transcriber
from nanobot_core.app.workspace import prepare_workspace
from nanobot_core.clock import Clock, SystemClock
from nanobot_core.config.loading import LoadedConfig, load_config
from nanobot_core.config.models import Settings
from nanobot_core.config.secrets import environment_secrets, find_secrets, maskable
from nanobot_core.disk import tighten
from nanobot_core.events import RunEvent, TurnOutcome
from nanobot_core.folder import Folder
from nanobot_core.ids import new_id
from nanobot_core.messages import InboundMessage, JsonValue
from nanobot_core.plugins.catalogue import Catalogue, PluginFilter
from nanobot_core.plugins.host import PluginHost
from nanobot_core.sessions.session import Sessions
from nanobot_core.tasks import PART_END_S, TaskOwner
from nanobot_core.tools.registry import ToolRegistry
from nanobot_core.turns.commands import Commands
from nanobot_core.turns.locks import SessionLocks
from nanobot_core.turns.memory import SessionMemory
from nanobot_core.turns.pipeline import TurnPipeline
from nanobot_core.turns.plugin_tasks import PluginTasks
from nanobot_core.turns.reach import Reach
from nanobot_core.turns.request import TurnPorts, TurnRequest
from nanobot_core.turns.setup import TurnSetup

if TYPE_CHECKING:
    from pydantic import BaseModel

    from nanobot_core.contracts.memory import MemoryBackend
    from nanobot_core.contracts.store import SessionStore
    from nanobot_core.contracts.transcription import TranscriptionProvider
    from nanobot_core.events import StructuredOutcome
    from nanobot_core.hooks.agent_hook import AgentHook
    from nanobot_core.plugins.change import Reconfiguration
    from nanobot_core.tasks import Spawn

OutputT = TypeVar("OutputT", bound="BaseModel")
FIXED = (
    "agents.defaults.workspace",
    "agents.defaults.session_store",
    "agents.defaults.transcriber",
    "agents.defaults.steering",
    "agents.max_concurrent_turns",
    "memory.backend",
    "gateway.bus",
    "gateway.host",
    "gateway.max_waiting",
    "gateway.port",
)
"""Key paths whose change requires a restart."""
EVENT_QUEUE_LIMIT = 1_000


class Nanobot:
    """An agent with its plugins.

    Use it as an async context manager::

        async with Nanobot.from_config() as bot:
            outcome = await bot.run("What is in this folder?")
            print(outcome.reply)

    Attributes:
        loaded: the present configuration.
        plugins: the plugin host; ``await plugins.register(obj)`` adds a plugin of the program.
        cool_downs: providers that are left out of chains because they failed.
        models: the configured models and presets.
        client: the agent, for programs that people work with.
    """

    def __init__(
        self,
        loaded: LoadedConfig,
        *,
        plugin_filter: PluginFilter | None = None,
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
        catalogue: Catalogue | None = None,
    ) -> None:
        quiet_unless_configured()
        catalogue = catalogue or Catalogue.load(
            loaded.home / "cache", loaded.settings.plugins, plugin_filter
        )
        self.loaded: LoadedConfig = _with_declared_secrets(loaded, catalogue)
        self._clock = clock or SystemClock()
        self._tasks = TaskOwner()
        self._turns = TaskOwner()
        self.plugins: PluginHost = PluginHost(
            catalogue,
            self.loaded,
            spawn=self._tasks.spawn,
            clock=self._clock,
            environ=environ,
            agent=lambda plugin: PluginTasks(plugin, self._running),
        )
        self.cool_downs: CoolDowns = CoolDowns(self._clock)
        self.models: ConfiguredModels = ConfiguredModels(
            self.plugins, self.loaded, environ, spawn=self._tasks.spawn
        )
        self.client: DirectClient = DirectClient(self._running, self.models)
        self._pipeline: TurnPipeline | None = None
        self._workspace = Folder(self.loaded.workspace)
        self._results = ResultFiles(self._workspace)
        self._store: SessionStore | None = None
        self._memory: MemoryBackend | None = None

    @classmethod
    def from_config(
        cls,
        path: Path | None = None,
        *,
        overrides: Mapping[str, JsonValue] | None = None,
        profile: str | None = None,
        home: Path | None = None,
        safe: bool = False,
        without: Collection[str] = (),
    ) -> Self:
        """Return an agent for a configuration file.

        Args:
            path: the file; ``None`` for the usual places, which may have none.
            overrides: values by key path, which replace all others.
            profile: overlay to apply.
            home: nanobot's folder.
            safe: leave out all third-party plugins.
            without: ids of plugins to leave out.

        Raises:
            ConfigError: the configuration is invalid; the error lists every problem.
        """
        loaded = load_config(path, overrides=overrides, profile=profile, home=home)
        return cls(loaded, plugin_filter=PluginFilter(safe, frozenset(without)))

    @property
    def tools(self) -> ToolRegistry:
        """The registry; ``tools.register(my_tool)`` offers a tool from the next turn on."""
        return self.plugins.tools

    @property
    def pipeline(self) -> TurnPipeline:
        """Answers messages."""
        return self._running()

    def redact(self, text: str) -> str:
        """Return `text` without the secrets of the present configuration."""
        return self.loaded.redactor.redact(text)

    @property
    def spawn(self) -> Spawn:
        """Starts tasks that end with the agent at the latest."""
        return self._tasks.spawn

    @property
    def commands(self) -> Commands:
        """The slash commands."""
        return self._running().commands

    @property
    def sessions(self) -> SessionStore:
        """The store of sessions."""
        self._running()
        assert self._store is not None  # noqa: S101 - set together with the pipeline
        return self._store

    async def __aenter__(self) -> Self:
        """Start plugins and stores; see `start`."""
        await self.start(TurnPorts())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop; see `stop`."""
        await self.stop()

    async def start(self, ports: TurnPorts) -> None:
        """Start plugins and stores.

        Args:
            ports: what the gateway provides to turns; ``TurnPorts()`` for a program without one.

        Raises:
            PluginError: a plugin under ``plugins.required`` cannot run.
            ConfigError: a backend that the configuration names does not exist.
        """
        if tighten(self.loaded.home):
            from loguru import logger

            logger.info("'{}' was open to other accounts; closed to them", self.loaded.home)
        try:
            await asyncio.to_thread(prepare_workspace, self._workspace)
            await self.plugins.start()
            self._store = await create_session_store(self.plugins, self.loaded, self._clock)
            self._memory = await create_memory(self.plugins, self.loaded)
            transcriber = await create_transcriber(self.plugins, self.loaded)
            self._pipeline = self._build_pipeline(self._store, transcriber, ports)
            keep_days = self.loaded.settings.tools.result_keep_days
            clearing = asyncio.to_thread(self._results.remove_old, keep_days)
            self._tasks.spawn(clearing, name="old results")
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop in reverse order; a part that fails to stop is logged, and the others stop."""
        self._pipeline = None
        await _end_tasks(self._turns)
        await _stopped("plugins", self.plugins.stop())
        if self._memory is not None:
            await _stopped("memory", self._memory.aclose())
        if self._store is not None:
            await _stopped("sessions", self._store.aclose())
        await _end_tasks(self._tasks)

    def _build_pipeline(
        self, store: SessionStore, transcriber: TranscriptionProvider | None, ports: TurnPorts
    ) -> TurnPipeline:
        sessions = Sessions(store, self._clock)
        locks = SessionLocks(self.loaded.home / "locks", sessions)
        memory = SessionMemory(self._memory, sessions, locks, self._tasks.spawn)
        return TurnPipeline(
            setup=self._turn_setup(),
            host=self.plugins,
            sessions=sessions,
            locks=locks,
            commands=Commands(
                self.plugins,
                sessions,
                memory,
                self.models,
                self._losses,
                ports.controls,
            ),
            clock=self._clock,
            redact=self.redact,
            ports=ports,
            memory=memory,
            transcribe=transcriber.transcribe if transcriber else None,
        )

    def _turn_setup(self) -> TurnSetup:
        settings = self.loaded.settings
        policy = ApprovalPolicy(
            settings.tools.approval,
            settings.tools.approval_timeout_s,
            AlwaysAllowed.below(self.loaded.home),
        )
        defaults = settings.agents.defaults
        return TurnSetup(
            settings=settings,
            reach=Reach(self.loaded, self._results),
            models=self.models,
            runner=AgentRunner(
                self.models, clock=self._clock, policy=policy, cool_downs=self.cool_downs
            ),
            requests=RequestBuilder(
                Instructions(self._workspace, self.loaded.home / "prompts"),
                defaults.timezone,
                self._clock,
                max_image_side=defaults.max_image_side,
            ),
        )

    async def reconfigure(self, loaded: LoadedConfig, catalogue: Catalogue) -> Reconfiguration:
        """Use another configuration and the present plugins, from the next turn on.

        The settings in `FIXED` require a restart.

        Raises:
            PluginError: a plugin under ``plugins.required`` may not run; nothing has changed.
        """
        loaded = _with_declared_secrets(loaded, catalogue)
        # A replaced key stays secret: it works until it is revoked, and may appear in an answer.
        loaded.redactor.learn(self.loaded.redactor.secrets)
        change = await self.plugins.changes.reconfigure(loaded, catalogue)
        self.loaded = loaded
        self.models.reconfigure(loaded)
        self.cool_downs.clear()
        self._running().reconfigure(self._turn_setup())
        return change

    async def process_direct(self, request: TurnRequest) -> TurnOutcome:
        """Answer one message without queue and channels; see `TurnPipeline.process`."""
        return await self._running().process(request)

    @overload
    async def run(
        self,
        text: str,
        *,
        session: str = ...,
        media: Sequence[str] = ...,
        model: str | None = ...,
        hooks: Sequence[AgentHook] = ...,
        output: None = ...,
    ) -> TurnOutcome: ...
    @overload
    async def run(
        self,
        text: str,
        *,
        session: str = ...,
        media: Sequence[str] = ...,
        model: str | None = ...,
        hooks: Sequence[AgentHook] = ...,
        output: type[OutputT],
    ) -> StructuredOutcome[OutputT]: ...
    async def run(
        self,
        text: str,
        *,
        session: str = "sdk:default",
        media: Sequence[str] = (),
        model: str | None = None,
        hooks: Sequence[AgentHook] = (),
        output: type[OutputT] | None = None,
    ) -> TurnOutcome:
        """Answer `text` and return the outcome.

        Args:
            text: the message of the user.
            session: key of the session.
            media: local paths of attached files.
            model: model instead of the configured one.
            hooks: hooks of this run only.
            output: pydantic model of the answer; the outcome then has the object as `output`. An
                answer that does not fit is returned to the model once, with what is wrong with it.

        Returns:
            The outcome; its `error` says why a turn failed.

        Raises:
            OutputInvalid: the model's answers do not fit `output`.
            NoOutput: the turn failed or was stopped before there was an object.
            TypeError: `output` is not a pydantic model with named fields.
        """
        request = _direct(text, session, media, model, hooks)
        if output is None:
            return await self.process_direct(request)
        from nanobot_core.app.structured import object_of, with_output

        return await object_of(self.process_direct(with_output(request, output)))

    async def stream(
        self,
        text: str,
        *,
        session: str = "sdk:default",
        media: Sequence[str] = (),
        model: str | None = None,
        hooks: Sequence[AgentHook] = (),
        output: type[BaseModel] | None = None,
    ) -> AsyncIterator[RunEvent]:
        """Answer `text` and yield events, the `TurnOutcome` last; arguments as `run`.

        With `output` the last event is a `StructuredOutcome`, or a `TurnOutcome` that says why
        there is no object. Leaving the loop early stops the turn.
        """
        pipeline = self._running()
        queue: asyncio.Queue[RunEvent | None] = asyncio.Queue(EVENT_QUEUE_LIMIT)
        request = replace(_direct(text, session, media, model, hooks), on_event=queue.put)
        if output is not None:
            from nanobot_core.app.structured import with_output

            request = with_output(request, output)
        task = self._turns.spawn(pipeline.process(request), name=f"stream:{session}")
        task.add_done_callback(lambda done: _mark_broken_end(done, queue))
        try:
            while (event := await queue.get()) is not None:
                yield event
                if isinstance(event, TurnOutcome):
                    return
            if task.cancelled():
                msg = "the agent was closed during the turn"
                raise RuntimeError(msg)
            await task  # raises its error
        finally:
            task.cancel()
            await asyncio.wait({task})

    def _losses(self, session_key: str) -> Sequence[str]:
        return self._running().setup.requests.report.losses(session_key)

    def _running(self) -> TurnPipeline:
        if self._pipeline is None:
            msg = "the agent is not started; use 'async with Nanobot.from_config() as bot'"
            raise RuntimeError(msg)
        return self._pipeline


def isolated_agent(setup: Mapping[str, Any]) -> Nanobot:
    """Return an agent with one plugin, and the settings, folders and variables of the host.

    It is not started: use ``plugins.activate``, ``plugins.load_tools`` and ``plugins.stop``. It
    reads no configuration file and no other variables, and logs to standard error.

    Args:
        setup: `IsolatedPlugin.setup` of the host.

    Raises:
        ConfigError: this version cannot use the core's settings.
    """
    tree, variables = setup["tree"], setup["environment"]
    home, settings = Path(setup["home"]), Settings.model_validate(tree)
    secrets = maskable({*find_secrets(tree), *environment_secrets(variables)})
    path = Path(setup["config"]) if setup["config"] else None
    loaded = LoadedConfig(settings, tree, {}, path, home, secrets)
    configure_logging(loaded, level="INFO")
    # An index is valid for one environment only.
    cache = home / "cache" / "isolated" / setup["plugin"]
    return Nanobot(loaded, catalogue=Catalogue.load(cache, settings.plugins), environ=variables)


def _with_declared_secrets(loaded: LoadedConfig, catalogue: Catalogue) -> LoadedConfig:
    secrets = maskable(_declared_secrets(loaded, catalogue))
    return replace(loaded, secrets=loaded.secrets | secrets)


def _declared_secrets(loaded: LoadedConfig, catalogue: Catalogue) -> Iterator[str]:
    """Yield values that channels declare as secret, under keys that do not look like it."""
    for _, declaration in catalogue.declared("channels"):
        section = loaded.settings.section(f"channels.{declaration.name}") or {}
        for name in declaration.detail.get("secrets") or ():
            if value := section.get(name):
                yield str(value)


def _direct(
    text: str,
    session: str,
    media: Sequence[str],
    model: str | None,
    hooks: Sequence[AgentHook],
) -> TurnRequest:
    message = InboundMessage(
        channel="sdk",
        sender_id="program",
        chat_id="default",
        content=text,
        id=new_id(),
        media=tuple(media),
        session_key_override=session,
    )
    return TurnRequest(message=message, model=model, hooks=hooks, is_owner=True)


def _mark_broken_end(
    task: asyncio.Task[TurnOutcome], queue: asyncio.Queue[RunEvent | None]
) -> None:
    """Wake the reader if the turn ended without its last event."""
    if task.cancelled() or task.exception() is not None:
        if queue.full():
            queue.get_nowait()
        queue.put_nowait(None)


async def _stopped(what: str, work: Awaitable[None]) -> None:
    """Wait for a part to stop; a failure is logged, because the others must stop too."""
    from loguru import logger

    try:
        async with asyncio.timeout(PART_END_S):
            await work
    except TimeoutError:
        logger.warning("{} did not stop within {:g} seconds", what, PART_END_S)
    except Exception as error:  # noqa: BLE001 - isolation point
        logger.opt(exception=error).warning("{} failed to stop", what)


async def _end_tasks(owner: TaskOwner) -> None:
    if stuck := await owner.close():
        from loguru import logger

        logger.warning("tasks that ignored their cancellation: {}", ", ".join(stuck))
