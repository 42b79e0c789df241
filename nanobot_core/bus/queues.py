"""The bus on top of the ledger: the common part, and the bus in memory."""

from __future__ import annotations

import asyncio
import sqlite3
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from nanobot_core.bus.entry import (
    INBOUND,
    channel_of,
    decode_inbound,
    decode_outbound,
    inbound_entry,
    instant,
    lane_of,
    microseconds,
    outbound_entry,
    outbound_queue,
)
from nanobot_core.bus.ledger import DEAD, SCHEMA, Ledger, Place
from nanobot_core.bus.transaction import Operation, Transactions
from nanobot_core.clock import SystemClock
from nanobot_core.contracts.bus import Bus, BusDepth, InboundLease, OutboundLease
from nanobot_core.messages import InboundMessage, OutboundMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nanobot_core.bus.entry import Taken
    from nanobot_core.clock import Clock
    from nanobot_core.contracts.bus import DeadLetter, Lease

DEFAULT_MAX_WAITING: Final = 10_000

_MICROSECONDS: Final = 1_000_000
_DIGITS: Final = 18
"""Digits that fit into SQLite's integers."""

_T = TypeVar("_T")
_M = TypeVar("_M", InboundMessage, OutboundMessage)


class LedgerBus(Bus):
    """A bus whose queues are tables. A subclass says where operations on them run.

    Args:
        clock: stamps messages and measures delays.
        max_waiting: how many received messages may be stored and not done.
    """

    def __init__(self, clock: Clock, max_waiting: int) -> None:
        self._clock = clock
        self._max_waiting = max_waiting
        self._news: dict[str, asyncio.Event] = {}
        """By queue, what its receivers wait for."""

    @abstractmethod
    async def _perform(self, operation: Operation) -> object:
        """Do `operation`, alone or with others, and return its result.

        Raises:
            BusError: nothing has changed.

        Cancellation:
            The operation may still be done; a message that it has handed out is put back.
        """

    async def publish_inbound(self, message: InboundMessage) -> bool:
        """See `Bus.publish_inbound`."""
        entry, now_us = inbound_entry(message), self._now_us()
        return await self._do(lambda ledger: ledger.publish(entry, now_us, self._max_waiting))

    async def receive_inbound(self) -> InboundLease:
        """See `Bus.receive_inbound`."""
        taken, message = await self._receive(INBOUND, decode_inbound)
        return _inbound_lease(taken, message)

    async def take_inbound(self, session_key: str) -> InboundLease | None:
        """See `Bus.take_inbound`. ``None`` also while the next one's delay has not passed."""
        lane = lane_of(session_key)
        while True:
            now_us = self._now_us()
            take = partial(Ledger.take_lane, queue=INBOUND, lane=lane, now_us=now_us)
            taken = await self._do(take, is_durable=False)
            if taken is None:
                return None
            message = await self._read(taken, decode_inbound)
            if message is not None:
                return _inbound_lease(taken, message)

    async def publish_outbound(self, message: OutboundMessage) -> bool:
        """See `Bus.publish_outbound`."""
        entry, now_us = outbound_entry(message), self._now_us()
        return await self._do(lambda ledger: ledger.publish(entry, now_us))

    async def receive_outbound(self, channel: str) -> OutboundLease:
        """See `Bus.receive_outbound`."""
        taken, message = await self._receive(outbound_queue(channel), decode_outbound)
        return OutboundLease(
            id=str(taken.number),
            attempt=taken.attempt,
            stored_at=instant(taken.stored_us),
            message=message,
        )

    async def acknowledge(self, lease: Lease, *, replies: Sequence[OutboundMessage] = ()) -> None:
        """See `Bus.acknowledge`."""
        number, now_us = _number(lease.id), self._now_us()
        entries = [outbound_entry(reply) for reply in replies]
        await self._do(lambda ledger: ledger.acknowledge(number, lease.attempt, entries, now_us))

    async def release(self, lease: Lease, *, delay_s: float = 0.0) -> None:
        """See `Bus.release`."""
        number = _number(lease.id)
        due_us = self._now_us() + round(delay_s * _MICROSECONDS) if delay_s > 0 else 0
        await self._do(
            lambda ledger: ledger.release(number, lease.attempt, due_us), is_durable=False
        )

    async def bury(self, lease: Lease, reason: str) -> None:
        """See `Bus.bury`."""
        await self._bury(_number(lease.id), lease.attempt, reason)

    async def dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        """See `Bus.dead_letters`. One that cannot be read has its stored text as content."""
        return await self._do(lambda ledger: ledger.dead_letters(limit), is_durable=False)

    async def revive(self, letter_id: str) -> bool:
        """See `Bus.revive`. It comes before messages that arrived later."""
        number = _number(letter_id)
        return await self._do(lambda ledger: ledger.revive(number))

    async def drop(self, letter_id: str) -> bool:
        """See `Bus.drop`."""
        number = _number(letter_id)
        return await self._do(lambda ledger: ledger.drop(number))

    async def depth(self) -> BusDepth:
        """See `Bus.depth`."""
        counts = await self._do(lambda ledger: ledger.counts.by_queue.copy(), is_durable=False)
        inbound, dead = counts[INBOUND], counts[DEAD]
        return BusDepth(inbound=inbound, outbound=counts.total() - inbound - dead, dead=dead)

    async def outbound_channels(self) -> frozenset[str]:
        """See `Bus.outbound_channels`."""
        counts = await self._do(lambda ledger: ledger.counts.by_queue.copy(), is_durable=False)
        channels = (channel_of(queue) for queue in counts if queue != DEAD)
        return frozenset(channel for channel in channels if channel is not None)

    async def has_outbound(self, channel: str, chat_id: str) -> bool:
        """See `Bus.has_outbound`."""
        place = Place(outbound_queue(channel), lane_of(chat_id), is_control=False)
        return await self._do(lambda ledger: ledger.counts.has_stored(place), is_durable=False)

    async def _receive(self, queue: str, decode: Callable[[str], _M]) -> tuple[Taken, _M]:
        while True:
            # Before looking, so that what comes meanwhile is not missed.
            news, now_us = self._news.setdefault(queue, asyncio.Event()), self._now_us()
            take = partial(Ledger.take, queue=queue, now_us=now_us)
            taken, due_us = await self._do(take, is_durable=False)
            if taken is None:
                if due_us is None:
                    await news.wait()
                else:
                    await self._wait_until_due(queue, news, (due_us - now_us) / _MICROSECONDS)
                continue
            message = await self._read(taken, decode)
            if message is not None:
                return taken, message

    async def _wait_until_due(self, queue: str, news: asyncio.Event, delay_s: float) -> None:
        async def ring() -> None:
            await self._clock.sleep(delay_s)
            self._wake([queue])

        async with asyncio.TaskGroup() as tasks:
            timer = tasks.create_task(ring())
            await news.wait()
            timer.cancel()

    def _wake(self, queues: Iterable[str]) -> None:
        """Let the receivers of these queues look again."""
        for queue in queues:
            if news := self._news.pop(queue, None):
                news.set()

    async def _read(self, taken: Taken, decode: Callable[[str], _M]) -> _M | None:
        """Return the message; an unreadable one is buried, so that it delays no other."""
        try:
            return decode(taken.payload)
        except ValueError as error:
            reason = f"its stored text cannot be read: {error}"
            await self._bury(taken.number, taken.attempt, reason)
            return None

    async def _bury(self, number: int, attempt: int, reason: str) -> None:
        now_us = self._now_us()
        await self._do(lambda ledger: ledger.bury(number, attempt, reason, now_us))

    async def _do(self, work: Callable[[Ledger], _T], *, is_durable: bool = True) -> _T:
        # The result of `work`, whose type `_perform` does not know.
        return await self._perform(Operation(work, is_durable))  # type: ignore[return-value]

    def _now_us(self) -> int:
        return microseconds(self._clock.now())


