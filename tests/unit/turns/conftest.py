"""A whole gateway in this process: a channel in memory, a model in Python, and a way to die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import (
    Channel,
    ChannelCapabilities,
    ChannelSpec,
    ChatRequest,
    Completed,
    InboundMessage,
    LLMProvider,
    LLMResponse,
    Message,
    Nanobot,
    OutboundMessage,
    PluginContext,
    ProviderSpec,
    SettingsSection,
    StreamEvent,
    Tool,
    ToolCall,
    on,
)
from nanobot_core.app import application, runner as runner_module
from nanobot_core.app.runner import GatewayRunner
from nanobot_core.bus.sqlite import SqliteBus
from nanobot_core.config.loading import LoadedConfig, load_config
from nanobot_core.contracts.bus import Bus, InboundLease, Lease, OutboundLease
from nanobot_core.contracts.channel import Draft, Inbox
from nanobot_core.contracts.service import GatewayAccess
from nanobot_core.contracts.store import SessionState, SessionStore
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.sessions.jsonl import JsonlSessionStore
from nanobot_core.testing import FakeClock
from nanobot_core.turns.request import TurnPorts

Answer = Callable[[ChatRequest], Awaitable[LLMResponse]]
LIMIT_S = 10.0
_numbers = count(1)
_desks: dict[str, Desk] = {}
"""By plugin id: a factory is a dotted name and knows no instance."""


class Killed(BaseException):
    """The process is dead: whatever it does next, it does not do."""


def _tell_but_death(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Let nobody hear what a dead process complains of, when its tasks are collected."""
    error = context.get("exception")
    kinds = error.split(Killed)[0] if isinstance(error, BaseExceptionGroup) else error
    if not isinstance(kinds, (Killed, BaseExceptionGroup)):
        loop.default_exception_handler(context)


class Death:
    """Kills the process at a chosen one of the points that it passes.

    Attributes:
        passed: names of the points so far.
        came: set when the process is dead.
    """

    def __init__(self, at: int | None = None) -> None:
        self._at = at
        self.passed: list[str] = []
        self.came = asyncio.Event()

    def point(self, name: str) -> None:
        """Pass a point; dead ones get no further."""
        if not self.came.is_set():
            self.passed.append(name)
            if len(self.passed) == self._at:
                self.came.set()
        if self.came.is_set():
            raise Killed(name)


class DoomedBus(SqliteBus):
    """A queue that dies before or after any of its steps."""

    death = Death()

    async def publish_inbound(self, message: InboundMessage) -> bool:
        self.death.point("before publish_inbound")
        done = await super().publish_inbound(message)
        self.death.point("after publish_inbound")
        return done

    async def publish_outbound(self, message: OutboundMessage) -> bool:
        self.death.point("before publish_outbound")
        done = await super().publish_outbound(message)
        self.death.point("after publish_outbound")
        return done

    async def receive_inbound(self) -> InboundLease:
        lease = await super().receive_inbound()
        self.death.point("after receive_inbound")
        return lease

    async def receive_outbound(self, channel: str) -> OutboundLease:
        lease = await super().receive_outbound(channel)
        self.death.point("after receive_outbound")
        return lease

    async def take_inbound(self, session_key: str) -> InboundLease | None:
        lease = await super().take_inbound(session_key)
        if lease is not None:
            self.death.point("after take_inbound")
        return lease

    async def acknowledge(self, lease: Lease, *, replies: Sequence[OutboundMessage] = ()) -> None:
        kind = "inbound" if isinstance(lease, InboundLease) else "outbound"
        self.death.point(f"before acknowledge {kind}")
        await super().acknowledge(lease, replies=replies)
        self.death.point(f"after acknowledge {kind}")

    async def release(self, lease: Lease, *, delay_s: float = 0.0) -> None:
        self.death.point("before release")
        await super().release(lease, delay_s=delay_s)


class DoomedStore(JsonlSessionStore):
    """A session store that dies before or after an append."""

    death = Death()

    async def append(self, key: str, messages: Sequence[Message], state: SessionState) -> None:
        self.death.point("before append")
        await super().append(key, messages, state)
        self.death.point("after append")


