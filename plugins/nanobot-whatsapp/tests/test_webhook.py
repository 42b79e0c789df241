"""The route that WhatsApp calls, through the application that the gateway mounts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from nanobot_core.testing import FakePluginContext, Person, RecordingInbox
from nanobot_whatsapp.memory import Memory
from nanobot_whatsapp.webhook import build_app

Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]
LocalWhatsApp: TypeAlias = Any


def text(
    api: LocalWhatsApp, number: int, words: str, person: Person | None = None
) -> dict[str, Any]:
    sender = person or api.anna
    body = {"type": "text", "text": {"body": words}}
    return {"from": sender.id, "id": f"wamid.X{number}", "timestamp": "1700000000", **body}


async def test_a_call_is_answered_when_all_its_messages_are_stored(
    opened: Opened, api: LocalWhatsApp
) -> None:
    inbox = RecordingInbox()
    async with opened(inbox=inbox) as talk:
        await talk.until(lambda: talk.inbox.contacts)
        inbox.hold()
        messages = [text(api, 1, "one"), text(api, 2, "two", api.bert), text(api, 3, "three")]
        async with asyncio.TaskGroup() as group:
            call = group.create_task(api.call(api.body(messages, [api.anna, api.bert])))
            await inbox.wait_for_attempts(2)
            await asyncio.sleep(0.02)
            assert not call.done()
            inbox.let_go()

    assert call.result().status_code == 200
    assert sorted(message.content for message in inbox.stored) == ["one", "three", "two"]
    annas = [message.content for message in inbox.stored if message.chat_id == api.anna.id]
    assert annas == ["one", "three"]


async def test_a_call_is_repeated_if_one_of_its_messages_is_not_stored(
    opened: Opened, api: LocalWhatsApp
) -> None:
    inbox = RecordingInbox()
    async with opened(inbox=inbox) as talk:
        await talk.until(lambda: talk.inbox.contacts)
        inbox.hold()
        body = api.body([text(api, 1, "one"), text(api, 2, "two")], [api.anna])
        async with asyncio.TaskGroup() as group:
            call = group.create_task(api.call(body))
            await inbox.wait_for_attempts(1)
            group.create_task(talk.channel.stop())

    assert call.result().status_code == 503


async def test_a_repeated_call_is_stored_once(opened: Opened, api: LocalWhatsApp) -> None:
    async with opened() as talk:
        await talk.until(lambda: talk.inbox.contacts)
        body = api.body([text(api, 1, "one")], [api.anna])
        answers = [(await api.call(body)).status_code for _ in range(2)]

    assert answers == [200, 200]
    assert len(talk.inbox.stored) == 1


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Hub-Signature-256": ""},
        {"X-Hub-Signature-256": "sha256="},
        {"X-Hub-Signature-256": "sha256=" + "0" * 64},
        {"X-Hub-Signature-256": "sha256=ü".encode()},
        {"X-Hub-Signature": "sha1=" + "0" * 40},
    ],
)
async def test_an_unsigned_call_is_refused(
    opened: Opened, api: LocalWhatsApp, headers: dict[str, str | bytes]
) -> None:
    async with opened() as talk:
        await talk.until(lambda: talk.inbox.contacts)
        content = json.dumps(api.body([text(api, 1, "one")], [api.anna])).encode()
        answer = await api.request("POST", content=content, headers=headers)

    assert (answer.status_code, answer.content) == (404, b"")
    assert talk.inbox.attempts == []


async def test_the_signature_covers_the_bytes(opened: Opened, api: LocalWhatsApp) -> None:
    """The same JSON with other escapes has another signature."""
    async with opened() as talk:
        await talk.until(lambda: talk.inbox.contacts)
        body = api.body([text(api, 1, "Grüße 🦀")], [api.anna])
        raw = json.dumps(body, ensure_ascii=False, indent=1).encode()
        assert (await api.call(raw)).status_code == 200
        assert (await api.call(raw, secret="another")).status_code == 404

    assert [message.content for message in talk.inbox.stored] == ["Grüße 🦀"]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{", 400),
        (b"[" * 100_000, 400),
        (b"x" * 3_000_001, 413),
        (b"[]", 200),
        (b"null", 200),
        (b'{"entry": [null, {"changes": [7, {"field": "messages", "value": []}]}]}', 200),
    ],
)
async def test_garbage_is_refused_and_changes_nothing(
    opened: Opened, api: LocalWhatsApp, content: bytes, status: int
) -> None:
    async with opened() as talk:
        await talk.until(lambda: talk.inbox.contacts)
        answer = await api.call(content)
        after = await api.call(api.body([text(api, 1, "one")], [api.anna]))

    assert (answer.status_code, after.status_code) == (status, 200)
    assert len(talk.inbox.stored) == 1


async def test_a_malformed_message_does_not_affect_the_others(
    opened: Opened, api: LocalWhatsApp
) -> None:
    bad: list[Any] = [
        7,
        {"id": "wamid.1", "from": "not a number", "type": "text", "text": {"body": "x"}},
        {"id": "two\nlines", "from": api.anna.id, "type": "text", "text": {"body": "x"}},
        {"id": "wamid.2", "from": api.anna.id, "type": "text", "text": {"body": ["x"]}},
        {"id": "wamid.3", "type": "text", "text": {"body": "from nobody"}},
    ]
    async with opened() as talk:
        await talk.until(lambda: talk.inbox.contacts)
        answer = await api.call(api.body([*bad, text(api, 1, "one")]))

    assert answer.status_code == 200
    assert [message.content for message in talk.inbox.stored] == ["one"]


async def test_calls_for_another_number_of_the_business_are_ignored(
    opened: Opened, api: LocalWhatsApp
) -> None:
    async with opened() as talk:
        await talk.until(lambda: talk.inbox.contacts)
        body = api.body([text(api, 1, "one")], [api.anna])
        body["entry"][0]["changes"][0]["value"]["metadata"]["phone_number_id"] = "1"
        assert (await api.call(body)).status_code == 200

    assert talk.inbox.attempts == []


@pytest.mark.parametrize(
    ("token", "status", "content"),
    [("verify-0815", 200, "4711"), ("verify-081", 404, ""), ("", 404, "")],
)
async def test_whatsapp_verifies_the_address(
    opened: Opened, api: LocalWhatsApp, token: str, status: int, content: str
) -> None:
    async with opened():
        query = {"hub.mode": "subscribe", "hub.verify_token": token, "hub.challenge": "4711"}
        answer = await api.request("GET", params=query)

    assert (answer.status_code, answer.text) == (status, content)
    assert answer.headers["content-type"].startswith("text/plain")


async def test_without_secrets_the_route_is_closed(api: LocalWhatsApp, tmp_path: Path) -> None:
    api.app = build_app(FakePluginContext(tmp_path, settings={}))
    query = {"hub.mode": "subscribe", "hub.verify_token": "", "hub.challenge": "4711"}

    assert (await api.request("GET", params=query)).status_code == 404
    assert (await api.call({}, secret="")).status_code == 404
    assert (await api.request("PUT")).status_code == 405


async def test_while_the_channel_does_not_run_whatsapp_calls_again(
    opened: Opened, api: LocalWhatsApp
) -> None:
    async with opened() as talk:
        await talk.until(lambda: talk.inbox.contacts)
    answer = await api.call(api.body([text(api, 1, "one")], [api.anna]))

    assert answer.status_code == 503


async def test_a_call_that_is_read_while_the_channel_stops_is_repeated(
    opened: Opened, api: LocalWhatsApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_stopped = asyncio.Event()

    async def quoted(*_: object) -> None:
        await has_stopped.wait()

    monkeypatch.setattr(Memory, "quoted", quoted)
    async with asyncio.TaskGroup() as group:
        async with opened() as talk:
            await talk.until(lambda: talk.inbox.contacts)
            body = api.body([text(api, 1, "one")], [api.anna])
            call = group.create_task(api.call(body))
            await talk.until(lambda: talk.inbox.contacts > 1)
        has_stopped.set()

    assert call.result().status_code == 503


@pytest.mark.parametrize(("secret", "proofs"), [("app-secret-0815", 1), ("another", 0)])
async def test_signed_calls_are_counted_separately(
    api: LocalWhatsApp, tmp_path: Path, secret: str, proofs: int
) -> None:
    """Strangers must not use up what nanobot-http allows WhatsApp."""
    called: list[None] = []
    app = build_app(FakePluginContext(tmp_path, settings=api.section()))

    async def extended(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        extension = {"nanobot.caller": {"proven": lambda: called.append(None)}}
        await app({**scope, "extensions": extension}, receive, send)

    api.app = extended
    answer: httpx.Response = await api.call({}, secret=secret)

    assert answer.status_code in {404, 503}
    assert len(called) == proofs
