"""Scripted channels, on a queue in memory and a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from nanobot_core import Channel, ChannelCapabilities, InboundMessage, OutboundMessage
from nanobot_core.bus.queues import MemoryBus
from nanobot_core.channels.inbox import ChannelInbox
from nanobot_core.channels.live import WaitIndicator
from nanobot_core.channels.outbox import Outbox
from nanobot_core.channels.pairing import PairingStore
from nanobot_core.channels.ports import ChannelPorts
from nanobot_core.config.models import ChannelSettings
from nanobot_core.contracts.channel import Draft, Inbox
from nanobot_core.errors import HookError
from nanobot_core.hooks.caller import Hooks
from nanobot_core.hooks.compilation import HookStats, Registrant, build_hooks
from nanobot_core.hooks.implementation import HookRuntime
from nanobot_core.tasks import TaskOwner
from nanobot_core.testing import FakeClock

T = TypeVar("T")


def inbound(content: str = "hi", **fields: Any) -> InboundMessage:
    values: dict[str, Any] = {"channel": "test", "sender_id": "7", "chat_id": "7"}
    values |= {"sender_names": ("Ann",)} if "sender_id" not in fields else {}
    values |= fields
    return InboundMessage(content=content, **values)


def outbound(content: str = "answer", **fields: Any) -> OutboundMessage:
    values: dict[str, Any] = {"channel": "test", "chat_id": "7", **fields}
    return OutboundMessage(content=content, **values)


class StubChannel(Channel):
    """Keeps what it is given; `sending` and `showing` may fail or wait."""

    name = "test"

    def __init__(self, **capabilities: Any) -> None:
        self.capabilities = ChannelCapabilities(**capabilities)
        self.sent: list[OutboundMessage] = []
        self.drafts: list[Draft] = []
        self.dropped: list[str] = []
        self.typed: list[str] = []
        self.sending: Callable[[OutboundMessage], Awaitable[None]] | None = None
        self.showing: Callable[[], Awaitable[None]] | None = None

    async def start(self, inbox: Inbox) -> None:
        await asyncio.Event().wait()

    async def stop(self) -> None:
        pass

    async def send(self, message: OutboundMessage) -> None:
        if self.sending is not None:
            await self.sending(message)
        self.sent.append(message)

    async def show_draft(self, draft: Draft) -> None:
        self.drafts.append(draft)
        if self.showing is not None:
            await self.showing()

    async def drop_draft(self, chat_id: str, draft_id: str) -> None:
        self.dropped.append(draft_id)

    async def show_typing(self, chat_id: str) -> None:
        self.typed.append(chat_id)
        if self.showing is not None:
            await self.showing()


@dataclass
class Bench:
    """The parts around a channel."""

    folder: Path
    clock: FakeClock = field(default_factory=FakeClock)
    owner: TaskOwner = field(default_factory=TaskOwner)
    running: StubChannel | None = field(default_factory=StubChannel)
    reported: list[HookError] = field(default_factory=list)
    patience_s: float = 30.0
    asked: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.bus = MemoryBus(self.clock)
        self.hooks = Hooks(self._runtime())
        self.outbox = Outbox(self.bus, lambda: self.hooks)
        self.pairing = PairingStore(self.folder / "pairing.json", self.clock)
        self.ports = ChannelPorts(
            bus=self.bus,
            outbox=self.outbox,
            pairing=self.pairing,
            hooks=lambda: self.hooks,
            is_control=lambda text: text.startswith("/stop"),
            open_question=lambda key: key in self.asked,
            spawn=self.owner.spawn,
            clock=self.clock,
        )
        self.indicator = WaitIndicator(
            lambda _name: self.running, self.ports, patience_s=self.patience_s
        )

    def _runtime(self) -> HookRuntime:
        return HookRuntime(spawn=self.owner.spawn, report=self.reported.append, clock=self.clock)

    def plug(self, *plugins: object) -> None:
        """Let `plugins` be the ones there are."""
        registrants = [Registrant(f"p{n}", "1.0", plugin) for n, plugin in enumerate(plugins)]
        ledger = HookStats(self.clock.monotonic_s)
        self.hooks = build_hooks(registrants, self._runtime(), ledger)

    def inbox(self, **settings: Any) -> ChannelInbox:
        """Return an inbox that lets everybody in, unless `settings` say something else."""
        found = ChannelSettings(**{"allow_from": ["*"], **settings})
        return ChannelInbox(found, self.ports, self.indicator, on_alive=lambda: None)

    def spawn(self, work: Coroutine[Any, Any, T], name: str = "test") -> asyncio.Task[T]:
        return self.owner.spawn(work, name=name)

    async def advance(self, seconds: float) -> None:
        """Let everybody begin, then move time on."""
        await self.clock.advance(0)
        await self.clock.advance(seconds)

    async def outgoing(self) -> list[OutboundMessage]:
        """Take everything that waits to be sent."""
        found = []
        while (await self.bus.depth()).outbound:
            lease = await self.bus.receive_outbound("test")
            await self.bus.acknowledge(lease)
            found.append(lease.message)
        return found


async def until(condition: Callable[[], object]) -> None:
    """Let others run until `condition` holds, at most five seconds."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - whatever it is, it wakes nobody
            await asyncio.sleep(0)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    yield made
    await made.owner.close()
    await made.bus.aclose()
