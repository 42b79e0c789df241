"""Delivery: replies from the outbox to one channel, retried as its errors say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from nanobot_core.errors import FOREIGN_ERRORS, BusError, ChannelError, DeliveryError
from nanobot_core.events import DeliveryFinished
from nanobot_core.tasks import (
    RETRY_S,
    SENDING_END_S,
    growing_delay_s,
    retry_until_stored,
    run_bounded,
)

if TYPE_CHECKING:
    from nanobot_core.channels.ports import ChannelPorts
    from nanobot_core.contracts.bus import Bus, OutboundLease
    from nanobot_core.contracts.channel import Channel

SEND_LIMIT_S = 120.0
"""Seconds that one message may take, its files included."""
LONGEST_DELAY_S = 60.0
RECEIVERS = 4
"""Messages requested at the same time: each request waits for the queue's current write."""
SIDE_BY_SIDE = 8
"""Chats of one channel that are written to at the same time."""
ORPHAN_LIMIT_S = 1.0


class Delivery:
    """Takes the replies of one channel from the outbox and sends them.

    Args:
        name: name of the channel.
        channel: returns it once it runs.
        ports: what all channels share.
        give_up_after_s: age in seconds at which an undelivered reply becomes a dead letter.
        on_sent: called when a message is delivered.
    """

    def __init__(
        self,
        name: str,
        channel: Callable[[], Awaitable[Channel]],
        ports: ChannelPorts,
        *,
        give_up_after_s: float,
        on_sent: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._channel = channel
        self._ports = ports
        self._give_up_after_s = give_up_after_s
        self._on_sent = on_sent

    async def run(self) -> None:
        """Deliver until cancelled; messages that are being sent then are retried later."""
        sending: set[asyncio.Task[None]] = set()
        try:
            async with asyncio.TaskGroup() as receivers:
                for _ in range(RECEIVERS):
                    receivers.create_task(self._receive(sending))
        finally:
            if sending:
                # A cancelled one may have arrived, and would be sent twice.
                await asyncio.wait(sending, timeout=SENDING_END_S)
            for task in sending:
                task.cancel()
            if sending:
                await asyncio.wait(sending)

    async def _receive(self, sending: set[asyncio.Task[None]]) -> None:
        """Begin to send one message after another, each in a task of its own in `sending`."""
        from loguru import logger

        slots = asyncio.Semaphore(SIDE_BY_SIDE // RECEIVERS)
        while True:
            await slots.acquire()
            try:
                await self._channel()
                lease = await self._ports.bus.receive_outbound(self._name)
            except BusError as error:
                slots.release()
                logger.error("{}: cannot read the outbox: {}", self._name, error)
                await self._ports.clock.sleep(RETRY_S)
                continue
            task = self._ports.spawn(self._deliver(lease), name=f"send:{self._name}:{lease.id}")
            sending.add(task)
            task.add_done_callback(sending.discard)
            task.add_done_callback(lambda _task: slots.release())

    async def _deliver(self, lease: OutboundLease) -> None:
        try:
            problem = await self._attempt(lease)
        except asyncio.CancelledError:
            with suppress(BusError):  # the next process finds it anyway
                await self._ports.bus.release(lease)
            raise
        settled = partial(self._settle, lease, problem)
        await retry_until_stored(settled, self._ports.clock, f"a delivery of {self._name}")

    async def _attempt(self, lease: OutboundLease) -> DeliveryError | None:
        """Send once; return what went wrong."""
        try:
            return await run_bounded(
                self._ports.spawn,
                self._contained(lease),
                limit_s=SEND_LIMIT_S,
                name=f"sending:{self._name}:{lease.id}",
            )
        except TimeoutError:
            reason = f"it took longer than {SEND_LIMIT_S:g} seconds"
            return DeliveryError(self._name, reason, retryable=True)

    async def _contained(self, lease: OutboundLease) -> DeliveryError | None:
        """Send once; any exception of the channel becomes a failed delivery."""
        try:
            channel = await self._channel()
            await channel.send(lease.message)
        except DeliveryError as error:
            return error
        except ChannelError as error:
            return DeliveryError(self._name, str(error), retryable=True)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return DeliveryError(self._name, "its channel cancelled it", retryable=True)
        except FOREIGN_ERRORS as error:
            reason = f"{type(error).__name__}: {error}"
            return DeliveryError(self._name, reason, retryable=True)
        return None

    async def _settle(self, lease: OutboundLease, problem: DeliveryError | None) -> None:
        from loguru import logger

        if problem is None:
            await self._ports.bus.acknowledge(lease)
            self._on_sent()
            self._report(lease, None)
            return
        age_s = (self._ports.clock.now() - lease.stored_at).total_seconds()
        if problem.retryable and age_s < self._give_up_after_s:
            delay_s = problem.retry_after_s or growing_delay_s(lease.attempt, LONGEST_DELAY_S)
            log = logger.info if lease.attempt == 1 else logger.debug
            log("{}: try again in {:g} s: {}", self._name, delay_s, problem.reason)
            await self._ports.bus.release(lease, delay_s=delay_s)
            return
        reason = problem.reason if not problem.retryable else f"given up: {problem.reason}"
        await self._ports.bus.bury(lease, reason)
        logger.warning("{}: dead letter: {}", self._name, reason)
        self._report(lease, reason)

    def _report(self, lease: OutboundLease, error: str | None) -> None:
        if after_delivery := self._ports.hooks().after_delivery:
            after_delivery(
                DeliveryFinished(message=lease.message, attempts=lease.attempt, error=error)
            )


async def bury_orphans(bus: Bus, channel: str) -> None:
    """Move the replies for a missing channel to the dead letters.

    Raises:
        BusError: the outbox cannot be read or written.
    """
    reason = f"channel '{channel}' does not exist or is disabled"
    try:
        while True:
            async with asyncio.timeout(ORPHAN_LIMIT_S):
                lease = await bus.receive_outbound(channel)
            await bus.bury(lease, reason)
    except TimeoutError:
        return
