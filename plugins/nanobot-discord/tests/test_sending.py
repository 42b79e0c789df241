"""Sending: what people see, and what follows from a failure."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nanobot_core import Button, DeliveryError, Draft
from nanobot_core.testing import FakePluginContext
from nanobot_discord.channel import build_channel

Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]
discord_markup: Any = sys.modules["discord_markup"]
discord_api: Any = sys.modules["discord_api"]
DM, CHANNEL, THREAD = discord_api.DM, discord_api.CHANNEL, discord_api.THREAD


async def test_a_text_notifies_nobody(opened: Opened) -> None:
    async with opened() as talk:
        key = talk.local.say("hello")
        await talk.send("@everyone @here <@1> <@&2>", reply_to=key)

    (shown,) = talk.local.shown()
    assert not shown.pings
    assert shown.reply_to == key


async def test_marks_that_double_a_text_do_not_make_it_too_long(opened: Opened) -> None:
    words = [f"a_{number}*b~~" for number in range(400)]
    async with opened() as talk:
        await talk.send(" ".join(words))
    shown = talk.local.shown()
    assert len(shown) > 2  # the local Discord refuses more than 2,000
    seen = [discord_markup.Reading(one.text).text for one in shown]
    assert " ".join(seen).split() == words


async def test_a_refused_reply_is_an_ordinary_message(opened: Opened) -> None:
    async with opened() as talk:
        talk.local.fail("/messages", status=403, code=160002, method="POST")
        await talk.send("**Hi.**", reply_to=talk.local.say("hello"))
    (shown,) = talk.local.shown()
    assert (shown.text, shown.reply_to) == ("**Hi.**", None)


async def test_replies_can_be_off(opened: Opened) -> None:
    async with opened(reply_to_message=False) as talk:
        await talk.send("Hi.", reply_to=talk.local.say("hello"))
    assert talk.local.shown()[0].reply_to is None


async def test_a_thread_gets_its_own_messages(opened: Opened) -> None:
    async with opened() as talk:
        await talk.send("Hi.", chat_id=f"{CHANNEL}:{THREAD}")
        await talk.channel.show_typing(f"{CHANNEL}:{THREAD}")
    assert [shown.text for shown in talk.local.shown(THREAD)] == ["Hi."]
    assert talk.local.typing == [THREAD]


async def test_a_message_whose_outcome_is_unknown_is_shown_once(opened: Opened) -> None:
    async with opened() as talk:
        talk.local.fail("/messages", "cut_after", method="POST")
        with pytest.raises(DeliveryError):
            await talk.send("Hi.", idempotency_key="k1")
        await talk.send("Hi.", idempotency_key="k1")
        await talk.send("Hi.", idempotency_key="k2")
    assert [shown.text for shown in talk.local.shown()] == ["Hi.", "Hi."]


async def test_ten_files_are_one_message(opened: Opened, tmp_path: Path) -> None:
    paths = [tmp_path / f"Bericht {number} ü.txt" for number in range(12)]
    for path in paths:
        path.write_bytes(path.name.encode())
    async with opened() as talk:
        await talk.send("Here.", media=tuple(map(str, paths)))

    first, second = talk.local.shown()
    assert (first.text, second.text) == ("Here.", "")
    found = [*first.files, *second.files]
    assert [content.decode() for _, content in found] == [path.name for path in paths]
    assert len(first.files) == 10


async def test_files_that_cannot_be_sent_are_named(opened: Opened, tmp_path: Path) -> None:
    big = tmp_path / "big.bin"
    with big.open("wb") as file:
        file.truncate(10 * 1024 * 1024 + 1)
    async with opened() as talk:
        await talk.send("Here.", media=(str(big), str(tmp_path / "gone.txt")))
    (shown,) = talk.local.shown()
    assert "big.bin" in shown.text
    assert "gone.txt" in shown.text


async def test_a_refused_album_is_sent_file_by_file(opened: Opened, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.txt" for number in range(3)]
    for path in paths:
        path.write_text("x")
    async with opened() as talk:
        talk.local.fail("/messages", status=413, code=40005, method="POST")
        await talk.send("", media=tuple(map(str, paths)), idempotency_key="k")
    assert [len(shown.files) for shown in talk.local.shown()] == [1, 1, 1]


async def test_buttons_are_divided_into_rows_of_five(opened: Opened) -> None:
    buttons = (tuple(Button(f"{number} " + "x" * 100, "same") for number in range(7)),)
    async with opened() as talk:
        await talk.send("Choose.", buttons=buttons)
    (shown,) = talk.local.shown()
    assert [len(row) for row in shown.buttons] == [5, 2]


async def test_a_limit_is_waited_for(opened: Opened) -> None:
    async with opened() as talk:
        talk.local.fail("/messages", "limit", method="POST")
        await talk.send("Hi.")
    assert [shown.text for shown in talk.local.shown()] == ["Hi."]


async def test_a_long_limit_is_passed_to_the_queue(opened: Opened) -> None:
    async with opened() as talk:
        talk.local.retry_after_s = 45.0
        talk.local.fail("/messages", "limit", method="POST")
        with pytest.raises(DeliveryError) as raised:
            await talk.send("Hi.")
    assert (raised.value.retryable, raised.value.retry_after_s) == (True, 45.0)


async def test_nothing_is_sent_after_a_block_at_the_edge(opened: Opened) -> None:
    async with opened() as talk:
        talk.local.fail("/messages", "edge", method="POST")
        for _ in range(3):
            with pytest.raises(DeliveryError) as raised:
                await talk.send("Hi.")
            assert raised.value.retryable
            assert raised.value.retry_after_s == pytest.approx(600, abs=5)
        sent = [call for call in talk.local.calls if call.endswith("/messages")]
    assert len(sent) == 1


@pytest.mark.parametrize("kind", ["garbage", "cut"])
async def test_an_answer_that_makes_no_sense_is_tried_again(opened: Opened, kind: str) -> None:
    async with opened() as talk:
        talk.local.fail("/messages", kind, method="POST")
        with pytest.raises(DeliveryError) as raised:
            await talk.send("Hi.")
        assert raised.value.retryable


@pytest.mark.parametrize("code", [10003, 50001, 50007, 50013, 50083, 50278])
async def test_a_dead_recipient_is_final(opened: Opened, code: int) -> None:
    async with opened() as talk:
        talk.local.dead[DM] = discord_api.Refused(403, code, "no")
        with pytest.raises(DeliveryError) as raised:
            await talk.send("Hi.")
    assert not raised.value.retryable
    assert str(code) in raised.value.reason


@pytest.mark.parametrize("chat_id", ["", "general", "../1", "12:x", "²", "1" * 21])
async def test_what_is_no_channel_is_refused_without_a_call(opened: Opened, chat_id: str) -> None:
    async with opened() as talk:
        with pytest.raises(DeliveryError) as raised:
            await talk.send("Hi.", chat_id=chat_id)
    assert not raised.value.retryable
    assert not [call for call in talk.local.calls if call.startswith("POST")]


async def test_an_answer_grows_in_one_message(opened: Opened) -> None:
    async with opened() as talk:
        for text in ("One", "One two"):
            await talk.channel.show_draft(Draft(id="d", chat_id=DM, content=text))
        await talk.send("One two three.", draft_id="d")
        await talk.channel.show_draft(Draft(id="e", chat_id=DM, content="Never mind"))
        await talk.channel.drop_draft(DM, "e")
    (shown,) = talk.local.shown()
    assert (shown.text, shown.edits) == ("One two three.", ["One", "One two"])


@pytest.mark.parametrize("code", [30046, 10008])
async def test_a_draft_that_cannot_be_edited_is_replaced(opened: Opened, code: int) -> None:
    async with opened() as talk:
        await talk.channel.show_draft(Draft(id="d", chat_id=DM, content="One"))
        draft = talk.local.shown()[0]
        talk.local.fail(f"/messages/{draft.id}", method="PATCH", code=code, times=2)
        await talk.send("One two.", draft_id="d")
    assert [shown.text for shown in talk.local.shown()] == ["One two."]


async def test_all_calls_use_the_proxy(opened: Opened) -> None:
    async with opened() as talk:
        base = {"api_base": "http://discord.invalid/api", "proxy": talk.local.url[:-4]}
        secrets = {"proxy_username": "me", "proxy_password": "p@ss"}
        ctx = FakePluginContext(
            talk.ctx.workspace, settings={"token": discord_api.TOKEN, **base, **secrets}
        )
        channel = build_channel(ctx)
        assert "@nano" in await channel.login()
        await channel.stop()
    assert "Basic bWU6cEBzcw==" in talk.local.proxied


async def test_login_names_the_bot(opened: Opened) -> None:
    async with opened() as talk:
        assert await talk.channel.login() == f"Nano (@nano, id {discord_api.BOT['id']})"
