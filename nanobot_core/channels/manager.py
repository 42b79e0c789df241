"""ChannelManager: the enabled channels, each running by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nanobot_core.channels.delivery import Delivery, bury_orphans
from nanobot_core.channels.inbox import ChannelInbox, verdict_on
from nanobot_core.channels.live import LiveView, WaitIndicator
from nanobot_core.channels.supervisor import SETTLED_S, Supervisor, uncontested
from nanobot_core.config.models import ChannelSettings
from nanobot_core.config.tree import find_key
from nanobot_core.contracts.channel import Channel
from nanobot_core.errors import FOREIGN_ERRORS, BusError, ChannelError, PluginRejected, ToolFailed
from nanobot_core.messages import InboundMessage
from nanobot_core.plugins.loader import make_object
from nanobot_core.tasks import CONNECTION_END_S, TASKS_END_S

if TYPE_CHECKING:
    from datetime import datetime

    from nanobot_core.channels.ports import ChannelPorts
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.contracts.login import LoginPrompt
    from nanobot_core.contracts.service import RunStatus
    from nanobot_core.messages import OutboundKind, OutboundMessage
    from nanobot_core.plugins.context import HostContext
    from nanobot_core.plugins.host import PluginHost
    from nanobot_core.plugins.manifest import Declaration

SWEEP_INTERVAL_S = 30.0
ACCESS_KEYS = frozenset({"allow_from", "group_policy", "groups"})
"""The settings of a channel that decide who may write."""


@dataclass(slots=True)
class _Entry:
    """One channel.

    Attributes:
        up: set while `channel` is there.
        account: who the agent is on the platform, as its last connection knew.
        last_received: time of the last message that was stored.
        last_sent: time of the last delivery.
    """

    name: str
    plugin: str
    factory: str
    supervisor: Supervisor
    settings: ChannelSettings = field(default_factory=ChannelSettings)
    channel: Channel | None = None
    up: asyncio.Event = field(default_factory=asyncio.Event)
    delivery: asyncio.Task[None] | None = None
    account: str = ""
    last_received: datetime | None = None
    last_sent: datetime | None = None

    @property
    def status(self) -> RunStatus:
        """The present state."""
        if self.channel is not None and self.channel.account:
            self.account = self.channel.account
        return replace(
            self.supervisor.status,
            account=self.account,
            last_received=self.last_received,
            last_sent=self.last_sent,
        )


class ChannelManager:
    """Starts, restarts and stops channels.

    Args:
        host: has the channels that plugins contribute.
        loaded: returns the present configuration.
        ports: what the channels share.
        on_failed: called once when a channel has failed too often.
    """

    def __init__(
        self,
        host: PluginHost,
        loaded: Callable[[], LoadedConfig],
        ports: ChannelPorts,
        *,
        on_failed: Callable[[RunStatus], Awaitable[None]],
    ) -> None:
        self._host = host
        self._loaded = loaded
        self._on_failed = on_failed
        self._ports = ports
        self._entries: dict[str, _Entry] = {}
        self.indicator: WaitIndicator = WaitIndicator(
            self.running,
            ports,
            patience_s=loaded().settings.gateway.patience_s,
        )

    def start_missing(self) -> None:
        """Start the channels that are enabled and do not run, concurrently."""
        for name, (plugin, channel) in self._wanted().items():
            if name not in self._entries:
                self._start_one(name, plugin, str(channel.detail["factory"]))

    async def stop(self, plugins: Collection[str] | None = None) -> None:
        """Stop the channels of these plugins, or all of them."""
        leaving = [
            entry for entry in self._entries.values() if plugins is None or entry.plugin in plugins
        ]
        async with asyncio.TaskGroup() as group:
            for entry in leaving:
                group.create_task(self._stop_one(entry))

    async def stop_unwanted(self) -> None:
        """Stop the channels that are no longer enabled."""
        wanted = self._wanted()
        for entry in list(self._entries.values()):
            if entry.name not in wanted:
                await self._stop_one(entry)

    async def sign_in(self, name: str, prompt: LoginPrompt) -> str:
        """Sign in to the platform of a channel, and start it again if it is enabled.

        Returns:
            Who the agent is there.

        Raises:
            ChannelError: as `sign_in`.
        """
        account = await sign_in(self._host, name, prompt)
        if (entry := self._entries.get(name)) is not None:
            await self._stop_one(entry)
        self.start_missing()
        return account

    def statuses(self) -> list[RunStatus]:
        """Return the state of every channel, by name."""
        return [entry.status for _, entry in sorted(self._entries.items())]

    async def send(self, message: OutboundMessage) -> None:
        """Store the message of a tool or a command for delivery.

        Raises:
            ToolFailed: the channel does not exist, or the message cannot be stored.
        """
        if message.channel not in self._entries:
            msg = f"channel '{message.channel}' does not exist or is disabled"
            raise ToolFailed(msg)
        try:
            await self._ports.outbox.publish(message)
        except BusError as error:
            msg = f"the message could not be stored: {error}"
            raise ToolFailed(msg) from error

    async def admits(self, message: InboundMessage) -> bool:
        """Whether the sender of a message may write in its chat now, as for a new message.

        Raises:
            BusError: the list of approved senders cannot be read.
        """
        if (found := self._wanted().get(message.channel)) is None:
            return False
        # The channel may not have started yet, or may have failed.
        section = self._loaded().settings.section(f"channels.{message.channel}") or {}
        found_keys = ((key, find_key(section, key)) for key in ACCESS_KEYS)
        known = {key: section[written] for key, written in found_keys if written}
        if owner_id := found[1].detail.get("owner_id"):
            known.setdefault("allow_from", [owner_id])
        settings = ChannelSettings.model_validate(known)
        addressed = replace(message, is_addressed=True)
        return await verdict_on(addressed, settings, self._ports.pairing) == "admitted"

    def running(self, name: str) -> Channel | None:
        """Return the channel of this name, or ``None`` while it does not run."""
        entry = self._entries.get(name)
        return entry.channel if entry else None

    def format_hint(self, name: str) -> str:
        """Return how a channel shows text, for the model."""
        channel = self.running(name)
        if channel is None:
            return ""
        dialect = channel.capabilities.markdown
        if dialect == "none":
            return "Your answer is shown as plain text; use no Markdown."
        return f"Your answer is shown in a chat ({dialect}); keep it short, use simple Markdown."

    def view(self, message: InboundMessage) -> LiveView | None:
        """Return what shows a turn to the chat of `message`, if its channel runs."""
        entry, given = self._entries.get(message.channel), message.assignment
        if entry is None or entry.channel is None:
            return None
        if given is not None and given.delivery == "when_notable":
            return None
        general, own = self._loaded().settings.channels, entry.settings
        progress = general.send_progress if own.send_progress is None else own.send_progress
        hints = general.send_tool_hints if own.send_tool_hints is None else own.send_tool_hints
        shown: set[OutboundKind] = {"notice"}
        if progress:
            shown.add("progress")
        if hints:
            shown.add("tool_hint")
        return LiveView(
            entry.channel,
            message,
            self._ports,
            shown=frozenset(shown),
            streams=own.streaming and (given is None or given.delivery == "always"),
        )

    async def show(self, channel: str, chat_id: str, text: str) -> None:
        """Show a line of progress in a chat, if its channel runs and shows progress."""
        message = InboundMessage(channel=channel, sender_id="", chat_id=chat_id, content="")
        if (view := self.view(message)) is not None:
            await view.show_progress(text)

    def _wanted(self) -> dict[str, tuple[str, Declaration]]:
        """Return plugin and declaration of each enabled channel by name."""
        settings = self._loaded().settings

        def is_enabled(channel: Declaration) -> bool:
            section = settings.section(f"channels.{channel.name}")
            if section is None:
                return bool(channel.detail.get("owner_id"))
            return section.get("enabled", True) is True

        declared = self._host.declared("channels")
        return uncontested("channel", [found for found in declared if is_enabled(found[1])])

    def _start_one(self, name: str, plugin: str, factory: str) -> None:
        async def attempt() -> None:
            await self._live(entry)

        async def when_up() -> Channel:
            while entry.channel is None:
                await entry.up.wait()
            return entry.channel

        def on_sent() -> None:
            entry.last_sent = self._ports.clock.now()

        supervisor = Supervisor(
            name,
            "channel",
            plugin,
            attempt,
            spawn=self._ports.spawn,
            clock=self._ports.clock,
            on_failed=self._on_failed,
        )
        entry = _Entry(name, plugin, factory, supervisor)
        delivery = Delivery(
            name,
            when_up,
            self._ports,
            give_up_after_s=self._loaded().settings.gateway.give_up_after_s,
            on_sent=on_sent,
        )
        self._entries[name] = entry
        supervisor.start()
        entry.delivery = self._ports.spawn(delivery.run(), name=f"delivery:{name}")

    async def _stop_one(self, entry: _Entry) -> None:
        self._entries.pop(entry.name, None)
        if entry.delivery is not None:
            # Before the channel, so that replies on their way may arrive.
            entry.delivery.cancel()
            await asyncio.wait({entry.delivery}, timeout=TASKS_END_S)
        await entry.supervisor.stop()

    async def _live(self, entry: _Entry) -> None:
        """Create the channel and let it receive until it ends."""
        supervisor = entry.supervisor
        context = await self._host.context_for(entry.plugin)
        entry.settings = _settings_of(context, entry.name)
        channel = await create_channel(context, entry.factory)
        supervisor.silence_limit_s = channel.capabilities.silence_limit_s

        def alive() -> None:
            # A call from a previous attempt must not count for this one.
            if entry.channel is channel:
                supervisor.alive()

        def on_received() -> None:
            entry.last_received = self._ports.clock.now()

        async def settle() -> None:
            await self._ports.clock.sleep(SETTLED_S)
            alive()

        entry.channel = channel
        entry.up.set()
        settling = None
        if supervisor.silence_limit_s is None:
            settling = self._ports.spawn(settle(), name=f"settling:{entry.name}")
        inbox = ChannelInbox(
            entry.settings, self._ports, self.indicator, on_alive=alive, on_received=on_received
        )
        try:
            await channel.start(inbox)
        finally:
            entry.up.clear()
            entry.channel = None
            supervisor.lost()
            if settling is not None:
                settling.cancel()
            await stop_channel(channel)

    async def sweep(self) -> None:
        """Bury replies to channels that do not exist any more; runs until cancelled."""
        from loguru import logger

        bus, missed = self._ports.bus, set[str]()
        while True:
            try:
                waiting = set(await bus.outbound_channels())
                # Missed twice, because a channel is away for a moment while its plugin changes.
                former, missed = missed, waiting - set(self._entries)
                for name in sorted(former & missed):
                    await bury_orphans(bus, name)
            except BusError as error:
                logger.error("cannot read the outbox: {}", error)
            await self._ports.clock.sleep(SWEEP_INTERVAL_S)


async def sign_in(host: PluginHost, name: str, prompt: LoginPrompt) -> str:
    """Sign in to the platform of a channel, which need not run.

    Returns:
        Who the agent is there.

    Raises:
        ChannelError: the channel does not exist, its platform does not accept the credentials, or
            is out of reach.
    """
    found = {channel.name: (plugin, channel) for plugin, channel in host.declared("channels")}
    if name not in found:
        msg = f"unknown channel '{name}'; installed: {', '.join(found) or 'none'}"
        raise ChannelError(msg)
    plugin, declaration = found[name]
    context = await host.context_for(plugin)
    channel = await create_channel(context, str(declaration.detail["factory"]))
    try:
        return await channel.login(prompt)
    finally:
        await stop_channel(channel)


async def create_channel(context: HostContext, factory: str) -> Channel:
    """Return a new channel of a plugin; raises as `make_object`."""
    return await make_object(context.id, factory, Channel, context)  # type: ignore[type-abstract]  # only isinstance is asked of it


async def stop_channel(channel: Channel) -> None:
    """Let a channel close its connection, within a limit."""
    from loguru import logger

    try:
        async with asyncio.timeout(CONNECTION_END_S):
            await channel.stop()
    except TimeoutError:
        logger.warning("channel {} did not stop in time", channel.name)
    except FOREIGN_ERRORS as error:
        kind = type(error).__name__
        logger.warning("channel {} failed to stop: {}: {}", channel.name, kind, error)


def _settings_of(context: HostContext, name: str) -> ChannelSettings:
    section = context.section(f"channels.{name}")
    if not isinstance(section, ChannelSettings):
        raise PluginRejected(
            context.id,
            f"the settings of channel '{name}' do not derive from ChannelSettings",
            f"contribute a SettingsSection for channels.{name} whose model does",
        )
    return section
