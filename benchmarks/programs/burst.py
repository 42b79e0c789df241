"""A single-file plugin: a channel that offers many messages at once and prints the rate of replies.

The chats write concurrently; each writes all of its messages without waiting for an answer.
"""

import asyncio
import time
from collections.abc import Iterable

from nanobot_core import (
    Channel,
    ChannelSettings,
    ChannelSpec,
    InboundMessage,
    Inbox,
    OutboundMessage,
    PluginContext,
    SettingsSection,
    on,
)


class BurstSettings(ChannelSettings):
    sessions: int = 100
    messages: int = 10


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    return (SettingsSection("channels.burst", f"{__name__}:BurstSettings"),)


@on.contribute_channels
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    return (ChannelSpec(name="burst", factory=f"{__name__}:make_channel"),)


def make_channel(ctx: PluginContext) -> Channel:
    return BurstChannel(ctx.settings(BurstSettings))


class BurstChannel(Channel):
    name = "burst"

    def __init__(self, settings: BurstSettings) -> None:
        self._settings = settings
        self._missing = 0
        self._answered = asyncio.Event()

    async def start(self, inbox: Inbox) -> None:
        inbox.alive()
        await self._burst(inbox, "warm", 1, 1)
        started_s = time.perf_counter()
        await self._burst(inbox, "chat", self._settings.sessions, self._settings.messages)
        count = self._settings.sessions * self._settings.messages
        print(count / (time.perf_counter() - started_s), flush=True)
        await asyncio.Event().wait()

    async def _burst(self, inbox: Inbox, name: str, sessions: int, messages: int) -> None:
        self._missing = sessions * messages
        self._answered.clear()

        async def write(chat: str) -> None:
            for number in range(messages):
                await inbox.publish(
                    InboundMessage(
                        channel="burst",
                        sender_id=chat,
                        chat_id=chat,
                        content="hello",
                        dedupe_key=f"{chat}/{number}",
                    )
                )

        async with asyncio.TaskGroup() as group:
            for session in range(sessions):
                group.create_task(write(f"{name}{session}"))
        await self._answered.wait()

    async def stop(self) -> None:
        pass

    async def send(self, message: OutboundMessage) -> None:
        if message.kind == "final":
            self._missing -= 1
        if self._missing <= 0:
            self._answered.set()
