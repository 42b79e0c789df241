"""From the queue to the platform."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from nanobot_core import BusError, DeliveryError, DeliveryFinished, OutboundMessage, on
from nanobot_core.channels import delivery as module
from nanobot_core.channels.delivery import Delivery, bury_orphans
from nanobot_core.contracts.bus import Lease, OutboundLease
from nanobot_core.errors import ChannelError
from tests.unit.channels.conftest import Bench, StubChannel, outbound, until

pytestmark = pytest.mark.anyio

Sending = Callable[[OutboundMessage], Awaitable[None]]


def start(
    bench: Bench, sending: Sending | None = None, give_up_after_s: float = 3600
) -> StubChannel:
    """Let a channel deliver whose `sending` is done before each message counts as sent."""
    channel = StubChannel()
    channel.sending = sending

    async def running() -> StubChannel:
        return channel

    work = Delivery(
        "test",
        running,
        replace(bench.ports, bus=bench.bus),
        give_up_after_s=give_up_after_s,
    )
    bench.spawn(work.run(), "delivery")
    return channel


def failing(*errors: BaseException | None) -> Sending:
    """Return what raises these, one at a time, then nothing any more."""
    left = list(errors)

    async def send(message: OutboundMessage) -> None:
        if left and (error := left.pop(0)) is not None:
            raise error

    return send


def later(retry_after_s: float | None = None) -> DeliveryError:
    return DeliveryError("test", "down", retryable=True, retry_after_s=retry_after_s)


def texts(channel: StubChannel) -> list[str]:
    return [message.content for message in channel.sent]


async def test_replies_of_a_chat_are_sent_in_order(bench: Bench) -> None:
    channel = start(bench)
    for number in range(20):
        await bench.bus.publish_outbound(outbound(str(number)))
    await until(lambda: len(channel.sent) == 20)
    assert texts(channel) == [str(number) for number in range(20)]
    async with asyncio.timeout(5):
        while (await bench.bus.depth()).outbound:  # noqa: ASYNC110 - whatever it is, it wakes nobody
            await asyncio.sleep(0)


async def test_a_failed_send_is_repeated_with_growing_delays(bench: Bench) -> None:
    channel = start(bench, failing(later(), later(), later()))
    await bench.bus.publish_outbound(outbound())
    for delay_s in (1, 2, 4):
        await bench.clock.wait_for_sleepers()
        await bench.clock.advance(delay_s - 0.1)
        assert channel.sent == []
        await bench.clock.advance(0.1)
    await until(lambda: channel.sent)


@pytest.mark.parametrize(
    "error",
    [
        ChannelError("the connection is lost"),
        RuntimeError("a bug"),
        asyncio.CancelledError("of its own"),
        SystemExit(3),
        KeyboardInterrupt(),
        TimeoutError(),
    ],
)
async def test_whatever_a_channel_raises_the_message_is_sent_later(
    bench: Bench, error: BaseException
) -> None:
    channel = start(bench, failing(error))
    await bench.bus.publish_outbound(outbound())
    await bench.clock.wait_for_sleepers()
    await bench.clock.advance(1)
    await until(lambda: channel.sent)
    assert (await bench.bus.depth()).dead == 0


async def test_a_platform_says_how_long_to_wait(bench: Bench) -> None:
    channel = start(bench, failing(later(retry_after_s=17)))
    await bench.bus.publish_outbound(outbound())
    await bench.clock.wait_for_sleepers()
    await bench.clock.advance(16.9)
    assert channel.sent == []
    await bench.clock.advance(0.1)
    await until(lambda: channel.sent)


async def test_a_chat_that_waits_holds_up_no_other_and_keeps_its_order(bench: Bench) -> None:
    async def send(message: OutboundMessage) -> None:
        if message.content == "first" and bench.clock.monotonic_s() < 1:
            raise later()

    channel = start(bench, send)
    await bench.bus.publish_outbound(outbound("first", chat_id="a"))
    await bench.bus.publish_outbound(outbound("second", chat_id="a"))
    await bench.bus.publish_outbound(outbound("other", chat_id="b"))
    await until(lambda: channel.sent)
    assert texts(channel) == ["other"]
    await bench.clock.wait_for_sleepers()
    await bench.clock.advance(1)
    await until(lambda: len(channel.sent) == 3)
    assert texts(channel) == ["other", "first", "second"]


async def test_what_the_platform_refuses_for_good_is_a_dead_letter(bench: Bench) -> None:
    channel = start(bench, failing(DeliveryError("test", "you are blocked", retryable=False)))
    await bench.bus.publish_outbound(outbound("lost", media=("photo.png",)))
    await bench.bus.publish_outbound(outbound("next"))
    await until(lambda: channel.sent)
    (letter,) = await bench.bus.dead_letters()
    assert letter.reason == "you are blocked"
    assert letter.message == outbound("lost", media=("photo.png",))
    assert await bench.bus.revive(letter.id)
    await until(lambda: len(channel.sent) == 2)
    assert texts(channel) == ["next", "lost"]


async def test_a_reply_is_given_up_by_its_age(bench: Bench) -> None:
    channel = start(bench, failing(*[later()] * 100), give_up_after_s=300)
    await bench.bus.publish_outbound(outbound())
    for _ in range(40):
        await bench.clock.advance(10)
    (letter,) = await bench.bus.dead_letters()
    assert letter.reason == "given up: down"
    assert bench.clock.monotonic_s() >= 300
    assert channel.sent == []


async def test_days_of_failure_do_not_end_the_attempts(bench: Bench) -> None:
    lease = OutboundLease(id="1", attempt=1_500, stored_at=bench.clock.now(), message=outbound())
    released: list[float] = []

    class Bus(type(bench.bus)):  # type: ignore[misc]  # the queue of the bench with one reply
        async def receive_outbound(self, channel: str) -> OutboundLease:
            if released:
                await asyncio.Event().wait()
            return lease

        async def release(self, lease: Lease, *, delay_s: float = 0.0) -> None:
            released.append(delay_s)

    await bench.bus.aclose()
    bench.bus = Bus(bench.clock)
    start(bench, failing(later()))
    await until(lambda: released)
    assert released[0] == 60.0


async def test_a_send_that_hangs_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEND_LIMIT_S", 0.01)
    is_first = True

    async def hang(message: OutboundMessage) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            await asyncio.Event().wait()

    channel = start(bench, hang)
    await bench.bus.publish_outbound(outbound())
    await bench.clock.wait_for_sleepers()
    await bench.clock.advance(1)
    await until(lambda: channel.sent)


async def test_a_send_that_ignores_its_end_holds_up_its_chat_only_for_a_while(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEND_LIMIT_S", 0.01)
    monkeypatch.setattr("nanobot_core.tasks.WORK_END_S", 0.01)
    gate = asyncio.Event()
    sends = 0

    async def ignore(message: OutboundMessage) -> None:
        nonlocal sends
        sends += 1
        while sends == 1 and not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    channel = start(bench, ignore)
    await bench.bus.publish_outbound(outbound())
    await bench.clock.wait_for_sleepers()
    await bench.clock.advance(1)
    await until(lambda: channel.sent)
    gate.set()


async def test_what_is_being_sent_at_the_end_is_there_for_the_next_process(bench: Bench) -> None:
    begun = asyncio.Event()

    async def hang(message: OutboundMessage) -> None:
        begun.set()
        await asyncio.Event().wait()

    start(bench, hang)
    await bench.bus.publish_outbound(outbound("x"))
    await begun.wait()
    await bench.owner.close()
    lease = await bench.bus.receive_outbound("test")
    assert (lease.message.content, lease.attempt) == ("x", 2)


async def test_a_delivery_is_noted_as_soon_as_the_disk_allows_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = bench.bus.acknowledge, [BusError("full"), BusError("full")]

    async def acknowledge(lease: Lease) -> None:
        if failures:
            raise failures.pop()
        await real(lease)

    monkeypatch.setattr(bench.bus, "acknowledge", acknowledge)
    channel = start(bench)
    await bench.bus.publish_outbound(outbound())
    for _ in range(2):
        await bench.clock.wait_for_sleepers()
        await bench.clock.advance(5)
    await until(lambda: not failures)
    assert len(channel.sent) == 1
    assert (await bench.bus.depth()).outbound == 0


async def test_an_outbox_that_cannot_be_read_is_read_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = bench.bus.receive_outbound, [BusError("broken")]

    async def receive(channel: str) -> OutboundLease:
        if failures:
            raise failures.pop()
        return await real(channel)

    monkeypatch.setattr(bench.bus, "receive_outbound", receive)
    channel = start(bench)
    await bench.bus.publish_outbound(outbound())
    await bench.clock.wait_for_sleepers()
    await bench.clock.advance(5)
    await until(lambda: channel.sent)


async def test_plugins_hear_what_became_of_a_message(bench: Bench) -> None:
    heard: list[tuple[str, int, str | None]] = []

    class Ear:
        @on.after_delivery
        def after_delivery(self, event: DeliveryFinished) -> None:
            heard.append((event.message.content, event.attempts, event.error))

    bench.plug(Ear())
    start(bench, failing(DeliveryError("test", "blocked", retryable=False), later()))
    for text in ("a", "b"):
        await bench.bus.publish_outbound(outbound(text))
    await bench.clock.wait_for_sleepers()
    await bench.clock.advance(1)
    await until(lambda: len(heard) == 2)
    assert heard == [("a", 1, "blocked"), ("b", 2, None)]


async def test_what_waits_for_a_channel_that_is_not_there_is_buried(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ORPHAN_LIMIT_S", 0.05)
    for number in range(3):
        await bench.bus.publish_outbound(outbound(str(number), channel="gone"))
    await bench.bus.publish_outbound(outbound("stays"))
    await bury_orphans(bench.bus, "gone")
    letters = await bench.bus.dead_letters()
    assert [letter.message.content for letter in letters] == ["2", "1", "0"]
    assert {letter.reason for letter in letters} == {"channel 'gone' does not exist or is disabled"}
    assert (await bench.bus.depth()).outbound == 1
