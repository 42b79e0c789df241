"""A channel that is connected to a local Discord."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nanobot_core import Channel, Clock, OutboundMessage, SystemClock
from nanobot_core.testing import FakeGateway, FakePluginContext, RecordingInbox, load_stand_in
from nanobot_discord.channel import build_channel

LIMIT_S = 10.0
Local: TypeAlias = Any
"""Its module is loaded by path, so its types are unknown here."""


load_stand_in(Path(__file__).with_name("local_discord.py"))
discord_api: Any = sys.modules["discord_api"]  # the stand-in has imported it


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A running channel.

    Attributes:
        channel: the channel.
        inbox: what it publishes to.
        ctx: the plugin's context.
        local: the local Discord.
        task: the channel's `start`.
    """

    channel: Channel
    inbox: RecordingInbox
    ctx: FakePluginContext
    local: Local
    task: asyncio.Task[None]

    async def send(self, content: str, chat_id: str = discord_api.DM, **fields: Any) -> None:
        """Send a message of the agent."""
        await self.channel.send(
            OutboundMessage(channel="discord", chat_id=chat_id, content=content, **fields)
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the local Discord fulfils `condition`."""
        await asyncio.to_thread(self.local.wait_until, condition)

    async def heard(self, count: int = 1) -> list[str]:
        """Wait for messages, and return their contents."""
        await self.inbox.wait_for_stored(count)
        return [message.content for message in self.inbox.stored]


Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Talk]]
MakeContext: TypeAlias = Callable[..., FakePluginContext]


@pytest.fixture
def local() -> Iterator[Local]:
    """A local Discord."""
    with discord_api.DiscordApi() as local:
        yield local


@pytest.fixture
def ctx_with(local: Local, tmp_path: Path) -> MakeContext:
    """Makes the plugin's context: ``ctx_with(clock=…, **section)``."""

    def make(clock: Clock | None = None, **section: Any) -> FakePluginContext:
        settings = {"token": discord_api.TOKEN, "api_base": local.url} | section
        gateway = FakeGateway()
        gateway.offered = {"new": "start afresh", "stop": "", "Not For Menus": "x"}
        return FakePluginContext(
            tmp_path,
            settings=settings,
            plugin_id="discord",
            clock=clock or SystemClock(),
            gateway=gateway,
        )

    return make


@pytest.fixture
def opened(ctx_with: MakeContext, local: Local) -> Opened:
    """Runs a channel until it is ready: ``opened(inbox=…, ctx=…, **section)``."""

    @asynccontextmanager
    async def opened(
        inbox: RecordingInbox | None = None,
        ctx: FakePluginContext | None = None,
        **section: Any,
    ) -> AsyncIterator[Talk]:
        ctx = ctx or ctx_with(**section)
        channel = build_channel(ctx)
        inbox = inbox or RecordingInbox()
        before = local.sessions + local.resumes
        async with asyncio.timeout(3 * LIMIT_S), ctx, asyncio.TaskGroup() as group:
            task = group.create_task(channel.start(inbox))
            talk = Talk(channel=channel, inbox=inbox, ctx=ctx, local=local, task=task)
            try:
                await talk.until(lambda: local.sessions + local.resumes > before)
                yield talk
            finally:
                await channel.stop()

    return opened
