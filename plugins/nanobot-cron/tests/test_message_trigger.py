"""The trigger ``message``: whose messages start a job, and which words match."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given, strategies as st

from nanobot_core import (
    Assignment,
    JsonObject,
    Message,
    Requester,
    ToolContext,
    ToolInputError,
    TriggerEvent,
    TurnInfo,
    TurnStarted,
)
from nanobot_core.testing import FakePluginContext
from nanobot_cron.message_trigger import MessageTrigger, Watchers, contains
from nanobot_cron.plugin import CronPlugin


def context(ctx: FakePluginContext, **facts: Any) -> ToolContext:
    given: dict[str, Any] = {"channel": "telegram", "chat_id": "1", "sender_id": "7"} | facts
    return ToolContext(
        session_key="s", turn_id="t", call_id="c", workspace=ctx.workspace, files=ctx.files, **given
    )


def said(text: str, **facts: Any) -> TurnStarted:
    given: dict[str, Any] = {
        "id": "turn",
        "session_key": "telegram:1",
        "channel": "telegram",
        "chat_id": "1",
        "sender_id": "7",
        "source": "chat",
        "message_id": "m1",
    }
    return TurnStarted(turn=TurnInfo(**given | facts), message=Message(role="user", content=text))


@asynccontextmanager
async def watched(ctx: FakePluginContext, options: JsonObject) -> AsyncIterator[list[TriggerEvent]]:
    events: list[TriggerEvent] = []

    async def fire(event: TriggerEvent) -> None:
        events.append(event)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(MessageTrigger(ctx).watch("job1", options, fire))
        await asyncio.sleep(0)
        yield events
        task.cancel()


@pytest.mark.parametrize(
    ("facts", "options", "counts"),
    [
        ({"is_owner": True}, {}, {"own": True, "same chat": True, "other": False}),
        ({"is_owner": True}, {"chat": "any"}, {"own": True, "same chat": True, "other": True}),
        (
            {"is_owner": True},
            {"chat": "telegram:2"},
            {"own": False, "same chat": False, "other": True},
        ),
        (
            {"is_owner": True, "channel": "cli"},
            {},
            {"own": True, "same chat": True, "other": True},
        ),
        ({}, {}, {"own": True, "same chat": False, "other": False}),
    ],
    ids=["owner", "owner, any chat", "owner, another chat", "terminal", "guest"],
)
async def test_whose_messages_count(
    ctx: FakePluginContext, facts: dict[str, Any], options: JsonObject, counts: dict[str, bool]
) -> None:
    stored = await MessageTrigger(ctx).check(context(ctx, **facts), {"text": "help", **options})
    messages = {
        "own": said("help!"),
        "same chat": said("help!", sender_id="8"),
        "other": said("help!", chat_id="2", sender_id="9"),
    }
    found = {}
    async with watched(ctx, stored) as events:
        for name, message in messages.items():
            before = len(events)
            await ctx.shared(Watchers).see(message)
            found[name] = len(events) > before
    await ctx.shared(Watchers).see(messages["own"])

    assert found == counts
    assert len(events) == sum(counts.values())


async def test_work_and_other_words_start_nothing(ctx: FakePluginContext) -> None:
    stored = await MessageTrigger(ctx).check(context(ctx, is_owner=True), {"text": "help"})
    work = Assignment(plugin="cron", id="1", source="cron", requester=Requester())
    async with watched(ctx, stored) as events:
        for message in (
            said("help", source="cron", assignment=work),
            said("help", source="plugin"),
            said("helpful"),
            said(""),
        ):
            await ctx.shared(Watchers).see(message)

    assert events == []


async def test_a_repeated_message_has_the_same_event_id(ctx: FakePluginContext) -> None:
    stored = await MessageTrigger(ctx).check(
        context(ctx, is_owner=True), {"text": "help", "chat": "any"}
    )
    async with watched(ctx, stored) as events:
        for message in (said("help"), said("help", id="turn2"), said("help", chat_id="2")):
            await ctx.shared(Watchers).see(message)

    first, again, other = events
    assert first.id == again.id != other.id
    assert first.text == "7 wrote in telegram:1:\n\nhelp"
    assert MessageTrigger(ctx).describe(stored) == "a message in any chat contains `help`"


async def test_one_job_that_cannot_be_stored_does_not_keep_the_others(
    ctx: FakePluginContext,
) -> None:
    async def fail(event: TriggerEvent) -> None:
        raise OSError

    stored = await MessageTrigger(ctx).check(context(ctx, is_owner=True), {"text": "help"})
    async with asyncio.TaskGroup() as group:
        failing = group.create_task(MessageTrigger(ctx).watch("job0", stored, fail))
        await asyncio.sleep(0)
        async with watched(ctx, stored) as events:
            await ctx.shared(Watchers).see(said("help"))
        failing.cancel()

    assert len(events) == 1


@pytest.mark.parametrize(
    ("facts", "options", "reason"),
    [
        ({"is_owner": True}, {"text": "*"}, "every message"),
        ({"is_owner": True}, {"text": "a", "chat": "telegram"}, "CHANNEL:CHAT"),
        ({}, {"text": "a", "chat": "any"}, "only the owner"),
    ],
)
async def test_options_that_cannot_be_used(
    ctx: FakePluginContext, facts: dict[str, Any], options: JsonObject, reason: str
) -> None:
    with pytest.raises(ToolInputError, match=reason):
        await MessageTrigger(ctx).check(context(ctx, **facts), options)


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("My Invoice is late", "invoice", True),
        ("invoices", "invoice", False),
        ("invoices", "invoice*", True),
        ("order 17 is very late", "order * late", True),
        ("late order", "order * late", False),
        ("preorder order", "order", True),
        ("STRASSE", "straße", True),
        ("a.b", ".", True),
    ],
)
def test_words_match_whole_words(text: str, words: str, expected: bool) -> None:
    assert contains(text, words) is expected


@given(st.text("ab *", max_size=30), st.text("ab*", min_size=1, max_size=8))
def test_stars_match_as_in_file_names(text: str, words: str) -> None:
    if contains(text, words):
        assert fnmatchcase(text, f"*{words.strip()}*")
    if fnmatchcase(f" {text} ", f"* {words} *") and " " not in words:
        assert contains(text, words)


def test_a_pattern_with_many_stars_ends() -> None:
    assert not contains("a" * 20_000, "*".join(["a" * 20] * 9) + "b")
    assert not contains("ab" * 10_000, "*".join(["a"] * 100) + "c")


async def test_the_plugin_contributes_its_triggers_and_brings_them_messages(
    ctx: FakePluginContext,
) -> None:
    plugin = CronPlugin()
    plugin.start(ctx)
    file, message = plugin.contribute_triggers(ctx)
    stored = await message.check(context(ctx, is_owner=True), {"text": "help"})
    async with watched(ctx, stored) as events:
        starting = plugin.before_turn(said("help"))
        assert starting is not None
        await starting

    assert plugin.before_turn(said("help")) is None  # without a job that waits
    assert (file.name, len(events)) == ("file", 1)
