"""The contract of channels, with the local Bot API."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from nanobot_core import Channel, SystemClock
from nanobot_core.testing import ChannelContract, ChannelPlatform, FakePluginContext
from nanobot_telegram.channel import TelegramChannel

bot_api = importlib.import_module("telegram_bot_api")


LocalApi: TypeAlias = Any


class LocalTelegram(ChannelPlatform):
    """The local Bot API as the platform of the contract."""

    chat_id = "1001"

    def __init__(self, api: LocalApi, ctx: FakePluginContext) -> None:
        self._api = api
        self._ctx = ctx
        self._keys: dict[int, str] = {}
        self.channels: list[TelegramChannel] = []

    # The base declares plain lists, and here they are what the server holds at the moment.
    @property
    def acknowledged(self) -> list[str]:  # type: ignore[override]
        return [self._keys[update] for update in self._api.acknowledged]

    @property
    def delivered(self) -> list[str]:  # type: ignore[override]
        return [shown.text for shown in self._api.shown()]

    def channel(self) -> Channel:
        self.channels.append(TelegramChannel(self._ctx))
        return self.channels[-1]

    async def say(self, key: str, text: str) -> None:
        self._keys[self._api.say(text)] = key

    async def hang_up(self, after: int = 0) -> None:
        self._api.hang_up(after)

    async def come_back(self) -> None:
        self._api.come_back()

    def length(self, text: str) -> int:
        found: int = bot_api.utf16(text)
        return found


class TestTelegramChannel(ChannelContract):
    def serve(self, tmp_path: Path) -> AbstractAsyncContextManager[ChannelPlatform]:
        @asynccontextmanager
        async def serve() -> AsyncIterator[ChannelPlatform]:
            with bot_api.BotApi() as api:
                ctx = FakePluginContext(
                    tmp_path,
                    settings={"token": bot_api.TOKEN, "api_base": api.url},
                    clock=SystemClock(),
                )
                platform = LocalTelegram(api, ctx)
                yield platform
                async with asyncio.timeout(10):
                    for channel in platform.channels:
                        await channel.stop()

        return serve()
