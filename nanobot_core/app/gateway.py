"""Gateway: channels, turns, services and the message queue, running for months."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from loguru import logger

from nanobot_core.app.approvals import ChatApprovals
from nanobot_core.app.control import ControlServer
from nanobot_core.app.face import GatewayFace
from nanobot_core.app.handlers import GatewayControls, handlers
from nanobot_core.app.lock import GatewayLock
from nanobot_core.app.owner import OwnerNotices
from nanobot_core.app.reloading import Load, Reloader, load_again
from nanobot_core.app.services import ServiceRunner
from nanobot_core.app.slots import create_bus
from nanobot_core.channels.inbox import Reception
from nanobot_core.channels.manager import ChannelManager
from nanobot_core.channels.outbox import Outbox
from nanobot_core.channels.pairing import PairingStore
from nanobot_core.channels.waiting import Waiting
from nanobot_core.errors import BusError
from nanobot_core.media import MediaStore
from nanobot_core.tasks import CLOSE_RESERVE_S, cancel_and_wait
from nanobot_core.turns.dispatcher import Dispatcher, Surroundings

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.app.application import Nanobot
    from nanobot_core.clock import Clock
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.contracts.bus import Bus
    from nanobot_core.contracts.service import RunStatus

FLUSH_STEP_S = 0.05
TIDY_INTERVAL_S = 86_400.0


@dataclass(slots=True)
class Parts:
    """The parts of a running gateway, for whoever commands it."""

    bot: Nanobot
    bus: Bus
    outbox: Outbox
    channels: ChannelManager
    services: ServiceRunner
    dispatcher: Dispatcher
    reception: Reception
    approvals: ChatApprovals
    pairing: PairingStore
    face: GatewayFace
    reloader: Reloader
    dispatching: asyncio.Task[None] | None = None
    control: ControlServer | None = None


class Gateway:
    """One gateway for a data folder.

    Args:
        bot: the agent, not started.
        clock: source of time.
        load: reads the configuration for a reload; as the agent's own file says by default.
        log: sends the log to where a new configuration says; the log stays as it is by default.

    Attributes:
        folder: where its lock, its queue and its control socket are.
    """

    def __init__(
        self,
        bot: Nanobot,
        clock: Clock,
        load: Load | None = None,
        log: Callable[[LoadedConfig], None] | None = None,
    ) -> None:
        self.folder: Path = bot.loaded.home / "gateway"
        self._bot = bot
        self._clock = clock
        self._load = load or partial(load_again, bot)
        self._log = log or (lambda _: None)
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._starting: asyncio.Task[object] | None = None

    def request_stop(self) -> None:
        """Make `run` end; called again, without waiting for turns any longer."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None

    async def run(self, on_ready: Callable[[], None] | None = None) -> None:
        """Work until `request_stop` or a signal, then end within the grace time.

        A start that is under way is broken off.

        Args:
            on_ready: called when messages are admitted.

        Raises:
            GatewayRunning: another gateway works on this folder.
            FolderUnusable: the folder cannot be written.
            BusError: the message queue cannot be opened.
            PluginError: a required plugin cannot run.
            ConfigError: the configuration names what does not exist.
        """
        self._starting = asyncio.current_task()
        try:
            # Before the lock, whose file tells others that there is somebody to be stopped.
            with _signals(self), _held(self.folder):
                async with self._running() as parts:
                    self._starting = None
                    with _reloads(parts):
                        if on_ready is not None:
                            on_ready()
                        await self._stop.wait()
                    await self._drain(parts)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._stop.is_set() or task is None or task.uncancel():
                raise
        finally:
            self._starting = None

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[Parts]:
        """Start everything, in an order whose reverse is that of stopping."""
        bot, clock = self._bot, self._clock
        async with AsyncExitStack() as stack:
            bus = await create_bus(bot.plugins, bot.loaded, clock)
            stack.push_async_callback(bus.aclose)
            outbox = Outbox(
                bus,
                lambda: bot.plugins.hooks,
                lambda name: channels.has(name),  # noqa: PLW0108 - it is made below
                bot.redact,
            )
            owner = OwnerNotices(
                self.folder / "owner.json", outbox, lambda: bot.loaded.settings.owner
            )

            async def on_failed(status: RunStatus) -> None:
                text = (
                    f"{status.kind} {status.name} has failed {status.restarts} times and is given "
                    f"up for now: {status.last_error}"
                )
                await owner.tell(text, f"failed:{status.name}:{status.since.isoformat()}")

            channels = ChannelManager(
                bot.plugins, lambda: bot.loaded, spawn=bot.spawn, clock=clock, on_failed=on_failed
            )
            services = ServiceRunner(bot.plugins, spawn=bot.spawn, clock=clock, on_failed=on_failed)
            face = GatewayFace(bot, bus, channels, services, clock.now())

            async def withdraw(plugin_id: str) -> None:
                await channels.stop({plugin_id})
                await services.stop({plugin_id})

            bot.plugins.attach_gateway(face, withdraw)
            await stack.enter_async_context(bot)
            parts = self._assemble(bus, outbox, owner, channels, services, face)
            control = ControlServer(self.folder, handlers(parts, self.request_stop), bot.spawn)
            parts.control = control
            for plugin, plugin_id in ((parts.approvals, "approvals"), (control, "control")):
                await bot.plugins.register(plugin, plugin_id)
            services.start_missing()
            stack.push_async_callback(services.stop)
            channels.start(parts.reception)
            stack.push_async_callback(channels.stop)
            await control.start()
            stack.push_async_callback(control.stop)
            for work, name in (
                (bot.plugins.watch_loop(), "watch"),
                (self._tidy(), "tidy"),
                (owner.keep(), "owner"),
            ):
                stack.push_async_callback(cancel_and_wait, bot.spawn(work, name=name))
            # Last, since a turn that is taken up may at once ask the owner or write to its chat.
            parts.dispatching = bot.spawn(parts.dispatcher.run(), name="dispatcher")
            face.ready = True
            yield parts

    def _assemble(
        self,
        bus: Bus,
        outbox: Outbox,
        owner: OwnerNotices,
        channels: ChannelManager,
        services: ServiceRunner,
        face: GatewayFace,
    ) -> Parts:
        """Connect the started agent with what surrounds it."""
        bot, clock, settings = self._bot, self._clock, self._bot.loaded.settings
        waiting = Waiting(
            channels.running,
            outbox,
            spawn=bot.spawn,
            clock=clock,
            patience_s=settings.gateway.patience_s,
        )
        dispatcher = face.dispatcher = Dispatcher(
            bus,
            bot.pipeline,
            Surroundings(outbox, waiting, channels.view, owner.is_owner),
            spawn=bot.spawn,
            clock=clock,
            max_turns=settings.agents.max_concurrent_turns,
            steering=settings.agents.defaults.steering,
        )
        pairing = PairingStore(self.folder / "pairing.json", clock)
        parts = Parts(
            bot=bot,
            bus=bus,
            outbox=outbox,
            channels=channels,
            services=services,
            dispatcher=dispatcher,
            reception=self._reception(bus, outbox, pairing, waiting),
            approvals=self._approvals(outbox, owner, dispatcher),
            pairing=pairing,
            face=face,
            reloader=Reloader(bot, channels, services, self._load, self._log),
        )
        bot.pipeline.outbox = outbox.publish_for_tool
        bot.pipeline.format_hint = channels.format_hint
        bot.pipeline.awaits_approval = parts.approvals.awaits
        bot.commands.controls = GatewayControls(parts)
        return parts

    def _reception(
        self, bus: Bus, outbox: Outbox, pairing: PairingStore, waiting: Waiting
    ) -> Reception:
        return Reception(
            bus=bus,
            outbox=outbox,
            pairing=pairing,
            waiting=waiting,
            hooks=lambda: self._bot.plugins.hooks,
            is_control=self._bot.commands.is_control,
            clock=self._clock,
        )

    def _approvals(
        self, outbox: Outbox, owner: OwnerNotices, dispatcher: Dispatcher
    ) -> ChatApprovals:
        return ChatApprovals(
            self.folder / "approvals.json",
            outbox,
            self._clock,
            timeout_s=self._bot.loaded.settings.tools.approval_timeout_s,
            has_owner=lambda: bool(self._bot.loaded.settings.owner),
            owner_chat=lambda: owner.chat,
            without_slot=dispatcher.without_slot,
        )

    async def _tidy(self) -> None:
        """Remove old files once a day."""
        media = MediaStore(self._bot.loaded.home / "media")
        while True:
            settings = self._bot.loaded.settings
            # A file may be part of a reply that is still to be delivered.
            undelivered_days = settings.gateway.give_up_after_s / TIDY_INTERVAL_S
            keep_days = max(settings.channels.media_keep_days, undelivered_days)
            await asyncio.to_thread(media.remove_older, keep_days)
            await self._clock.sleep(TIDY_INTERVAL_S)

    async def _drain(self, parts: Parts) -> None:
        """Take nothing in, let turns end, deliver what is ready; the rest waits on disk."""
        parts.face.ready = False
        parts.reception.is_open = False
        if parts.dispatching is not None:
            await cancel_and_wait(parts.dispatching)
        grace_s = parts.bot.loaded.settings.gateway.grace_s
        limit_s = grace_s - min(CLOSE_RESERVE_S, grace_s / 2)
        ending = parts.bot.spawn(self._finish(parts, limit_s), name="finish")
        hurry = parts.bot.spawn(self._hurry.wait(), name="hurry")
        await asyncio.wait({ending, hurry}, return_when=asyncio.FIRST_COMPLETED)
        await cancel_and_wait(hurry)
        await cancel_and_wait(ending)
        await parts.dispatcher.drain(0)

    async def _finish(self, parts: Parts, limit_s: float) -> None:
        """Let turns end by themselves and replies be delivered, for at most `limit_s` seconds."""
        started = self._clock.monotonic_s()
        async with asyncio.TaskGroup() as group:
            group.create_task(parts.dispatcher.drain(limit_s))
            if parts.control is not None:
                group.create_task(parts.control.drain(limit_s))
        try:
            while self._clock.monotonic_s() - started < limit_s:
                if not (await parts.bus.depth()).outbound:
                    break
                await self._clock.sleep(FLUSH_STEP_S)
        except BusError as error:
            logger.error("nobody knows whether replies wait: {}", error)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    lock = GatewayLock.acquire(folder)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _signals(gateway: Gateway) -> Iterator[None]:
    """End on SIGTERM and Ctrl-C."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, gateway.request_stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


@contextmanager
def _reloads(parts: Parts) -> Iterator[None]:
    """Reload on SIGHUP."""
    loop = asyncio.get_running_loop()

    def reload() -> None:
        parts.bot.spawn(parts.reloader.reload_and_tell(), name="reload")

    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
