"""The way in."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from loguru import logger

from nanobot_core import (
    Assignment,
    BusError,
    BusFull,
    InboundMessage,
    MessageReceived,
    Requester,
    on,
)
from nanobot_core.channels.inbox import TOO_FAST
from nanobot_core.contracts.plugin import Refuse
from tests.unit.channels.conftest import Bench, inbound

FORGED = Assignment(plugin="p", id="1", source="cron", requester=Requester(authority="machine"))
pytestmark = pytest.mark.anyio


class Closed:
    """A plugin that refuses every message, and answers."""

    @on.admit_message
    def admit_message(self, event: MessageReceived) -> Refuse | None:
        return Refuse("its list is damaged", "Not now.")


class Told:
    """A plugin that records its calls, and refuses or rewrites as the test sets it."""

    def __init__(self, log: list[str], refuses: bool = False) -> None:
        self._log = log
        self._refuses = refuses

    @on.admit_message
    def admit_message(self, event: MessageReceived) -> Refuse | None:
        self._log.append("admit")
        return Refuse("no") if self._refuses else None

    @on.rewrite_inbound
    def rewrite_inbound(self, event: MessageReceived) -> InboundMessage | None:
        self._log.append(f"rewrite {event.message.content}")
        return None


async def complete_with(log: list[str], message: InboundMessage) -> InboundMessage:
    from dataclasses import replace

    log.append("complete")
    return replace(message, content="completed", media=("photo.png",))


async def test_a_message_is_admitted_then_completed_then_rewritten_then_stored(
    bench: Bench,
) -> None:
    log: list[str] = []
    bench.plug(Told(log))
    assert await bench.inbox().publish(inbound(), lambda message: complete_with(log, message))
    assert log == ["admit", "complete", "rewrite completed"]
    lease = await bench.bus.receive_inbound()
    assert (lease.message.content, lease.message.media) == ("completed", ("photo.png",))
    assert lease.message.id
    assert lease.message.timestamp == bench.clock.now()


@pytest.mark.parametrize(
    ("message", "settings"),
    [
        (inbound(), {"allow_from": ["8"]}),
        (inbound(chat_id="g", is_group=True), {}),
        (inbound(chat_id="g", is_group=True), {"group_policy": "deny"}),
    ],
)
async def test_nothing_is_fetched_for_whom_the_lists_do_not_admit(
    bench: Bench, message: InboundMessage, settings: dict[str, Any]
) -> None:
    log: list[str] = []
    bench.plug(Told(log))
    inbox = bench.inbox(**settings)
    assert not await inbox.publish(message, lambda found: complete_with(log, found))
    assert log == []
    assert (await bench.bus.depth()).inbound == 0


async def test_nothing_is_fetched_for_whom_a_policy_refuses(bench: Bench) -> None:
    log: list[str] = []
    bench.plug(Told(log, refuses=True))
    assert not await bench.inbox().publish(inbound(), lambda found: complete_with(log, found))
    assert log == ["admit"]


async def test_a_policy_that_fails_refuses(bench: Bench) -> None:
    class Broken:
        @on.admit_message
        def admit_message(self, event: MessageReceived) -> Refuse | None:
            raise RuntimeError("broken")

    bench.plug(Broken())
    assert not await bench.inbox().publish(inbound())
    assert (await bench.bus.depth()).inbound == 0
    assert [error.hook for error in bench.reported] == ["admit_message"]


async def test_a_stranger_is_offered_a_code_once(bench: Bench) -> None:
    inbox = bench.inbox(allow_from=[])
    for _ in range(3):
        assert not await inbox.publish(inbound())
    (offer,) = await bench.outgoing()
    (asked,) = bench.pairing.pending()
    assert asked.code in offer.content
    assert (offer.chat_id, offer.kind) == ("7", "notice")
    bench.pairing.approve(asked.code)
    assert await inbox.publish(inbound())
    bench.pairing.revoke("test", "7")
    assert not await inbox.publish(inbound())


@pytest.mark.parametrize("settings", [{"pairing": False}, {"group_policy": "open"}])
async def test_no_code_is_offered_where_nobody_may_ask(
    bench: Bench, settings: dict[str, Any]
) -> None:
    is_group = "group_policy" in settings
    inbox = bench.inbox(allow_from=[], **settings)
    assert not await inbox.publish(inbound(is_group=is_group))
    assert bench.pairing.pending() == ()
    assert await bench.outgoing() == []


async def test_who_cannot_be_looked_up_is_offered_again(bench: Bench) -> None:
    (bench.folder / "pairing.json").mkdir()
    with pytest.raises(BusError, match="approved senders"):
        await bench.inbox(allow_from=[]).publish(inbound())


async def test_a_flood_is_cut_off_with_one_notice_a_minute(bench: Bench) -> None:
    inbox = bench.inbox(rate_limit=3)
    stored = [await inbox.publish(inbound(str(number))) for number in range(6)]
    assert stored == [True, True, True, False, False, False]
    assert await inbox.publish(inbound("of another", sender_id="8"))
    assert [message.content for message in await bench.outgoing()] == [TOO_FAST]
    await bench.advance(60)
    await bench.outgoing()  # excuses, since nobody works on the messages
    assert [await inbox.publish(inbound(f"later {n}")) for n in range(4)] == [True] * 3 + [False]
    assert [message.content for message in await bench.outgoing()] == [TOO_FAST]


async def test_a_refusal_with_a_reply_answers_once_a_minute_in_each_chat(bench: Bench) -> None:
    bench.plug(Closed())
    inbox = bench.inbox()
    assert not await inbox.publish(inbound("a"))
    assert not await inbox.publish(inbound("b"))
    assert not await inbox.publish(inbound("c", chat_id="9"))
    replies = [(message.chat_id, message.content) for message in await bench.outgoing()]
    assert replies == [("7", "Not now."), ("9", "Not now.")]
    await bench.advance(60)
    assert not await inbox.publish(inbound("d"))
    assert [message.content for message in await bench.outgoing()] == ["Not now."]


async def test_what_is_offered_again_does_not_count_as_flood(bench: Bench) -> None:
    async def fail(message: InboundMessage) -> InboundMessage:
        raise OSError("no such file any more")

    inbox = bench.inbox(rate_limit=2)
    for _ in range(5):
        with pytest.raises(OSError, match="no such file"):
            await inbox.publish(inbound("a", dedupe_key="a"), fail)
    assert await inbox.publish(inbound("a", dedupe_key="a"))
    for _ in range(5):
        assert not await inbox.publish(inbound("a", dedupe_key="a"))
    assert await inbox.publish(inbound("b"))
    assert await bench.outgoing() == []


async def test_plugins_rewrite_one_after_another_and_cannot_move_a_message(bench: Bench) -> None:
    class Adds:
        def __init__(self, text: str) -> None:
            self._text = text

        @on.rewrite_inbound
        def rewrite_inbound(self, event: MessageReceived) -> InboundMessage | None:
            return InboundMessage(
                channel="other",
                sender_id="9",
                chat_id="9",
                content=event.message.content + self._text,
                id="forged",
                dedupe_key="forged",
                assignment=FORGED,
            )

    bench.plug(Adds("b"), Adds("c"))
    assert await bench.inbox().publish(inbound("a", id="i", dedupe_key="d"))
    message = (await bench.bus.receive_inbound()).message
    assert message.content == "abc"
    assert (message.channel, message.sender_id, message.chat_id) == ("test", "7|Ann", "7")
    assert (message.id, message.dedupe_key) == ("i", "d")
    assert message.assignment is None


async def test_what_comes_from_a_platform_is_never_assigned_work(bench: Bench) -> None:
    assert await bench.inbox().publish(inbound("a", assignment=FORGED))
    assert (await bench.bus.receive_inbound()).message.assignment is None


async def test_what_must_be_rewritten_and_cannot_be_is_offered_again(bench: Bench) -> None:
    class Redacts:
        @on.rewrite_inbound(critical=True)
        def rewrite_inbound(self, event: MessageReceived) -> InboundMessage | None:
            raise RuntimeError("broken")

    bench.plug(Redacts())
    with pytest.raises(BusError, match="failed to process"):
        await bench.inbox().publish(inbound())
    assert (await bench.bus.depth()).inbound == 0


async def test_a_message_is_stored_once_for_its_platform_id(bench: Bench) -> None:
    inbox = bench.inbox()
    assert await inbox.publish(inbound("x", dedupe_key="1"))
    assert not await inbox.publish(inbound("x", dedupe_key="1"))
    assert await inbox.publish(inbound("x", dedupe_key="2")), "equal text is another message"


async def test_only_a_control_command_is_marked_as_one(bench: Bench) -> None:
    inbox = bench.inbox()
    await inbox.publish(inbound("write a poem", is_control=True))
    await inbox.publish(inbound("/stop"))
    first, second = await bench.bus.receive_inbound(), await bench.bus.receive_inbound()
    assert (first.message.content, first.message.is_control) == ("write a poem", False)
    assert (second.message.content, second.message.is_control) == ("/stop", True)


async def test_the_text_of_a_plugin_decides_whether_it_is_a_command(
    bench: Bench,
) -> None:
    class Translates:
        @on.rewrite_inbound
        def rewrite_inbound(self, event: MessageReceived) -> InboundMessage | None:
            words = {"halt": "/stop", "/stop": "what is /stop?"}
            return inbound(words[event.message.content])

    bench.plug(Translates())
    for text in ("halt", "/stop"):
        await bench.inbox().publish(inbound(text))
    found = [(await bench.bus.receive_inbound()).message for _ in range(2)]
    assert [(message.content, message.is_control) for message in found] == [
        ("/stop", True),
        ("what is /stop?", False),
    ]


async def test_a_gateway_that_ends_takes_nothing_in(bench: Bench) -> None:
    inbox = bench.inbox()
    bench.ports.stopping.set()
    with pytest.raises(BusError, match="is stopping"):
        await inbox.publish(inbound())


async def test_a_full_queue_is_reported_to_the_platform(bench: Bench) -> None:
    from nanobot_core.bus.queues import MemoryBus

    async with aclosing(MemoryBus(bench.clock, max_waiting=1)) as bus:
        bench.ports = replace(bench.ports, bus=bus)
        await bench.inbox().publish(inbound())
        with pytest.raises(BusFull):
            await bench.inbox().publish(inbound())


async def test_a_message_shows_that_the_platform_is_there_even_when_it_is_refused(
    bench: Bench,
) -> None:
    from nanobot_core.channels.inbox import ChannelInbox
    from nanobot_core.config.models import ChannelSettings

    heard: list[int] = []
    inbox = ChannelInbox(
        ChannelSettings(), bench.ports, bench.indicator, on_alive=lambda: heard.append(1)
    )
    assert not await inbox.publish(inbound())
    inbox.alive()
    assert heard == [1, 1]


async def test_messages_side_by_side_stay_within_the_rate(bench: Bench) -> None:
    inbox = bench.inbox(rate_limit=3)
    stored = await asyncio.gather(*(inbox.publish(inbound(str(n))) for n in range(10)))
    assert sum(stored) == 3


@pytest.mark.parametrize(
    "fields",
    [{"sender_id": "mallory|7"}, {"sender_id": "7|Ann"}, {"chat_id": "7\n[fake line]"}],
)
async def test_an_id_that_names_two_is_refused_whoever_may_write(
    bench: Bench, fields: dict[str, str]
) -> None:
    lines: list[str] = []
    sink = logger.add(lambda line: lines.append(str(line)), format="{message}")
    try:
        assert not await bench.inbox().publish(inbound(**fields))
    finally:
        logger.remove(sink)
    assert (await bench.bus.depth()).inbound == 0
    assert await bench.outgoing() == []
    (line,) = lines
    assert line.startswith("test: refused a message: the ")
    assert line.count("\n") == 1


async def test_plugins_and_the_queue_see_the_names_behind_the_id(bench: Bench) -> None:
    seen: list[str] = []

    class Looks:
        @on.admit_message
        def admit_message(self, event: MessageReceived) -> Refuse | None:
            seen.append(event.message.sender_id)
            return None

    bench.plug(Looks())
    named = inbound(sender_id="9", sender_names=("x|7", "Bo"))
    assert not await bench.inbox(allow_from=["7", "x"], pairing=False).publish(named)
    assert await bench.inbox(allow_from=["@bo"]).publish(named)
    message = (await bench.bus.receive_inbound()).message
    assert (seen, message.sender_id, message.sender_names) == (["9|Bo"], "9|Bo", ())


async def test_what_a_channel_completes_stays_its_senders(bench: Bench) -> None:
    async def forge(message: InboundMessage) -> InboundMessage:
        return inbound("completed", sender_id="1|owner", chat_id="1", channel="other")

    assert await bench.inbox().publish(inbound("a"), forge)
    message = (await bench.bus.receive_inbound()).message
    assert (message.channel, message.sender_id, message.chat_id) == ("test", "7|Ann", "7")
    assert message.content == "completed"
