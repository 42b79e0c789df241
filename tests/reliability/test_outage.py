"""A network that is away, a platform that hangs, a connection that dies silently."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from nanobot_core import (
    Channel,
    ChannelCapabilities,
    ChannelError,
    ChannelSpec,
    DeliveryError,
    Nanobot,
    OutboundMessage,
    PluginContext,
    SettingsSection,
    on,
)
from nanobot_core.bus.sqlite import SqliteBus
from nanobot_core.channels.manager import ChannelManager
from nanobot_core.channels.outbox import Outbox
from nanobot_core.channels.pairing import PairingStore
from nanobot_core.channels.ports import ChannelPorts
from nanobot_core.config.loading import load_config
from nanobot_core.contracts.channel import Inbox
from nanobot_core.contracts.service import RunStatus
from nanobot_core.messages import JsonValue
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.tasks import TaskOwner
from nanobot_core.testing import FakeClock

pytestmark = pytest.mark.anyio

FOUND_WITHIN_S = 180.0
POLL_S = 10.0
SILENCE_LIMIT_S = 90.0
_numbers = count(1)
_platforms: dict[str, dict[str, Platform]] = {}
"""By plugin id and channel: a factory is a dotted name and knows no instance."""


async def _nothing() -> None:
    """For platforms that are well."""


@dataclass
class Platform:
    """What a channel is connected to, as healthy as the test wants.

    Attributes:
        polling: done at each poll, before the platform answers.
        sending: done before a message counts as sent.
        lives: how often the channel was started.
        sent: (instant, message) of everything that arrived.
    """

    clock: FakeClock
    polling: Callable[[], Awaitable[None]] = _nothing
    sending: Callable[[], Awaitable[None]] = _nothing
    lives: int = 0
    polls: list[float] = field(default_factory=list)
    sent: list[tuple[float, OutboundMessage]] = field(default_factory=list)


class PollingChannel(Channel):
    """Polls its platform, as Telegram's does."""

    capabilities = ChannelCapabilities(silence_limit_s=SILENCE_LIMIT_S)

    def __init__(self, name: str, platform: Platform) -> None:
        self.name = name
        self._platform = platform

    async def start(self, inbox: Inbox) -> None:
        self._platform.lives += 1
        while True:
            await self._platform.polling()
            self._platform.polls.append(self._platform.clock.monotonic_s())
            inbox.alive()
            await self._platform.clock.sleep(POLL_S)

    async def stop(self) -> None:
        pass

    async def send(self, message: OutboundMessage) -> None:
        await self._platform.sending()
        self._platform.sent.append((self._platform.clock.monotonic_s(), message))


def create_one(ctx: PluginContext) -> PollingChannel:
    return PollingChannel("one", _platforms[ctx.id]["one"])


def create_two(ctx: PluginContext) -> PollingChannel:
    return PollingChannel("two", _platforms[ctx.id]["two"])


class Channels:
    """A plugin with two channels."""

    @on.contribute_settings
    def contribute_settings(self) -> Iterable[SettingsSection]:
        for name in ("one", "two"):
            yield SettingsSection(f"channels.{name}", "nanobot_core.config.models:ChannelSettings")

    @on.contribute_channels
    def contribute_channels(self, ctx: PluginContext) -> Iterable[ChannelSpec]:
        for name in ("one", "two"):
            yield ChannelSpec(name=name, factory=f"{__name__}:create_{name}")


@dataclass
class Station:
    """Two channels that run, on a clock that the test moves."""

    clock: FakeClock
    one: Platform
    two: Platform
    channels: ChannelManager
    bus: SqliteBus
    failed: list[RunStatus]
    seen: dict[str, list[tuple[float, str]]] = field(default_factory=dict)

    def status(self, name: str = "one") -> RunStatus:
        (found,) = [status for status in self.channels.statuses() if status.name == name]
        return found

    async def settle(self) -> None:
        """Let threads and tasks do what they can do now."""
        for _ in range(5):
            await asyncio.sleep(0.002)
            await self.clock.advance(0)

    async def advance(self, seconds: float, step_s: float = 5.0) -> None:
        """Move time on, and note what is said of the channels after each step."""
        for _ in range(round(seconds / step_s)):
            await self.clock.advance(step_s)
            await self.settle()
            for status in self.channels.statuses():
                moment = (self.clock.monotonic_s(), status.state)
                self.seen.setdefault(status.name, []).append(moment)

    async def reply(self, text: str, chat: str, channel: str = "one") -> None:
        message = OutboundMessage(
            channel=channel, chat_id=chat, content=text, idempotency_key=f"{channel}/{chat}/{text}"
        )
        await self.bus.publish_outbound(message)

    def is_always(self, name: str, state: str) -> bool:
        return {seen for _, seen in self.seen[name]} == {state}


