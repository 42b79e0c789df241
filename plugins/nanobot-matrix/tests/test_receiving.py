"""Gaps, invitations, encryption, tokens and sessions, over the local homeserver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nanobot_core import Channel, DeliveryError, OutboundMessage, SystemClock
from nanobot_core.chat import CallFailed, Cause
from nanobot_core.testing import ChatFile, FakePluginContext, RecordingInbox, load_stand_in
from nanobot_matrix.channel import build_channel
from nanobot_matrix.cipher import ENCRYPTED

pytestmark = pytest.mark.anyio
LocalMatrix: Any = load_stand_in(Path(__file__).with_name("local_matrix.py"))
Local: TypeAlias = Any
"""Its module is loaded by path, so its types are unknown here."""
ANNA_ROOM = "!anna:example.org"


def channel_of(local: Local, tmp_path: Path, **section: Any) -> tuple[FakePluginContext, Channel]:
    settings = {"allow_from": [local.anna.id], **local.section(), **section}
    ctx = FakePluginContext(tmp_path, settings=settings, plugin_id="matrix", clock=SystemClock())
    return ctx, build_channel(ctx)


@asynccontextmanager
async def running(
    local: Local, tmp_path: Path, inbox: RecordingInbox, **section: Any
) -> AsyncIterator[Channel]:
    ctx, channel = channel_of(local, tmp_path, **section)
    async with asyncio.timeout(20), ctx, asyncio.TaskGroup() as group:
        group.create_task(channel.start(inbox))
        try:
            yield channel
        finally:
            await channel.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - a server has no event to wait for
            await asyncio.sleep(0.01)


def is_marked(local: Local, key: str) -> bool:
    return key in local.receipts


def saved_token(tmp_path: Path) -> str:
    files = list(tmp_path.rglob("sync.json"))
    return files[0].read_text() if files else ""


def text(body: str) -> dict[str, Any]:
    return {"msgtype": "m.text", "body": body}


def contents(inbox: RecordingInbox) -> list[str]:
    return [message.content for message in inbox.stored]


async def test_only_the_very_first_sync_is_left_out(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMatrix() as local:
        local.push(ANNA_ROOM, local.anna.id, text("before the first start"))
        async with running(local, tmp_path, inbox):
            await local.say("one")
            await inbox.wait_for_stored(1)
            await until(lambda: "s2" in saved_token(tmp_path))
        await local.say("while it was down")
        async with running(local, tmp_path, inbox):
            await inbox.wait_for_stored(2)
    assert contents(inbox) == ["one", "while it was down"]
    assert len(inbox.attempts) == 2


async def test_the_token_is_saved_after_the_inbox(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMatrix() as local:
        async with running(local, tmp_path, inbox):
            await until(lambda: "s0" in saved_token(tmp_path))
            inbox.hold()
            await local.say("one", sender=local.anna)
            await inbox.wait_for_attempts(1)
            await local.say("two", sender=local.bert)
            await inbox.wait_for_attempts(2)
            assert "s0" in saved_token(tmp_path)
            assert local.receipts == []
        inbox.let_go()
        async with running(local, tmp_path, inbox):
            await inbox.wait_for_stored(2)
            await until(lambda: "s2" in saved_token(tmp_path))
            await until(lambda: len(local.receipts) == 2)
    assert sorted(contents(inbox)) == ["one", "two"]


async def test_the_token_waits_for_a_sync_that_is_still_read(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMatrix() as local, running(local, tmp_path, inbox):
        await until(lambda: "s0" in saved_token(tmp_path))
        inbox.hold()
        one = await local.say("one")
        await inbox.wait_for_attempts(1)
        local.event_gate.clear()
        await local.say("two", quote=one)
        await until(lambda: any("/event/" in path for _, path in local.calls))
        inbox.let_go()
        await until(lambda: "s0" not in saved_token(tmp_path))
        assert "s1" in saved_token(tmp_path)
        local.event_gate.set()
        await until(lambda: "s2" in saved_token(tmp_path))
    assert len(inbox.stored) == 2


async def test_a_gap_is_read_back_to_the_last_sync(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMatrix() as local:
        async with running(local, tmp_path, inbox):
            await local.say("first")
            await inbox.wait_for_stored(1)
            await until(lambda: "s1" in saved_token(tmp_path))
        local.timeline = 5
        for number in range(30):
            await local.say(f"{number}")
        async with running(local, tmp_path, inbox):
            await inbox.wait_for_stored(31)
    assert contents(inbox)[1:] == [f"{number}" for number in range(30)]


async def test_a_gap_is_bounded(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMatrix() as local:
        async with running(local, tmp_path, inbox):
            await local.say("first")
            await inbox.wait_for_stored(1)
            await until(lambda: "s1" in saved_token(tmp_path))
        local.timeline = 5
        for number in range(150):
            await local.say(f"{number}")
        async with running(local, tmp_path, inbox):
            await inbox.wait_for_stored(106)
    assert contents(inbox)[1:] == [f"{number}" for number in range(45, 150)]


async def test_a_token_that_is_lost_begins_again(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMatrix() as local:
        async with running(local, tmp_path, inbox):
            await local.say("first")
            await inbox.wait_for_stored(1)
            await until(lambda: "s1" in saved_token(tmp_path))
        await local.say("unknown")
        local.is_lost = True
        async with running(local, tmp_path, inbox):
            await until(lambda: "s2" in saved_token(tmp_path))
            await local.say("again")
            await inbox.wait_for_stored(2)
    assert contents(inbox) == ["first", "again"]


async def test_invitations_of_allowed_people_are_accepted(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMatrix() as local, running(local, tmp_path, inbox):
        await local.say("first")
        await inbox.wait_for_stored(1)
        local.push("!new:example.org", local.anna.id, text("before the invitation"))
        # The homeserver offers an invitation once, and the first attempt fails.
        local.joins = [502]
        local.invite("!strange:example.org", local.bert.id)
        local.invite("!new:example.org", local.anna.id)
        local.push("!new:example.org", local.anna.id, text("after it"))
        await inbox.wait_for_stored(2)
        joins = [path for _, path in local.calls if path.endswith("/join")]
    assert contents(inbox) == ["first", "after it"]
    assert not inbox.stored[1].is_group
    assert set(joins) == {"/_matrix/client/v3/rooms/%21new%3Aexample.org/join"}


async def test_what_was_written_before_a_new_invitation_is_left_out(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    own = {"type": "m.room.member", "state_key": "@nano:example.org"}
    async with LocalMatrix() as local:
        async with running(local, tmp_path, inbox):
            await local.say("first")
            await inbox.wait_for_stored(1)
            await until(lambda: "s1" in saved_token(tmp_path))
        # The homeserver shows the end; the invitation is in the gap before it.
        local.timeline = 2
        for membership in ("invite", "join", "leave"):
            local.push(ANNA_ROOM, local.anna.id, {"membership": membership}, **own)
        await local.say("while the agent was out")
        for membership in ("invite", "join"):
            local.push(ANNA_ROOM, local.anna.id, {"membership": membership}, **own)
        renamed = {"prev_content": {"membership": "join"}}
        await local.say("one")
        local.push(ANNA_ROOM, local.anna.id, {"membership": "join"}, unsigned=renamed, **own)
        await local.say("two")
        async with running(local, tmp_path, inbox):
            await inbox.wait_for_stored(3)
    assert contents(inbox) == ["first", "one", "two"]


async def test_a_busy_homeserver_is_left_alone_for_as_long_as_it_asks(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMatrix() as local:
        local.busy_syncs = 1
        async with running(local, tmp_path, inbox):
            await local.say("hello")
            await inbox.wait_for_stored(1)
    assert local.busy_syncs == 0


async def test_a_room_of_several_people_is_a_group(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMatrix() as local, running(local, tmp_path, inbox):
        await local.say("here", chat=local.group)
        await local.say("there")
        await inbox.wait_for_stored(2)
    assert {message.content: message.is_group for message in inbox.stored} == {
        "here": True,
        "there": False,
    }


async def test_an_encrypted_room_gets_one_sentence(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    sealed = {"type": "m.room.encrypted"}
    async with LocalMatrix() as local:
        for _ in range(2):
            async with running(local, tmp_path, inbox) as channel:
                await local.say("in another room", sender=local.bert)
                local.encrypt(ANNA_ROOM)
                local.push(ANNA_ROOM, local.anna.id, {"ciphertext": "x"}, **sealed)
                local.push(ANNA_ROOM, local.anna.id, {"ciphertext": "y"}, **sealed)
                key = await local.say("after it", sender=local.bert)
                await until(partial(is_marked, local, key))
                with pytest.raises(DeliveryError, match="is encrypted") as raised:
                    await channel.send(answer(local, "secret"))
                assert not raised.value.retryable
                file = tmp_path / "plan.txt"
                file.write_bytes(b"the plan")
                with pytest.raises(DeliveryError, match="is encrypted"):
                    await channel.send(answer(local, "", media=(str(file),)))
                assert local.media == {}
        shown = [message.text for message in local.shown(local.private(local.anna))]
    assert [each for each in shown if each] == [ENCRYPTED]


def answer(local: Local, content: str, **fields: Any) -> OutboundMessage:
    chat = local.private(local.anna)
    return OutboundMessage(channel="matrix", chat_id=chat, content=content, **fields)


async def test_a_message_with_the_same_key_is_shown_once(tmp_path: Path) -> None:
    async with LocalMatrix() as local:
        for number in range(2):
            # A process that was killed does not know what it sent.
            ctx, channel = channel_of(local, tmp_path / f"{number}")
            async with ctx:
                await channel.send(answer(local, "once", idempotency_key="k"))
                await channel.stop()
        assert [message.text for message in local.shown(local.private(local.anna))] == ["once"]


async def test_answers_are_written_in_their_thread(tmp_path: Path) -> None:
    async with LocalMatrix() as local:
        ctx, channel = channel_of(local, tmp_path, reply_to_message=True)
        async with ctx:
            await channel.show_typing("!anna:example.org")
            place = "!anna%3Aexample.org:$root"
            await channel.send(
                OutboundMessage(
                    channel="matrix", chat_id=place, content="here", reply_to="$first $edit"
                )
            )
            await channel.stop()
        (event,) = local.sent(ANNA_ROOM)
        assert event["content"]["m.relates_to"] == {
            "rel_type": "m.thread",
            "event_id": "$root",
            "is_falling_back": False,
            "m.in_reply_to": {"event_id": "$first"},
        }
        assert local.typing == [True, False]


async def test_files_come_from_old_homeservers_and_are_limited(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMatrix() as local, running(local, tmp_path, inbox, max_media_bytes=10):
        local.is_old = True
        await local.say(files=[ChatFile("a.txt", b"short")])
        await local.say(files=[ChatFile("b.txt", b"much too long")])
        await inbox.wait_for_stored(2)
        (path,) = inbox.stored[0].media
        assert await asyncio.to_thread(Path(path).read_bytes) == b"short"
    assert inbox.stored[1].media == ()
    assert "larger than 10 bytes" in inbox.stored[1].content


async def test_malformed_events_are_passed_over(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalMatrix() as local, running(local, tmp_path, inbox):
        await local.say("first")
        local.push(ANNA_ROOM, local.anna.id, {"body": ["x"]}, origin_server_ts="never")
        local.push(ANNA_ROOM, local.anna.id, {"m.relates_to": 7})
        await local.say("after it")
        await inbox.wait_for_stored(2)
    assert contents(inbox) == ["first", "after it"]


async def test_a_password_opens_one_session(tmp_path: Path) -> None:
    section = {"access_token": "", "password": "open sesame", "device_id": "FIXED"}
    async with LocalMatrix() as local:
        for _ in range(2):
            ctx, channel = channel_of(local, tmp_path, **section)
            async with ctx:
                assert await channel.login() == "@nano:example.org"
                await channel.stop()
        assert local.devices == ["FIXED"]
        local.sessions.clear()
        ctx, channel = channel_of(local, tmp_path, **section)
        async with ctx:
            await channel.login()
            await channel.stop()
        assert local.devices == ["FIXED", "FIXED"]
        # The remedy if the keys of a device are lost.
        ctx, channel = channel_of(local, tmp_path, **{**section, "device_id": "OTHER"})
        async with ctx:
            await channel.login()
            await channel.stop()
        assert local.devices == ["FIXED", "FIXED", "OTHER"]


async def test_a_session_of_a_password_that_ends_is_opened_again(tmp_path: Path) -> None:
    section = {"access_token": "", "password": "open sesame"}
    async with LocalMatrix() as local:
        ctx, channel = channel_of(local, tmp_path, **section)
        async with asyncio.timeout(10), ctx, asyncio.TaskGroup() as group:
            receiving = group.create_task(lost(channel))
            await local.say("hello")
            local.sessions.clear()
            assert (await receiving).cause is Cause.UNREACHABLE
            await channel.stop()


async def lost(channel: Channel) -> CallFailed:
    with pytest.raises(CallFailed) as raised:
        await channel.start(RecordingInbox())
    return raised.value


@pytest.mark.parametrize(
    "section",
    [
        {"access_token": ""},
        {"access_token": "x"},
        {"access_token": "", "password": "wrong"},
        {"user_id": "@other:example.org"},
    ],
)
async def test_what_is_missing_is_said_with_its_place(
    tmp_path: Path, section: dict[str, str]
) -> None:
    async with LocalMatrix() as local:
        _, channel = channel_of(local, tmp_path, **section)
        with pytest.raises(CallFailed, match=r"channels\.matrix\.\w+") as raised:
            await channel.login()
        await channel.stop()
        count = len(local.calls)
    assert raised.value.cause is Cause.CREDENTIALS
    assert count <= 2
