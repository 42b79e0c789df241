"""Keys, devices and attacks in encrypted rooms, with clients of matrix-nio."""

from __future__ import annotations

import asyncio
import base64
import json
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nanobot_core import Channel, DeliveryError, Draft, OutboundMessage, SystemClock
from nanobot_core.chat import CallFailed, Cause
from nanobot_core.testing import ChatFile, FakePluginContext, RecordingInbox, load_stand_in
from nanobot_matrix.channel import build_channel
from nanobot_matrix.cipher import ENCRYPTED
from nanobot_matrix.wire import DeviceKeys

pytestmark = pytest.mark.anyio
pytest.importorskip("vodozemac", reason="the extra 'e2e' is not installed")
pytest.importorskip("cryptography", reason="the extra 'e2e' is not installed")
pytest.importorskip("nio.crypto", reason="matrix-nio[e2e] is not installed")

from vodozemac import Account  # noqa: E402 - it may be missing

from nanobot_matrix.encryption import NOTICES  # noqa: E402 - it needs the extra
from nanobot_matrix.megolm import Why  # noqa: E402 - it needs the extra
from nanobot_matrix.signature import canonical, devices_of  # noqa: E402 - it needs the extra

SealedMatrix: Any = load_stand_in(Path(__file__).with_name("sealed_matrix.py"))
Local: TypeAlias = Any
"""Its module is loaded by path, so its types are unknown here."""
NioClient: Any = sys.modules[SealedMatrix.__module__].NioClient
AGENT = "@nano:example.org"
ANNA = "@anna:example.org"
BERT = "@bert:example.org"
ANNA_ROOM = "!anna:example.org"
GROUP = "!group:example.org"
SEALED = {"type": "m.room.encrypted"}


class MovedClock(SystemClock):
    """The clock of the machine, moved forward."""

    def __init__(self) -> None:
        self.by_s: float = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.by_s)


@asynccontextmanager
async def running(
    local: Local, folder: Path, inbox: RecordingInbox, clock: SystemClock | None = None, **more: Any
) -> AsyncIterator[Channel]:
    """Run the channel; messages can be sent when its first sync is over."""
    settings = {"allow_from": [ANNA, BERT], "group_policy": "open", **local.section(), **more}
    ctx = FakePluginContext(
        folder, settings=settings, plugin_id="matrix", clock=clock or SystemClock()
    )
    channel = build_channel(ctx)
    async with asyncio.timeout(30), ctx, asyncio.TaskGroup() as group:
        group.create_task(channel.start(inbox))
        try:
            await until(lambda: bool(list(folder.rglob("sync.json"))))
            yield channel
        finally:
            await channel.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - a server has no event to wait for
            await asyncio.sleep(0.01)


def contents(inbox: RecordingInbox) -> list[str]:
    return [message.content for message in inbox.stored]


def answer(content: str, chat: str = "!anna%3Aexample.org", **fields: Any) -> OutboundMessage:
    return OutboundMessage(channel="matrix", chat_id=chat, content=content, **fields)


def texts(local: Local, room: str = ANNA_ROOM) -> list[str]:
    """Return what the agent has written to a room."""
    return [each.text for each in local.shown(room) if each.author == local.agent]


def with_room_key(local: Local, user: str, device: str) -> list[dict[str, Any]]:
    """Return what the agent sent to a device, encrypted for it."""
    curve = local.keys.devices[user][device]["keys"][f"curve25519:{device}"]
    return [
        event
        for _, event in local.keys.sent
        if event["sender"] == AGENT and curve in event["content"].get("ciphertext", {})
    ]


async def sentinel(local: Local, inbox: RecordingInbox, text: str = "after it") -> None:
    """Let Bert write something that is stored after what came before."""
    await local.say(text, sender=local.bert)
    await until(lambda: text in contents(inbox))
    await all_read(local)


