"""Requests of any shape: each is answered, and what is stored can be attributed."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from nanobot_core.testing import FakeClock, FakePluginContext, RecordingInbox
from nanobot_webhook.intake import Door, build_app
from nanobot_webhook.signature import sign

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
ANSWERS = frozenset({200, 400, 401, 404, 405, 413})
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

TEXTS = st.text(st.characters(codec=None), max_size=8) | st.sampled_from(
    ["mallory|owner", "a\nb", "\x00", "\ud800", "1e999", "../..", "__proto__", "whsec_", " "]
)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from([10**400, []])
)
SHAPES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
FILE = {"name": "a.txt", "content": "YQ=="}
DATA: Mapping[str, Any] = {
    "chat_id": "kitchen",
    "sender_id": "thermostat",
    "content": "31 degrees",
    "sender_names": ["ann"],
    "files": [FILE],
    "metadata": {"room": {"floor": 2}},
    "is_group": False,
    "is_addressed": True,
    "is_forwarded": True,
}


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """A message of which some parts are something else, and some bytes perhaps too."""
    data = dict(DATA)
    for name in draw(st.lists(st.sampled_from([*DATA, "other"]), max_size=3)):
        data[name] = draw(SHAPES)
    whole: Any = {"type": "message.created", "timestamp": "2026-01-01T00:00:00Z", "data": data}
    if draw(st.booleans()):
        whole[draw(st.sampled_from(["type", "timestamp", "data", "more"]))] = draw(SHAPES)
    body = json.dumps(whole, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(st.binary(max_size=3)) + body[at + draw(st.integers(0, 3)) :]
    return body


BODIES = payloads() | st.binary(max_size=200) | SHAPES.map(lambda shape: json.dumps(shape).encode())
NUMBERS = itertools.count()
VALUES = st.binary(max_size=60).filter(lambda value: b"\n" not in value and b"\r" not in value)


class Intake:
    """The mounted application, called without a socket in between."""

    def __init__(self, folder: Path) -> None:
        clock = FakeClock()
        section = {"secret": SECRET, "callback_url": "http://127.0.0.1:9/"}
        self.ctx = FakePluginContext(folder, plugin_id="webhook", settings=section, clock=clock)
        self.inbox = RecordingInbox()
        self.proofs = 0
        self.now_s = int(clock.now().timestamp())
        self.loop = asyncio.new_event_loop()
        self.app = build_app(self.ctx)
        self.ctx.shared(Door).inbox = self.inbox

    def ask(
        self,
        body: bytes,
        headers: list[tuple[bytes, bytes]],
        method: str = "POST",
        pieces: int = 1,
        path: str = "/webhook",
    ) -> int:
        """Return the status of the answer."""
        size = max(len(body) // pieces, 1)
        parts = [body[start : start + size] for start in range(0, len(body), size)] or [b""]
        events: list[dict[str, Any]] = [
            {"type": "http.request", "body": part, "more_body": number < len(parts) - 1}
            for number, part in enumerate(parts)
        ]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return events.pop(0) if events else {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        def count() -> None:
            self.proofs += 1

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "/webhook",
            "query_string": b"",
            "headers": headers,
            "extensions": {"nanobot.caller": {"proven": count}},
        }

        async def answer() -> None:
            async with asyncio.timeout(20):
                await self.app(scope, receive, send)

        self.loop.run_until_complete(answer())
        return int(sent[0]["status"])

    def signed(self, body: bytes, message_id: str = "msg_1") -> list[tuple[bytes, bytes]]:
        """Return the headers for `body`."""
        return [
            (b"webhook-id", message_id.encode()),
            (b"webhook-timestamp", str(self.now_s).encode()),
            (b"webhook-signature", sign(KEY, message_id, self.now_s, body).encode()),
        ]


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[Intake]:
    made = Intake(tmp_path)
    yield made
    made.loop.close()


@SHARED
@given(body=BODIES, pieces=st.integers(1, 4))
def test_a_signed_body_of_any_shape_is_stored_or_refused(
    intake: Intake, body: bytes, pieces: int
) -> None:
    before = len(intake.inbox.stored)
    status = intake.ask(body, intake.signed(body, f"msg_{next(NUMBERS)}"), pieces=pieces)

    assert status in {200, 400}
    assert len(intake.inbox.stored) - before == (status == 200)
    for message in intake.inbox.stored[before:]:
        assert "|" not in message.sender_id
        for visible in (message.sender_id, message.chat_id, *message.sender_names):
            assert visible.strip()
            assert visible.isprintable()
        json.dumps(message.metadata).encode()
        message.content.encode()
        for path in message.media:
            assert intake.ctx.media.folder in Path(path).parents


@SHARED
@given(
    body=BODIES,
    headers=st.lists(
        st.tuples(
            st.sampled_from(
                [b"webhook-id", b"webhook-timestamp", b"webhook-signature", b"content-length"]
            ),
            VALUES
            | st.sampled_from([b"0", b"99999999999999", b"-1", b"msg_1", b"v1,", b"v1,A==="]),
        ),
        max_size=5,
    ),
    method=st.sampled_from(["POST", "GET", "PUT", "OPTIONS", "\x00"]),
    path=st.sampled_from(["/webhook", "/webhook/", "/webhook/x", "/webhook//"]),
)
def test_what_is_not_signed_proves_nothing_and_is_answered(
    intake: Intake, body: bytes, headers: list[tuple[bytes, bytes]], method: str, path: str
) -> None:
    status = intake.ask(body, headers, method, path=path)

    assert status in ANSWERS - {200}
    assert (intake.inbox.attempts, intake.proofs) == ([], 0)


@SHARED
@given(
    body=payloads(),
    name=st.sampled_from([b"webhook-id", b"webhook-timestamp", b"webhook-signature"]),
    value=VALUES,
)
def test_a_signature_holds_for_what_was_signed_alone(
    intake: Intake, body: bytes, name: bytes, value: bytes
) -> None:
    headers = [(key, value if key == name else kept) for key, kept in intake.signed(body)]
    if headers != intake.signed(body):
        assert intake.ask(body, headers) == 401
        assert intake.inbox.attempts == []


def test_numbers_and_nesting_without_end_are_refused(intake: Intake) -> None:
    for body in (
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"type": "message.created", "data": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"type": 1' + b"0" * 100_000 + b"}",
        b'{"type": "' + b"\\ud800" * 1_000 + b'"}',
    ):
        assert intake.ask(body, intake.signed(body)) == 400


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_numbers_that_json_cannot_hold_are_refused(intake: Intake, number: str) -> None:
    data = {**DATA, "metadata": {"room": ["@"]}}
    sent = json.dumps({"type": "message.created", "data": data}).replace('"@"', number).encode()

    assert intake.ask(sent, intake.signed(sent)) == 400
    assert intake.inbox.attempts == []
