"""Drafts become answers, or are removed: the real SDK with the local Bot API."""

from __future__ import annotations

import asyncio
import gc
import importlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nanobot_core import Button, DeliveryError, Draft
from nanobot_core.testing import FakePluginContext
from nanobot_telegram.call import TimeLimits

bot_api: LocalApi = importlib.import_module("telegram_bot_api")
Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]
LocalApi: TypeAlias = Any
"""Its module is loaded by path, so its types are unknown here."""
MakeContext: TypeAlias = Callable[..., FakePluginContext]
Talk: TypeAlias = Any

SHORT = TimeLimits(step_s=1.0, call_s=1.0, transfer_s=1.0, poll_s=1.0)
GROUP_ID = "-100200300"


def draft(content: str, draft_id: str = "d", chat_id: str = "1001") -> Draft:
    return Draft(id=draft_id, chat_id=chat_id, content=content)


async def test_a_draft_grows_and_becomes_the_answer(opened: Opened) -> None:
    async with opened() as talk:
        await talk.channel.show_draft(draft(""))
        await talk.channel.show_draft(draft("I **th"))
        await talk.channel.show_draft(draft("I **think** so"))
        await talk.channel.show_draft(draft("I **think** so"))
        await talk.send("I **think** so.", draft_id="d", buttons=((Button("Ok", "ok"),),))

    (shown,) = talk.api.shown()
    assert shown.edits == ["I **th", "I think so"]
    assert (shown.text, shown.spans()) == ("I think so.", [("bold", "think")])
    assert shown.buttons == [[("Ok", "ok")]]


