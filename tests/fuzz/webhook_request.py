"""Requests to the webhook: stored whole, or refused with a status that says why."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from starlette.types import Message as AsgiMessage

from nanobot_core import InboundMessage
from nanobot_core.bus.entry import decode_inbound, encode_inbound
from nanobot_core.testing import FakeClock, FakePluginContext, RecordingInbox
from nanobot_webhook.intake import Door, build_app
from nanobot_webhook.signature import decode_key, sign
from tests.fuzz.choices import Choices, fresh_folder

TOKENS: Final = (
    b'{"type":"message.created","data":{', b'"chat_id":"', b'"sender_id":"', b'"content":"',
    b'"files":[{"name":"', b'"content":"aGk="', b'"is_group":true', b'"metadata":{',
    b'"timestamp":"', b"2026-01-01T00:00:00Z", b"0001-01-01T00:00:00+23:59", b"1e999",
    b"\\ud800", b"[[[[[[[[", b"../", b"webhook-id", b"content-length", b"transfer-encoding",
    b"\xff", b"v1,", b"9" * 30, b"NaN",
)  # fmt: skip
_SECRET: Final = "whsec_" + base64.b64encode(bytes(range(32))).decode()
_STATUSES: Final = frozenset({200, 400, 401, 404, 405, 413})
_LIMIT_BYTES: Final = 3000
_LOOP: Final = asyncio.new_event_loop()


def fuzz_one(data: bytes) -> None:
    """Post a request, signed or with any headers, in one piece or several."""
    choices = Choices(data)
    shape, size = choices.byte(), 1 + choices.byte() * 8
    headers = _headers(choices) if shape & 1 else []
    path = choices.take(shape >> 4).decode("latin-1") if shape & 2 else "/webhook"
    method = "GET" if shape & 12 == 12 else "POST"
    body = choices.rest()
    with fresh_folder() as folder:
        _LOOP.run_until_complete(_post(folder, method, path, headers, body, size))


def seeds() -> Iterator[bytes]:
    """Yield messages with files and metadata, and one with headers of its own."""
    data = {"chat_id": "kitchen", "sender_id": "thermostat", "content": "21 degrees"}
    message = {"type": "message.created", "timestamp": "2026-01-01T00:00:00Z", "data": data}
    file = {"name": "a/../b.txt", "content": base64.b64encode(b"hi").decode()}
    yield b"\x00\x01" + json.dumps(message).encode()
    message["data"] = {**data, "files": [file], "is_group": True, "metadata": {"a": [1, {"b": 2}]}}
    yield b"\x00\xff" + json.dumps(message).encode()
    yield b"\x01\x10\x01\x00\x05msg_1" + json.dumps(message).encode()
    yield b"\x02\x10" + json.dumps(message).encode()


async def _post(
    folder: Path,
    method: str,
    path: str,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
    size: int,
) -> None:
    ctx = FakePluginContext(
        folder,
        plugin_id="webhook",
        settings={"secret": _SECRET, "max_body_bytes": _LIMIT_BYTES},
        clock=FakeClock(),
    )
    inbox = RecordingInbox()
    ctx.shared(Door).inbox = inbox
    pieces = [body[start : start + size] for start in range(0, len(body), size)] or [b""]
    incoming: list[AsgiMessage] = [
        {"type": "http.request", "body": piece, "more_body": number < len(pieces)}
        for number, piece in enumerate(pieces, 1)
    ]
    sent: list[AsgiMessage] = []

    async def receive() -> AsgiMessage:
        return incoming.pop(0) if incoming else {"type": "http.disconnect"}

    async def send(message: AsgiMessage) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "root_path": "/webhook",
        "query_string": b"",
        "headers": [*headers, *_signature(body, {name for name, _ in headers})],
    }
    await build_app(ctx)(scope, receive, send)
    _check(sent, inbox, body)


def _check(sent: list[AsgiMessage], inbox: RecordingInbox, body: bytes) -> None:
    start, *rest = sent
    status = start["status"]
    assert status in _STATUSES, f"status {status}"
    text = b"".join(part.get("body", b"") for part in rest)
    if status == 413:
        assert inbox.stored == []
        return
    answer = json.loads(text)
    assert ("stored" in answer) == (status == 200)
    assert len(inbox.stored) == (status == 200)
    assert status == 200 or answer["error"]
    for message in inbox.stored:
        assert len(body) <= _LIMIT_BYTES
        _check_message(message)


def _check_message(message: InboundMessage) -> None:
    assert message.channel == "webhook"
    assert message.timestamp is not None
    assert message.timestamp.tzinfo is not None
    kept = decode_inbound(encode_inbound(message))
    assert kept == message, "a message changes while it is stored"
    for path in message.media:
        assert Path(path).is_file()


def _headers(choices: Choices) -> list[tuple[bytes, bytes]]:
    """Return headers as a server gives them: names in lower case, values without line ends."""
    names = (b"webhook-id", b"webhook-timestamp", b"webhook-signature", b"content-length", b"host")
    return [
        (
            names[choices.byte() % len(names)],
            choices.take(choices.byte()).translate(None, b"\r\n\0"),
        )
        for _ in range(choices.byte() % 4)
    ]


def _signature(body: bytes, given: set[bytes]) -> list[tuple[bytes, bytes]]:
    timestamp = int(_now())
    values = {
        b"webhook-id": b"msg_1",
        b"webhook-timestamp": b"%d" % timestamp,
        b"webhook-signature": sign(decode_key(_SECRET), "msg_1", timestamp, body).encode(),
    }
    return [(name, value) for name, value in values.items() if name not in given]


@cache
def _now() -> float:
    return FakeClock().now().timestamp()
