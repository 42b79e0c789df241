"""What a chat sees of a turn while it runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nanobot_core.channels import live as module
from nanobot_core.channels.live import LiveView
from nanobot_core.errors import ChannelError
from nanobot_core.events import (
    NoticeGiven,
    ProgressMade,
    RunEvent,
    StreamRestarted,
    TextStreamed,
    ToolCallStarted,
    TurnInfo,
)
from nanobot_core.messages import OutboundKind, ToolCall
from tests.unit.channels.conftest import Bench, StubChannel, inbound, outbound, until

pytestmark = pytest.mark.anyio

TURN = TurnInfo(
    id="t", session_key="s", channel="chat", chat_id="c", sender_id="user", source="chat"
)
ALL: frozenset[OutboundKind] = frozenset({"notice", "progress", "tool_hint"})
EVENTS: list[RunEvent] = [
    TextStreamed(turn=TURN, iteration=1, text="", reasoning="hm"),
    ProgressMade(text="I look"),
    ToolCallStarted(call=ToolCall("1", "look", {}), hint="look()"),
    NoticeGiven(text="it takes long"),
    ProgressMade(text="  "),
]


def streamed(text: str) -> TextStreamed:
    return TextStreamed(turn=TURN, iteration=1, text=text)


def view(bench: Bench, channel: StubChannel, **options: Any) -> LiveView:
    values = {"shown": ALL, "streams": True, **options}
    message = inbound(id="m1", dedupe_key="p1")
    return LiveView(channel, message, bench.ports, **values)


@pytest.mark.parametrize(
    ("shown", "texts"),
    [
        (ALL, ["I look", "look()", "it takes long"]),
        (frozenset({"notice"}), ["it takes long"]),
        (frozenset({"notice", "tool_hint"}), ["look()", "it takes long"]),
        (frozenset(), []),
    ],
)
async def test_a_chat_is_shown_what_it_wants(
    bench: Bench, shown: frozenset[OutboundKind], texts: list[str]
) -> None:
    channel = StubChannel()
    live = view(bench, channel, shown=shown)
    for event in EVENTS:
        await live.on_event(event)
    await live.close()
    assert [message.content for message in channel.sent] == texts
    assert all(message.kind in shown for message in channel.sent)
    assert (channel.drafts, live.draft_id) == ([], None)


async def test_a_draft_and_progress_wait_for_an_earlier_reply_to_the_chat(bench: Bench) -> None:
    channel = StubChannel(edit_interval_s=1.0)
    await bench.ports.bus.publish_outbound(outbound("the reply before"))
    live = view(bench, channel)
    await live.on_event(ProgressMade(text="I look"))
    await live.on_event(streamed("Once"))
    await bench.clock.wait_for_sleepers()
    assert (channel.sent, channel.drafts) == ([], [])
    await bench.ports.bus.acknowledge(await bench.ports.bus.receive_outbound("test"))
    await bench.clock.advance(module.LOOK_AGAIN_S)
    await until(lambda: channel.drafts)
    assert [message.content for message in channel.sent] == ["I look"]


async def test_drafts_are_shown_no_faster_than_the_platform_allows(bench: Bench) -> None:
    channel = StubChannel(edit_interval_s=2.0)
    live = view(bench, channel)
    await live.on_event(streamed("Once"))
    await until(lambda: channel.drafts)
    for word in (" upon", " a", " time"):
        await live.on_event(streamed(word))
    await bench.clock.wait_for_sleepers()
    await bench.clock.advance(1.9)
    assert [draft.content for draft in channel.drafts] == ["Once"]
    await bench.clock.advance(0.1)
    assert [draft.content for draft in channel.drafts] == ["Once", "Once upon a time"]
    draft = channel.drafts[0]
    assert (draft.id, draft.chat_id, draft.reply_to) == ("m1", "7", "p1")
    assert live.draft_id == "m1"


@pytest.mark.parametrize(("interval_s", "streams"), [(None, True), (1.0, False)])
async def test_without_drafts_the_answer_comes_whole(
    bench: Bench, interval_s: float | None, streams: bool
) -> None:
    channel = StubChannel(edit_interval_s=interval_s)
    live = view(bench, channel, streams=streams)
    await live.on_event(streamed("Once"))
    await live.on_event(NoticeGiven(text="now"))
    await until(lambda: channel.sent)
    assert (channel.drafts, live.draft_id) == ([], None)


async def test_blank_text_is_no_draft(bench: Bench) -> None:
    channel = StubChannel(edit_interval_s=1.0)
    live = view(bench, channel)
    await live.on_event(streamed(" \n"))
    await live.on_event(NoticeGiven(text="now"))
    await until(lambda: channel.sent)
    assert live.draft_id is None


async def test_what_is_streamed_anew_does_not_follow_what_is_void(bench: Bench) -> None:
    channel = StubChannel(edit_interval_s=1.0)
    live = view(bench, channel)
    for event in (streamed("wrong"), StreamRestarted(reason="reset")):
        await live.on_event(event)
    await live.on_event(streamed("right"))
    await until(lambda: channel.drafts)
    assert [draft.content for draft in channel.drafts] == ["right"]


async def test_words_before_tool_calls_are_not_the_beginning_of_the_answer(bench: Bench) -> None:
    channel = StubChannel(edit_interval_s=1.0)
    live = view(bench, channel)
    await live.on_event(streamed("I look"))
    await until(lambda: channel.drafts)
    await live.on_event(ProgressMade(text="I look"))
    await live.on_event(streamed("There it is"))
    await bench.clock.wait_for_sleepers()
    await bench.clock.advance(1)
    assert [draft.content for draft in channel.drafts] == ["I look", "There it is"]


async def test_a_draft_that_may_have_arrived_must_be_replaced(bench: Bench) -> None:
    channel = StubChannel(edit_interval_s=1.0)

    async def fail() -> None:
        raise ChannelError("lost")

    channel.showing = fail
    live = view(bench, channel)
    await live.on_event(streamed("Once"))
    await until(lambda: channel.drafts)
    assert live.draft_id == "m1"
    await live.discard()
    assert channel.dropped == ["m1"]
    await live.discard()
    assert channel.dropped == ["m1"], "it is gone"


async def test_what_was_never_shown_is_not_dropped(bench: Bench) -> None:
    channel = StubChannel(edit_interval_s=1.0)
    await view(bench, channel).discard()
    assert channel.dropped == []


@pytest.mark.parametrize("error", [ChannelError("x"), RuntimeError("x"), SystemExit(1)])
async def test_what_cannot_be_shown_costs_the_sight_of_it_alone(
    bench: Bench, error: BaseException
) -> None:
    channel = StubChannel()
    failures = [error]

    async def send(message: object) -> None:
        if failures:
            raise failures.pop()

    channel.sending = send
    live = view(bench, channel)
    await live.on_event(NoticeGiven(text="one"))
    await live.on_event(NoticeGiven(text="two"))
    await until(lambda: channel.sent)
    assert [message.content for message in channel.sent] == ["two"]


async def test_a_slow_platform_is_shown_the_newest_lines(bench: Bench) -> None:
    channel = StubChannel()
    live = view(bench, channel)
    for number in range(200):
        await live.on_event(ProgressMade(text=str(number)))
    await live.close()
    assert [message.content for message in channel.sent] == [str(n) for n in range(150, 200)]


@pytest.mark.parametrize("obeys", [True, False])
async def test_the_end_of_a_turn_does_not_wait_for_a_platform_that_hangs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, obeys: bool
) -> None:
    monkeypatch.setattr(module, "CLOSE_LIMIT_S", 0.02)
    monkeypatch.setattr("nanobot_core.tasks.WORK_END_S", 0.01)
    gate = asyncio.Event()

    async def hang(message: object) -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                if obeys:
                    raise

    channel = StubChannel()
    channel.sending = hang
    live = view(bench, channel)
    for number in range(10):
        await live.on_event(ProgressMade(text=str(number)))
    async with asyncio.timeout(5):
        await live.close()
    gate.set()


async def test_an_answer_in_many_pieces_is_put_together_for_drafts_only(bench: Bench) -> None:
    """Guards against copying the answer with each of its pieces."""
    copied: list[int] = []

    class Piece(str):
        def __radd__(self, former: str) -> str:
            copied.append(len(former))
            return str(former) + str(self)

    channel = StubChannel(edit_interval_s=1.0)
    live = view(bench, channel)
    for _ in range(1_000):
        await live.on_event(streamed(Piece("word ")))
    await until(lambda: channel.drafts)
    assert channel.drafts[-1].content == "word " * 1_000
    assert copied == []