async def test_the_rest_of_a_long_answer_follows_its_draft(opened: Opened, tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(b"x")
    text = "word " * 2_000
    async with opened() as talk:
        await talk.channel.show_draft(draft(text[:50]))
        await talk.channel.show_draft(draft(text))
        await talk.send(text, draft_id="d", media=(str(path),))

    shown = talk.api.shown()
    assert [len(part.edits) for part in shown] == [1, 0, 0, 0]
    assert "".join(part.text for part in shown).split() == text.split()
    assert len(shown[-1].files) == 1


async def test_a_draft_that_says_it_all_is_left_as_it_is(opened: Opened) -> None:
    async with opened() as talk:
        await talk.channel.show_draft(draft("done"))
        await talk.send("done", draft_id="d")

    assert [(part.text, part.edits) for part in talk.api.shown()] == [("done", [])]


async def test_an_answer_whose_draft_is_gone_is_sent_again(opened: Opened) -> None:
    async with opened() as talk:
        await talk.channel.show_draft(draft("I th"))
        talk.api.chats[1001].clear()
        await talk.send("I think", draft_id="d")

    assert [part.text for part in talk.api.shown()] == ["I think"]


async def test_a_draft_that_no_one_remembers_is_an_ordinary_message(opened: Opened) -> None:
    async with opened() as talk:
        await talk.send("after a restart", draft_id="forgotten")

    assert [part.text for part in talk.api.shown()] == ["after a restart"]


@pytest.mark.parametrize("kind", ["cut", "cut_after", "hang"])
async def test_an_edit_of_unknown_outcome_leaves_one_answer(opened: Opened, kind: str) -> None:
    async with opened(limits=SHORT) as talk:
        await talk.channel.show_draft(draft("I th"))
        talk.api.fail("editMessageText", kind)
        with pytest.raises(DeliveryError) as raised:
            await talk.send("I think", draft_id="d", idempotency_key="k")
        await talk.send("I think", draft_id="d", idempotency_key="k")

    assert raised.value.retryable
    assert [part.text for part in talk.api.shown()] == ["I think"]


async def test_refused_formatting_of_a_draft_is_shown_as_plain_text(opened: Opened) -> None:
    async with opened() as talk:
        await talk.channel.show_draft(draft("I th"))
        talk.api.fail("editMessageText", code=400, description="Bad Request: can't parse entities")
        await talk.send("I **think**", draft_id="d")

    (shown,) = talk.api.shown()
    assert (shown.text, shown.entities) == ("I think", [])


async def test_a_draft_that_no_answer_follows_is_removed(opened: Opened) -> None:
    async with opened() as talk:
        await talk.channel.show_draft(draft("I th"))
        await talk.channel.drop_draft("1001", "d")
        await talk.channel.drop_draft("1001", "d")
        await talk.channel.show_draft(draft("and", "e"))
        await talk.send("", draft_id="e")

    assert talk.api.shown() == []


@pytest.mark.parametrize("method", ["sendMessage", "editMessageText"])
async def test_an_answer_waits_for_a_draft_that_was_interrupted(
    opened: Opened, method: str
) -> None:
    """A turn ends at any moment, also while its draft is on its way."""
    async with opened() as talk:
        if method == "editMessageText":
            await talk.channel.show_draft(draft("I"))
        talk.api.delay(method)
        showing = asyncio.ensure_future(talk.channel.show_draft(draft("I th")))
        await talk.until(lambda: method in talk.api.calls)
        showing.cancel()
        await talk.send("I think", draft_id="d")

    assert [part.text for part in talk.api.shown()] == ["I think"]
    assert "deleteMessage" not in talk.api.calls
    assert showing.cancelled()


async def test_drafts_of_a_process_that_was_killed_are_removed(
    opened: Opened, ctx_with: MakeContext, api: LocalApi
) -> None:
    """A new context knows what is on disk and nothing else, as a new process does."""
    async with opened() as talk:
        await talk.send("an answer")
        await talk.channel.show_draft(draft("whole", "done"))
        await talk.send("whole.", draft_id="done")
        await talk.channel.show_draft(draft("I th"))
    async with opened(ctx=ctx_with()) as again:
        await again.until(lambda: len(api.shown()) == 2)
        await again.send("I think", draft_id="d")
        await again.channel.show_draft(draft("next", "e"))

    assert [part.text for part in api.shown()] == ["an answer", "whole.", "I think", "next"]


async def test_a_leftover_that_cannot_be_removed_now_is_removed_at_the_next_start(
    opened: Opened, ctx_with: MakeContext, api: LocalApi
) -> None:
    async with opened() as talk:
        await talk.channel.show_draft(draft("I th"))
    api.fail("deleteMessage", "cut", times=9)
    async with opened(ctx=ctx_with(), limits=SHORT) as second:
        await second.until(lambda: "deleteMessage" in api.calls)
        await second.channel.show_draft(draft("next", "e"))
    api.heal("deleteMessage")
    async with opened(ctx=ctx_with()) as third:
        await third.until(lambda: api.shown() == [])


async def test_a_draft_under_way_is_noted_before_the_channel_has_stopped(
    opened: Opened, ctx_with: MakeContext, api: LocalApi
) -> None:
    async with opened() as talk:
        api.delay("sendMessage")
        showing = asyncio.ensure_future(talk.channel.show_draft(draft("I th")))
        await talk.until(lambda: "sendMessage" in api.calls)
        showing.cancel()
    async with opened(ctx=ctx_with()) as again:
        await again.until(lambda: "deleteMessage" in api.calls and api.shown() == [])


async def test_a_draft_that_fails_when_no_one_waits_for_it_is_nobodys_error(
    opened: Opened, api: LocalApi
) -> None:
    async with opened(limits=SHORT) as talk:
        api.fail("sendMessage", "hang")
        showing = asyncio.ensure_future(talk.channel.show_draft(draft("one")))
        await talk.until(lambda: "sendMessage" in api.calls)
        showing.cancel()
        # It waits until the one before has failed.
        await talk.channel.show_draft(draft("one more"))
    # A failure without a listener is reported when the task is collected, and fails the test.
    del showing
    gc.collect()


@pytest.mark.parametrize(
    "noted", ["", "{", "7", '{"1001 x": true, "x": null, "": 1, "1001 7": []}']
)
async def test_damaged_notes_of_drafts_are_passed_over(
    opened: Opened, ctx_with: MakeContext, noted: str
) -> None:
    ctx = ctx_with()
    (ctx.data_dir / "shown-drafts.json").write_text(noted)
    async with opened(ctx=ctx) as talk:
        talk.api.say("hi")
        await talk.inbox.wait_for_stored(1)


async def test_drafts_of_different_answers_do_not_meet(opened: Opened) -> None:
    async with opened() as talk:
        await talk.channel.show_draft(draft("one", "a"))
        await talk.channel.show_draft(draft("two", "b"))
        await talk.channel.show_draft(draft("three", "a", GROUP_ID))

    assert [part.text for part in talk.api.shown()] == ["one", "two"]
    assert [part.text for part in talk.api.shown(-100200300)] == ["three"]


async def test_a_rate_limit_on_a_draft_is_reported(opened: Opened) -> None:
    async with opened() as talk:
        talk.api.fail("sendMessage", code=429, description="Too Many Requests", retry_after=2)
        with pytest.raises(DeliveryError) as raised:
            await talk.channel.show_draft(draft("x"))

    assert raised.value.retry_after_s == 2.0


@pytest.mark.parametrize("kind", ["cut", "hang", "garbage", "refuse"])
@pytest.mark.parametrize("method", ["sendChatAction", "deleteMessage"])
async def test_troubles_of_lesser_calls_are_delivery_errors(
    opened: Opened, method: str, kind: str
) -> None:
    async with opened(limits=SHORT) as talk:
        await talk.channel.show_draft(draft("x"))
        talk.api.fail(method, kind)
        call = {
            "sendChatAction": partial(talk.channel.show_typing, "1001"),
            "deleteMessage": partial(talk.channel.drop_draft, "1001", "d"),
        }[method]
        with pytest.raises(DeliveryError):
            await call()
