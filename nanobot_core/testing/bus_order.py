"""Who comes next: the part of the bus contract about order, delays and receivers."""

from __future__ import annotations

import asyncio
import random
from abc import abstractmethod
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import pytest

from nanobot_core.messages import InboundMessage, OutboundMessage
from nanobot_core.testing.clock import FakeClock
from nanobot_core.testing.suite import ConformanceSuite

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.clock import Clock
    from nanobot_core.contracts.bus import Bus

_LIMIT_S = 30.0
_PASSES = 20

_T = TypeVar("_T")


def inbound(
    content: str, chat: str = "a", *, key: str | None = None, is_control: bool = False
) -> InboundMessage:
    """Return a message of a chat on channel ``test``."""
    return InboundMessage(
        channel="test",
        sender_id="someone",
        chat_id=chat,
        content=content,
        id=f"id of {content}",
        dedupe_key=key,
        is_control=is_control,
    )


def outbound(
    content: str, chat: str = "a", *, channel: str = "test", key: str = ""
) -> OutboundMessage:
    """Return a reply to a chat."""
    return OutboundMessage(channel=channel, chat_id=chat, content=content, idempotency_key=key)


async def finishes(bus: Bus, waiting: Coroutine[object, object, _T]) -> _T | None:
    """Return what `waiting` returns at once, or ``None``: then it was cancelled.

    At once means before two later questions to the bus are answered.
    """
    task: asyncio.Task[_T]
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(waiting)
        for _ in range(2):
            await asyncio.sleep(0)
            await bus.depth()
        for _ in range(_PASSES):
            await asyncio.sleep(0)
        task.cancel()
    return None if task.cancelled() else task.result()


