"""What every bus must do, as tests.

A bus's own tests subclass `DurableBusContract`, or `BusContract` where nothing outlives the
process, and say how to make one::

    class TestSqliteBus(DurableBusContract):
        async def open_bus(self, folder: Path, clock: Clock, max_waiting: int) -> Bus:
            return await SqliteBus.open(folder / "bus", clock=clock, max_waiting=max_waiting)
"""

from __future__ import annotations

import asyncio
import random
from abc import abstractmethod
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

import pytest

from nanobot_core.assignment import Assignment, Requester
from nanobot_core.contracts.bus import Bus, BusDepth
from nanobot_core.errors import BusFull
from nanobot_core.messages import Button, InboundMessage, JsonValue, OutboundMessage
from nanobot_core.testing.clock import FakeClock
from nanobot_core.testing.suite import ConformanceSuite

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.clock import Clock
    from nanobot_core.contracts.bus import Lease

_LIMIT_S = 30.0
_PASSES = 20
_WEEK_S = 7 * 24 * 3600.0

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


class BusContract(ConformanceSuite):
    """Tests of the guarantees of `Bus`; a subclass may add to them."""

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

    async def test_replies_wait_for_their_channel_and_chat_in_order(self, tmp_path: Path) -> None:
        async with self.bus(tmp_path) as bus:
            await bus.publish_outbound(outbound("1"))
            await bus.publish_outbound(outbound("2"))
            await bus.publish_outbound(outbound("3", "b"))
            await bus.publish_outbound(outbound("4", channel="other"))
            assert await bus.outbound_channels() == {"test", "other"}
            has_outbound, knows = bus.has_outbound, type(bus).has_outbound is not Bus.has_outbound
            assert await has_outbound("test", "a") is knows
            assert not await has_outbound("test", "c")
            assert not await has_outbound("other", "b")
            first = await bus.receive_outbound("test")
            second = await bus.receive_outbound("test")
            assert [first.message.content, second.message.content] == ["1", "3"]
            assert await finishes(bus, bus.receive_outbound("test")) is None
            assert (await bus.receive_outbound("other")).message.content == "4"
            await bus.acknowledge(first)
            await bus.acknowledge(second)
            assert await has_outbound("test", "a") is knows
            assert not await has_outbound("test", "b")
            await bus.acknowledge(await bus.receive_outbound("test"))
            assert not await has_outbound("test", "a")
            assert await bus.outbound_channels() == {"other"}

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

    async def test_a_waiting_receiver_gets_what_is_released_with_a_delay(
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

    async def test_every_field_of_a_received_message_is_kept(self, tmp_path: Path) -> None:
        message = InboundMessage(
            channel="test",
            sender_id="12|Zoë",
            chat_id="-100",
            content="look\n🙂",
            id="in-1",
            media=("/media/a.png", "/media/b c.ogg"),
            timestamp=datetime(2026, 1, 1, 12, tzinfo=UTC) + timedelta(microseconds=1),
            metadata={"nested": {"deep": [True, None, 1.5, "x"]}, "message_id": 2**53},
            session_key_override="test:-100:7",
            dedupe_key="update 9",
            is_group=True,
            is_addressed=True,
            is_forwarded=True,
            is_control=True,
        )
        plain = InboundMessage(channel="test", sender_id="", chat_id="", content="")
        clock = FakeClock()
        async with self.bus(tmp_path, clock) as bus:
            assert await bus.publish_inbound(message) is True
            assert await bus.publish_inbound(plain) is True
            await clock.advance(60)
            lease = await bus.receive_inbound()
            assert (lease.message, lease.attempt) == (message, 1)
            assert lease.stored_at == clock.now() - timedelta(seconds=60)
            assert (await bus.receive_inbound()).message == plain

    async def test_every_field_of_a_reply_is_kept(self, tmp_path: Path) -> None:
        message = OutboundMessage(
            channel="test",
            chat_id="-100",
            content="# done\n",
            kind="notice",
            reply_to="",
            media=("/media/a.png",),
            metadata={"thread": 7},
            idempotency_key="turn-1:0",
            buttons=((Button("Yes", "yes 1"), Button("No", "")), (Button("…", "later"),)),
            draft_id="d",
        )
        plain = outbound("", "")
        async with self.bus(tmp_path) as bus:
            assert await bus.publish_outbound(message) is True
            assert await bus.publish_outbound(plain) is True
            assert (await bus.receive_outbound("test")).message == message
            assert (await bus.receive_outbound("test")).message == plain

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "a\nb\r\nc",
            "\x00",
            "\u2028\x85",
            '"\\{}[],',
            "🙂 e\u0301 \u202e",
            "\ud83d",
            "x" * 300_000,
        ],
        ids=["empty", "lines", "nul", "separators", "json", "unicode", "half a pair", "long"],
    )
    async def test_texts_and_names_come_back_as_they_were(self, tmp_path: Path, text: str) -> None:
        async with self.bus(tmp_path) as bus:
            assert await bus.publish_inbound(inbound(text, chat=text, key=text)) is True
            assert await bus.publish_inbound(inbound(text, chat=text, key=text)) is False
            lease = await bus.receive_inbound()
            assert lease.message == inbound(text, chat=text, key=text)
            await bus.acknowledge(lease, replies=[outbound(text, text, key=text)])
            assert (await bus.receive_outbound("test")).message == outbound(text, text, key=text)

    async def test_a_message_is_stored_once_within_seven_days(self, tmp_path: Path) -> None:
        clock = FakeClock()
        other = InboundMessage(
            channel="other", sender_id="", chat_id="a", content="1", dedupe_key="k"
        )
        async with self.bus(tmp_path, clock) as bus:
            assert await bus.publish_inbound(inbound("1", key="k")) is True
            assert await bus.publish_inbound(inbound("another", key="k")) is False
            assert await bus.publish_inbound(inbound("1", key="K")) is True
            assert await bus.publish_inbound(other) is True
            for _ in range(2):
                assert await bus.publish_inbound(inbound("1")) is True
            lease = await bus.receive_inbound()
            await bus.acknowledge(lease)
            await clock.advance(_WEEK_S - 1)
            assert await bus.publish_inbound(inbound("1", key="k")) is False
            await clock.advance(2)
            assert await bus.publish_inbound(inbound("1", key="k")) is True
            assert (await bus.depth()).inbound == 5

    async def test_work_is_stored_once_whatever_its_channel(self, tmp_path: Path) -> None:
        def work(channel: str) -> InboundMessage:
            asked = Requester(channel=channel, chat_id="a", session_key="a")
            given = Assignment(plugin="p", id="k", source="cron", requester=asked)
            return InboundMessage.of(given, "1")

        async with self.bus(tmp_path) as bus:
            assert await bus.publish_inbound(inbound("1", key="p/k")) is True
            assert await bus.publish_inbound(work("test")) is True
            assert await bus.publish_inbound(work("other")) is False
            assert await bus.publish_inbound(replace(work("other"), dedupe_key="p/l")) is True

    async def test_a_reply_is_stored_once_within_seven_days(self, tmp_path: Path) -> None:
        clock = FakeClock()
        async with self.bus(tmp_path, clock) as bus:
            assert await bus.publish_outbound(outbound("1", key="k")) is True
            assert await bus.publish_outbound(outbound("2", channel="other", key="k")) is False
            for _ in range(2):
                assert await bus.publish_outbound(outbound("1")) is True
            await bus.publish_inbound(inbound("hello"))
            replies = [outbound("3", key="k"), outbound("4", key="l"), outbound("5", key="l")]
            await bus.acknowledge(await bus.receive_inbound(), replies=replies)
            contents = []
            while lease := await finishes(bus, bus.receive_outbound("test")):
                contents.append(lease.message.content)
                await bus.acknowledge(lease)
            assert contents == ["1", "1", "1", "4"]
            assert await bus.publish_outbound(outbound("1", key="k")) is False
            await clock.advance(_WEEK_S + 1)
            assert await bus.publish_outbound(outbound("1", key="k")) is True

    async def test_a_lease_that_is_not_out_any_more_changes_nothing(self, tmp_path: Path) -> None:
        async with self.bus(tmp_path) as bus:
            await bus.publish_inbound(inbound("1"))
            old = await bus.receive_inbound()
            await bus.release(old)
            new = await bus.receive_inbound()
            await bus.acknowledge(old, replies=[outbound("stale")])
            await bus.release(old)
            await bus.bury(old, "stale")
            assert await bus.depth() == BusDepth(inbound=1, outbound=0, dead=0)
            await bus.acknowledge(new)
            await bus.publish_inbound(inbound("2"))
            current = await bus.receive_inbound()
            await bus.acknowledge(new)
            assert await bus.depth() == BusDepth(inbound=1, outbound=0, dead=0)
            await bus.acknowledge(current)
            assert await bus.depth() == BusDepth(inbound=0, outbound=0, dead=0)

    async def test_a_dead_letter_is_whole_and_makes_way_for_the_next(self, tmp_path: Path) -> None:
        clock = FakeClock()
        async with self.bus(tmp_path, clock) as bus:
            await bus.publish_inbound(inbound("1"))
            await bus.publish_inbound(inbound("2"))
            await bus.publish_outbound(outbound("3"))
            await bus.bury(await bus.receive_inbound(), "its turn failed")
            await clock.advance(1)
            await bus.bury(await bus.receive_outbound("test"), "blocked by the user")
            assert (await bus.receive_inbound()).message.content == "2"
            newest, oldest = await bus.dead_letters()
            assert (newest.message, newest.reason) == (outbound("3"), "blocked by the user")
            assert (newest.attempts, newest.buried_at) == (1, clock.now())
            assert (oldest.message, oldest.reason) == (inbound("1"), "its turn failed")
            assert await bus.dead_letters(limit=1) == [newest]
            assert await bus.depth() == BusDepth(inbound=1, outbound=0, dead=2)
            assert await bus.outbound_channels() == frozenset()

    async def test_a_dead_letter_is_revived_or_dropped_once(self, tmp_path: Path) -> None:
        async with self.bus(tmp_path) as bus:
            for content in ("1", "2"):
                await bus.publish_outbound(outbound(content, key=content))
                await bus.bury(await bus.receive_outbound("test"), "no")
            dropped, revived = [letter.id for letter in await bus.dead_letters()]
            assert [await bus.revive(revived), await bus.revive(revived)] == [True, False]
            assert [await bus.drop(dropped), await bus.drop(dropped)] == [True, False]
            for stranger in ("", "nobody", "-1", "9" * 30, "\u0663"):
                assert [await bus.revive(stranger), await bus.drop(stranger)] == [False, False]
            assert await bus.dead_letters() == []
            lease = await bus.receive_outbound("test")
            assert (lease.message.content, lease.attempt) == ("1", 2)
            assert await bus.depth() == BusDepth(inbound=0, outbound=1, dead=0)

    async def test_a_full_inbox_refuses_until_something_is_done(self, tmp_path: Path) -> None:
        async with self.bus(tmp_path, max_waiting=2) as bus:
            for content in ("1", "2"):
                await bus.publish_inbound(inbound(content, content, key=content))
            with pytest.raises(BusFull) as caught:
                await bus.publish_inbound(inbound("3", key="3"))
            assert (caught.value.waiting, caught.value.limit) == (2, 2)
            assert await bus.publish_inbound(inbound("2", key="2")) is False
            assert await bus.publish_outbound(outbound("a notice")) is True
            await bus.acknowledge(await bus.receive_inbound())
            assert await bus.publish_inbound(inbound("3", key="3")) is True
            assert (await bus.depth()).inbound == 2


