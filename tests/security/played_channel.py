"""PlayedChannel: one channel on its stand-in in this process, without what the gateway hides."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from loguru import logger

from nanobot_core import Channel, InboundMessage, OutboundMessage
from nanobot_core.channels.access import decide, fault_of, with_names
from nanobot_core.clock import SystemClock
from nanobot_core.config.models import ChannelSettings
from nanobot_core.testing import FakePluginContext, RecordingInbox, StandIn
from nanobot_core.testing.context import FakeGateway

LIMIT_S = 20.0


@dataclass
class PlayedChannel:
    """A channel that runs, and is started again when its connection ends.

    Attributes:
        shown: what the plugin has logged, and its errors with all their causes.
    """

    stand_in: StandIn
    ctx: FakePluginContext
    inbox: RecordingInbox
    shown: list[str] = field(default_factory=list)
    channel: Channel | None = None

    async def run(self) -> None:
        """Run the channel until cancelled, as the supervisor does, but without growing pauses."""
        task = asyncio.current_task()
        assert task is not None
        # A failure at the moment of the cancellation replaces it.
        while not task.cancelling():
            self.channel = self.build()
            try:
                await self.channel.start(self.inbox)
            except Exception as error:  # noqa: BLE001 - the supervisor restarts it
                self.note(error)
            finally:
                await self.channel.stop()
            await asyncio.sleep(0.1)

    def build(self) -> Channel:
        """Return a new channel."""
        name = self.stand_in.name
        if hasattr(self.stand_in, "app"):
            hook: Any = import_module(f"nanobot_{name}.webhook")
            self.stand_in.app = hook.build_app(self.ctx)
        module: Any = import_module(f"nanobot_{name}.channel")
        channel: Channel = module.build_channel(self.ctx)
        return channel

    async def send(self, text: str, *files: Path, chat: str = "") -> None:
        """Send a message, and note how it fails."""
        assert self.channel is not None
        place = chat or self.stand_in.private(self.stand_in.anna)
        message = OutboundMessage(
            channel=self.stand_in.name, chat_id=place, content=text, media=tuple(map(str, files))
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                await self.channel.send(message)
        except Exception as error:  # noqa: BLE001 - what it says is the question
            self.note(error)

    async def heard(self, text: str) -> InboundMessage:
        """Wait for an admitted message that contains `text`."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                for message in self.inbox.stored:
                    if text in message.content:
                        return message
                await asyncio.sleep(0.01)

    def note(self, error: BaseException) -> None:
        """Keep what an error says."""
        self.shown += traceback.format_exception(error)
        self.shown += [repr(error), str(error)]


def _admits(access: ChannelSettings, message: InboundMessage) -> bool:
    """Whether the gateway admits a message."""
    return not fault_of(message) and decide(with_names(message), access, ()) == "admitted"


@asynccontextmanager
async def played(
    kind: type[StandIn], folder: Path, **settings: Any
) -> AsyncIterator[PlayedChannel]:
    """Run a channel on its stand-in; unless `settings` say otherwise, only Anna may write."""
    shown: list[str] = []
    sink = logger.add(shown.append, level=0, format="{message} {extra} {exception}", diagnose=False)
    try:
        async with kind() as stand_in:
            rules = {"allow_from": [stand_in.anna.id, stand_in.anna.name], **settings}
            async with FakePluginContext(
                folder,
                settings={**stand_in.section(), **rules},
                plugin_id=stand_in.name,
                clock=SystemClock(),
                gateway=FakeGateway(),
            ) as ctx:
                access = ChannelSettings.model_validate(rules)
                inbox = RecordingInbox(partial(_admits, access))
                there = PlayedChannel(stand_in, ctx, inbox, shown)
                running = asyncio.create_task(there.run())
                try:
                    yield there
                finally:
                    running.cancel()
                    with suppress(asyncio.CancelledError):
                        await running
    finally:
        logger.remove(sink)


async def hello(there: PlayedChannel, text: str = "hello") -> None:
    """Let Anna write, and wait until it is stored."""
    await there.stand_in.say(text)
    await there.heard(text)
