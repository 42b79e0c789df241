"""What every bus promises, as tests.

A bus's own tests subclass `DurableBusContract`, or `BusContract` where nothing outlives the
process, and say how to make one::

    class TestSqliteBus(DurableBusContract):
        async def open_bus(self, folder: Path, clock: Clock, max_waiting: int) -> Bus:
            return await SqliteBus.open(folder / "bus", clock=clock, max_waiting=max_waiting)
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from nanobot_core.contracts.bus import BusDepth
from nanobot_core.errors import BusFull
from nanobot_core.messages import Button, InboundMessage, JsonValue, OutboundMessage
from nanobot_core.testing.bus_order import BusOrderContract, finishes, inbound, outbound
from nanobot_core.testing.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.contracts.bus import Lease

_WEEK_S = 7 * 24 * 3600.0


class BusContract(BusOrderContract):
    """Tests of the promises of `Bus`; a subclass may add to them."""

    @pytest.mark.anyio
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

    @pytest.mark.anyio
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

    @pytest.mark.anyio
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

    @pytest.mark.anyio
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

    @pytest.mark.anyio
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

    @pytest.mark.anyio
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

    @pytest.mark.anyio
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

    @pytest.mark.anyio
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

    @pytest.mark.anyio
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

    @pytest.mark.anyio
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

    @pytest.mark.anyio
    async def test_a_message_that_kills_its_process_shows_it_by_its_attempts(
        self, tmp_path: Path
    ) -> None:
        for attempt in range(1, 5):
            async with self.bus(tmp_path) as bus:
                await bus.publish_inbound(inbound("1", key="1"))
                assert (await bus.receive_inbound()).attempt == attempt


def _facts(lease: Lease) -> tuple[str, int, datetime]:
    return lease.id, lease.attempt, lease.stored_at