class MemoryBus(LedgerBus):
    """A bus in memory, for runs that answer one message and for tests. For one event loop.

    Args:
        clock: stamps messages and measures delays; the machine's own by default.
        max_waiting: how many received messages may be stored and not done.
    """

    def __init__(self, clock: Clock | None = None, max_waiting: int = DEFAULT_MAX_WAITING) -> None:
        super().__init__(clock or SystemClock(), max_waiting)
        database = sqlite3.connect(":memory:", isolation_level=None)
        for statement in SCHEMA:
            database.execute(statement)
        self._transactions = Transactions(database, "in memory")

    async def aclose(self) -> None:
        """Forget everything."""
        self._transactions.close()

    async def _perform(self, operation: Operation) -> object:
        await asyncio.sleep(0)  # lets others run, even if the caller works on it without a pause
        ((result, failure),) = self._transactions.run([operation])
        self._wake(self._transactions.take_readied())
        if failure is not None:
            raise failure
        return result


def _inbound_lease(taken: Taken, message: InboundMessage) -> InboundLease:
    return InboundLease(
        id=str(taken.number),
        attempt=taken.attempt,
        stored_at=instant(taken.stored_us),
        message=message,
    )


def _number(name: str) -> int:
    """Return the number in a message's name; 0, which no message has, for any other text."""
    return int(name) if name.isascii() and name.isdigit() and len(name) <= _DIGITS else 0
