"""Messages that come in, and all that may be wrong with them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loguru import logger

from nanobot_core import BusError, BusFull
from nanobot_core.testing import RecordingInbox

if TYPE_CHECKING:
    from conftest import Bench

    MakeBench = Callable[..., AbstractAsyncContextManager[Bench]]

_OTHER_SECRET = "whsec_" + base64.b64encode(bytes(32)).decode()


async def test_a_signed_message_arrives_with_all_it_says(bench: MakeBench) -> None:
    async with bench() as it:
        body = it.message(
            "Grüße 🦀",
            is_group=True,
            is_addressed=True,
            metadata={"room": {"floor": 2}},
            files=[{"name": "../a b.txt", "content": base64.b64encode(b"\0content").decode()}],
        )
        answer = await it.post({**body, "timestamp": "2025-12-31T23:00:00+01:00"})
        assert (answer.status_code, answer.json()) == (200, {"stored": True})
        (got,) = it.inbox.stored
        assert (got.channel, got.chat_id, got.sender_id) == ("webhook", "kitchen", "thermostat")
        assert (got.content, got.dedupe_key) == ("Grüße 🦀", "msg_1")
        assert (got.is_group, got.is_addressed, got.is_control) == (True, True, False)
        assert got.metadata == {"room": {"floor": 2}, "message_id": "msg_1"}
        assert got.timestamp == datetime(2025, 12, 31, 22, tzinfo=UTC)
        (path,) = got.media
        assert it.ctx.media.folder in Path(path).parents
        assert Path(path).read_bytes() == b"\0content"


async def test_a_message_without_a_time_of_its_own_has_that_of_its_signature(
    bench: MakeBench,
) -> None:
    async with bench() as it:
        await it.post(it.message(), age_s=60)
        (got,) = it.inbox.stored
        assert got.timestamp == datetime(2025, 12, 31, 23, 59, tzinfo=UTC)


async def test_a_message_that_is_sent_again_is_one_message(bench: MakeBench) -> None:
    async with bench() as it:
        answers = [await it.post(it.message()) for _ in range(3)]
        assert [answer.json()["stored"] for answer in answers] == [True, False, False]
        assert {answer.status_code for answer in answers} == {200}
        assert (await it.post(it.message(), message_id="msg_2")).json() == {"stored": True}


async def test_of_a_message_that_comes_many_times_at_once_one_is_stored(bench: MakeBench) -> None:
    async with bench() as it:
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(it.post(it.message())) for _ in range(10)]
        assert sum(call.result().json()["stored"] for call in calls) == 1
        assert len(it.inbox.stored) == 1


async def test_a_stranger_is_answered_200_and_nothing_is_kept(bench: MakeBench) -> None:
    async with bench(RecordingInbox(admits=lambda message: False)) as it:
        files = [{"name": "a", "content": "YWJj"}]
        answer = await it.post(it.message(files=files))
        assert (answer.status_code, answer.json()) == (200, {"stored": False})
        assert not it.ctx.media.folder.exists()


@pytest.mark.parametrize(
    ("error", "status", "wait"),
    [(BusFull(10_000, 10_000), 429, "30"), (BusError("canary at /disk"), 503, "5")],
)
async def test_what_is_not_stored_is_asked_for_again(
    bench: MakeBench, error: BusError, status: int, wait: str
) -> None:
    async with bench() as it:
        it.inbox.fail_next(error)
        answer = await it.post(it.message())
        assert (answer.status_code, answer.headers["retry-after"]) == (status, wait)
        assert "canary" not in answer.text
        assert (await it.post(it.message())).json() == {"stored": True}


async def test_a_full_disk_is_reported_as_not_stored(bench: MakeBench) -> None:
    async with bench() as it:
        # A file in the place of the media folder makes every write fail.
        it.ctx.media.folder.parent.mkdir(parents=True, exist_ok=True)
        it.ctx.media.folder.write_text("", "utf-8")
        answer = await it.post(it.message(files=[{"name": "a", "content": "YWJj"}]))
        assert (answer.status_code, it.inbox.stored) == (503, [])


async def test_before_the_start_and_after_the_stop_no_message_is_taken(bench: MakeBench) -> None:
    async with bench(running=False) as it:
        assert (await it.post(it.message())).status_code == 503
    async with bench() as it:
        await it.channel.stop()
        await asyncio.sleep(0)
        assert (await it.post(it.message())).status_code == 503
        assert it.inbox.attempts == []


async def test_stopping_an_old_channel_closes_not_the_new_one(bench: MakeBench) -> None:
    async with bench() as it, asyncio.TaskGroup() as group:
        newer = type(it.channel)(it.ctx)
        inbox = RecordingInbox()
        group.create_task(newer.start(inbox))
        await asyncio.sleep(0)
        await it.channel.stop()
        await asyncio.sleep(0)
        assert (await it.post(it.message())).is_success
        assert len(inbox.stored) == 1
        await newer.stop()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"webhook-id": None}, "webhook-id is missing"),
        ({"webhook-timestamp": None}, "webhook-timestamp is missing"),
        ({"webhook-signature": None}, "webhook-signature is missing"),
        ({"webhook-signature": ""}, "webhook-signature is missing"),
        ({"webhook-id": "msg_2"}, "no signature matches"),
        ({"webhook-id": "msg.1"}, "webhook-id must be"),
        ({"webhook-id": "a" * 257}, "webhook-id must be"),
        ({"webhook-id": "../x"}, "webhook-id must be"),
        ({"webhook-timestamp": "1767225601"}, "no signature matches"),
        ({"webhook-timestamp": "1767225600.0"}, "webhook-timestamp must be"),
        ({"webhook-timestamp": "-1"}, "webhook-timestamp must be"),
        ({"webhook-timestamp": "nan"}, "webhook-timestamp must be"),
        ({"webhook-timestamp": "9" * 40}, "webhook-timestamp must be"),
        ({"webhook-timestamp": "0"}, "300 seconds off"),
        ({"webhook-timestamp": "1767225901"}, "300 seconds off"),
        ({"webhook-timestamp": "1767225299"}, "300 seconds off"),
        ({"webhook-signature": "v1,"}, "no signature matches"),
        ({"webhook-signature": "v1"}, "no signature matches"),
        ({"webhook-signature": ","}, "no signature matches"),
        ({"webhook-signature": "v1,AAAA"}, "no signature matches"),
        ({"webhook-signature": "v1,\xff\xfe"}, "no signature matches"),
    ],
)
async def test_a_message_without_a_good_signature_gets_401(
    bench: MakeBench, change: dict[str, str | None], reason: str
) -> None:
    async with bench() as it:
        body = json.dumps(it.message()).encode()
        headers = {**it.signed(body), **change}
        sent = [
            (name.encode(), value.encode("latin-1"))
            for name, value in headers.items()
            if value is not None
        ]
        answer = await it.client.post("/webhook", content=body, headers=sent)
        assert answer.status_code == 401
        assert reason in answer.json()["error"]
        assert it.inbox.attempts == []


async def test_signatures_of_others_and_of_changed_bodies_get_401(bench: MakeBench) -> None:
    async with bench() as it:
        body = json.dumps(it.message()).encode()
        right = it.signed(body)["webhook-signature"]
        for headers, content in (
            (it.signed(body, secret=_OTHER_SECRET), body),
            (it.signed(body), body + b" "),
            (it.signed(body), b""),
            ({**it.signed(body), "webhook-signature": right.replace("v1,", "v2,")}, body),
            ({**it.signed(body), "webhook-signature": right.replace("v1,", "v1a,")}, body),
            ({**it.signed(body), "webhook-signature": right.lower()}, body),
            ({**it.signed(body), "webhook-signature": "v1,x " * 8 + right}, body),
        ):
            answer = await it.client.post("/webhook", content=content, headers=headers)
            assert answer.status_code == 401
        assert it.inbox.attempts == []


async def test_one_good_signature_among_several_is_enough(bench: MakeBench) -> None:
    async with bench() as it:
        body = json.dumps(it.message()).encode()
        headers = it.signed(body)
        headers["webhook-signature"] = f"v1,AAAA v1a,BBBB {headers['webhook-signature']}"
        assert (await it.client.post("/webhook", content=body, headers=headers)).is_success


async def test_a_caught_message_is_not_a_second_one_and_soon_none_at_all(bench: MakeBench) -> None:
    async with bench() as it:
        body = json.dumps(it.message()).encode()
        caught = it.signed(body)
        for status, wait_s in ((200, 0.0), (200, 300.0), (401, 1.0)):
            await it.clock.advance(wait_s)
            answer = await it.client.post("/webhook", content=body, headers=caught)
            assert answer.status_code == status
        assert len(it.inbox.stored) == 1


async def test_a_caught_reply_is_not_a_message(bench: MakeBench) -> None:
    from nanobot_core import OutboundMessage

    async with bench() as it:
        reply = OutboundMessage(channel="webhook", chat_id="kitchen", content="hi")
        await it.channel.send(reply)
        headers, body = it.receiver.requests[0]
        signed = {name: value for name, value in headers.items() if name.startswith("webhook-")}
        answer = await it.client.post("/webhook", content=body, headers=signed)
        assert answer.status_code == 400
        assert it.inbox.attempts == []


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"chat_id": ""}, "data.chat_id"),
        ({"chat_id": None}, "data.chat_id"),
        ({"sender_id": "a" * 257}, "data.sender_id"),
        ({"sender_id": "mallory|owner"}, "data.sender_id"),
        ({"sender_id": "a\nb"}, "data.sender_id"),
        ({"sender_id": " "}, "data.sender_id"),
        ({"sender_id": "a\u202eb"}, "data.sender_id"),
        ({"chat_id": "a\nb"}, "data.chat_id"),
        ({"chat_id": "a\x1b[2K"}, "data.chat_id"),
        ({"sender_names": ["ann|owner"]}, "data.sender_names"),
        ({"sender_names": ["a\tb"]}, "data.sender_names"),
        ({"sender_names": [""]}, "data.sender_names"),
        ({"sender_names": ["a"] * 9}, "sender_names"),
        ({"sender_names": "ann"}, "data.sender_names"),
        ({"content": ""}, "content or files"),
        ({"content": 1}, "data.content"),
        ({"conntent": "x"}, "data.conntent"),
        ({"is_control": True}, "data.is_control"),
        ({"files": [{"name": "a", "content": "no base64!"}]}, "data.files.0.content"),
        ({"files": [{"name": "a", "content": "YQ=="}] * 21}, "at most 20 files"),
        ({"files": [{"name": "a", "url": "http://169.254.169.254/"}]}, "data.files.0"),
        ({"metadata": []}, "data.metadata"),
    ],
)
async def test_a_message_of_another_form_gets_400_that_names_the_place(
    bench: MakeBench, change: dict[str, Any], place: str
) -> None:
    async with bench() as it:
        answer = await it.post(it.message(**{"content": "canary"} | change))
        assert answer.status_code == 400
        assert place in answer.json()["error"]
        assert "canary" not in answer.text
        assert it.inbox.attempts == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"type": "other.created", "data": {"chat_id": "a", "sender_id": "b", "content": "c"}}',
        b'{"type": "message.created", "timestamp": "2026-01-01T00:00:00", "data": {}}',
    ],
)
async def test_a_body_that_is_not_a_message_gets_400(bench: MakeBench, body: bytes) -> None:
    async with bench() as it:
        assert (await it.post(body)).status_code == 400


async def test_too_large_a_body_gets_413_before_it_is_whole(bench: MakeBench) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    async with bench(max_body_bytes=1000) as it:
        assert (await it.post(b"x" * 1001)).status_code == 413
        answer = await it.client.post("/webhook", content=pieces(), headers=it.signed(b""))
        assert answer.status_code == 413


async def test_a_file_that_is_larger_than_the_store_takes_gets_413(bench: MakeBench) -> None:
    async with bench() as it:
        it.ctx.media.max_bytes = 2
        answer = await it.post(it.message(files=[{"name": "a.txt", "content": "YWJj"}]))
        assert (answer.status_code, it.inbox.stored) == (413, [])


async def test_other_paths_and_methods_are_not_there(bench: MakeBench) -> None:
    async with bench() as it:
        body = json.dumps(it.message()).encode()
        for method, path, status in (
            ("POST", "/webhook/", 200),
            ("POST", "/webhook/x", 404),
            ("GET", "/webhook", 405),
            ("PUT", "/webhook", 405),
        ):
            answer = await it.client.request(
                method, path, content=body, headers=it.signed(body, message_id="msg_path")
            )
            assert answer.status_code == status


async def test_the_log_holds_no_content_and_no_signature(bench: MakeBench) -> None:
    lines: list[str] = []
    logger.add(lambda line: lines.append(str(line)), level=0)
    async with bench() as it:
        await it.post(it.message("canary"))
        await it.post(it.message("canary"), secret=_OTHER_SECRET)
        it.inbox.fail_next(BusError("full"))
        await it.post(it.message("canary"), message_id="msg_2")
    text = "\n".join(lines)
    assert "no signature matches" in text
    assert "msg_2" in text
    assert "canary" not in text
    assert "v1," not in text


async def test_strangers_without_end_fill_no_log(bench: MakeBench) -> None:
    lines: list[str] = []
    sink = logger.add(lambda line: lines.append(str(line)), level="INFO", format="{message}")
    try:
        async with bench() as it:
            for _ in range(5):
                assert (await it.client.post("/webhook", content=b"{}")).status_code == 401
            await it.clock.advance(60)
            assert (await it.client.post("/webhook", content=b"{}")).status_code == 401
    finally:
        logger.remove(sink)
    told = [line.partition(";")[0] for line in lines if "signature" in line]
    assert told == ["refused without a signature: 1", "refused without a signature: 5"]
