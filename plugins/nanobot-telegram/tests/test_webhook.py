"""Webhook mode, through the application that the gateway mounts."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import httpx
import pytest
from pydantic import ValidationError

from nanobot_core.testing import FakeClock, FakePluginContext, RecordingInbox
from nanobot_telegram.settings import TelegramSettings
from nanobot_telegram.webhook import build_app

bot_api: Any = importlib.import_module("telegram_bot_api")
Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]
LocalApi: TypeAlias = Any
MakeContext: TypeAlias = Callable[..., FakePluginContext]

SECRET = "not-to-be-guessed-0815"
WEBHOOK = {"url": "https://bot.example.org/telegram", "secret": SECRET}
HEADERS = {"X-Telegram-Bot-Api-Secret-Token": SECRET}


def caller(ctx: FakePluginContext) -> httpx.AsyncClient:
    # httpx asks for any mutable mapping where ours takes a dict, which is what it passes.
    transport = httpx.ASGITransport(app=build_app(ctx))  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


def update(api: LocalApi, text: str = "hi", update_id: int = 1) -> dict[str, Any]:
    return {"update_id": update_id, "message": api.message(text)}


async def test_an_update_is_answered_when_it_is_stored(
    opened: Opened, ctx_with: MakeContext, api: LocalApi
) -> None:
    ctx, inbox = ctx_with(webhook=WEBHOOK), RecordingInbox()
    inbox.hold()
    async with opened(ctx=ctx, inbox=inbox) as talk, caller(ctx) as telegram:
        await talk.until(lambda: bool(api.webhook))
        async with asyncio.TaskGroup() as group:
            call = group.create_task(telegram.post("/", json=update(api), headers=HEADERS))
            await inbox.wait_for_attempts(1)
            assert not call.done()
            inbox.let_go()

    assert call.result().status_code == 200
    assert [message.content for message in inbox.stored] == ["hi"]
    assert api.webhook["url"] == WEBHOOK["url"]
    assert api.webhook["secret_token"] == SECRET
    assert "getUpdates" not in api.calls


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Telegram-Bot-Api-Secret-Token": ""},
        {"X-Telegram-Bot-Api-Secret-Token": SECRET[:-1]},
        [("X-Telegram-Bot-Api-Secret-Token", SECRET)] * 2,
    ],
)
async def test_who_does_not_know_the_secret_learns_nothing(
    opened: Opened,
    ctx_with: MakeContext,
    api: LocalApi,
    headers: dict[str, str] | list[tuple[str, str]],
) -> None:
    ctx = ctx_with(webhook=WEBHOOK)
    async with opened(ctx=ctx) as talk, caller(ctx) as stranger:
        await talk.until(lambda: bool(api.webhook))
        answer = await stranger.post("/", json=update(api), headers=headers)
        await stranger.get("/")

    assert (answer.status_code, answer.content) == (404, b"")
    assert talk.inbox.attempts == []


async def test_without_a_secret_no_one_gets_in(ctx_with: MakeContext, api: LocalApi) -> None:
    async with caller(ctx_with()) as stranger:
        headers = {"X-Telegram-Bot-Api-Secret-Token": ""}
        assert (await stranger.post("/", json=update(api), headers=headers)).status_code == 404


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"{", 400), (b"[" * 100_000, 400), (b'"' + b"x" * 1_000_001, 413), (b"[]", 200)],
)
async def test_rubbish_is_refused_and_changes_nothing(
    opened: Opened, ctx_with: MakeContext, api: LocalApi, content: bytes, status: int
) -> None:
    ctx = ctx_with(webhook=WEBHOOK)
    async with opened(ctx=ctx) as talk, caller(ctx) as telegram:
        await talk.until(lambda: bool(api.webhook))
        answer = await telegram.post("/", content=content, headers=HEADERS)
        assert (await telegram.get("/", headers=HEADERS)).status_code == 405
        after = await telegram.post("/", json=update(api), headers=HEADERS)

    assert (answer.status_code, after.status_code) == (status, 200)
    assert len(talk.inbox.stored) == 1


async def test_while_the_channel_does_not_run_telegram_shall_call_again(
    opened: Opened, ctx_with: MakeContext, api: LocalApi
) -> None:
    ctx, inbox = ctx_with(webhook=WEBHOOK), RecordingInbox()
    inbox.hold()
    async with caller(ctx) as telegram:
        before = await telegram.post("/", json=update(api), headers=HEADERS)
        async with asyncio.TaskGroup() as group, opened(ctx=ctx, inbox=inbox) as talk:
            await talk.until(lambda: bool(api.webhook))
            call = group.create_task(telegram.post("/", json=update(api), headers=HEADERS))
            await inbox.wait_for_attempts(1)
        after = await telegram.post("/", json=update(api), headers=HEADERS)

    assert [answer.status_code for answer in (before, call.result(), after)] == [503] * 3
    assert inbox.stored == []


async def test_what_is_offered_twice_is_stored_once(
    opened: Opened, ctx_with: MakeContext, api: LocalApi
) -> None:
    ctx = ctx_with(webhook=WEBHOOK)
    async with opened(ctx=ctx) as talk, caller(ctx) as telegram:
        await talk.until(lambda: bool(api.webhook))
        same = update(api)
        answers = [await telegram.post("/", json=same, headers=HEADERS) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert len(talk.inbox.stored) == 1


async def test_a_quiet_webhook_is_alive_as_long_as_telegram_answers(
    opened: Opened, ctx_with: MakeContext, api: LocalApi
) -> None:
    clock = FakeClock()
    async with opened(ctx=ctx_with(clock=clock, webhook=WEBHOOK)) as talk:
        await clock.wait_for_sleepers()
        contacts = talk.inbox.contacts
        await clock.advance(45)
        await clock.wait_for_sleepers()
        assert talk.inbox.contacts == contacts + 1

    assert api.calls.count("getMe") == 2


@pytest.mark.parametrize(
    "webhook",
    [
        {"url": "http://bot.example.org", "secret": SECRET},
        {"url": "https://bot.example.org"},
        {"url": "https://bot.example.org", "secret": "short"},
        {"url": "https://bot.example.org", "secret": "with spaces and umlauts: ü"},
    ],
)
def test_a_webhook_that_would_not_be_safe_is_refused(webhook: dict[str, str]) -> None:
    with pytest.raises(ValidationError) as raised:
        TelegramSettings.model_validate({"webhook": webhook})
    assert webhook.get("secret", "a secret") not in str(raised.value)


@pytest.mark.parametrize(("secret", "proofs"), [(SECRET, 1), (SECRET[:-1], 0)])
async def test_the_server_learns_who_knows_the_secret(
    ctx_with: MakeContext, secret: str, proofs: int
) -> None:
    """Strangers must not use up what nanobot-http allows Telegram."""
    called: list[None] = []
    app = build_app(ctx_with(webhook=WEBHOOK))

    async def extended(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        extension = {"nanobot.caller": {"proven": lambda: called.append(None)}}
        await app({**scope, "extensions": extension}, receive, send)

    transport = httpx.ASGITransport(app=extended)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as telegram:
        await telegram.post("/", headers={"X-Telegram-Bot-Api-Secret-Token": secret})

    assert len(called) == proofs