async def all_read(local: Local) -> None:
    """Wait until everything that is in a room now has been read."""
    # The rooms of a sync have no order; the next call means that all of them are read.
    for _ in range(2):
        before = count_syncs(local)
        local.push("!bert:example.org", BERT, {}, type="m.room.topic", state_key="")
        await until(partial(has_synced, local, before))


def has_synced(local: Local, before: int) -> bool:
    return count_syncs(local) > before


def count_syncs(local: Local) -> int:
    return sum(path.endswith("/sync") for _, path in local.calls)


# --- an ordinary life


async def test_the_login_names_the_device_that_the_homeserver_publishes(tmp_path: Path) -> None:
    async with SealedMatrix() as local:
        for _ in range(2):
            ctx = FakePluginContext(
                tmp_path, settings=local.section(), plugin_id="matrix", clock=SystemClock()
            )
            async with ctx:
                channel = build_channel(ctx)
                account = await channel.login()
                await channel.stop()
            published = local.keys.devices[AGENT]["NANO"]["keys"]["ed25519:NANO"]
            assert account.startswith(f"{AGENT} (device NANO, fingerprint ")
            assert published in account.replace(" ", "")
            (device,) = devices_of(AGENT, DeviceKeys.model_validate(local.keys.query([AGENT])))
            assert device.master == next(iter(local.keys.masters[AGENT]["keys"].values()))
        paths = [path for _, path in local.calls]
        assert sum("/device_signing/upload" in path for path in paths) == 1
        assert sum("/signatures/upload" in path for path in paths) == 1
    (file,) = tmp_path.rglob("keys-*.db")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_sessions_outlive_the_process(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local:
        for number in range(3):
            async with running(local, tmp_path, inbox) as channel:
                await local.say(f"question {number}")
                await inbox.wait_for_stored(number + 1)
                await channel.send(answer(f"answer {number}"))
        assert texts(local) == ["answer 0", "answer 1", "answer 2"]
        # One key for all of them: it was neither lost nor begun again.
        assert len(with_room_key(local, ANNA, "ANNAPHONE")) == 1
        assert len(local.keys.claimed) == len(set(local.keys.claimed))
        assert {event["type"] for event in local.events(ANNA_ROOM)} == {"m.room.encrypted"}
    assert contents(inbox) == ["question 0", "question 1", "question 2"]


async def test_a_master_key_of_another_program_is_kept(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local:
        cross_sign(local, AGENT)
        theirs = local.keys.masters[AGENT]
        async with running(local, tmp_path, inbox):
            await local.say("hello")
            await inbox.wait_for_stored(1)
        assert local.keys.masters[AGENT] == theirs


async def test_a_broken_session_of_a_device_is_replaced(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox) as channel:
        await local.say("one")
        await inbox.wait_for_stored(1)
        curve = local.keys.devices[ANNA]["ANNAPHONE"]["keys"]["curve25519:ANNAPHONE"]
        own = local.keys.devices[AGENT]["NANO"]["keys"]["curve25519:NANO"]
        for body in ("AwohAAAA", "AwohAAAB"):
            sealed = {own: {"type": 1, "body": body}}
            content = {"algorithm": "m.olm.v1.curve25519-aes-sha2", "sender_key": curve}
            content["ciphertext"] = sealed
            local.keys.send(ANNA, "m.room.encrypted", {AGENT: {"NANO": content}})
            await sentinel(local, inbox, body)
        # A new session is announced once; both sides use it from now on.
        assert len(with_room_key(local, ANNA, "ANNAPHONE")) == 1
        await channel.send(answer("two"))
        local.phone.forget(ANNA_ROOM)
        await local.say("three")
        await until(lambda: "three" in contents(inbox))
        assert texts(local) == ["two"]


async def test_one_time_keys_are_replenished(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox):
        keys = local.keys.one_time_keys[AGENT, "NANO"]
        assert len(keys) == 50
        while len(keys) > 20:
            keys.popitem()
        await until(lambda: len(keys) == 50)


async def test_a_fallback_key_begins_a_session(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local:
        async with running(local, tmp_path, inbox):
            await local.say("first", sender=local.bert)
            await inbox.wait_for_stored(1)
        local.keys.one_time_keys[AGENT, "NANO"].clear()
        await local.say("with the fallback key")
        async with running(local, tmp_path, inbox):
            await inbox.wait_for_stored(2)
    assert contents(inbox) == ["first", "with the fallback key"]


async def test_files_are_encrypted_in_both_directions(tmp_path: Path) -> None:
    inbox, file = RecordingInbox(), tmp_path / "plan.txt"
    file.write_bytes(b"the plan")
    async with SealedMatrix() as local, running(local, tmp_path / "home", inbox) as channel:
        await local.say(files=[ChatFile("a.txt", b"their file")])
        await inbox.wait_for_stored(1)
        (path,) = inbox.stored[0].media
        assert await asyncio.to_thread(Path(path).read_bytes) == b"their file"
        await channel.send(answer("", media=(str(file),)))
        shown = local.shown(ANNA_ROOM)[-1]
        assert shown.files == (ChatFile("plan.txt", b"the plan"),)
        assert not any(b"the plan" in stored for stored in local.media.values())


async def test_a_file_that_the_homeserver_changes_is_not_used(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox):
        inbox.hold()
        await local.say(files=[ChatFile("a.txt", b"their file")])
        for url in local.media:
            local.media[url] = bytes(len(local.media[url]))
        inbox.let_go()
        await inbox.wait_for_stored(1)
        assert inbox.stored[0].media == ()
        assert "could not be fetched" in inbox.stored[0].content
        assert not [path for path in tmp_path.rglob("a.txt") if path.is_file()]


async def test_quotes_contain_what_was_edited(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox) as channel:
        await channel.show_draft(Draft(id="1", chat_id="!anna%3Aexample.org", content="A begin"))
        await channel.send(answer("A beginning and an end", draft_id="1"))
        (shown,) = local.shown(ANNA_ROOM)
        assert shown.edited
        assert shown.text == "A beginning and an end"
        await local.say("why?", quote=shown.id)
        await inbox.wait_for_stored(1)
    assert contents(inbox) == [f"[in reply to {AGENT}]\n> A beginning and an end\nwhy?"]


# --- keys that rooms get


@pytest.mark.parametrize(
    "place", ["/keys/query", "/keys/claim", "/sendToDevice/", "/joined_members", "/send/m.room"]
)
async def test_a_failed_call_is_made_again_before_a_message(tmp_path: Path, place: str) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox) as channel:
        local.failing = place
        with pytest.raises(DeliveryError) as raised:
            await channel.send(answer("secret", idempotency_key="1"))
        assert raised.value.retryable
        await channel.send(answer("secret", idempotency_key="1"))
        assert texts(local) == ["secret"]


async def test_a_key_is_replaced_after_as_many_messages_as_the_room_allows(tmp_path: Path) -> None:
    inbox, rule = RecordingInbox(), {"algorithm": "m.megolm.v1.aes-sha2", "rotation_period_msgs": 2}
    async with SealedMatrix() as local, running(local, tmp_path, inbox) as channel:
        local.push(ANNA_ROOM, ANNA, rule, type="m.room.encryption", state_key="")
        await local.say("hello")
        await inbox.wait_for_stored(1)
        for number in range(4):
            await channel.send(answer(f"{number}"))
        assert texts(local) == ["0", "1", "2", "3"]
        used = [event["content"]["session_id"] for event in local.events(ANNA_ROOM)[1:]]
        assert used[0] == used[1] != used[2] == used[3]


async def test_a_key_is_replaced_after_a_week(tmp_path: Path) -> None:
    inbox, clock = RecordingInbox(), MovedClock()
    async with SealedMatrix() as local, running(local, tmp_path, inbox, clock) as channel:
        await channel.send(answer("today"))
        clock.by_s = 6 * 86_400
        await channel.send(answer("this week"))
        clock.by_s = 8 * 86_400
        await channel.send(answer("next week"))
        used = [event["content"]["session_id"] for event in local.events(ANNA_ROOM)]
    assert used[0] == used[1] != used[2]


async def test_someone_who_leaves_cannot_read_on(tmp_path: Path) -> None:
    inbox, chat = RecordingInbox(), "!group%3Aexample.org"
    async with SealedMatrix() as local, running(local, tmp_path, inbox) as channel:
        await channel.send(answer("all", chat))
        local.people(GROUP).discard(BERT)
        local.push(GROUP, BERT, {"membership": "leave"}, type="m.room.member", state_key=BERT)
        await local.say("Bert has left", chat=local.group)
        await inbox.wait_for_stored(1)
        before = len(with_room_key(local, BERT, "BERTPHONE"))
        await channel.send(answer("without Bert", chat))
        assert len(with_room_key(local, BERT, "BERTPHONE")) == before
        first, last = (local.events(GROUP)[at] for at in (0, -1))
        assert first["content"]["session_id"] != last["content"]["session_id"]
        with pytest.raises(Exception, match="no session found"):
            local.bert_phone.decrypt(GROUP, last)


async def test_a_new_device_reads_only_what_follows(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox) as channel:
        await channel.send(answer("before"))
        tablet = NioClient(local.keys, ANNA, "TABLET")
        await local.say("now I have a tablet")
        await inbox.wait_for_stored(1)
        await channel.send(answer("after"))
        first, last = (local.events(ANNA_ROOM)[at] for at in (0, -1))
        assert tablet.decrypt(ANNA_ROOM, last)["content"]["body"] == "after"
        with pytest.raises(Exception, match="decrypt"):
            tablet.decrypt(ANNA_ROOM, first)


async def test_a_room_remains_encrypted_if_the_homeserver_denies_it(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local:
        async with running(local, tmp_path, inbox) as channel:
            await channel.send(answer("secret"))
        local._encrypted.clear()
        local.check = lambda room, kind, content: None
        async with running(local, tmp_path, inbox) as channel:
            await channel.send(answer("still secret"))
        assert {event["type"] for event in local.events(ANNA_ROOM)} == {"m.room.encrypted"}


async def test_a_hidden_encryption_is_learned_from_a_message(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox) as channel:
        sealed = local.phone.encrypt(
            ANNA_ROOM, local.people(ANNA_ROOM), {"msgtype": "m.text", "body": "hi"}
        )
        local._encrypted.clear()
        local.check = lambda room, kind, content: None
        local.push(ANNA_ROOM, ANNA, sealed, **SEALED)
        await inbox.wait_for_stored(1)
        await channel.send(answer("secret"))
        assert {event["type"] for event in local.events(ANNA_ROOM)} == {"m.room.encrypted"}


# --- keys that do not arrive


async def test_a_message_waits_for_its_key_beyond_the_process(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local:
        async with running(local, tmp_path, inbox):
            local.keys.is_deaf = True
            await local.say("patience")
            await sentinel_without_keys(local)
            asked = [event for _, event in local.keys.sent if event["type"] == "m.room_key_request"]
            assert len(asked) == 1
            assert contents(inbox) == []
        local.keys.is_deaf = False
        late = [event for user, event in local.keys.sent if user == AGENT]
        local.keys.inbox += late
        async with running(local, tmp_path, inbox):
            await inbox.wait_for_stored(1)
    assert contents(inbox) == ["patience"]


async def sentinel_without_keys(local: Local) -> None:
    await until(lambda: any("m.room_key_request" in path for _, path in local.calls))


async def test_the_room_is_told_once_of_what_cannot_be_read(tmp_path: Path) -> None:
    inbox, clock = RecordingInbox(), MovedClock()
    async with SealedMatrix() as local:
        async with running(local, tmp_path, inbox, clock):
            local.keys.is_deaf = True
            for number in range(2):
                await local.say(f"lost {number}")
            await sentinel_without_keys(local)
            assert texts(local) == []
            clock.by_s = 60
            await until(lambda: len(texts(local)) == 1)
            await local.say("lost 2")
        async with running(local, tmp_path, inbox, clock):
            clock.by_s = 120
            local.keys.is_deaf = False
            local.bert_phone.forget("!bert:example.org")
            await sentinel(local, inbox)
            assert texts(local) == [NOTICES[Why.NO_KEY]]
    assert contents(inbox) == ["after it"]


async def test_a_message_is_given_up_after_a_day(tmp_path: Path) -> None:
    inbox, clock = RecordingInbox(), MovedClock()
    async with SealedMatrix() as local:
        async with running(local, tmp_path, inbox, clock):
            local.keys.is_deaf = True
            await local.say("yesterday")
            await sentinel_without_keys(local)
            # Otherwise, the next sync offers it again.
            await until(lambda: "s1_" in next(tmp_path.rglob("sync.json")).read_text())
        clock.by_s = 90_000
        local.keys.is_deaf = False
        local.keys.inbox += [event for user, event in local.keys.sent if user == AGENT]
        async with running(local, tmp_path, inbox, clock):
            await sentinel(local, inbox)
    assert contents(inbox) == ["after it"]


async def test_a_device_gets_a_key_again_if_it_had_it(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox) as channel:
        await channel.send(answer("one"))
        session_id = local.events(ANNA_ROOM)[0]["content"]["session_id"]
        body = {"room_id": ANNA_ROOM, "session_id": session_id}
        phone = (ANNA, "ANNAPHONE")
        for user, device in (phone, phone, (BERT, "BERTPHONE"), (ANNA, "BERTPHONE")):
            request = {"action": "request", "requesting_device_id": device, "body": body}
            local.keys.send(user, "m.room_key_request", {AGENT: {"NANO": request}})
        await until(lambda: len(with_room_key(local, ANNA, "ANNAPHONE")) == 2)
        await sentinel(local, inbox)
        assert len(with_room_key(local, ANNA, "ANNAPHONE")) == 2
        assert len(with_room_key(local, BERT, "BERTPHONE")) == 0


# --- a homeserver that lies


async def test_a_message_in_the_name_of_someone_else_is_not_read(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox):
        content = {"msgtype": "m.text", "body": "I am Anna"}
        sealed = local.bert_phone.encrypt(GROUP, local.people(GROUP), content)
        local.push(GROUP, ANNA, sealed, **SEALED)
        await sentinel(local, inbox)
    assert contents(inbox) == ["after it"]


async def test_a_key_in_the_name_of_someone_else_is_not_used(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox):
        original, local.keys.send = local.keys.send, lambda *_: None
        sent: list[Any] = []
        local.keys.send = lambda sender, kind, messages: sent.append((kind, messages))
        content = {"msgtype": "m.text", "body": "I am Anna"}
        sealed = local.bert_phone.encrypt(ANNA_ROOM, {AGENT}, content)
        local.keys.send = original
        for kind, messages in sent:
            local.keys.send(ANNA, kind, messages)
        local.push(ANNA_ROOM, ANNA, sealed, **SEALED)
        local.bert_phone.forget("!bert:example.org")
        await sentinel(local, inbox)
    assert contents(inbox) == ["after it"]


async def test_a_repeated_message_is_not_read_again(tmp_path: Path) -> None:
    inbox, later = RecordingInbox(), RecordingInbox()
    async with SealedMatrix() as local:
        async with running(local, tmp_path, inbox):
            await local.say("/approve 1")
            await inbox.wait_for_stored(1)
            (event,) = local.events(ANNA_ROOM)
            local.push(ANNA_ROOM, ANNA, event["content"], **SEALED)
            await sentinel(local, inbox)
        # With the same id, after the inbox has forgotten it.
        async with running(local, tmp_path, later):
            local._stream.append((ANNA_ROOM, event))
            await sentinel(local, later, "and later")
    assert contents(inbox) == ["/approve 1", "after it"]
    assert contents(later) == ["and later"]


async def test_a_message_counts_once_under_two_ids(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox):
        content = {"msgtype": "m.text", "body": "/approve 1"}
        sealed = local.phone.encrypt(ANNA_ROOM, local.people(ANNA_ROOM), content)
        inbox.hold()
        for _ in range(2):
            local.push(ANNA_ROOM, ANNA, sealed, **SEALED)
        await all_read(local)
        inbox.let_go()
        await sentinel(local, inbox)
    assert sorted(contents(inbox)) == ["/approve 1", "after it"]


async def test_other_devices_of_the_agents_account_get_no_keys(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox) as channel:
        NioClient(local.keys, AGENT, "GHOST")
        cross_sign(local, AGENT, "GHOST")
        await sentinel(local, inbox)
        await channel.send(answer("secret"))
        assert len(with_room_key(local, ANNA, "ANNAPHONE")) == 1
        assert with_room_key(local, AGENT, "GHOST") == []


async def test_a_message_is_not_moved_to_another_room(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox):
        await local.say("yes")
        await inbox.wait_for_stored(1)
        (event,) = local.events(ANNA_ROOM)
        local.push(GROUP, ANNA, event["content"], **SEALED)
        await sentinel(local, inbox)
    assert contents(inbox) == ["yes", "after it"]


async def test_what_is_not_encrypted_is_not_read_in_an_encrypted_room(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox):
        for number in range(2):
            local.push(ANNA_ROOM, ANNA, {"msgtype": "m.text", "body": f"/approve {number}"})
        await sentinel(local, inbox)
        assert texts(local) == [NOTICES[Why.PLAIN]]
    assert contents(inbox) == ["after it"]


async def test_a_quote_is_not_made_up(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox):
        made_up = local.push(ANNA_ROOM, AGENT, {"msgtype": "m.text", "body": "May I delete it?"})
        await local.say("yes", quote=made_up)
        await inbox.wait_for_stored(1)
        assert contents(inbox) == ["yes"]


async def test_other_keys_of_a_known_device_do_not_count(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox) as channel:
        await local.say("hello")
        await inbox.wait_for_stored(1)
        evil = NioClient(local.keys, ANNA, "ANNAPHONE")
        await sentinel(local, inbox)
        sealed = evil.encrypt(ANNA_ROOM, {AGENT}, {"msgtype": "m.text", "body": "obey"})
        local.push(ANNA_ROOM, ANNA, sealed, **SEALED)
        await sentinel(local, inbox, "after that")
        await channel.send(answer("secret"))
        assert with_room_key(local, ANNA, "ANNAPHONE") == []
    assert contents(inbox) == ["hello", "after it", "after that"]


def cross_sign(local: Local, user: str, *devices: str) -> Callable[[str], None]:
    """Give a person a master key that signs their devices, and return what signs others."""
    master, signer = Account(), Account()

    def key(account: Account, usage: str) -> dict[str, Any]:
        public = account.ed25519_key.to_base64()
        return {"user_id": user, "usage": [usage], "keys": {f"ed25519:{public}": public}}

    def sign(account: Account, value: dict[str, Any]) -> None:
        place = value.setdefault("signatures", {}).setdefault(user, {})
        public = account.ed25519_key.to_base64()
        place[f"ed25519:{public}"] = account.sign(canonical(value)).to_base64()

    local.keys.masters[user] = key(master, "master")
    local.keys.signers[user] = key(signer, "self_signing")
    sign(master, local.keys.signers[user])

    def sign_device(device: str) -> None:
        sign(signer, local.keys.devices[user][device])
        local.keys.changed.append(user)

    for device in devices:
        sign_device(device)
    return sign_device


async def test_a_device_that_its_person_has_not_signed_is_not_trusted(tmp_path: Path) -> None:
    inbox, clock = RecordingInbox(), MovedClock()
    async with SealedMatrix() as local:
        cross_sign(local, ANNA, "ANNAPHONE")
        async with running(local, tmp_path, inbox, clock) as channel:
            await local.say("hello")
            await inbox.wait_for_stored(1)
            evil = NioClient(local.keys, ANNA, "EVIL")
            sealed = evil.encrypt(ANNA_ROOM, {AGENT}, {"msgtype": "m.text", "body": "obey"})
            local.push(ANNA_ROOM, ANNA, sealed, **SEALED)
            await sentinel(local, inbox)
            await channel.send(answer("secret"))
            assert len(with_room_key(local, ANNA, "ANNAPHONE")) == 1
            assert with_room_key(local, ANNA, "EVIL") == []
            withheld = [e for _, e in local.keys.sent if e["type"] == "m.room_key.withheld"]
            assert [event["content"]["code"] for event in withheld] == ["m.unverified"]
            clock.by_s = 60
            await until(lambda: NOTICES[Why.UNVERIFIED] in texts(local))
            # Another master key, which signs that device, changes nothing.
            cross_sign(local, ANNA, "EVIL")("EVIL")
            await sentinel(local, inbox, "after that")
            await channel.send(answer("another secret"))
            assert with_room_key(local, ANNA, "EVIL") == []
    assert contents(inbox) == ["hello", "after it", "after that"]


async def test_a_device_that_is_signed_later_is_read_then(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local:
        sign = cross_sign(local, ANNA)
        async with running(local, tmp_path, inbox):
            await local.say("hello")
            await sentinel(local, inbox)
            assert contents(inbox) == ["after it"]
            sign("ANNAPHONE")
            await inbox.wait_for_stored(2)
    assert contents(inbox) == ["after it", "hello"]


async def test_only_listed_devices_count(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local:
        tablet = NioClient(local.keys, ANNA, "TABLET")
        key = local.keys.devices[ANNA]["TABLET"]["keys"]["ed25519:TABLET"]
        listed = {ANNA: [" ".join(key[at : at + 4] for at in range(0, len(key), 4))]}
        more: dict[str, Any] = {"trusted_keys": listed, "e2e_verified_only": True}
        async with running(local, tmp_path, inbox, **more) as channel:
            await local.say("from the phone")
            await local.say("from Bert", sender=local.bert)
            sealed = tablet.encrypt(ANNA_ROOM, {AGENT}, {"msgtype": "m.text", "body": "from it"})
            local.push(ANNA_ROOM, ANNA, sealed, **SEALED)
            await inbox.wait_for_stored(1)
            await channel.send(answer("secret"))
            assert len(with_room_key(local, ANNA, "TABLET")) == 1
            assert with_room_key(local, ANNA, "ANNAPHONE") == []
    assert contents(inbox) == ["from it"]


async def test_unsigned_keys_are_not_used(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox) as channel:
        local.keys.devices[BERT]["BERTPHONE"]["keys"]["curve25519:BERTPHONE"] = (
            Account().curve25519_key.to_base64()
        )
        for key in local.keys.one_time_keys[ANNA, "ANNAPHONE"].values():
            key["key"] = Account().curve25519_key.to_base64()
        await channel.send(answer("secret", "!group%3Aexample.org"))
        assert with_room_key(local, BERT, "BERTPHONE") == []
        assert with_room_key(local, ANNA, "ANNAPHONE") == []


async def test_only_encrypted_rooms_are_read_if_that_is_set(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local:
        local._encrypted.discard(ANNA_ROOM)
        async with running(local, tmp_path, inbox, encrypted_only=True) as channel:
            local.push(ANNA_ROOM, ANNA, {"msgtype": "m.text", "body": "made up"})
            await sentinel(local, inbox)
            with pytest.raises(DeliveryError, match="encrypted_only"):
                await channel.send(answer("secret"))
            file = tmp_path / "plan.txt"
            file.write_bytes(b"the plan")
            with pytest.raises(DeliveryError, match="encrypted_only"):
                await channel.send(answer("", media=(str(file),)))
            assert local.media == {}
    assert contents(inbox) == ["after it"]


def garbage(local: Local) -> Iterator[dict[str, Any]]:
    curve = local.keys.devices[AGENT]["NANO"]["keys"]["curve25519:NANO"]
    olm = "m.olm.v1.curve25519-aes-sha2"
    bodies: list[Any] = [
        "",
        "A",
        "!",
        "AAAA" * 300_000,
        7,
        None,
        base64.b64encode(bytes(200)).decode(),
    ]
    for body in bodies:
        for kind in (0, 1, 2, "0", None):
            sealed = {curve: {"type": kind, "body": body}}
            yield {"algorithm": olm, "sender_key": curve, "ciphertext": sealed}
    yield {"algorithm": olm, "sender_key": 1, "ciphertext": []}
    yield {"algorithm": olm, "sender_key": "\ud800", "ciphertext": {curve: {"body": "\ud800"}}}
    yield {"algorithm": "other"}
    yield {}


async def test_garbage_is_dropped(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with SealedMatrix() as local, running(local, tmp_path, inbox):
        for content in garbage(local):
            local.keys.send(ANNA, "m.room.encrypted", {AGENT: {"NANO": content}})
        for kind in ("m.room_key", "m.forwarded_room_key", "m.room_key_request", "m.dummy", "x"):
            event = {
                "room_id": ANNA_ROOM,
                "session_id": "x",
                "session_key": "y",
                "action": "request",
            }
            local.keys.send(ANNA, kind, {AGENT: {"NANO": event}})
        local.keys.inbox += [{"type": 7}, {"content": []}, {"sender": None}]
        local.keys.changed += [None, {}, 7, "nobody"]
        session = {"algorithm": "m.megolm.v1.aes-sha2", "session_id": "x"}
        for ciphertext in ("", "A", 7, None, "A" * 1_000_000):
            local.push(ANNA_ROOM, ANNA, {**session, "ciphertext": ciphertext}, **SEALED)
        local.push(ANNA_ROOM, ANNA, {"algorithm": "m.megolm.v1.aes-sha2"}, **SEALED)
        for name in ("session_id", "ciphertext", "extra"):
            # JSON can hold a half of a character, which databases refuse.
            content = {**session, "ciphertext": "A", name: "\ud800"}
            local.push(ANNA_ROOM, ANNA, content, **SEALED)
        await local.say("hello")
        await sentinel(local, inbox)
    assert sorted(contents(inbox)) == ["after it", "hello"]


async def test_keys_of_another_program_are_not_replaced(tmp_path: Path) -> None:
    async with SealedMatrix() as local:
        theirs = Account().ed25519_key.to_base64()
        local.keys.devices[AGENT] = {"NANO": {"keys": {"ed25519:NANO": theirs}}}
        ctx = FakePluginContext(
            tmp_path, settings=local.section(), plugin_id="matrix", clock=SystemClock()
        )
        async with ctx:
            channel = build_channel(ctx)
            with pytest.raises(CallFailed, match=r"channels\.matrix\.e2ee_enabled") as raised:
                await channel.login()
            await channel.stop()
        assert raised.value.cause is Cause.CREDENTIALS
        assert "/keys/upload" not in json.dumps(local.calls)


async def test_without_the_extra_the_room_is_told_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = RecordingInbox()
    for name in [name for name in sys.modules if name == "nanobot_matrix.encryption"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vodozemac", None)
    for name in ("olm", "megolm", "signature", "sharing", "roster"):
        monkeypatch.delitem(sys.modules, f"nanobot_matrix.{name}", raising=False)
    async with SealedMatrix() as local:
        local.check = lambda room, kind, content: None
        async with running(local, tmp_path, inbox):
            local.push(ANNA_ROOM, ANNA, {"ciphertext": "x"}, **SEALED)
            await until(partial(is_told, local))
    assert "nanobot-matrix[e2e]" in ENCRYPTED


def is_told(local: Local) -> bool:
    return any(event["content"].get("body") == ENCRYPTED for event in local.events(ANNA_ROOM))
