"""A channel that is connected to a local WhatsApp."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nanobot_core import Clock, OutboundMessage, SystemClock
from nanobot_core.chat import ChatChannel
from nanobot_core.testing import FakeGateway, FakePluginContext, RecordingInbox, load_stand_in
from nanobot_whatsapp.channel import build_channel
from nanobot_whatsapp.timing import TimeLimits
from nanobot_whatsapp.webhook import build_app

LIMIT_S = 10.0
LocalWhatsApp: TypeAlias = Any
"""Its module is loaded by path, so its types are unknown here."""


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A running channel.

    Attributes:
        channel: the channel.
        inbox: what it publishes to.
        ctx: the plugin's context.
        api: the local WhatsApp.
        gateway: the gateway of `ctx`.
    """

    channel: ChatChannel
    inbox: RecordingInbox
    ctx: FakePluginContext
    api: LocalWhatsApp
    gateway: FakeGateway

    async def send(self, content: str, chat_id: str = "", **fields: Any) -> None:
        """Send a message of the agent, to Anna by default."""
        chat_id = chat_id or self.api.anna.id
        await self.channel.send(
            OutboundMessage(channel="whatsapp", chat_id=chat_id, content=content, **fields)
        )

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until `condition` holds."""
        async with asyncio.timeout(LIMIT_S):
            while not condition():  # noqa: ASYNC110 - a stand-in has no event to wait for
                await asyncio.sleep(0.01)


Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Talk]]


@pytest.fixture
async def api() -> AsyncIterator[LocalWhatsApp]:
    """A local WhatsApp."""
    async with load_stand_in(Path(__file__).with_name("local_whatsapp.py"))() as api:
        yield api


@pytest.fixture
def opened(api: LocalWhatsApp, tmp_path: Path) -> Opened:
    """Runs a channel: ``opened(inbox=…, clock=…, limits=…, **section)``."""

    @asynccontextmanager
    async def opened(
        inbox: RecordingInbox | None = None,
        clock: Clock | None = None,
        limits: TimeLimits | None = None,
        **section: Any,
    ) -> AsyncIterator[Talk]:
        gateway = FakeGateway()
        ctx = FakePluginContext(
            tmp_path,
            settings=api.section() | section,
            plugin_id="whatsapp",
            clock=clock or SystemClock(),
            gateway=gateway,
        )
        api.app = build_app(ctx)
        channel = build_channel(ctx, limits)
        inbox = inbox or RecordingInbox()
        async with asyncio.timeout(5 * LIMIT_S), ctx, asyncio.TaskGroup() as group:
            group.create_task(channel.start(inbox))
            try:
                yield Talk(channel=channel, inbox=inbox, ctx=ctx, api=api, gateway=gateway)
            finally:
                await channel.stop()

    return opened
