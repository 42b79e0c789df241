"""A channel that is connected to a local mail service."""

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

from nanobot_core import Channel, Clock, OutboundMessage, SystemClock
from nanobot_core.testing import FakePluginContext, RecordingInbox
from nanobot_email.channel import build_channel

LIMIT_S = 10.0
LocalMail: TypeAlias = Any
"""Its module is loaded by path, so its types are unknown here."""


def _load() -> ModuleType:
    """Make the local service importable as ``email_local_mail``: this folder is not a package."""
    spec = importlib.util.spec_from_file_location(
        "email_local_mail", Path(__file__).with_name("local_mail.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


local_mail = _load()


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A running channel.

    Attributes:
        channel: the channel.
        inbox: what it publishes to.
        ctx: the plugin's context.
        mail: the local service.
        task: the channel's `start`.
    """

    channel: Channel
    inbox: RecordingInbox
    ctx: FakePluginContext
    mail: LocalMail
    task: asyncio.Task[None]

    async def send(self, content: str, chat_id: str = local_mail.PERSON, **fields: Any) -> None:
        """Send a message of the agent."""
        await self.channel.send(
            OutboundMessage(channel="email", chat_id=chat_id, content=content, **fields)
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the local service fulfils `condition`."""
        await asyncio.to_thread(self.mail.wait_until, condition)


Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Talk]]
MakeContext: TypeAlias = Callable[..., FakePluginContext]


@pytest.fixture
def mail() -> Iterator[LocalMail]:
    """A local mail service."""
    with local_mail.LocalMail() as mail:
        yield mail


@pytest.fixture
def ctx_with(mail: LocalMail, tmp_path: Path) -> MakeContext:
    """Makes the plugin's context: ``ctx_with(clock=…, **section)``."""

    def make(clock: Clock | None = None, **section: Any) -> FakePluginContext:
        return FakePluginContext(
            tmp_path,
            settings=mail.settings | section,
            plugin_id="email",
            clock=clock or SystemClock(),
        )

    return make


@pytest.fixture
def opened(mail: LocalMail, ctx_with: MakeContext) -> Opened:
    """Runs a channel that has looked at the mailbox: ``opened(inbox=…, ctx=…, **section)``."""

    @asynccontextmanager
    async def opened(
        inbox: RecordingInbox | None = None,
        ctx: FakePluginContext | None = None,
        **section: Any,
    ) -> AsyncIterator[Talk]:
        ctx = ctx or ctx_with(**section)
        channel = build_channel(ctx)
        inbox = inbox or RecordingInbox()
        async with asyncio.timeout(5 * LIMIT_S), ctx, asyncio.TaskGroup() as group:
            task = group.create_task(channel.start(inbox))
            try:
                yield Talk(channel=channel, inbox=inbox, ctx=ctx, mail=mail, task=task)
            finally:
                await channel.stop()

    return opened
