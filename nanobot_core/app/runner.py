"""GatewayRunner: starts, runs and stops a gateway."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from loguru import logger

from nanobot_core.app.control import ControlServer
from nanobot_core.app.gateway import Gateway
from nanobot_core.app.handlers import handlers
from nanobot_core.app.lock import gateway_lock
from nanobot_core.app.reloading import Load, load_again
from nanobot_core.app.slots import create_bus
from nanobot_core.errors import BusError
from nanobot_core.media import MediaStore
from nanobot_core.tasks import CLOSE_RESERVE_S, cancel_and_wait
from nanobot_core.turns.dispatcher import Dispatcher, DispatcherPorts
from nanobot_core.turns.request import TurnPorts

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.app.application import Nanobot
    from nanobot_core.clock import Clock
    from nanobot_core.config.loading import LoadedConfig

FLUSH_STEP_S = 0.05
TIDY_INTERVAL_S = 86_400.0


class GatewayRunner:
    """Runs the gateway of one data folder.

    Args:
        bot: the agent, not started.
        clock: source of time.
        load: reads the configuration for a reload; by default the agent's own file.
        log: applies the logging settings of a new configuration; by default nothing.
        options: options of the command line before its command, for children that use the same
            configuration.

    Attributes:
        folder: contains its lock, queue and control socket.
    """

    def __init__(
        self,
        bot: Nanobot,
        clock: Clock,
        load: Load | None = None,
        log: Callable[[LoadedConfig], None] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.folder: Path = bot.loaded.home / "gateway"
        self._bot = bot
        self._clock = clock
        self._load = load or partial(load_again, bot)
        self._log = log or (lambda _: None)
        self._options = options
        self._stop = asyncio.Event()
        self._is_restart = False
        self._hurry = asyncio.Event()
        self._starting: asyncio.Task[object] | None = None

    def request_restart(self) -> None:
        """Make `run` end and return True. Has no effect if it is ending already."""
        if not self._stop.is_set():
            self.request_stop()
            self._is_restart = True

    def request_stop(self) -> None:
        """Make `run` end; a second call makes it end without waiting for turns."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()
        self._is_restart = False
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None

    async def run(self, on_ready: Callable[[], None] | None = None) -> bool:
        """Run until `request_stop`, `request_restart` or a signal; end within the grace time.

        A stop during the start cancels the start. Before a restart, channels accept messages until
        turns have ended; the next process answers them.

        Args:
            on_ready: called when messages are accepted.

        Returns:
            Whether a restart was requested, and the caller is to run the gateway again.

        Raises:
            GatewayLockError: another gateway uses this folder, or it cannot be written.
            BusError: the message queue cannot be opened.
            PluginError: a required plugin cannot run.
            ConfigError: the configuration names something that does not exist.
        """
        self._starting = asyncio.current_task()
        try:
            # Before the lock, because others may stop the gateway as soon as they see its file.
            endings = (signal.SIGTERM, signal.SIGINT)
            with _on_signals(self.request_stop, *endings), gateway_lock(self.folder):
                await self._work(on_ready)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._stop.is_set() or task is None or task.uncancel():
                raise
        finally:
            self._starting = None
        return self._is_restart

    async def _work(self, on_ready: Callable[[], None] | None) -> None:
        async with AsyncExitStack() as stack:
            bus = await create_bus(self._bot.plugins, self._bot.loaded, self._clock)
            stack.push_async_callback(bus.aclose)
            gateway = Gateway(self._bot, bus, self._clock, self._load, self._log, self._options)
            control = ControlServer(
                self.folder,
                handlers(gateway, self.request_stop, self.request_restart),
                self._bot.spawn,
            )
            async with self._started(gateway, control) as (dispatcher, dispatching):
                self._starting = None
                with _on_signals(partial(self._reload, gateway), signal.SIGHUP):
                    if on_ready is not None:
                        on_ready()
                    await self._stop.wait()
                await self._drain(gateway, control, dispatcher, dispatching)

    @asynccontextmanager
    async def _started(
        self, gateway: Gateway, control: ControlServer
    ) -> AsyncIterator[tuple[Dispatcher, asyncio.Task[None]]]:
        """Start everything; stop it in reverse order at the end."""
        bot, channels, services = gateway.bot, gateway.channels, gateway.services
        bot.plugins.attach_gateway(gateway, gateway.reloader.withdraw)
        async with AsyncExitStack() as stack:
            await bot.start(
                TurnPorts(
                    send=channels.send,
                    format_hint=channels.format_hint,
                    awaits_approval=gateway.approvals.awaits,
                    standing=gateway.standing,
                    controls=gateway,
                )
            )
            stack.push_async_callback(bot.stop)
            _warn_of_missing_channels(bot)
            await bot.plugins.register(gateway.approvals, "approvals")
            await bot.plugins.register(gateway.totals, "totals")
            stack.push_async_callback(services.stop)
            services.start_missing()
            stack.push_async_callback(channels.stop)
            channels.start_missing()
            stack.push_async_callback(control.stop)
            await control.start()
            for work, name in (
                (bot.plugins.watch_loop(), "watch"),
                (channels.sweep(), "orphans"),
                (gateway.owner.keep(), "owner"),
                (self._tidy(), "tidy"),
            ):
                stack.push_async_callback(cancel_and_wait, bot.spawn(work, name=name))
            dispatcher = self._dispatcher(gateway)
            # Last, because a continued turn may ask the owner or write to its chat at once.
            dispatching = bot.spawn(dispatcher.run(), name="dispatcher")
            gateway.ready.set()
            yield dispatcher, dispatching

    def _dispatcher(self, gateway: Gateway) -> Dispatcher:
        bot, channels = gateway.bot, gateway.channels
        return Dispatcher(
            gateway.bus,
            bot.pipeline,
            DispatcherPorts(
                outbox=gateway.outbox,
                indicator=channels.indicator,
                view=channels.view,
                is_owner=gateway.owner.is_owner,
                standing=gateway.standing,
            ),
            gateway.turns,
            spawn=bot.spawn,
            clock=self._clock,
            steering=bot.loaded.settings.agents.defaults.steering,
        )

    async def _drain(
        self,
        gateway: Gateway,
        control: ControlServer,
        dispatcher: Dispatcher,
        dispatching: asyncio.Task[None],
    ) -> None:
        """Let turns end and deliver replies; accept no more messages. The rest stays on disk."""
        bot = gateway.bot
        gateway.ready.clear()
        if not self._is_restart:
            gateway.ports.stopping.set()
        await cancel_and_wait(dispatching)
        grace_s = bot.loaded.settings.gateway.grace_s
        limit_s = grace_s - min(CLOSE_RESERVE_S, grace_s / 2)
        ending = bot.spawn(self._finish(gateway, control, dispatcher, limit_s), name="finish")
        hurry = bot.spawn(self._hurry.wait(), name="hurry")
        await asyncio.wait({ending, hurry}, return_when=asyncio.FIRST_COMPLETED)
        await cancel_and_wait(hurry)
        await cancel_and_wait(ending)
        gateway.ports.stopping.set()
        await dispatcher.drain(0)

    async def _finish(
        self, gateway: Gateway, control: ControlServer, dispatcher: Dispatcher, limit_s: float
    ) -> None:
        """Let turns finish and deliver replies, for at most `limit_s` seconds."""
        started = self._clock.monotonic_s()
        async with asyncio.TaskGroup() as group:
            group.create_task(dispatcher.drain(limit_s))
            group.create_task(control.drain(limit_s))
        try:
            while self._clock.monotonic_s() - started < limit_s:
                if not (await gateway.bus.depth()).outbound:
                    break
                await self._clock.sleep(FLUSH_STEP_S)
        except BusError as error:
            logger.error("cannot read whether replies are still undelivered: {}", error)

    async def _tidy(self) -> None:
        """Remove old media files once a day."""
        media = MediaStore(self._bot.loaded.home / "media")
        while True:
            settings = self._bot.loaded.settings
            # A file may be part of an undelivered reply.
            undelivered_days = settings.gateway.give_up_after_s / TIDY_INTERVAL_S
            keep_days = max(settings.channels.media_keep_days, undelivered_days)
            await asyncio.to_thread(media.remove_older, keep_days)
            await self._clock.sleep(TIDY_INTERVAL_S)

    def _reload(self, gateway: Gateway) -> None:
        gateway.bot.spawn(gateway.reloader.reload_and_log(), name="reload")


def _warn_of_missing_channels(bot: Nanobot) -> None:
    provided = {declaration.name for _, declaration in bot.plugins.declared("channels")}
    for name, section in (bot.loaded.settings.channels.model_extra or {}).items():
        is_enabled = isinstance(section, dict) and section.get("enabled", True) is True
        if is_enabled and name not in provided:
            logger.warning("no plugin provides the channel '{}'; run nanobot doctor", name)


@contextmanager
def _on_signals(react: Callable[[], None], *numbers: signal.Signals) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.add_signal_handler(number, react)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
