"""Messages of people arrive: the real SDK with the local Bot API."""

from __future__ import annotations

import asyncio
import errno
import importlib
import logging
from collections.abc import AsyncIterable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from loguru import logger

from nanobot_core import BusError, Button, ChannelError, Complete, InboundMessage, MediaStore
from nanobot_core.chat import CallFailed, Cause
from nanobot_core.testing import FakeClock, FakePluginContext, RecordingInbox
from nanobot_telegram.call import TimeLimits

bot_api: LocalApi = importlib.import_module("telegram_bot_api")
Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]
LocalApi: TypeAlias = Any
"""Its module is loaded by path, so its types are unknown here."""
MakeContext: TypeAlias = Callable[..., FakePluginContext]

SHORT = TimeLimits(step_s=1.0, call_s=1.0, transfer_s=1.0, poll_s=1.0)


async def test_a_voice_message_becomes_a_recording_in_the_media_store(opened: Opened) -> None:
    async with opened() as talk:
        voice = {"file_id": talk.api.upload(b"OggS", "voice"), "mime_type": "audio/ogg"}
        talk.api.say(voice=voice)
        await talk.inbox.wait_for_stored(1)

    (message,) = talk.inbox.stored
    (path,) = map(Path, message.media)
    assert path.is_relative_to(talk.ctx.media.folder)
    assert path.suffix == ".ogg"
    assert path.read_bytes() == b"OggS"


async def test_files_of_every_kind_arrive_whole(opened: Opened) -> None:
    content = bytes(range(256)) * 500
    async with opened() as talk:
        for kind in ("document", "audio", "video", "animation", "video_note"):
            talk.api.say(caption=kind, **{kind: {"file_id": talk.api.upload(content, kind)}})
        talk.api.say(photo=[{"file_id": "small"}, {"file_id": talk.api.upload(content, "photo")}])
        await talk.inbox.wait_for_stored(6)

    for message in talk.inbox.stored:
        assert Path(message.media[0]).read_bytes() == content
    assert [message.content for message in talk.inbox.stored][-1] == ""


async def test_an_album_is_one_message(opened: Opened) -> None:
    async with opened() as talk:
        for number in range(3):
            photo = [{"file_id": talk.api.upload(b"%d" % number, f"photo{number}")}]
            caption = {"caption": "our trip"} if number == 1 else {}
            talk.api.say(media_group_id="g", photo=photo, **caption)
        talk.api.say("and?")
        await talk.inbox.wait_for_stored(2)

    album, after = talk.inbox.stored
    assert [Path(path).read_bytes() for path in album.media] == [b"0", b"1", b"2"]
    assert (album.content, after.content) == ("our trip", "and?")


async def test_the_last_part_of_an_album_is_waited_for(opened: Opened) -> None:
    async with opened() as talk:
        for number in range(2):
            talk.api.say(
                media_group_id="g", photo=[{"file_id": talk.api.upload(b"x", str(number))}]
            )
            calls = talk.api.calls.count("getUpdates")
            await talk.until(lambda: talk.api.calls.count("getUpdates") > calls)  # noqa: B023
        await talk.inbox.wait_for_stored(1)
        await talk.until(lambda: len(talk.api.acknowledged) == 2)

    (album,) = talk.inbox.stored
    assert len(album.media) == 2


async def test_a_slow_download_delays_no_other_chat(opened: Opened) -> None:
    async with opened() as talk:
        talk.api.fail("file", "hang")
        slow = talk.api.say(document={"file_id": talk.api.upload(b"x")})
        talk.api.say("me too", chat=bot_api.GROUP)
        talk.api.say("after it")
        await talk.inbox.wait_for_stored(1)
        talk.api.say("and me", chat=bot_api.GROUP)
        await talk.inbox.wait_for_stored(2)

        assert [message.content for message in talk.inbox.stored] == ["me too", "and me"]
        assert slow not in talk.api.acknowledged


