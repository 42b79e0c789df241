"""Where messages go and what they carry."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot_core import (
    Button,
    JsonObject,
    OutboundMessage,
    PathGuard,
    ToolContext,
    ToolDenied,
    ToolFailed,
    ToolInputError,
)
from nanobot_core.testing import FakePluginContext
from nanobot_message.message_tool import MessageTool

if TYPE_CHECKING:
    from conftest import Desk, MakeDesk


async def test_a_message_goes_to_the_current_chat(desk: Desk) -> None:
    result = await desk.call(content="**Done** with step 1")

    (message,) = desk.sent
    assert (message.channel, message.chat_id) == ("telegram", "1")
    assert message.content == "**Done** with step 1"
    assert message.kind == "final"
    assert (message.media, message.buttons) == ((), ())
    assert result.content == "Message sent to telegram:1"
    assert result.data == {"channel": "telegram", "chat_id": "1", "attachments": 0}


@pytest.mark.parametrize(
    "target", [{"channel": "telegram"}, {"chat_id": "1"}, {"channel": "telegram", "chat_id": "1"}]
)
async def test_naming_the_own_chat_is_always_fine(desk: Desk, target: JsonObject) -> None:
    await desk.call(content="hello", **target)
    assert (desk.sent[0].channel, desk.sent[0].chat_id) == ("telegram", "1")


@pytest.mark.parametrize("target", [{"chat_id": "2"}, {"channel": "cli", "chat_id": "1"}])
async def test_other_chats_are_refused_unless_the_owner_allows_them(
    desk: Desk, target: JsonObject
) -> None:
    with pytest.raises(ToolDenied, match=r"this chat only, not to .*tools\.message\.allow_chats"):
        await desk.call(content="hello", **target)
    assert desk.sent == []


@pytest.mark.parametrize(
    ("allowed", "target"),
    [
        ("telegram:2", ("telegram", "2")),
        ("telegram:*", ("telegram", "-100:5")),
        ("*:2", ("slack", "2")),
        ("email:*@example.org", ("email", "me@example.org")),
        ("matrix:!room:example.org", ("matrix", "!room:example.org")),
    ],
)
async def test_chats_that_match_a_glob_may_be_written_to(
    make_desk: MakeDesk, allowed: str, target: tuple[str, str]
) -> None:
    desk = make_desk(allowChats=["nowhere:0", allowed])

    result = await desk.call(content="hello", channel=target[0], chat_id=target[1])

    assert (desk.sent[0].channel, desk.sent[0].chat_id) == target
    assert result.content == f"Message sent to {target[0]}:{target[1]}"


@pytest.mark.parametrize(
    ("allowed", "target"),
    [
        ("telegram:2", ("telegram", "22")),
        ("telegram:2", ("Telegram", "2")),
        ("t*:2", ("t:x", "3")),
        ("*:5", ("slack", "1:5")),
        ("telegram:[1", ("telegram", "2")),
    ],
)
async def test_chats_that_match_no_glob_may_not(
    make_desk: MakeDesk, allowed: str, target: tuple[str, str]
) -> None:
    desk = make_desk(allowChats=[allowed])
    with pytest.raises(ToolDenied, match="only to this chat and to"):
        await desk.call(content="hello", channel=target[0], chat_id=target[1])
    assert desk.sent == []


async def test_another_channel_needs_a_chat(make_desk: MakeDesk) -> None:
    with pytest.raises(ToolInputError, match=r"chat_id is missing.*'slack'"):
        await make_desk(allowChats=["*:*"]).call(content="hello", channel="slack")


@pytest.mark.parametrize(
    "arguments",
    [{}, {"content": " \n"}, {"media": []}, {"buttons": ["Yes"]}, {"content": "", "media": None}],
)
async def test_an_empty_message_is_refused(desk: Desk, arguments: JsonObject) -> None:
    with pytest.raises(ToolInputError, match="content is empty"):
        await desk.call(**arguments)
    assert desk.sent == []


async def test_labels_become_rows_of_buttons(desk: Desk) -> None:
    await desk.call(content="Go on?", buttons=["Yes", ["No", " Later "]])

    assert desk.sent[0].buttons == (
        (Button("Yes", "Yes"),),
        (Button("No", "No"), Button("Later", "Later")),
    )


async def test_a_label_of_64_bytes_fits_and_a_longer_one_is_named(desk: Desk) -> None:
    await desk.call(content="x", buttons=["é" * 32])
    assert len(desk.sent[0].buttons[0][0].value.encode()) == 64

    with pytest.raises(ToolInputError, match=r"'é+x' is longer than 64 bytes"):
        await desk.call(content="x", buttons=[["fine", "é" * 32 + "x"]])
    with pytest.raises(ToolInputError, match="label without text"):
        await desk.call(content="x", buttons=["  "])


async def test_a_call_that_is_repeated_after_a_crash_is_the_same_message(desk: Desk) -> None:
    desk.put("a.txt")
    circumstances = desk.circumstances()
    arguments: JsonObject = {"content": "hello", "media": ["a.txt"], "buttons": ["Yes"]}

    await desk.call(circumstances, **arguments)
    desk.tool = MessageTool(desk.context)
    await desk.call(replace(circumstances, turn_id="the turn taken up again"), **arguments)

    first, second = desk.sent
    assert first.idempotency_key == second.idempotency_key
    assert first.media != second.media


async def test_calls_that_differ_are_different_messages(desk: Desk) -> None:
    given = desk.circumstances()
    others = [
        replace(given, call_id="another"),
        replace(given, session_key="another"),
        # A model that counts its calls from 0 in each conversation.
        replace(given, message_id="another"),
        replace(given, message_id=None),
    ]
    for circumstances in [given, *others]:
        await desk.call(circumstances, content="hello")
    await desk.call(given, content="hello again")
    await desk.call(given, content="hello", buttons=["Yes"])

    assert len({message.idempotency_key for message in desk.sent}) == 7


async def test_two_chats_at_once_do_not_mix(desk: Desk) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            circumstances = replace(desk.circumstances(), chat_id=str(number))
            group.create_task(desk.call(circumstances, content=f"for {number}"))

    assert {(m.chat_id, m.content) for m in desk.sent} == {
        (str(number), f"for {number}") for number in range(20)
    }


async def test_where_nothing_can_be_sent_the_model_is_reported(tmp_path: Path) -> None:
    tool = MessageTool(FakePluginContext(tmp_path, plugin_id="message"))
    with pytest.raises(ToolFailed, match="cannot send a message to cli:direct"):
        await tool.execute(
            ToolContext(
                session_key="cli:direct",
                turn_id="t",
                call_id="c",
                workspace=tmp_path,
                files=PathGuard(tmp_path),
            ),
            {"content": "hello"},
        )


async def test_a_message_is_plain_data(desk: Desk) -> None:
    desk.put("a.txt")
    await desk.call(content="hello", media=["a.txt"], buttons=["Yes"])
    message = desk.sent[0]

    assert isinstance(message, OutboundMessage)
    assert json.dumps(message.media)
    assert len(message.idempotency_key.encode()) < 512