class DeskChannel(Channel):
    """Hands its inbox to the desk and lets the desk keep what it sends."""

    name = "desk"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.capabilities = desk.capabilities

    async def start(self, inbox: Inbox) -> None:
        self._desk.inbox = inbox
        inbox.alive()
        await self._desk.offer(inbox)
        await asyncio.Event().wait()

    async def stop(self) -> None:
        self._desk.inbox = None

    async def send(self, message: OutboundMessage) -> None:
        self._desk.death.point("before send")
        self._desk.sent.append(message)
        self._desk.death.point("after send")

    async def show_draft(self, draft: Draft) -> None:
        self._desk.drafts.append(draft)


class DeskProvider(LLMProvider):
    """Answers as the desk says."""

    name = "desk"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        self._desk.requests.append(request)
        yield Completed(await self._desk.answer(request))


def create_channel(ctx: PluginContext) -> DeskChannel:
    _desks[ctx.id].access = ctx.gateway
    return DeskChannel(_desks[ctx.id])


def create_provider(ctx: PluginContext, spec: ProviderSpec, settings: object) -> DeskProvider:
    return DeskProvider(_desks[ctx.id])


class DeskPlugin:
    """Brings the channel, the model and the tools of a desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @on.contribute_settings
    def contribute_settings(self) -> Iterable[SettingsSection]:
        yield SettingsSection("channels.desk", "nanobot_core.config.models:ChannelSettings")

    @on.contribute_channels
    def contribute_channels(self, ctx: PluginContext) -> Iterable[ChannelSpec]:
        yield ChannelSpec(name="desk", factory=f"{__name__}:create_channel")

    @on.contribute_providers
    def contribute_providers(self, ctx: PluginContext) -> Iterable[ProviderSpec]:
        yield ProviderSpec(
            name="desk", factory=f"{__name__}:create_provider", needs_key=False, default_base="d:"
        )

    @on.contribute_tools
    def contribute_tools(self, ctx: PluginContext) -> Iterable[Tool]:
        return self._desk.tools


class DeskBot(Nanobot):
    """An agent whose plugins are there before the gateway asks for channels."""

    with_plugins: Sequence[tuple[str, object]] = ()

    async def start(self, ports: TurnPorts) -> None:
        await super().start(ports)
        for plugin_id, plugin in self.with_plugins:
            await self.plugins.register(plugin, plugin_id)


async def echo(request: ChatRequest) -> LLMResponse:
    """Answer with the user's words."""
    return LLMResponse(content=f"re: {wish_of(request)}")


def wish_of(request: ChatRequest) -> str:
    """Return the last line of the newest message of the user."""
    (*_, last) = (message for message in request.messages if message.role == "user")
    return last.text.splitlines()[-1]


def asks(*calls: ToolCall) -> LLMResponse:
    return LLMResponse(tool_calls=calls, finish_reason="tool_calls")