async def test_a_file_that_cannot_be_fetched_leaves_a_line(opened: Opened) -> None:
    async with opened() as talk:
        talk.api.say(caption="see", document={"file_id": "gone", "file_name": "a.pdf"})
        await talk.inbox.wait_for_stored(1)

    (message,) = talk.inbox.stored
    assert message.media == ()
    assert message.content.startswith("see\n[a.pdf could not be fetched: Telegram refused")


async def test_a_file_that_is_too_large_leaves_a_line(
    opened: Opened, ctx_with: MakeContext
) -> None:
    ctx = ctx_with()
    ctx.media = MediaStore(ctx.media.folder, max_bytes=10)
    async with opened(ctx=ctx) as talk:
        told = {"file_id": talk.api.upload(b"x" * 11), "file_name": "a", "file_size": 11}
        untold = {"file_id": talk.api.upload(b"x" * 11), "file_name": "b"}
        talk.api.say(document=told)
        talk.api.say(document=untold)
        await talk.inbox.wait_for_stored(2)

    assert ["is larger than" in m.content for m in talk.inbox.stored] == [True] * 2
    assert list(ctx.media.folder.glob("*")) == []


async def test_a_download_is_tried_again(opened: Opened) -> None:
    async with opened(limits=SHORT) as talk:
        talk.api.fail("file", "cut")
        talk.api.say(document={"file_id": talk.api.upload(b"x")})
        await talk.inbox.wait_for_stored(1, limit_s=10)

    assert len(talk.inbox.stored[0].media) == 1


async def test_nothing_is_downloaded_for_a_stranger(opened: Opened) -> None:
    async with opened(inbox=RecordingInbox(admits=lambda _: False)) as talk:
        talk.api.say(document={"file_id": talk.api.upload(b"x")})
        await talk.until(lambda: len(talk.api.acknowledged) == 1)

        assert "getFile" not in talk.api.calls


async def test_a_repetition_leaves_no_file(opened: Opened) -> None:
    class Repeated(RecordingInbox):
        """Finds out at the last moment that it has the message already."""

        async def publish(self, message: InboundMessage, complete: Complete | None = None) -> bool:
            if complete is not None:
                message = await complete(message)
                assert Path(message.media[0]).exists()
            return False

    async with opened(inbox=Repeated()) as talk:
        talk.api.say(document={"file_id": talk.api.upload(b"x")})
        await talk.until(lambda: len(talk.api.acknowledged) == 1)

    assert list(talk.ctx.media.folder.rglob("*")) == []


@pytest.mark.parametrize("path", ["/etc/hostname", ""])
async def test_a_server_cannot_make_it_read_files_of_this_machine(
    opened: Opened, path: str
) -> None:
    async with opened() as talk:
        talk.api.say(document={"file_id": talk.api.upload(b"x", path=path)})
        await talk.inbox.wait_for_stored(1)

    assert talk.inbox.stored[0].media == ()
    assert "could not be fetched" in talk.inbox.stored[0].content


async def test_a_message_that_is_not_stored_leaves_no_file_and_comes_again(opened: Opened) -> None:
    class Full(RecordingInbox):
        """Fails after it was completed, as a full disk does."""

        has_failed = False

        async def publish(self, message: InboundMessage, complete: Complete | None = None) -> bool:
            if complete is not None and not self.has_failed:
                self.has_failed = True
                await complete(message)
                reason = "no room"
                raise BusError(reason)
            return await super().publish(message, complete)

    async with opened(inbox=Full()) as talk:
        talk.api.say(document={"file_id": talk.api.upload(b"x")})
        await talk.inbox.wait_for_stored(1)

    files = [str(path) for path in talk.ctx.media.folder.rglob("*") if path.is_file()]
    assert files == list(talk.inbox.stored[0].media)


async def test_a_full_disk_refuses_the_message_and_it_comes_again(
    opened: Opened, ctx_with: MakeContext
) -> None:
    class FullStore(MediaStore):
        attempts = 0

        async def save(
            self, name: str, content: AsyncIterable[bytes], *, max_bytes: int | None = None
        ) -> Path:
            self.attempts += 1
            if self.attempts == 1:
                raise OSError(errno.ENOSPC, "no space left on device")
            return await super().save(name, content, max_bytes=max_bytes)

    ctx = ctx_with()
    ctx.media = FullStore(ctx.media.folder)
    async with opened(ctx=ctx) as talk:
        talk.api.say(document={"file_id": talk.api.upload(b"x")})
        await talk.inbox.wait_for_stored(1)

    assert len(talk.inbox.attempts) == 2