class DurableBusContract(BusContract):
    """The same for a bus whose messages outlive its process."""

    async def test_all_that_is_not_done_is_there_after_a_restart(self, tmp_path: Path) -> None:
        clock = FakeClock()
        metadata: dict[str, JsonValue] = {"a": [1]}
        reply = OutboundMessage(
            channel="test", chat_id="b", content="reply", metadata=metadata, idempotency_key="r"
        )
        async with self.bus(tmp_path, clock) as bus:
            for content in ("done", "out", "taken", "waiting"):
                await bus.publish_inbound(inbound(content, key=content))
            await bus.acknowledge(await bus.receive_inbound(), replies=[reply])
            out = await bus.receive_inbound()
            assert await bus.take_inbound("test:a") is not None
            await bus.publish_outbound(outbound("dead", key="d"))
            await bus.publish_outbound(outbound("late", "c"))
            await bus.receive_outbound("test")
            await bus.bury(await bus.receive_outbound("test"), "why")
            await bus.release(await bus.receive_outbound("test"), delay_s=60)
            letters = await bus.dead_letters()
            depth = await bus.depth()
        await clock.advance(1)
        async with self.bus(tmp_path, clock) as bus:
            assert await bus.depth() == depth == BusDepth(inbound=3, outbound=2, dead=1)
            assert await bus.dead_letters() == letters
            assert await bus.publish_inbound(inbound("new", key="done")) is False
            assert await bus.publish_outbound(outbound("new", key="d")) is False
            again = await bus.receive_inbound()
            assert _facts(again) == (out.id, 2, out.stored_at)
            assert again.message == inbound("out", key="out")
            attempts = []
            for content in ("taken", "waiting"):
                lease = await bus.take_inbound("test:a")
                assert lease is not None
                assert lease.message.content == content
                attempts.append(lease.attempt)
            assert attempts == [2, 1]
            lease_out = await bus.receive_outbound("test")
            assert (lease_out.message, lease_out.attempt) == (reply, 2)
            assert await finishes(bus, bus.receive_outbound("test")) is None
            await clock.advance(60)
            assert (await bus.receive_outbound("test")).message.content == "late"

    async def test_a_message_that_kills_its_process_shows_it_by_its_attempts(
        self, tmp_path: Path
    ) -> None:
        for attempt in range(1, 5):
            async with self.bus(tmp_path) as bus:
                await bus.publish_inbound(inbound("1", key="1"))
                assert (await bus.receive_inbound()).attempt == attempt


def _facts(lease: Lease) -> tuple[str, int, datetime]:
    return lease.id, lease.attempt, lease.stored_at