@dataclass
class Desk:
    """A platform and a model for a gateway, over several lives of it.

    Attributes:
        waiting: what the platform offers at the start of a life, until it is accepted.
        sent: what the platform was sent, over all lives.
    """

    home: Path
    answer: Answer = echo
    tools: Sequence[Tool] = ()
    plugins: Sequence[object] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    capabilities: ChannelCapabilities = field(default_factory=ChannelCapabilities)
    clock: FakeClock = field(default_factory=FakeClock)
    death: Death = field(default_factory=Death)
    waiting: list[InboundMessage] = field(default_factory=list)
    sent: list[OutboundMessage] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    requests: list[ChatRequest] = field(default_factory=list)
    inbox: Inbox | None = None
    gateway: GatewayRunner | None = None
    access: GatewayAccess | None = None
    bot: DeskBot | None = None

    def __post_init__(self) -> None:
        self.id = f"desk{next(_numbers)}"
        self._is_stopping = False
        _desks[self.id] = self

    def message(
        self, text: str, chat: str = "1", sender: str = "me", **more: Any
    ) -> InboundMessage:
        key = f"p{next(_numbers)}"
        return InboundMessage(
            channel="desk", sender_id=sender, chat_id=chat, content=text, dedupe_key=key, **more
        )

    async def say(self, text: str, chat: str = "1", sender: str = "me", **more: Any) -> bool:
        """Write to the agent."""
        await self.until(lambda: self.inbox is not None)
        assert self.inbox is not None
        return await self.inbox.publish(self.message(text, chat, sender, **more))

    async def offer(self, inbox: Inbox) -> None:
        """Publish what waits; a platform forgets a message once it is accepted."""
        for message in list(self.waiting):
            await inbox.publish(message)
            self.waiting.remove(message)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until `condition` holds or the process is dead."""
        async with asyncio.timeout(LIMIT_S):
            while not condition():  # noqa: ASYNC110 - whatever it is, it wakes nobody
                await asyncio.sleep(0.002)

    def texts(self, chat: str = "1", kind: str = "final") -> list[str]:
        return [m.content for m in self.sent if (m.chat_id, m.kind) == (chat, kind)]

    async def replies(self, number: int, chat: str = "1") -> list[str]:
        """Wait for so many replies in a chat."""
        await self.until(lambda: len(self.texts(chat)) >= number)
        return self.texts(chat)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Desk]:
        """Let a gateway live, and end it in peace, or leave it dead."""
        DoomedBus.death = DoomedStore.death = self.death
        self.bot = self._bot()
        self.gateway = GatewayRunner(self.bot, self.clock)
        self._is_stopping = False
        asyncio.get_running_loop().set_exception_handler(_tell_but_death)
        ready = asyncio.Event()
        life = asyncio.create_task(self.gateway.run(ready.set))
        try:
            waiting = asyncio.create_task(ready.wait())
            await asyncio.wait({life, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if life.done():
                await life
            yield self
        finally:
            await self._end(life)

    def stop(self) -> None:
        """Ask the gateway to end, once: a second time it would hurry."""
        if not self._is_stopping and self.gateway is not None:
            self._is_stopping = True
            self.gateway.request_stop()

    async def _end(self, life: asyncio.Task[bool]) -> None:
        if self.death.came.is_set():
            life.cancel()
        self.stop()
        self.inbox = self.access = None
        async with asyncio.timeout(LIMIT_S):
            while not life.done():
                await asyncio.wait({life}, timeout=0.005)
                await self.clock.advance(0.002)
        with suppress(Killed, asyncio.CancelledError):
            await life

    def _bot(self) -> DeskBot:
        values = {
            "agents.defaults.model": "desk/one",
            "agents.defaults.provider": "desk",
            "agents.defaults.workspace": str(self.home / "workspace"),
            "channels.desk.allow_from": ["*"],
            "gateway.grace_s": 1.0,
            "gateway.patience_s": 1_000_000,
            "owner": ["me"],
            **self.settings,
        }
        loaded = load_config(None, environ={}, overrides=values, home=self.home)
        catalogue = Catalogue((), loaded.settings.plugins)
        bot = DeskBot(loaded, clock=self.clock, environ={}, catalogue=catalogue)
        more = [(f"{self.id}x{n}", plugin) for n, plugin in enumerate(self.plugins)]
        bot.with_plugins = [(self.id, DeskPlugin(self)), *more]
        return bot


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk whose gateway works on files in the folder of the test."""

    async def create_bus(host: object, loaded: LoadedConfig, clock: FakeClock) -> Bus:
        path = loaded.home / "gateway" / "bus.sqlite"
        return await DoomedBus.open(path, clock=clock)

    async def create_store(host: object, loaded: LoadedConfig, clock: FakeClock) -> SessionStore:
        return DoomedStore(loaded.workspace / "sessions", clock=clock)

    monkeypatch.setattr(runner_module, "create_bus", create_bus)
    monkeypatch.setattr(application, "create_session_store", create_store)
    return Desk(tmp_path / "h")