async def test_order_within_a_chat_holds_when_the_queue_fails(opened: Opened) -> None:
    inbox = RecordingInbox()
    inbox.fail_next(*[BusError("busy")] * 2)
    async with opened(inbox=inbox) as talk:
        for number in range(5):
            talk.api.say(str(number))
        await inbox.wait_for_stored(5, limit_s=10)
        await talk.until(lambda: len(talk.api.acknowledged) == 5)

    assert [message.content for message in inbox.stored] == list("01234")


class Poisoned(RecordingInbox):
    """Refuses to store one message."""

    async def publish(self, message: InboundMessage, complete: Complete | None = None) -> bool:
        if message.content == "bad":
            self.attempts.append(message)
            reason = "a plugin could not prepare the message"
            raise BusError(reason)
        return await super().publish(message, complete)


async def test_a_message_that_only_itself_fails_is_left_out_in_the_end(opened: Opened) -> None:
    """Otherwise it would hold the offset, and after a hundred messages nothing would come."""
    clock = FakeClock()
    async with opened(inbox=Poisoned(), clock=clock) as talk:
        talk.api.say("bad")
        for number in range(10):
            await clock.wait_for_sleepers()
            talk.api.say(str(number), chat=bot_api.GROUP)
            await talk.inbox.wait_for_stored(number + 1)
            assert talk.api.acknowledged == []
            await clock.advance(30)
        talk.api.say("good")
        await talk.inbox.wait_for_stored(11)
        await talk.until(lambda: len(talk.api.acknowledged) == 12)

    assert talk.inbox.stored[-1].content == "good"


async def test_while_nothing_can_be_stored_nothing_is_left_out(opened: Opened) -> None:
    clock, inbox = FakeClock(), RecordingInbox()
    inbox.fail_next(*[BusError("the disk is full")] * 30)
    async with opened(inbox=inbox, clock=clock) as talk:
        talk.api.say("one")
        await clock.wait_for_sleepers()
        await clock.advance(3_600)
        await inbox.wait_for_stored(1)
    assert len(inbox.attempts) == 31


@pytest.mark.parametrize(
    "update",
    [
        {"message": {"message_id": "x"}},
        {"message": []},
        {"message": {"message_id": 1, "chat": {"id": 1}, "text": {}}},
        {"callback_query": {"id": 1}},
        {"unheard_of": {"a": 1}},
        {},
    ],
)
async def test_a_malformed_update_costs_no_other_and_is_not_offered_for_ever(
    opened: Opened, update: dict[str, Any]
) -> None:
    async with opened() as talk:
        talk.api.push(update)
        talk.api.say("still here")
        await talk.inbox.wait_for_stored(1)
        await talk.until(lambda: len(talk.api.acknowledged) == 2)

    assert [message.content for message in talk.inbox.stored] == ["still here"]


async def test_an_inbox_that_breaks_costs_one_message(opened: Opened) -> None:
    class Breaking(RecordingInbox):
        async def publish(self, message: InboundMessage, complete: Complete | None = None) -> bool:
            if message.content == "bad":
                raise ZeroDivisionError
            return await super().publish(message, complete)

    async with opened(inbox=Breaking()) as talk:
        talk.api.say("bad")
        talk.api.say("good")
        await talk.inbox.wait_for_stored(1)
        await talk.until(lambda: len(talk.api.acknowledged) == 2)


async def test_a_press_is_published_answered_and_takes_the_buttons_away(opened: Opened) -> None:
    async with opened() as talk:
        await talk.send("May I?", buttons=((Button("Yes", "/yes 1"), Button("No", "/no 1")),))
        (shown,) = talk.api.shown()
        assert shown.buttons == [[("Yes", "/yes 1"), ("No", "/no 1")]]
        talk.api.press(shown, "/yes 1")
        await talk.inbox.wait_for_stored(1)
        await talk.until(lambda: shown.buttons == [] and bool(talk.api.answered))

    (message,) = talk.inbox.stored
    assert (message.content, message.sender_id, message.chat_id) == (
        "/yes 1",
        "1001",
        "1001",
    )


