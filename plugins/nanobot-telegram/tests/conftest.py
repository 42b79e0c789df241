"""A channel that is connected to a local Telegram."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import pytest

from nanobot_core import Clock, OutboundMessage, SystemClock
from nanobot_core.chat import ChatChannel
from nanobot_core.testing import FakeGateway, FakePluginContext, RecordingInbox
from nanobot_telegram.call import TimeLimits
from nanobot_telegram.channel import build_channel

LIMIT_S = 10.0
LocalApi: TypeAlias = Any
"""Its module is loaded by path, so its types are unknown here."""


def _load_bot_api() -> ModuleType:
    """Make the local Telegram importable as ``telegram_bot_api``: this folder is not a package."""
    spec = importlib.util.spec_from_file_location(
        "telegram_bot_api", Path(__file__).with_name("bot_api.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


bot_api = _load_bot_api()


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A running channel.

    Attributes:
        channel: the channel.
        inbox: what it publishes to.
        ctx: the plugin's context.
        api: the local Telegram.
        task: the channel's `start`.
    """

    channel: ChatChannel
    inbox: RecordingInbox
    ctx: FakePluginContext
    api: LocalApi
    task: asyncio.Task[None]

    async def send(self, content: str, chat_id: str = "1001", **fields: Any) -> None:
        """Send a message of the agent."""
        await self.channel.send(
            OutboundMessage(channel="telegram", chat_id=chat_id, content=content, **fields)
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the local Telegram fulfils `condition`."""
        await asyncio.to_thread(self.api.wait_until, condition)


Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Talk]]
MakeContext: TypeAlias = Callable[..., FakePluginContext]


@pytest.fixture
def api() -> Iterator[LocalApi]:
    """A local Telegram."""
    with bot_api.BotApi() as api:
        yield api


@pytest.fixture
def ctx_with(api: LocalApi, tmp_path: Path) -> MakeContext:
    """Makes the plugin's context: ``ctx_with(clock=…, **section)``."""

    def make(clock: Clock | None = None, **section: Any) -> FakePluginContext:
        settings = {"token": bot_api.TOKEN, "api_base": api.url} | section
        gateway = FakeGateway()
        gateway.offered = {"new": "start afresh", "help": "", "Not-For-Menus": "x"}
        return FakePluginContext(
            tmp_path,
            settings=settings,
            plugin_id="telegram",
            clock=clock or SystemClock(),
            gateway=gateway,
        )

    return make


@pytest.fixture
def opened(api: LocalApi, ctx_with: MakeContext) -> Opened:
    """Runs a channel: ``opened(inbox=…, ctx=…, clock=…, limits=…, **section)``."""

    @asynccontextmanager
    async def opened(
        inbox: RecordingInbox | None = None,
        ctx: FakePluginContext | None = None,
        clock: Clock | None = None,
        limits: TimeLimits | None = None,
        **section: Any,
    ) -> AsyncIterator[Talk]:
        ctx = ctx or ctx_with(clock=clock, **section)
        channel = build_channel(ctx, limits)
        inbox = inbox or RecordingInbox()
        async with asyncio.timeout(5 * LIMIT_S), ctx, asyncio.TaskGroup() as group:
            task = group.create_task(_ended(channel, inbox))
            try:
                yield Talk(channel=channel, inbox=inbox, ctx=ctx, api=api, task=task)
            finally:
                await channel.stop()

    return opened


async def _ended(channel: ChatChannel, inbox: RecordingInbox) -> None:
    await channel.start(inbox)