@asynccontextmanager
async def station(home: Path) -> AsyncIterator[Station]:
    clock, owner = FakeClock(), TaskOwner()
    one, two = Platform(clock), Platform(clock)
    plugin_id = f"outage{next(_numbers)}"
    _platforms[plugin_id] = {"one": one, "two": two}
    values: dict[str, JsonValue] = {
        "channels.one.allow_from": ["*"],
        "channels.two.allow_from": ["*"],
        "agents.defaults.workspace": str(home / "workspace"),
        "gateway.patience_s": 1_000_000,
    }
    loaded = load_config(None, environ={}, overrides=values, home=home)
    bot = Nanobot(loaded, clock=clock, environ={}, catalogue=Catalogue((), loaded.settings.plugins))
    bus = await SqliteBus.open(home / "bus.sqlite", clock=clock)
    failed: list[RunStatus] = []

    async def on_failed(status: RunStatus) -> None:
        failed.append(status)

    async with bot:
        await bot.plugins.register(Channels(), plugin_id)
        ports = ChannelPorts(
            bus=bus,
            outbox=Outbox(bus, lambda: bot.plugins.hooks),
            pairing=PairingStore(home / "pairing.json", clock),
            hooks=lambda: bot.plugins.hooks,
            is_control=lambda _text: False,
            open_question=lambda _session_key: False,
            spawn=owner.spawn,
            clock=clock,
        )
        channels = ChannelManager(
            bot.plugins,
            lambda: loaded,
            ports,
            on_failed=on_failed,
        )
        channels.start_missing()
        try:
            async with asyncio.timeout(5):
                while not (one.polls and two.polls):  # noqa: ASYNC110 - whatever it is, it wakes nobody
                    await asyncio.sleep(0.002)
            yield Station(clock, one, two, channels, bus, failed)
        finally:
            await channels.stop()
            await owner.close()
            await bus.aclose()


async def test_an_hour_without_network_ends_with_everything_delivered_once_and_in_order(
    tmp_path: Path,
) -> None:
    async with station(tmp_path) as at:

        async def no_network() -> None:
            if at.clock.monotonic_s() <= 3_600:
                raise DeliveryError("one", "no route to host", retryable=True)

        at.one.sending = no_network
        for number in range(60):
            for chat in "abc":
                await at.reply(f"{number}", chat)
            await at.advance(60, 30)
        assert at.one.sent == []
        await at.advance(70)
        # No more time passes: what is ready takes only as long as the disk does.
        async with asyncio.timeout(20):
            while (await at.bus.depth()).outbound:
                await at.settle()
        assert (await at.bus.depth()).dead == 0
        for chat in "abc":
            found = [message.content for _, message in at.one.sent if message.chat_id == chat]
            assert found == [str(number) for number in range(60)]


async def test_a_channel_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    async with station(tmp_path) as at:

        async def hang() -> None:
            await asyncio.Event().wait()

        at.one.sending = hang
        for number in range(50):
            await at.reply(str(number), f"chat{number}", "one")
            await at.reply(str(number), "a", "two")
            published_s = at.clock.monotonic_s()
            async with asyncio.timeout(10):
                while len(at.two.sent) <= number and at.clock.monotonic_s() - published_s < 2:
                    await at.settle()
            sent_s, message = at.two.sent[number]
            assert message.content == str(number)
            assert sent_s - published_s <= 2
            await at.advance(2, 1)
        assert at.is_always("two", "running")


async def test_a_silent_death_is_found_and_cured(tmp_path: Path) -> None:
    async with station(tmp_path) as at:
        await at.advance(60)
        assert at.is_always("one", "running")

        async def die_silently() -> None:
            if at.one.lives == 1:
                await asyncio.Event().wait()

        died_s = at.one.polls[-1]
        at.one.polling = die_silently
        await at.advance(FOUND_WITHIN_S)
        assert at.one.lives == 2
        assert at.status().state == "running"
        cured_s = next(poll for poll in at.one.polls if poll > died_s)
        assert cured_s - died_s <= FOUND_WITHIN_S
        dead = [(moment, state) for moment, state in at.seen["one"] if died_s < moment < cured_s]
        assert all(
            state != "running" for moment, state in dead if moment - died_s > SILENCE_LIMIT_S
        )
        assert at.status().last_error == "no answer from its platform for 90 seconds"
        assert at.is_always("two", "running")
        assert at.two.lives == 1, "the other one was left alone"


async def test_a_conflict_is_told_and_cured(tmp_path: Path) -> None:
    """Two pollers share one account: the platform throws one out until the other is gone."""
    async with station(tmp_path) as at:
        await at.advance(30)
        began_s = at.clock.monotonic_s()

        async def conflict() -> None:
            if at.clock.monotonic_s() - began_s < 100:
                raise ChannelError("another poller uses this account")

        at.one.polling = conflict
        await at.advance(20)
        status = at.status()
        assert status.state != "running"
        assert status.last_error == "another poller uses this account"
        at.seen.clear()
        await at.advance(60)
        assert all(state != "running" for _, state in at.seen["one"])
        await at.advance(FOUND_WITHIN_S - 80)
        assert at.status().state == "running"
        assert at.failed == []
        assert at.is_always("two", "running")


async def test_a_channel_that_never_connects_is_given_up_with_one_notice(tmp_path: Path) -> None:
    async with station(tmp_path) as at:

        async def refuse() -> None:
            raise ChannelError("the token is not valid")

        at.one.polling = refuse
        await at.advance(30)
        at.seen.clear()
        await at.advance(1_200)
        assert all(state != "running" for _, state in at.seen["one"])
        assert at.status().state == "failed"
        assert [status.last_error for status in at.failed] == ["the token is not valid"]
        at.one.polling = _nothing
        await at.advance(FOUND_WITHIN_S)
        assert at.status().state == "running"
