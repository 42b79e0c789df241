"""Replies that go out."""

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
import standardwebhooks
from hypothesis import given, strategies as st
from loguru import logger
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from nanobot_core import Button, ChannelError, DeliveryError, OutboundMessage, SystemClock
from nanobot_core.testing import FakePluginContext
from nanobot_webhook.callback import Callback
from nanobot_webhook.channel import WebhookChannel
from nanobot_webhook.reply import Delivery, split_text
from nanobot_webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from conftest import Bench

    MakeBench = Callable[..., AbstractAsyncContextManager[Bench]]

_SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Silence(Response):
    """Answers when nobody listens any more."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        await super().__call__(scope, receive, send)


def _reply(content: str = "hello", **fields: Any) -> OutboundMessage:
    return OutboundMessage(channel="webhook", chat_id="kitchen", content=content, **fields)


async def test_a_reply_is_posted_with_all_it_says(bench: MakeBench, tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(b"picture")
    async with bench() as it:
        await it.channel.send(
            _reply(
                "Grüße 🦀 \ud800",
                kind="notice",
                reply_to="msg_1",
                media=(str(picture), str(tmp_path / "missing.txt")),
                buttons=((Button("Yes", "yes"), Button("No", "no")),),
                idempotency_key="reply-1",
            )
        )
        (data,) = it.receiver.data
        assert data == {
            "chat_id": "kitchen",
            "content": "Grüße 🦀 \ufffd",
            "kind": "notice",
            "reply_to": "msg_1",
            "part": 1,
            "parts": 1,
            "files": [
                {
                    "name": "a.png",
                    "media_type": "image/png",
                    "content": base64.b64encode(b"picture").decode(),
                }
            ],
            "left_out": ["missing.txt"],
            "buttons": [[{"label": "Yes", "value": "yes"}, {"label": "No", "value": "no"}]],
        }
        headers, body = it.receiver.requests[0]
        assert headers["webhook-id"] == "reply-1"
        assert json.loads(body)["type"] == "reply.created"


async def test_files_beyond_the_limit_are_left_out_and_named(
    bench: MakeBench, tmp_path: Path
) -> None:
    for name, size in (("a", 6), ("b", 6), ("c", 4)):
        (tmp_path / name).write_bytes(b"x" * size)
    async with bench(max_file_bytes=10) as it:
        await it.channel.send(_reply(media=tuple(str(tmp_path / name) for name in "abc")))
        (data,) = it.receiver.data
        assert [file["name"] for file in data["files"]] == ["a", "c"]
        assert data["left_out"] == ["b"]


async def test_the_specifications_library_accepts_replies_and_its_messages_are_accepted(
    tmp_path: Path, bench: MakeBench
) -> None:
    library = standardwebhooks.Webhook(_SECRET)
    async with bench() as it:
        # The library knows no other time than the system's.
        it.ctx.clock = SystemClock()
        await it.channel.send(_reply("Grüße", idempotency_key="reply-1"))
        headers, body = it.receiver.requests[0]
        assert library.verify(body, headers)["data"]["content"] == "Grüße"

        text, now = json.dumps(it.message("Grüße")), datetime.now(UTC)
        signed = {
            "webhook-id": "msg_library",
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": library.sign("msg_library", now, text),
        }
        answer = await it.client.post("/webhook", content=text, headers=signed)
        assert answer.json() == {"stored": True}


@pytest.mark.parametrize("key", ["turn:1.2/final", "ü", "a" * 300, "a b"])
async def test_a_key_that_is_not_a_webhook_id_gives_one_that_stays(
    bench: MakeBench, key: str
) -> None:
    async with bench() as it:
        await it.channel.send(_reply(idempotency_key=key))
        await it.channel.send(_reply(idempotency_key=key))
        await it.channel.send(_reply(idempotency_key=f"{key}x"))
        first, second, other = (headers["webhook-id"] for headers, _ in it.receiver.requests)
        assert first == second != other
        assert "." not in first
        assert first.isascii()


async def test_a_long_reply_has_parts_with_ids_of_their_own(bench: MakeBench) -> None:
    async with bench(max_piece_chars=10) as it:
        await it.channel.send(
            _reply("12345 789 123456", idempotency_key="k", buttons=((Button("a", "b"),),))
        )
        assert [headers["webhook-id"] for headers, _ in it.receiver.requests] == ["k-1", "k-2"]
        assert [(data["part"], data["parts"]) for data in it.receiver.data] == [(1, 2), (2, 2)]
        assert "".join(data["content"] for data in it.receiver.data) == "12345 789 123456"
        assert ["buttons" in data for data in it.receiver.data] == [False, True]


@pytest.mark.parametrize(
    ("status", "headers", "retryable", "wait_s"),
    [
        (500, {}, True, None),
        (502, {}, True, None),
        (503, {"retry-after": "7"}, True, 7.0),
        (429, {"retry-after": "Thu, 01 Jan 2026 00:00:09 GMT"}, True, 9.0),
        (429, {"retry-after": "soon"}, True, None),
        (503, {"retry-after": "1000000000"}, True, 3600.0),
        (408, {}, True, None),
        (425, {}, True, None),
        (400, {}, False, None),
        (401, {}, False, None),
        (404, {}, False, None),
        (410, {}, False, None),
        (304, {}, False, None),
    ],
)
async def test_a_refusal_says_whether_to_try_again(
    bench: MakeBench,
    status: int,
    headers: dict[str, str],
    retryable: bool,
    wait_s: float | None,
) -> None:
    async with bench() as it:
        it.receiver.respond = lambda number: Response(status_code=status, headers=headers)
        with pytest.raises(DeliveryError) as raised:
            await it.channel.send(_reply())
        assert (raised.value.retryable, raised.value.retry_after_s) == (retryable, wait_s)
        assert str(status) in raised.value.reason
        assert len(it.receiver.requests) == 1


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_every_2xx_is_a_delivery(bench: MakeBench, status: int) -> None:
    async with bench() as it:
        it.receiver.respond = lambda number: Response(status_code=status)
        await it.channel.send(_reply())


async def test_a_redirect_is_not_followed(bench: MakeBench) -> None:
    async with bench() as it:
        it.receiver.respond = lambda number: RedirectResponse("/elsewhere")
        with pytest.raises(DeliveryError) as raised:
            await it.channel.send(_reply())
        assert not raised.value.retryable
        assert len(it.receiver.requests) == 1


async def test_a_callback_that_does_not_answer_may_be_tried_again(bench: MakeBench) -> None:
    async with bench(timeout_s=0.3) as it:
        it.receiver.respond = lambda number: Silence()
        with pytest.raises(DeliveryError) as raised:
            await it.channel.send(_reply())
        assert raised.value.retryable


async def test_a_body_without_end_does_not_hold_up_a_delivery(bench: MakeBench) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000
            await asyncio.sleep(0)

    async with bench() as it, asyncio.timeout(5):
        it.receiver.respond = lambda number: StreamingResponse(endless())
        await it.channel.send(_reply())


async def test_a_cancelled_send_leaves_the_channel_usable(bench: MakeBench) -> None:
    async with bench() as it:
        it.receiver.respond = lambda n: Silence() if n == 1 else PlainTextResponse("ok")
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(it.channel.send(_reply("first")))
            async with asyncio.timeout(5):
                while not it.receiver.requests:  # noqa: ASYNC110 - the receiver has no event
                    await asyncio.sleep(0.01)
            sending.cancel()
        assert sending.cancelled()
        await it.channel.send(_reply("second"))


async def test_neither_errors_nor_the_log_name_the_address_or_the_secret(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[str] = []
    caplog.set_level(0)
    logger.add(lambda line: lines.append(str(line)), level=0)
    async with bench(callback_url="http://127.0.0.1:9/hook?token=canary") as it:
        with pytest.raises(DeliveryError) as raised:
            await it.channel.send(_reply())
        told = [str(raised.value), repr(raised.value.__context__), await it.channel.login()]
    async with bench() as it:
        # One that is delivered, with a token in the address as well.
        url = it.ctx.settings(WebhookSettings).callback_url
        assert url is not None
        address = f"{url.get_secret_value()}?token=canary"
        callback = Callback(address, bytes(24), it.clock, 5)
        await callback.post(Delivery("reply-1", b"{}"))
        await callback.aclose()
        assert len(it.receiver.requests) == 1
    text = "\n".join([*lines, *told, *(record.getMessage() for record in caplog.records)])
    assert "canary" not in text
    assert _SECRET not in text


@pytest.mark.parametrize("missing", ["secret", "callback_url"])
async def test_without_its_settings_the_channel_says_what_to_set(
    tmp_path: Path, missing: str
) -> None:
    from nanobot_core.testing import RecordingInbox

    section = {"secret": _SECRET, "callback_url": "http://127.0.0.1:9/"} | {missing: ""}
    channel = WebhookChannel(FakePluginContext(tmp_path, settings=section))
    for call in (channel.start(RecordingInbox()), channel.login()):
        with pytest.raises(ChannelError, match=rf"set channels\.webhook\.{missing}"):
            await call
    with pytest.raises(DeliveryError, match=rf"set channels\.webhook\.{missing}"):
        await channel.send(_reply())


async def test_a_stopped_channel_sends_nothing(bench: MakeBench) -> None:
    async with bench() as it:
        await it.channel.send(_reply())
        await it.channel.stop()
        with pytest.raises(DeliveryError) as raised:
            await it.channel.send(_reply())
        assert raised.value.retryable
        assert len(it.receiver.requests) == 1


@given(st.text(), st.integers(min_value=1, max_value=20))
def test_pieces_fit_and_add_up_to_the_text(text: str, limit: int) -> None:
    pieces = split_text(text, limit)
    assert "".join(pieces) == text
    assert all(len(piece) <= limit for piece in pieces)
    assert all(pieces) or pieces == [""]


def test_pieces_end_at_paragraphs_then_lines_then_words() -> None:
    assert split_text("aaaa\n\nbbbb cc", 10) == ["aaaa\n\n", "bbbb cc"]
    assert split_text("aaaa bb\ncc dd", 10) == ["aaaa bb\n", "cc dd"]
    assert split_text("aaaa bbbb cccc", 10) == ["aaaa bbbb ", "cccc"]
    assert split_text("a" * 12, 10) == ["a" * 10, "aa"]
