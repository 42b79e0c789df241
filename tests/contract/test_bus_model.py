"""Whatever is done with a bus in whatever order, it does what a plain list would do."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nanobot_core.bus.entry import INBOUND, inbound_entry
from nanobot_core.bus.ledger import Ledger
from nanobot_core.bus.queues import LedgerBus, MemoryBus
from nanobot_core.bus.sqlite import SqliteBus
from nanobot_core.bus.transaction import Operation
from nanobot_core.contracts.bus import BusDepth, InboundLease, Lease, OutboundLease
from nanobot_core.errors import BusError, BusFull
from nanobot_core.testing.bus import finishes, inbound, outbound
from nanobot_core.testing.clock import FakeClock

T = TypeVar("T")

pytestmark = pytest.mark.timeout(600)  # a failure is reported only when its example is small

MAX_WAITING = 6
CHATS = st.sampled_from(["a", "b", "c"])
CHANNELS = st.sampled_from(["test", "other"])
KEYS = st.one_of(st.none(), st.sampled_from(["k", "l"]))
DELAYS_S = st.sampled_from([0.0, 1.0, 30.0])


@dataclass
class Stored:
    """One message of the list, which is in the order of arrival."""

    queue: str
    chat: str
    content: str
    is_control: bool = False
    state: str = "waiting"
    due_s: float = 0.0
    attempts: int = 0


@dataclass
class Model:
    """A bus as a list, looked through from its beginning for everything."""

    stored: list[Stored] = field(default_factory=list)
    seen: set[tuple[str, ...]] = field(default_factory=set)
    buried: list[Stored] = field(default_factory=list)

    def of(self, queue: str) -> list[Stored]:
        return [one for one in self.stored if one.queue == queue]

    def live(self, *, is_inbound: bool) -> int:
        return sum((one.queue == "in") == is_inbound and one.state != "dead" for one in self.stored)

    def lane(self, queue: str, chat: str) -> list[Stored]:
        return [
            one
            for one in self.of(queue)
            if one.chat == chat and not one.is_control and one.state != "dead"
        ]

    def next_of(self, queue: str, now_s: float) -> Stored | None:
        waiting = [one for one in self.of(queue) if one.state == "waiting" and one.due_s <= now_s]
        ready = [one for one in waiting if one.is_control or self.is_next_of_chat(one)]
        command = next((one for one in ready if one.is_control), None)
        if command is None:
            return ready[0] if ready else None
        return next(one for one in ready if one is command or one.chat == command.chat)

    def is_next_of_chat(self, one: Stored) -> bool:
        lane = self.lane(one.queue, one.chat)
        return lane[0] is one and all(other.state != "out" for other in lane)

    def next_in_lane(self, queue: str, chat: str, now_s: float) -> Stored | None:
        for one in self.of(queue):
            is_due = one.state == "waiting" and one.due_s <= now_s
            if one.is_control and one.chat == chat and is_due:
                return one
        waiting = [one for one in self.lane(queue, chat) if one.state == "waiting"]
        return waiting[0] if waiting and waiting[0].due_s <= now_s else None


class BusMachine(RuleBasedStateMachine):
    """Does the same with a bus and with the list."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = FakeClock()
        self.model = Model()
        self.leases: list[tuple[Stored, Lease]] = []
        self.number = 0
        self.bus = self.run(self.opened())

    async def opened(self) -> LedgerBus:
        return MemoryBus(self.clock, MAX_WAITING)

    def run(self, work: Coroutine[object, object, T]) -> T:
        async def limited() -> T:
            async with asyncio.timeout(20):
                return await work

        return self.runner.run(limited())

    def teardown(self) -> None:
        try:
            self.run(self.bus.aclose())
        finally:
            self.runner.close()
            self.folder.cleanup()

    def content(self) -> str:
        self.number += 1
        return str(self.number)

    def handed_out(
        self, expected: Stored | None, lease: InboundLease | OutboundLease | None
    ) -> None:
        if expected is None or lease is None:
            assert (expected, lease) == (None, None)
            return
        expected.attempts += 1
        expected.state, expected.due_s = "out", 0.0
        assert (lease.message.content, lease.attempt) == (expected.content, expected.attempts)
        self.leases.append((expected, lease))

    @rule(chat=CHATS, key=KEYS, is_control=st.booleans())
    def publish_inbound(self, chat: str, key: str | None, is_control: bool) -> None:
        content = self.content()
        work = self.bus.publish_inbound(inbound(content, chat, key=key, is_control=is_control))
        if key is not None and ("in", key) in self.model.seen:
            assert self.run(work) is False
            return
        try:
            assert self.run(work) is True
        except BusFull:
            assert self.model.live(is_inbound=True) >= MAX_WAITING
            return
        assert self.model.live(is_inbound=True) < MAX_WAITING
        self.model.stored.append(Stored("in", chat, content, is_control))
        if key is not None:
            self.model.seen.add(("in", key))

    @rule(chat=CHATS, channel=CHANNELS, key=KEYS)
    def publish_outbound(self, chat: str, channel: str, key: str | None) -> None:
        content = self.content()
        message = outbound(content, chat, channel=channel, key=key or "")
        assert self.run(self.bus.publish_outbound(message)) is self.add_reply(
            channel, chat, content, key
        )

    def add_reply(self, channel: str, chat: str, content: str, key: str | None) -> bool:
        if key is not None:
            if ("out", key) in self.model.seen:
                return False
            self.model.seen.add(("out", key))
        self.model.stored.append(Stored(channel, chat, content))
        return True

    @rule()
    def receive_inbound(self) -> None:
        expected = self.model.next_of("in", self.clock.monotonic_s())
        self.handed_out(expected, self.run(finishes(self.bus, self.bus.receive_inbound())))

    @rule(channel=CHANNELS)
    def receive_outbound(self, channel: str) -> None:
        expected = self.model.next_of(channel, self.clock.monotonic_s())
        work = finishes(self.bus, self.bus.receive_outbound(channel))
        self.handed_out(expected, self.run(work))

    @rule(chat=CHATS)
    def take_inbound(self, chat: str) -> None:
        expected = self.model.next_in_lane("in", chat, self.clock.monotonic_s())
        self.handed_out(expected, self.run(self.bus.take_inbound(f"test:{chat}")))

    def some_lease(self, data: st.DataObject) -> tuple[Stored, Lease, bool]:
        """Choose one, perhaps one that was given back before."""
        stored, lease = data.draw(st.sampled_from(self.leases))
        return stored, lease, stored.state == "out" and stored.attempts == lease.attempt

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), replies=st.lists(st.tuples(CHANNELS, CHATS, KEYS), max_size=3))
    def acknowledge(self, data: st.DataObject, replies: list[tuple[str, str, str | None]]) -> None:
        stored, lease, is_out = self.some_lease(data)
        named = [(channel, chat, self.content(), key) for channel, chat, key in replies]
        messages = [
            outbound(content, chat, channel=channel, key=key or "")
            for channel, chat, content, key in named
        ]
        self.run(self.bus.acknowledge(lease, replies=messages))
        if is_out:
            self.model.stored.remove(stored)
            stored.state = "done"
            for reply in named:
                self.add_reply(*reply)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), delay_s=DELAYS_S)
    def release(self, data: st.DataObject, delay_s: float) -> None:
        stored, lease, is_out = self.some_lease(data)
        self.run(self.bus.release(lease, delay_s=delay_s))
        if is_out:
            stored.state = "waiting"
            stored.due_s = self.clock.monotonic_s() + delay_s if delay_s else 0.0

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def bury(self, data: st.DataObject) -> None:
        stored, lease, is_out = self.some_lease(data)
        self.run(self.bus.bury(lease, f"reason of {stored.content}"))
        if is_out:
            stored.state = "dead"
            self.model.buried.append(stored)

    @precondition(lambda self: self.model.buried)
    @rule(data=st.data(), is_revived=st.booleans())
    def revive_or_drop(self, data: st.DataObject, is_revived: bool) -> None:
        letters = self.run(self.bus.dead_letters())
        index = data.draw(st.integers(0, len(letters) - 1))
        stored = self.model.buried.pop(len(letters) - 1 - index)
        if is_revived:
            assert self.run(self.bus.revive(letters[index].id)) is True
            stored.state = "waiting"
            stored.due_s = 0.0
        else:
            assert self.run(self.bus.drop(letters[index].id)) is True
            self.model.stored.remove(stored)

    @rule(seconds=st.sampled_from([0.5, 1.0, 29.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.run(self.clock.advance(seconds))

    @rule(chat=CHATS)
    def the_disk_fails(self, chat: str) -> None:
        """Whatever was done in a transaction that fails was not done."""
        leases = [lease for _, lease in self.leases]
        entry, now_us = inbound_entry(inbound("lost", chat)), self.bus._now_us()

        def work(ledger: Ledger) -> None:
            ledger.publish(entry, now_us)
            ledger.take(INBOUND, now_us)
            for lease in leases[::2]:
                ledger.acknowledge(int(lease.id), lease.attempt, (), now_us)
            for lease in leases[1::2]:
                ledger.release(int(lease.id), lease.attempt, now_us + 1)
            raise sqlite3.OperationalError("disk I/O error")

        with pytest.raises(BusError, match="disk I/O error"):
            self.run(self.bus._perform(Operation(work)))

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        depth = BusDepth(
            inbound=self.model.live(is_inbound=True),
            outbound=self.model.live(is_inbound=False),
            dead=len(self.model.buried),
        )
        assert self.run(self.bus.depth()) == depth
        waited_for = {
            one.queue for one in self.model.stored if one.queue != "in" and one.state != "dead"
        }
        assert self.run(self.bus.outbound_channels()) == waited_for
        letters = self.run(self.bus.dead_letters())
        assert [(one.message.content, one.reason, one.attempts) for one in letters] == [
            (one.content, f"reason of {one.content}", one.attempts)
            for one in reversed(self.model.buried)
        ]


class DurableBusMachine(BusMachine):
    """The same with a bus that is closed and opened again between."""

    async def opened(self) -> LedgerBus:
        path = Path(self.folder.name) / "bus.sqlite"
        return await SqliteBus.open(path, clock=self.clock, max_waiting=MAX_WAITING)

    @rule()
    def restart(self) -> None:
        self.run(self.bus.aclose())
        self.bus = self.run(self.opened())
        self.leases.clear()
        for one in self.model.stored:
            if one.state == "out":
                one.state = "waiting"


def of(machine: type[BusMachine], examples: int, steps: int) -> type:
    case: type = machine.TestCase
    case.settings = settings(  # type: ignore[attr-defined]
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    return case


TestMemoryBus = of(BusMachine, 60, 50)
TestSqliteBus = of(DurableBusMachine, 30, 50)
