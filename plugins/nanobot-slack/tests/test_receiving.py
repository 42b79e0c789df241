"""Receiving over Socket Mode: what arrives, and what survives a broken connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import pytest
from loguru import logger

from nanobot_core import BusError, Button
from nanobot_core.chat import CallFailed, Cause
from nanobot_core.testing import ChatFile, RecordingInbox
from nanobot_slack.settings import Timing

Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]


async def test_a_mention_arrives_once_although_slack_sends_two_events(opened: Opened) -> None:
    async with opened() as talk:
        key = await talk.slack.say("hello", chat=talk.slack.group, mention=True)
        await talk.inbox.wait_for_attempts(2)
        await talk.until(lambda: talk.slack.acknowledged == [key])
    [message] = talk.inbox.stored
    assert (message.content, message.sender_id) == ("hello", "U0ANNA")
    assert (message.is_group, message.is_addressed) == (True, True)
    assert message.chat_id == f"C0GROUP:{key}"
    assert message.dedupe_key == f"T0TEAM:C0GROUP:{key}"


async def test_a_thread_is_a_chat_and_a_direct_message_is_not(opened: Opened) -> None:
    async with opened() as talk:
        first = await talk.slack.say("one", chat="C0GROUP")
        await talk.slack.say("two", chat="C0GROUP", quote=first)
        private = await talk.slack.say("three")
        await talk.slack.say("four", quote=private)
        await talk.inbox.wait_for_stored(4)
    found = {each.content: (each.chat_id, each.session_key) for each in talk.inbox.stored}
    assert found == {
        "one": (f"C0GROUP:{first}", f"slack:C0GROUP:{first}"),
        "two": (f"C0GROUP:{first}", f"slack:C0GROUP:{first}"),
        "three": ("D0ANNA", "slack:D0ANNA"),
        # The answer goes into the thread, but the conversation is one.
        "four": (f"D0ANNA:{private}", "slack:D0ANNA"),
    }


async def test_a_reply_to_the_agent_addresses_it(opened: Opened) -> None:
    async with opened() as talk:
        await talk.send("news", "C0GROUP")
        await talk.slack.say("really?", chat="C0GROUP", quote=talk.answers("C0GROUP")[0].id)
        await talk.slack.say("aside", chat="C0GROUP")
        await talk.inbox.wait_for_stored(2)
    assert {each.content: each.is_addressed for each in talk.inbox.stored} == {
        "really?": True,
        "aside": False,
    }


async def test_without_threads_a_channel_is_one_chat(opened: Opened) -> None:
    async with opened(reply_in_thread=False) as talk:
        await talk.slack.say("hello", chat="C0GROUP", mention=True)
        await talk.inbox.wait_for_stored(1)
        await talk.send("hi", talk.inbox.stored[0].chat_id)
    assert talk.inbox.stored[0].chat_id == "C0GROUP"
    assert talk.answers("C0GROUP")[0].quotes is None


async def test_files_arrive_with_the_token_of_the_bot(opened: Opened) -> None:
    async with opened() as talk:
        await talk.slack.say("look", files=[ChatFile("a.png", b"picture", "image")])
        await talk.inbox.wait_for_stored(1)
    [message] = talk.inbox.stored
    assert message.content == "look"
    [path] = message.media
    assert path.endswith(".png")


async def test_a_page_instead_of_a_file_names_the_missing_scope(opened: Opened) -> None:
    async with opened() as talk:
        talk.slack.scopes = talk.slack.scopes.replace("files:read,", "")
        await talk.slack.say("look", files=[ChatFile("a.png", b"picture", "image")])
        await talk.inbox.wait_for_stored(1)
    [message] = talk.inbox.stored
    assert message.media == ()
    assert "a.png could not be fetched: the Slack app lacks the scope files:read" in message.content


async def test_the_token_goes_to_no_other_host(opened: Opened) -> None:
    async with opened() as talk:
        file = {"id": "F01", "name": "a.txt", "url_private": "https://slack.com.evil.example/a"}
        await talk.slack.event(
            {
                "type": "message",
                "subtype": "file_share",
                "channel": "D0ANNA",
                "user": "U0ANNA",
                "ts": "1790000001.000001",
                "text": "x",
                "files": [file],
            }
        )
        await talk.inbox.wait_for_stored(1)
    assert "'slack.com.evil.example' does not belong to Slack" in talk.inbox.stored[0].content


async def test_a_redirected_download_does_not_take_the_token_along(opened: Opened) -> None:
    async with opened() as talk:
        talk.slack.files_moved_to = f"http://localhost:{talk.slack.host.split(':')[1]}/x"
        await talk.slack.say("look", files=[ChatFile("a.txt", b"text")])
        await talk.inbox.wait_for_stored(1)
    assert "'localhost' does not belong to Slack" in talk.inbox.stored[0].content


async def test_an_edit_is_read_again_and_a_link_preview_is_not(opened: Opened) -> None:
    async with opened() as talk:
        key = await talk.slack.say("see https://a.example")
        await talk.slack.edit(key, "see https://a.example")
        await talk.slack.edit(key, "see https://b.example")
        await talk.inbox.wait_for_stored(2)
        await talk.slack.say("end")
        await talk.inbox.wait_for_stored(3)
    assert [each.content for each in talk.inbox.stored] == [
        "see https://a.example",
        "[edited]\nsee https://b.example",
        "end",
    ]
    assert len({each.dedupe_key for each in talk.inbox.stored}) == 3


async def test_a_pressed_button_takes_effect_once(opened: Opened) -> None:
    async with opened() as talk:
        await talk.send("Go?", buttons=((Button("Allow", "/approve 1"), Button("No", "/deny 1")),))
        [shown] = talk.answers()
        assert shown.buttons == ("Allow", "No")
        await talk.slack.press(shown, "Allow")
        await talk.inbox.wait_for_stored(1)
        await talk.until(lambda: not talk.answers()[0].buttons)
    [message] = talk.inbox.stored
    assert (message.content, message.sender_id, message.chat_id) == (
        "/approve 1",
        "U0ANNA",
        "D0ANNA",
    )
    assert talk.answers()[0].text == "Go?"


async def test_anyone_in_a_channel_can_press_but_commands_keep_their_buttons(
    opened: Opened,
) -> None:
    async with opened() as talk:
        await talk.send("Go?", "C0GROUP", buttons=((Button("Allow", "/approve 1"),),))
        await talk.slack.press(talk.answers("C0GROUP")[0], "Allow", sender=talk.slack.bert)
        await talk.inbox.wait_for_stored(1)
        await talk.slack.say("end")
        await talk.inbox.wait_for_stored(2)
    assert talk.inbox.stored[0].sender_id == "U0BERT"
    assert talk.answers("C0GROUP")[0].buttons == ("Allow",)


async def test_the_slash_command_is_a_command_or_a_text(opened: Opened) -> None:
    async with opened() as talk:
        await talk.slack.command("stop")
        await talk.slack.command("new day")
        await talk.slack.command("how are you?", channel="C0GROUP")
        await talk.inbox.wait_for_stored(3)
    assert sorted(each.content for each in talk.inbox.stored) == [
        "/new day",
        "/stop",
        "how are you?",
    ]
    assert all(each.is_addressed for each in talk.inbox.stored)


async def test_slack_resends_until_the_inbox_has_the_message(opened: Opened) -> None:
    inbox = RecordingInbox()
    async with opened(inbox=inbox, slack=None) as talk:
        talk.slack.resend_s = 0.02
        await talk.until(lambda: bool(talk.slack.sockets))
        inbox.fail_next(BusError("the disk is full"))
        key = await talk.slack.say("important")
        await inbox.wait_for_stored(1)
        await talk.until(lambda: talk.slack.acknowledged == [key])
    assert [each.content for each in inbox.stored] == ["important"]


async def test_a_malformed_event_is_acknowledged_and_the_next_one_arrives(opened: Opened) -> None:
    async with opened() as talk:
        await talk.until(lambda: bool(talk.slack.sockets))
        await talk.slack.push("events_api", {"event": {"type": "message", "ts": 5}}, "bad")
        await talk.slack.push("events_api", {"event": ["x"]}, "worse")
        await talk.slack.push("something_new", {}, "unknown")
        await talk.slack.sockets[0].send_str("no JSON")
        await talk.slack.sockets[0].send_str("[" * 100_000)
        key = await talk.slack.say("fine \ud83d")
        await talk.inbox.wait_for_stored(1)
        assert talk.inbox.stored[0].content == "fine \ufffd"
        await talk.until(lambda: len(talk.slack.acknowledged) == 4)
    assert talk.slack.acknowledged == ["bad", "worse", "unknown", key]


async def test_a_planned_disconnect_opens_the_new_connection_first(opened: Opened) -> None:
    async with opened() as talk:
        await talk.until(lambda: len(talk.slack.sockets) == 1)
        [old] = talk.slack.sockets
        await talk.slack.disconnect("refresh_requested")
        await talk.until(lambda: len(talk.slack.sockets) == 2)
        assert not old.closed
        await old.close()
        await talk.slack.say("after it")
        await talk.inbox.wait_for_stored(1)
        assert not talk.task.done()


@pytest.mark.parametrize(
    ("reason", "cause"),
    [("link_disabled", Cause.CREDENTIALS), ("too_many_websockets", Cause.CONFLICT)],
)
async def test_a_final_disconnect_says_what_to_do(
    opened: Opened, reason: str, cause: Cause
) -> None:
    async with opened() as talk:
        await talk.until(lambda: bool(talk.slack.sockets))
        await talk.slack.disconnect(reason)
        with pytest.raises(CallFailed) as raised:
            await talk.task
    assert raised.value.cause is cause


async def test_a_silent_connection_ends(opened: Opened) -> None:
    timing = Timing(ping_s=0.02, silence_s=0.1)
    async with opened(timing=timing) as talk:
        await talk.until(lambda: bool(talk.slack.sockets))
        await talk.until(lambda: talk.inbox.contacts > 4)  # pongs count
        await talk.slack.go_silent()
        with pytest.raises(CallFailed, match=r"sent nothing for 0\.1 seconds"):
            await talk.task


async def test_a_handshake_without_hello_ends(opened: Opened) -> None:
    async with opened(timing=Timing(open_s=0.1)) as talk:
        talk.slack.sends_hello = False
        with pytest.raises(CallFailed, match="cannot be opened"):
            await talk.task


async def test_another_program_with_the_same_tokens_is_reported(opened: Opened) -> None:
    lines: list[str] = []
    sink = logger.add(lines.append, level="WARNING", format="{message}")
    try:
        async with opened() as talk:
            talk.slack.others = 1
            await talk.until(lambda: bool(talk.slack.sockets))
            await talk.until(lambda: bool(lines))
    finally:
        logger.remove(sink)
    assert "Slack reports 2 connections of this app" in lines[0]


async def test_each_connection_asks_for_a_new_address(opened: Opened) -> None:
    async with opened() as talk:
        await talk.until(lambda: bool(talk.slack.sockets))
        await talk.slack.disconnect("warning")
        await talk.until(lambda: len(talk.slack.sockets) == 2)
        opens = [method for method, _ in talk.slack.calls if method == "apps.connections.open"]
    assert len(opens) == 2


async def test_what_was_missed_comes_first_and_old_messages_never(opened: Opened) -> None:
    async with opened() as talk:
        slack = talk.slack
        slack.loses_events = True
        await slack.say("before the first message")
        slack.loses_events = False
        await slack.say("one")
        root = await slack.say("topic", chat="C0GROUP")
        await slack.say("in the thread", chat="C0GROUP", quote=root)
        await talk.inbox.wait_for_stored(3)
        marks = talk.ctx.data_dir / "watermarks.json"
        await talk.until(lambda: marks.exists() and len(json.loads(marks.read_text())) == 3)
        await talk.channel.stop()
        slack.loses_events = True
        await slack.say("two")
        await slack.say("more", chat="C0GROUP", quote=root)
        await slack.say("elsewhere", sender=slack.bert)
        slack.loses_events = False
        await slack.say("three")
        async with opened(slack, talk.inbox) as _:
            await talk.inbox.wait_for_stored(6)
            await slack.say("end", sender=slack.bert)
            await talk.inbox.wait_for_stored(7)
    private = [each.content for each in talk.inbox.stored if each.chat_id == "D0ANNA"]
    assert private == ["one", "two", "three"]
    thread = [each.content for each in talk.inbox.stored if each.chat_id == f"C0GROUP:{root}"]
    assert thread == ["topic", "in the thread", "more"]
    assert "elsewhere" not in {each.content for each in talk.inbox.stored}


async def test_a_history_that_is_refused_or_slow_does_not_stop_the_channel(
    opened: Opened,
) -> None:
    async with opened() as talk:
        await talk.slack.say("one")
        await talk.slack.say("hi", sender=talk.slack.bert)
        await talk.inbox.wait_for_stored(2)
        await talk.until((talk.ctx.data_dir / "watermarks.json").exists)
        await talk.channel.stop()
        talk.slack.fail("conversations.history", "missing_scope", times=2)
        async with opened(talk.slack, talk.inbox):
            await talk.slack.say("two")
            await talk.inbox.wait_for_stored(3)


async def test_a_broken_connection_is_an_error(opened: Opened) -> None:
    async with opened() as talk:
        await talk.until(lambda: bool(talk.slack.sockets))
        await talk.slack.hang_up()
        with pytest.raises(CallFailed) as raised:
            async with asyncio.timeout(5):
                await talk.task
    assert raised.value.cause is Cause.UNREACHABLE
    assert "ticket" not in str(raised.value)
