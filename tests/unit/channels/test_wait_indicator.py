"""People see that their message is being worked on."""

from __future__ import annotations

import asyncio

import pytest

from nanobot_core import BusError, OutboundMessage
from nanobot_core.channels.live import APPROVAL_FIRST, STILL_WAITING, TYPING_LIMIT_S
from nanobot_core.errors import ChannelError
from tests.unit.channels.conftest import Bench, StubChannel, inbound

pytestmark = pytest.mark.anyio

MESSAGE = inbound(id="m1")


def typing_channel(bench: Bench, interval_s: float | None = 4.0) -> StubChannel:
    bench.running = StubChannel(typing_interval_s=interval_s)
    return bench.running


async def test_typing_is_shown_from_the_receipt_to_the_reply(bench: Bench) -> None:
    channel = typing_channel(bench)
    assert await bench.inbox().publish(MESSAGE)
    await bench.advance(9)
    assert channel.typed == ["7"] * 3
    bench.indicator.begun(MESSAGE)
    await bench.advance(4)
    assert channel.typed == ["7"] * 4
    bench.indicator.done(MESSAGE)
    await bench.advance(60)
    assert channel.typed == ["7"] * 4
    assert await bench.outgoing() == []


async def test_typing_ends_after_a_while_and_a_message_counts_once(bench: Bench) -> None:
    channel = typing_channel(bench)
    bench.indicator.expect(MESSAGE)
    bench.indicator.expect(MESSAGE)
    await bench.advance(2 * TYPING_LIMIT_S)
    assert len(channel.typed) == TYPING_LIMIT_S / 4
    assert len(await bench.outgoing()) == 1


async def test_whoever_waits_long_is_told_so_once(bench: Bench) -> None:
    typing_channel(bench, None)
    bench.indicator.expect(MESSAGE)
    await bench.advance(29)
    assert await bench.outgoing() == []
    await bench.advance(1)
    (note,) = await bench.outgoing()
    assert (note.content, note.kind, note.chat_id) == (STILL_WAITING, "notice", "7")
    # After a restart the message is expected again.
    bench.indicator.done(MESSAGE)
    bench.indicator.expect(MESSAGE)
    await bench.advance(300)
    assert await bench.outgoing() == []


async def test_a_chat_whose_tool_call_waits_for_an_approval_reads_that(bench: Bench) -> None:
    typing_channel(bench, None)
    bench.asked.add(MESSAGE.session_key)
    bench.indicator.expect(MESSAGE)
    await bench.advance(30)
    (note,) = await bench.outgoing()
    assert note.content == APPROVAL_FIRST


async def test_nobody_is_told_to_wait_who_is_being_answered(bench: Bench) -> None:
    typing_channel(bench)
    bench.indicator.expect(MESSAGE)
    bench.indicator.begun(MESSAGE)
    await bench.advance(300)
    assert await bench.outgoing() == []


async def test_a_full_disk_costs_the_note_and_no_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(message: OutboundMessage) -> bool:
        raise BusError("the disk is full")

    monkeypatch.setattr(bench.bus, "publish_outbound", refuse)
    channel = typing_channel(bench)
    bench.indicator.expect(MESSAGE)
    await bench.advance(40)
    assert len(channel.typed) == 11


@pytest.mark.parametrize(
    ("error", "shown"), [(ChannelError("x"), 3), (TimeoutError(), 3), (RuntimeError("a bug"), 1)]
)
async def test_a_sign_that_fails_is_repeated_unless_it_never_works(
    bench: Bench, error: Exception, shown: int
) -> None:
    async def fail() -> None:
        raise error

    channel = typing_channel(bench)
    channel.showing = fail
    bench.indicator.expect(MESSAGE)
    await bench.advance(8)
    assert len(channel.typed) == shown


async def test_without_a_running_channel_there_is_no_sign(bench: Bench) -> None:
    bench.running = None
    bench.indicator.expect(MESSAGE)
    bench.indicator.begun(MESSAGE)
    bench.indicator.done(MESSAGE)
    await asyncio.sleep(0)
    assert bench.clock.sleeper_count == 0