async def test_a_press_of_a_stranger_leaves_the_buttons(opened: Opened) -> None:
    async with opened(inbox=RecordingInbox(admits=lambda _: False)) as talk:
        await talk.send("May I?", buttons=((Button("Yes", "y"),),))
        (shown,) = talk.api.shown()
        talk.api.press(shown, "y")
        talk.api.say("next")
        await talk.until(lambda: len(talk.api.acknowledged) == 2)

        assert shown.buttons == [[("Yes", "y")]]
        assert len(talk.api.answered) == 1


async def test_a_guest_in_a_group_leaves_the_buttons_that_give_commands(opened: Opened) -> None:
    group = bot_api.GROUP
    async with opened() as talk:
        buttons = ((Button("Allow", "/approve 1"),), (Button("Red", "red"),))
        await talk.send("May I?", chat_id=str(group["id"]), buttons=buttons[:1])
        await talk.send("Which?", chat_id=str(group["id"]), buttons=buttons[1:])
        question, choice = talk.api.shown(group["id"])
        talk.api.press(question, "/approve 1", chat=group)
        talk.api.press(choice, "red", chat=group)
        await talk.until(lambda: choice.buttons == [] and len(talk.api.answered) == 2)

    assert question.buttons == [[("Allow", "/approve 1")]]


@pytest.mark.parametrize(("wanted", "count"), [(False, 1), (True, 2)])
async def test_edits_come_in_where_the_owner_wants_them(
    opened: Opened, wanted: bool, count: int
) -> None:
    async with opened(edited_messages=wanted) as talk:
        message = talk.api.message("hi")
        talk.api.push({"edited_message": message | {"text": "ho", "edit_date": 1_790_000_001}})
        talk.api.say("end")
        await talk.inbox.wait_for_stored(count)

    contents = [message.content for message in talk.inbox.stored]
    assert contents == ["[edited]\nho", "end"][-count:]


async def test_pending_messages_are_dropped_only_when_wanted_and_only_at_the_first_start(
    opened: Opened, api: LocalApi, ctx_with: MakeContext
) -> None:
    ctx = ctx_with(drop_pending_updates=True)
    api.say("old")
    async with opened(ctx=ctx) as talk:
        await talk.until(lambda: "getUpdates" in api.calls)
        api.say("new")
        await talk.inbox.wait_for_stored(1)
    api.say("while it was restarted")
    async with opened(ctx=ctx) as again:
        await again.inbox.wait_for_stored(1)

    assert talk.inbox.stored[0].content == "new"
    assert "while it was restarted" in [message.content for message in again.inbox.stored]


async def test_messages_that_came_while_it_was_down_are_answered(
    opened: Opened, api: LocalApi
) -> None:
    api.say("old")
    async with opened() as talk:
        await talk.inbox.wait_for_stored(1)


async def test_the_menu_shows_the_commands_of_the_gateway(opened: Opened) -> None:
    async with opened() as talk:
        await talk.until(lambda: bool(talk.api.commands))

    assert talk.api.commands == [("new", "start afresh"), ("help", "help")]


async def ended(opened: Opened, **options: str) -> CallFailed:
    """Run a channel until it ends by itself, and return why."""
    found: list[BaseException] = []
    try:
        async with opened(limits=SHORT, **options) as talk:
            await asyncio.wait({talk.task}, timeout=20)
    except* ChannelError as group:
        found.extend(group.exceptions)
    (error,) = found
    assert isinstance(error, CallFailed)
    return error


