"""A channel over a platform: what every channel plugin gets from the kit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("markdown_it")

from nanobot_core import (
    Button,
    Channel,
    DeliveryError,
    Draft,
    OutboundMessage,
    SystemClock,
)
from nanobot_core.chat import Attachment, CallFailed, Cause, Intake, SendLimits
from nanobot_core.testing import (
    ChannelContract,
    ChannelPlatform,
    FakePluginContext,
    RecordingInbox,
)
from tests.unit.chat.room import LIMITS, Room, RoomPlatform, room_channel

pytestmark = pytest.mark.anyio
BUTTONS = ((Button("Yes", "yes"),),)


def message(content: str, key: str = "k", **fields: object) -> OutboundMessage:
    return OutboundMessage(
        channel="room",
        chat_id="room",
        content=content,
        idempotency_key=key,
        **fields,  # type: ignore[arg-type]
    )


def draft(content: str, draft_id: str = "d") -> Draft:
    return Draft(id=draft_id, chat_id="room", content=content)


@asynccontextmanager
async def running(
    tmp_path: Path,
    room: Room,
    inbox: RecordingInbox | None = None,
    ctx: FakePluginContext | None = None,
    limits: SendLimits = LIMITS,
) -> AsyncIterator[Channel]:
    ctx = ctx or FakePluginContext(tmp_path, clock=SystemClock())
    channel = room_channel(ctx, room, limits)
    async with asyncio.timeout(20), ctx, asyncio.TaskGroup() as group:
        group.create_task(channel.start(inbox or RecordingInbox()))
        try:
            yield channel
        finally:
            await channel.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - a room has no event to wait for
            await asyncio.sleep(0.005)


class _LocalRoom(ChannelPlatform):
    chat_id = "room"

    def __init__(self, ctx: FakePluginContext) -> None:
        self._ctx = ctx
        self._room = Room()
        self._after = 0

    @property
    def acknowledged(self) -> list[str]:  # type: ignore[override]
        return self._room.acknowledged

    @property
    def delivered(self) -> list[str]:  # type: ignore[override]
        return self._room.texts()

    def channel(self) -> Channel:
        return room_channel(self._ctx, self._room)

    async def say(self, key: str, text: str) -> None:
        self._room.say(key, text)

    async def hang_up(self, after: int = 0) -> None:
        if not after:
            self._room.is_down = True
            self._room.news.set()
        broken = [CallFailed(Cause.UNREACHABLE, "the room is closed")] * 20
        self._room.failures.extend([*[None] * after, *broken])

    async def come_back(self) -> None:
        self._room.is_down = False
        self._room.failures.clear()


class TestRoomChannel(ChannelContract):
    def serve(self, tmp_path: Path) -> AbstractAsyncContextManager[ChannelPlatform]:
        @asynccontextmanager
        async def serve() -> AsyncIterator[ChannelPlatform]:
            async with FakePluginContext(tmp_path, clock=SystemClock()) as ctx:
                yield _LocalRoom(ctx)

        return serve()


async def test_a_connection_that_fails_while_it_is_cancelled_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def receive(_self: RoomPlatform, _intake: Intake) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise CallFailed(Cause.UNREACHABLE, "the connection broke")

    monkeypatch.setattr(RoomPlatform, "receive", receive)
    async with asyncio.timeout(5), FakePluginContext(tmp_path, clock=SystemClock()) as ctx:
        channel = room_channel(ctx, Room())
        starting = asyncio.create_task(channel.start(RecordingInbox()))
        await begun.wait()
        starting.cancel()
        await asyncio.wait({starting})
        assert starting.cancelled()
        await channel.stop()


# --- sending


async def test_equal_pieces_have_equal_keys_and_different_ones_do_not(tmp_path: Path) -> None:
    room = Room()
    room.failures.extend([None, CallFailed(Cause.UNREACHABLE, "lost")])
    long = message("word " * 12)
    async with running(tmp_path, room) as channel:
        with pytest.raises(DeliveryError):
            await channel.send(long)
        await channel.send(long)
    assert room.calls == [("send", "k:0"), ("send", "k:1"), ("send", "k:1")]


async def test_a_killed_process_continues_a_long_message(tmp_path: Path) -> None:
    room = Room()
    room.failures.extend([None, CallFailed(Cause.UNREACHABLE, "lost")])
    async with running(tmp_path, room) as channel:
        with pytest.raises(DeliveryError):
            await channel.send(message("word " * 12))
    # Another context is another process: only what is on disk is known.
    async with running(tmp_path, room) as channel:
        await channel.send(message("word " * 12))
    assert " ".join(room.texts()).split() == ["word"] * 12


async def test_a_refused_form_is_sent_in_a_simpler_one(tmp_path: Path) -> None:
    room = Room()
    room.failures.append(CallFailed(Cause.REFUSED, "no formatting"))
    async with running(tmp_path, room) as channel:
        await channel.send(message("**bold**", buttons=BUTTONS))
    (shown,) = room.shown.values()
    assert (shown.text.text, shown.text.spans, shown.buttons) == ("bold", (), BUTTONS)


async def test_the_files_of_a_refused_album_have_keys_of_their_own(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.jpg", "b.jpg")]
    for file in files:
        file.write_bytes(b"x")
    room = Room()
    room.failures.append(CallFailed(Cause.REFUSED, "no albums"))
    async with running(tmp_path, room) as channel:
        await channel.send(message("look", media=tuple(map(str, files))))
    assert room.calls == [("send", "k:0"), ("send", "k:0.0"), ("send", "k:0.1")]


async def test_what_no_form_helps_is_final(tmp_path: Path) -> None:
    room = Room()
    room.failures.extend([CallFailed(Cause.REFUSED, "never")] * 2)
    async with running(tmp_path, room) as channel:
        with pytest.raises(DeliveryError) as raised:
            await channel.send(message("**bold**"))
    assert (raised.value.reason, raised.value.retryable) == ("never", False)


@pytest.mark.parametrize("cause", list(Cause))
async def test_only_what_is_never_accepted_is_final(tmp_path: Path, cause: Cause) -> None:
    room = Room()
    room.failures.append(CallFailed(cause, "why", retry_after_s=3.0))
    async with running(tmp_path, room) as channel:
        with pytest.raises(DeliveryError) as raised:
            await channel.send(message("x"))
    is_final = cause in {Cause.REFUSED, Cause.FORBIDDEN}
    assert (raised.value.retryable, raised.value.retry_after_s) == (not is_final, 3.0)


async def test_after_stop_nothing_is_sent(tmp_path: Path) -> None:
    room = Room()
    async with running(tmp_path, room) as channel:
        pass
    with pytest.raises(DeliveryError) as raised:
        await channel.send(message("x"))
    assert raised.value.retryable


# --- drafts


async def test_a_draft_grows_and_becomes_the_answer(tmp_path: Path) -> None:
    room = Room()
    async with running(tmp_path, room) as channel:
        await channel.show_draft(draft("one"))
        await channel.show_draft(draft("one two"))
        assert [piece.is_draft for piece in room.shown.values()] == [True]
        await channel.send(message("one two three", draft_id="d"))
    assert room.texts() == ["one two three"]
    assert [piece.is_draft for piece in room.shown.values()] == [False]
    assert [name for name, _ in room.calls] == ["send", "edit", "edit"]


@pytest.mark.parametrize("completes", [False, True])
async def test_a_whole_draft_is_edited_once_more_where_the_platform_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, completes: bool
) -> None:
    monkeypatch.setattr(RoomPlatform, "completes_drafts", completes)
    room = Room()
    async with running(tmp_path, room) as channel:
        await channel.show_draft(draft("all"))
        await channel.send(message("all", draft_id="d"))
    assert [name for name, _ in room.calls] == ["send", *["edit"] * completes]


async def test_a_draft_that_is_gone_is_followed_by_a_new_message(tmp_path: Path) -> None:
    room = Room()
    async with running(tmp_path, room) as channel:
        await channel.show_draft(draft("one"))
        room.shown.clear()
        await channel.send(message("all", draft_id="d"))
    assert room.texts() == ["all"]


async def test_the_drafts_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    room = Room()
    async with running(tmp_path, room) as channel:
        await channel.show_draft(draft("half an ans"))
    assert room.texts() == ["half an ans"]
    async with running(tmp_path, room) as channel:
        await until(lambda: not room.shown)
        await channel.show_draft(draft("new"))
        assert room.texts() == ["new"]


async def test_an_answer_waits_for_the_draft_that_is_being_shown(tmp_path: Path) -> None:
    room = Room()
    async with running(tmp_path, room) as channel:
        room.gate.clear()
        showing = asyncio.create_task(channel.show_draft(draft("one")))
        await until(lambda: bool(room.calls))
        showing.cancel()
        sending = asyncio.create_task(channel.send(message("all", draft_id="d")))
        await asyncio.sleep(0)
        room.gate.set()
        await sending
    assert room.texts() == ["all"]


async def test_a_dropped_draft_disappears(tmp_path: Path) -> None:
    room = Room()
    async with running(tmp_path, room) as channel:
        await channel.show_draft(draft("one"))
        await channel.drop_draft("room", "d")
        await channel.drop_draft("room", "unknown")
    assert not room.shown


# --- receiving


def photo(ref: str = "p", size: int | None = None) -> Attachment:
    return Attachment(ref=ref, name=f"{ref}.jpg", size=size)


async def test_the_parts_of_an_album_are_one_message(tmp_path: Path) -> None:
    room, inbox = Room(files={"a": b"1", "b": b"2", "c": b"3"}), RecordingInbox()
    for key, said in (("a", ""), ("b", "both"), ("c", "more")):
        content = "\n".join(part for part in ("[in reply to Bo]", said) if part)
        room.say(key, content, files=(photo(key),), album="g", said=said)
    room.say("after", "after it")
    async with running(tmp_path, room, inbox):
        await inbox.wait_for_stored(2)
        await until(lambda: len(room.acknowledged) == 4)
    album, after = inbox.stored
    assert album.content == "[in reply to Bo]\nboth\nmore"
    assert [Path(path).read_bytes() for path in album.media] == [b"1", b"2", b"3"]
    assert (album.dedupe_key, after.content) == ("a", "after it")


async def test_nothing_is_fetched_for_strangers(tmp_path: Path) -> None:
    room, inbox = Room(files={"p": b"1"}), RecordingInbox(admits=lambda _: False)
    room.say("1", "look", files=(photo(),))
    async with running(tmp_path, room, inbox):
        await until(lambda: room.acknowledged == ["1"])
    assert room.calls == []


async def test_a_file_that_cannot_be_fetched_is_named(tmp_path: Path) -> None:
    room, inbox = Room(files={"p": b"1"}), RecordingInbox()
    ctx = FakePluginContext(tmp_path, clock=SystemClock())
    room.failures.append(CallFailed(Cause.REFUSED, "it is gone"))
    room.say("1", "look", files=(photo("gone"), photo("huge", ctx.media.max_bytes + 1), photo()))
    async with running(tmp_path, room, inbox, ctx):
        await inbox.wait_for_stored(1)
    (stored,) = inbox.stored
    assert stored.content.startswith("look\n[gone.jpg could not be fetched: it is gone]\n['huge")
    assert [Path(path).name for path in stored.media] == ["p.jpg"]


async def test_a_slow_chat_does_not_delay_others(tmp_path: Path) -> None:
    room, inbox = Room(files={"p": b"1"}), RecordingInbox()
    room.gate.clear()
    room.say("1", "slow", files=(photo(),))
    room.say("2", "behind it")
    room.say("3", "elsewhere", chat_id="other")
    async with running(tmp_path, room, inbox):
        await until(lambda: room.acknowledged == ["3"])
        room.gate.set()
        await inbox.wait_for_stored(3)
    assert [each.content for each in inbox.stored] == ["elsewhere", "slow", "behind it"]


async def test_what_follows_a_message_knows_whether_it_was_admitted(tmp_path: Path) -> None:
    known: list[bool] = []

    async def settled(is_admitted: bool) -> None:
        known.append(is_admitted)
        raise CallFailed(Cause.UNREACHABLE, "it does not matter")

    room, inbox = Room(), RecordingInbox(admits=lambda each: each.content == "yes")
    room.say("1", "no", settled=settled)
    room.say("2", "yes", settled=settled)
    async with running(tmp_path, room, inbox):
        await until(lambda: len(known) == 2)
    assert known == [False, True]