class BusOrderContract(ConformanceSuite):
    """Tests of who comes next; part of `BusContract`."""

    @abstractmethod
    async def open_bus(self, folder: Path, clock: Clock, max_waiting: int) -> Bus:
        """Return a bus whose data belongs to `folder`.

        Called again with the same folder, after the former was closed, it gives another bus on the
        same data, if anything outlives a bus.
        """

    @asynccontextmanager
    async def bus(
        self, folder: Path, clock: Clock | None = None, max_waiting: int = 1000
    ) -> AsyncIterator[Bus]:
        """Open a bus for the length of the block."""
        async with asyncio.timeout(_LIMIT_S):
            bus = await self.open_bus(folder, clock or FakeClock(), max_waiting)
            try:
                yield bus
            finally:
                await bus.aclose()

    @pytest.mark.anyio
    async def test_of_one_session_one_message_is_out_and_the_oldest_comes_first(
        self, tmp_path: Path
    ) -> None:
        async with self.bus(tmp_path) as bus:
            for content, chat in (("1", "a"), ("2", "a"), ("3", "b"), ("4", "c"), ("5", "b")):
                await bus.publish_inbound(inbound(content, chat))
            leases = [await bus.receive_inbound() for _ in range(3)]
            assert [lease.message.content for lease in leases] == ["1", "3", "4"]
            assert await finishes(bus, bus.receive_inbound()) is None
            await bus.acknowledge(leases[1])
            assert (await bus.receive_inbound()).message.content == "5"
            await bus.acknowledge(leases[0])
            assert (await bus.receive_inbound()).message.content == "2"

    @pytest.mark.anyio
    async def test_a_control_command_waits_for_none_and_comes_first(self, tmp_path: Path) -> None:
        async with self.bus(tmp_path) as bus:
            for content in ("1", "2"):
                await bus.publish_inbound(inbound(content))
            await bus.receive_inbound()
            await bus.publish_inbound(inbound("3", "b"))
            await bus.publish_inbound(inbound("4", is_control=True))
            await bus.publish_inbound(inbound("5", is_control=True))
            contents = [(await bus.receive_inbound()).message.content for _ in range(3)]
            assert contents == ["4", "5", "3"]

    @pytest.mark.anyio
    async def test_a_control_command_comes_after_what_its_session_is_given_next(
        self, tmp_path: Path
    ) -> None:
        async with self.bus(tmp_path) as bus:
            await bus.publish_inbound(inbound("1", "b"))
            for content in ("2", "3"):
                await bus.publish_inbound(inbound(content))
            await bus.publish_inbound(inbound("4", is_control=True))
            await bus.publish_inbound(inbound("5", "c", is_control=True))
            await bus.publish_inbound(inbound("6", "c"))
            contents = [(await bus.receive_inbound()).message.content for _ in range(5)]
            assert contents == ["2", "4", "5", "1", "6"]

    @pytest.mark.anyio
    async def test_take_gives_the_next_of_a_session_while_another_is_out(
        self, tmp_path: Path
    ) -> None:
        async with self.bus(tmp_path) as bus:
            for content, chat in (("1", "a"), ("2", "a"), ("3", "b"), ("4", "a")):
                await bus.publish_inbound(inbound(content, chat))
            first = await bus.receive_inbound()
            second = await bus.take_inbound("test:a")
            assert second is not None
            assert (second.message.content, second.attempt) == ("2", 1)
            await bus.release(first)
            # The session is still being worked on.
            assert (await bus.receive_inbound()).message.content == "3"
            assert await finishes(bus, bus.receive_inbound()) is None
            await bus.acknowledge(second)
            assert (await bus.receive_inbound()).message.content == "1"
            assert (await bus.take_inbound("test:a")) is not None
            assert await bus.take_inbound("test:a") is None
            assert await bus.take_inbound("test:unknown") is None

    @pytest.mark.anyio
    async def test_replies_wait_for_their_channel_and_chat_in_order(self, tmp_path: Path) -> None:
        async with self.bus(tmp_path) as bus:
            await bus.publish_outbound(outbound("1"))
            await bus.publish_outbound(outbound("2"))
            await bus.publish_outbound(outbound("3", "b"))
            await bus.publish_outbound(outbound("4", channel="other"))
            assert await bus.outbound_channels() == {"test", "other"}
            first = await bus.receive_outbound("test")
            second = await bus.receive_outbound("test")
            assert [first.message.content, second.message.content] == ["1", "3"]
            assert await finishes(bus, bus.receive_outbound("test")) is None
            assert (await bus.receive_outbound("other")).message.content == "4"
            await bus.acknowledge(first)
            await bus.acknowledge(second)
            await bus.acknowledge(await bus.receive_outbound("test"))
            assert await bus.outbound_channels() == {"other"}

    @pytest.mark.anyio
    async def test_a_delayed_reply_holds_up_its_chat_and_no_other(self, tmp_path: Path) -> None:
        clock = FakeClock()
        async with self.bus(tmp_path, clock) as bus:
            for content, chat in (("1", "a"), ("2", "a"), ("3", "b")):
                await bus.publish_outbound(outbound(content, chat))
            await bus.release(await bus.receive_outbound("test"), delay_s=30)
            other = await bus.receive_outbound("test")
            assert other.message.content == "3"
            await bus.acknowledge(other)
            async with asyncio.TaskGroup() as tasks:
                receiving = tasks.create_task(bus.receive_outbound("test"))
                await clock.wait_for_sleepers()
                await clock.advance(29)
                assert not receiving.done()
                await clock.advance(1)
            again = receiving.result()
            assert (again.message.content, again.attempt) == ("1", 2)
            await bus.acknowledge(again)
            assert (await bus.receive_outbound("test")).message.content == "2"

    @pytest.mark.anyio
    async def test_whoever_waits_already_gets_what_is_released_with_a_delay(
        self, tmp_path: Path
    ) -> None:
        clock = FakeClock()
        async with self.bus(tmp_path, clock) as bus, asyncio.TaskGroup() as tasks:
            await bus.publish_inbound(inbound("1"))
            lease = await bus.receive_inbound()
            receivers = [tasks.create_task(bus.receive_inbound()) for _ in range(3)]
            await bus.depth()
            await bus.release(lease, delay_s=5)
            await clock.wait_for_sleepers()
            await bus.publish_inbound(inbound("2", "b"))
            while not any(receiver.done() for receiver in receivers):
                await bus.depth()
            # Somebody else must now wait for the delay, even if this one did until now.
            await clock.wait_for_sleepers()
            next(receiver for receiver in receivers if not receiver.done()).cancel()
            await bus.depth()
            await clock.wait_for_sleepers()
            await clock.advance(5)
            while sum(receiver.done() for receiver in receivers) < len(receivers):
                await bus.depth()
            got = [one.result().message.content for one in receivers if not one.cancelled()]
            assert sorted(got) == ["1", "2"]

    @pytest.mark.anyio
    async def test_a_released_message_keeps_its_place_and_counts_its_attempts(
        self, tmp_path: Path
    ) -> None:
        async with self.bus(tmp_path) as bus:
            for content in ("1", "2"):
                await bus.publish_inbound(inbound(content))
            for attempt in (1, 2, 3):
                lease = await bus.receive_inbound()
                assert (lease.message.content, lease.attempt) == ("1", attempt)
                await bus.release(lease)

    @pytest.mark.anyio
    async def test_each_message_reaches_one_of_many_receivers(self, tmp_path: Path) -> None:
        messages, got, done = 200, [], asyncio.Event()
        async with self.bus(tmp_path) as bus:

            async def work() -> None:
                while True:
                    lease = await bus.receive_inbound()
                    got.append((lease.message.chat_id, int(lease.message.content)))
                    await bus.acknowledge(lease)
                    if len(got) == messages:
                        done.set()

            async with asyncio.TaskGroup() as tasks:
                workers = [tasks.create_task(work()) for _ in range(20)]
                for number in range(messages):
                    tasks.create_task(bus.publish_inbound(inbound(str(number), str(number % 7))))
                await done.wait()
                for worker in workers:
                    worker.cancel()
        assert sorted(number for _, number in got) == list(range(messages))
        for chat in range(7):
            numbers = [number for name, number in got if name == str(chat)]
            assert numbers == sorted(numbers)

    @pytest.mark.anyio
    async def test_a_cancelled_receiver_loses_no_message(self, tmp_path: Path) -> None:
        rng, got = random.Random(5), set()  # noqa: S311 - no secret
        async with self.bus(tmp_path) as bus, asyncio.TaskGroup() as tasks:
            for number in range(60):
                receivers = [tasks.create_task(bus.receive_inbound()) for _ in range(3)]
                for _ in range(rng.randrange(4)):
                    await asyncio.sleep(0)
                publishing = tasks.create_task(bus.publish_inbound(inbound(str(number), "x")))
                for _ in range(rng.randrange(12)):
                    await asyncio.sleep(0)
                if rng.random() < 0.5:
                    await publishing
                for receiver in receivers:
                    receiver.cancel()
                for receiver in receivers:
                    with suppress(asyncio.CancelledError):
                        lease = await receiver
                        assert lease.attempt == 1
                        got.add(lease.message.content)
                        await bus.acknowledge(lease)
            while (await bus.depth()).inbound:
                lease = await bus.receive_inbound()
                got.add(lease.message.content)
                await bus.acknowledge(lease)
        assert got == {str(number) for number in range(60)}
