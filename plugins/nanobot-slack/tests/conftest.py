"""A channel that is connected to a local Slack."""

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
from nanobot_slack.channel import build_channel
from nanobot_slack.settings import Timing

LocalSlack = load_stand_in(Path(__file__).with_name("local_slack.py"))
LIMIT_S = 10.0
Local: TypeAlias = Any
"""Its module is loaded by path, so its types are unknown here."""


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A running channel.

    Attributes:
        channel: the channel.
        inbox: what it publishes to.
        ctx: the plugin's context.
        slack: the local Slack.
        task: the channel's `start`.
    """

    channel: ChatChannel
    inbox: RecordingInbox
    ctx: FakePluginContext
    slack: Local
    task: asyncio.Task[None]

    async def send(self, content: str, chat_id: str = "D0ANNA", **fields: Any) -> None:
        """Send a message of the agent."""
        await self.channel.send(
            OutboundMessage(channel="slack", chat_id=chat_id, content=content, **fields)
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; the local Slack has no event to wait for."""
        async with asyncio.timeout(LIMIT_S):
            while not condition():  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.005)

    def answers(self, chat: str = "D0ANNA") -> list[Any]:
        """Return what the agent has written."""
        return [shown for shown in self.slack.shown(chat) if shown.author == "Nano"]


Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Talk]]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """Runs a channel: ``opened(slack=…, inbox=…, clock=…, timing=…, ends=…, **section)``."""

    @asynccontextmanager
    async def opened(
        slack: Local | None = None,
        inbox: RecordingInbox | None = None,
        clock: Clock | None = None,
        timing: Timing | None = None,
        **section: Any,
    ) -> AsyncIterator[Talk]:
        if slack is None:
            async with (
                LocalSlack() as local,
                opened(local, inbox, clock, timing, **section) as talk,
            ):
                yield talk
            return
        gateway = FakeGateway()
        gateway.offered = {"new": "start afresh", "stop": ""}
        ctx = FakePluginContext(
            tmp_path,
            settings=slack.section() | section,
            plugin_id="slack",
            clock=clock or SystemClock(),
            gateway=gateway,
        )
        channel = build_channel(ctx, timing)
        inbox = inbox or RecordingInbox()
        async with asyncio.timeout(3 * LIMIT_S), ctx:
            task = asyncio.create_task(channel.start(inbox))
            try:
                yield Talk(channel=channel, inbox=inbox, ctx=ctx, slack=slack, task=task)
            finally:
                await channel.stop()
                await asyncio.wait({task})
                task.exception()

    return opened