@pytest.mark.parametrize(
    ("method", "code", "cause", "words"),
    [
        ("getMe", 401, Cause.CREDENTIALS, "token"),
        ("getMe", 404, Cause.CREDENTIALS, "token"),
        ("getUpdates", 401, Cause.CREDENTIALS, "token"),
        ("getUpdates", 409, Cause.CONFLICT, "another program"),
        ("deleteWebhook", 409, Cause.CONFLICT, "another program"),
    ],
)
async def test_what_only_the_owner_can_mend_ends_the_channel_with_a_plain_reason(
    opened: Opened, api: LocalApi, method: str, code: int, cause: Cause, words: str
) -> None:
    api.fail(method, code=code, description="nope", times=99)

    error = await ended(opened)

    assert error.cause is cause
    assert words in str(error)
    assert bot_api.TOKEN not in str(error)


async def test_without_a_token_it_says_where_to_put_one(opened: Opened) -> None:
    assert "channels.telegram.token" in str(await ended(opened, token=""))


@pytest.mark.parametrize("kind", ["cut", "hang", "garbage", "refuse"])
async def test_passing_troubles_of_polling_are_waited_out(
    opened: Opened, api: LocalApi, kind: str
) -> None:
    api.fail("getUpdates", kind, code=502)
    api.say("hi")

    async with opened(limits=SHORT) as talk:
        await talk.inbox.wait_for_stored(1)


async def test_a_rate_limit_of_polling_is_obeyed(opened: Opened, api: LocalApi) -> None:
    api.fail("getUpdates", code=429, description="Too Many Requests", retry_after=0.01)
    api.say("hi")

    async with opened() as talk:
        await talk.inbox.wait_for_stored(1)


async def test_lasting_trouble_of_polling_ends_the_channel(opened: Opened, api: LocalApi) -> None:
    api.fail("getUpdates", code=502, description="Bad Gateway", times=99)

    error = await ended(opened)

    assert error.cause is Cause.UNREACHABLE
    assert "Bad Gateway" in str(error)


@pytest.mark.parametrize("method", ["getMe", "deleteWebhook"])
@pytest.mark.parametrize("kind", ["cut", "hang", "garbage"])
async def test_trouble_at_the_start_ends_the_channel(
    opened: Opened, api: LocalApi, method: str, kind: str
) -> None:
    api.fail(method, kind, times=9)

    assert (await ended(opened)).cause is Cause.UNREACHABLE


async def test_the_token_is_never_logged(opened: Opened, api: LocalApi) -> None:
    lines: list[str] = []
    root = logging.getLogger()

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage() + repr(record.args))

    keeper, level = Keeper(), root.level
    sink = logger.add(lambda line: lines.append(str(line)), level=0)
    root.addHandler(keeper)
    root.setLevel(logging.DEBUG)
    try:
        async with opened() as talk:
            talk.api.say(document={"file_id": talk.api.upload(b"x")})
            await talk.inbox.wait_for_stored(1)
            await talk.send("hi")
    finally:
        root.removeHandler(keeper)
        root.setLevel(level)
        logger.remove(sink)

    told = "\n".join(lines)
    assert "sendMessage" in told
    assert bot_api.TOKEN not in told
    assert bot_api.TOKEN.partition(":")[2] not in told


async def test_stopping_in_the_middle_leaves_no_task_and_no_connection(opened: Opened) -> None:
    before = asyncio.all_tasks()
    async with opened() as talk:
        talk.api.fail("file", "hang")
        talk.api.say(document={"file_id": talk.api.upload(b"x")})
        talk.api.say(chat=bot_api.GROUP, media_group_id="g", photo=[{"file_id": "x"}])
        await talk.until(lambda: "file" in talk.api.calls)

    await talk.until(lambda: talk.api.connection_count == 0)
    assert asyncio.all_tasks() == before
    assert not list(talk.ctx.media.folder.rglob("*"))


@pytest.mark.parametrize("count", [250])
async def test_a_flood_is_taken_in_order(opened: Opened, api: LocalApi, count: int) -> None:
    for number in range(count):
        api.say(str(number), chat=bot_api.GROUP if number % 2 else bot_api.PRIVATE)

    async with opened() as talk:
        await talk.inbox.wait_for_stored(count, limit_s=20)

    for chat in ("1001", "-100200300"):
        numbers = [int(m.content) for m in talk.inbox.stored if m.chat_id == chat]
        assert numbers == sorted(numbers)
        assert len(numbers) == count // 2
