"""Receiving over the event stream: sessions, resuming, history, commands and buttons."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nanobot_core import BusError, Button, ChannelError, Draft
from nanobot_core.chat import CallFailed, Cause
from nanobot_core.testing import FakePluginContext, RecordingInbox
from nanobot_discord import events, platform, session
from nanobot_discord.channel import build_channel

Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]
MakeContext: TypeAlias = Callable[..., FakePluginContext]
Local: TypeAlias = Any
discord_api: Any = sys.modules["discord_api"]
DM, CHANNEL, THREAD = discord_api.DM, discord_api.CHANNEL, discord_api.THREAD
ANNA, BERT, BOT = discord_api.ANNA, discord_api.BERT, discord_api.BOT
MENTION = f"<@{BOT['id']}>"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_INVALID_PAUSE_S", (0.0, 0.0))


async def test_each_direct_chat_channel_and_thread_is_a_chat(opened: Opened) -> None:
    async with opened() as talk:
        talk.local.say("hello")
        talk.local.say("talk among people", channel=CHANNEL)
        talk.local.say(f"{MENTION} what is up?", channel=CHANNEL)
        talk.local.say("in a thread", channel=THREAD)
        await talk.heard(4)

    found = {message.content: message for message in talk.inbox.stored}
    assert found["hello"].chat_id == DM
    assert not found["hello"].is_group
    assert found["hello"].sender_id == ANNA["id"]
    assert found["hello"].sender_names == (ANNA["username"],)
    assert not found["talk among people"].is_addressed
    assert found["what is up?"].chat_id == CHANNEL
    assert found["what is up?"].is_group
    assert found["what is up?"].is_addressed
    assert found["in a thread"].chat_id == f"{CHANNEL}:{THREAD}"


async def test_a_mention_of_the_role_of_the_bot_addresses_it(opened: Opened) -> None:
    async with opened() as talk:
        talk.local.say(f"<@&{discord_api.BOT_ROLE}> help", channel=CHANNEL)
        await talk.heard()

    assert talk.inbox.stored[0].is_addressed
    assert talk.inbox.stored[0].content == "help"


async def test_files_are_fetched_without_the_token_and_only_from_discord(opened: Opened) -> None:
    async with opened() as talk:
        good = talk.local.upload("voice-message.ogg", b"OggS")
        foreign = good | {"url": "http://127.0.0.1:9/secret.txt", "filename": "secret.txt"}
        talk.local.say("look", attachments=[good, foreign])
        await talk.heard()

    message = talk.inbox.stored[0]
    assert [path.rpartition("/")[2] for path in message.media] == ["voice-message.ogg"]
    assert "secret.txt could not be fetched" in message.content


async def test_an_edit_is_a_message_again_only_if_its_text_has_changed(opened: Opened) -> None:
    async with opened(edited_messages=True) as talk:
        key = talk.local.say("what is 1 + 1")
        # A link preview arrives as an edit, too.
        talk.local.push("MESSAGE_UPDATE", talk.local.described(DM, key) | {"embeds": [{}]})
        talk.local.edit(key, "what is 1 + 2")
        talk.local.push("MESSAGE_UPDATE", talk.local.described(DM, key) | {"embeds": [{}]})
        talk.local.say("end")
        contents = await talk.heard(3)

    assert contents == ["what is 1 + 1", "[edited]\nwhat is 1 + 2", "end"]
    assert len({message.dedupe_key for message in talk.inbox.stored}) == 3


async def test_a_text_of_a_megabyte_arrives_whole(opened: Opened) -> None:
    async with opened() as talk:
        talk.local.say("x" * 1_000_000)
        assert [len(content) for content in await talk.heard()] == [1_000_000]


async def test_edits_are_ignored_by_default(opened: Opened) -> None:
    async with opened() as talk:
        talk.local.edit(talk.local.say("one"), "two")
        talk.local.say("end")
        assert await talk.heard(2) == ["one", "end"]


async def test_the_bot_ignores_itself_machines_and_notices(opened: Opened) -> None:
    other = BERT | {"bot": True}
    allowed = BERT | {"bot": True, "id": "100000000000000077"}
    async with opened(allow_bots=[allowed["id"]]) as talk:
        talk.local.say("mine", sender=BOT)
        talk.local.say("of a bot", sender=other)
        talk.local.say("of a hook", webhook_id=ANNA["id"])
        talk.local.say("Anna joined", type=7)
        talk.local.say("")
        talk.local.say("of a friend", sender=allowed)
        assert await talk.heard() == ["of a friend"]


async def test_only_allowed_channels_and_their_threads_are_read(opened: Opened) -> None:
    async with opened(allow_channels=[CHANNEL]) as talk:
        talk.local.say("direct")
        talk.local.say("in a thread", channel=THREAD)
        talk.local.say("in the channel", channel=CHANNEL)
        assert sorted(await talk.heard(2)) == ["in a thread", "in the channel"]


@pytest.mark.parametrize(
    "frame",
    [
        "no json",
        "[]",
        '{"op": "x"}',
        '{"op": 0, "t": "MESSAGE_CREATE", "s": 3, "d": null}',
        '{"op": 0, "t": "MESSAGE_CREATE", "s": 3, "d": {"id": "../x", "channel_id": "1"}}',
        '{"op": 0, "t": "GUILD_CREATE", "s": 3, "d": {"id": "1", "channels": "many"}}',
        '{"op": 0, "t": "INTERACTION_CREATE", "s": 3, "d": {"id": "1"}}',
        '{"op": 0, "t": "READY", "s": 3, "d": null}',
        '{"op": 0, "t": "SOMETHING_NEW", "s": 3, "d": {"x": 1}}',
        '{"op": 77, "d": {}}',
        '{"op": 0, "t": "MESSAGE_CREATE", "s": 3, "d": ' + "[" * 9_000 + "]" * 9_000 + "}",
    ],
    ids=lambda frame: frame[:60],
)
async def test_a_frame_that_makes_no_sense_is_dropped(opened: Opened, frame: str) -> None:
    async with opened() as talk:
        talk.local.send_frame(frame)
        talk.local.push("RESUMED", {})  # takes the number 3 that some of them use
        talk.local.say("still there?")
        assert await talk.heard() == ["still there?"]
        assert talk.local.sessions == 1
        assert not talk.task.done()


@pytest.mark.parametrize("fault", ["close", "cut", "reconnect", "invalid", "silence"])
async def test_a_lost_connection_is_resumed_without_loss_or_repetition(
    opened: Opened, fault: str
) -> None:
    async with opened() as talk:
        talk.local.say("before")
        await talk.heard()
        await talk.until(lambda: len(talk.local.acknowledged) == 1)
        match fault:
            case "close":
                talk.local.close_sockets(4000)
            case "cut":
                talk.local.drop_sockets()
            case "reconnect":
                talk.local.send_frame({"op": 7, "d": None})
            case "invalid":
                talk.local.send_frame({"op": 9, "d": True})
            case _:
                talk.local.silence()
        talk.local.say("after")
        assert await talk.heard(2) == ["before", "after"]
        await talk.until(lambda: talk.local.resumes == 1)
        assert talk.local.sessions == 1
    assert len(talk.inbox.attempts) == 2


@pytest.mark.parametrize("fault", ["invalid", "forgotten"])
async def test_what_a_lost_session_missed_is_read_from_the_history(
    opened: Opened, fault: str
) -> None:
    async with opened() as talk:
        talk.local.say("in time")
        talk.local.say("in the thread", channel=THREAD)
        await talk.heard(2)
        talk.local.forget_sessions()
        for number in range(3):
            talk.local.message(f"missed {number}")
        talk.local.message("missed there", channel=THREAD)
        if fault == "invalid":
            talk.local.send_frame({"op": 9, "d": False})
        else:
            talk.local.close_sockets(4009)
        await talk.until(lambda: talk.local.sessions == 2)
        talk.local.say("new")
        await talk.heard(7)

    direct = [message.content for message in talk.inbox.stored if message.chat_id == DM]
    assert direct == ["in time", "missed 0", "missed 1", "missed 2", "new"]
    thread = [one for one in talk.inbox.stored if one.content == "missed there"]
    assert [(one.chat_id, one.is_group) for one in thread] == [(f"{CHANNEL}:{THREAD}", True)]


async def test_what_was_read_from_the_history_and_not_stored_is_read_again(
    opened: Opened, ctx_with: MakeContext
) -> None:
    """The new session was saved before, and the next process resumed it without the history."""
    inbox = RecordingInbox()
    async with opened(inbox=inbox, ctx=ctx_with()) as talk:
        talk.local.say("in time")
        await talk.heard()
        inbox.hold()
        talk.local.forget_sessions()
        talk.local.message("missed")
        talk.local.close_sockets(4009)
        await inbox.wait_for_attempts(2)
        assert talk.local.sessions == 2
    assert [message.content for message in inbox.stored] == ["in time"]

    async with opened(ctx=ctx_with()) as after:
        assert await after.heard() == ["missed"]


async def test_a_full_disk_stops_reading_and_loses_nothing(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_MOST_OPEN", 3)
    inbox = RecordingInbox()
    inbox.hold()
    async with opened(inbox=inbox) as talk:
        for number in range(10):
            talk.local.say(f"message {number}")
        await inbox.wait_for_attempts(1)
        inbox.let_go()
        assert await talk.heard(10) == [f"message {number}" for number in range(10)]
        assert (talk.local.sessions, talk.local.resumes) == (1, 0)


async def test_a_new_chat_and_a_new_session_are_saved_at_once(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "_SAVE_PAUSE_S", 3600.0)
    async with opened() as talk:
        folder = talk.ctx.data_dir
        key = talk.local.say("hello")
        await talk.until(lambda: _holds(folder / "chats.json", key))
        await talk.until(lambda: _holds(folder / "session.json", "session-0"))


def _holds(file: Path, text: str) -> bool:
    return file.exists() and text in file.read_text()


async def test_old_messages_are_not_answered_at_the_first_start(
    opened: Opened, local: Local
) -> None:
    local.message("old")
    async with opened() as talk:
        talk.local.say("new")
        assert await talk.heard() == ["new"]
        assert not [call for call in talk.local.calls if call.startswith("GET /channels")]


async def test_at_most_the_newest_hundred_missed_messages_are_read(opened: Opened) -> None:
    async with opened() as talk:
        talk.local.say("in time")
        await talk.heard()
        talk.local.forget_sessions()
        for number in range(130):
            talk.local.message(f"missed {number}")
        talk.local.close_sockets(4009)
        contents = await talk.heard(101)

    assert contents[1:] == [f"missed {number}" for number in range(30, 130)]


async def test_the_next_process_resumes_the_session(opened: Opened, ctx_with: MakeContext) -> None:
    async with opened(ctx=ctx_with()) as talk:
        talk.local.say("one")
        await talk.heard()
        await talk.until(lambda: len(talk.local.acknowledged) == 1)
    talk.local.say("meanwhile", channel=THREAD)

    async with opened(ctx=ctx_with()) as after:
        assert await after.heard() == ["meanwhile"]
        # A resumed session does not describe its servers.
        assert after.inbox.stored[0].chat_id == f"{CHANNEL}:{THREAD}"
        await after.until(lambda: after.local.resumes == 1)
        assert after.local.sessions == 1
        assert f"GET /channels/{THREAD}" in after.local.calls


async def test_what_was_not_stored_comes_again_to_the_next_channel(
    opened: Opened, ctx_with: MakeContext
) -> None:
    inbox = RecordingInbox()
    inbox.fail_next(*[BusError("the disk is full")] * 3)
    async with opened(inbox=inbox, ctx=ctx_with()) as talk:
        talk.local.say("important")
        await inbox.wait_for_attempts(1)
    assert not inbox.stored

    async with opened(ctx=ctx_with()) as after:
        assert await after.heard() == ["important"]


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("token", "channels.discord.token"),
        ("content", "Message Content Intent"),
    ],
)
async def test_refused_credentials_are_one_sentence(
    local: Local, ctx_with: MakeContext, cause: str, words: str
) -> None:
    local.token = "another" if cause == "token" else discord_api.TOKEN
    local.allows_content = cause != "content"
    async with ctx_with() as ctx:
        channel = build_channel(ctx)
        with pytest.raises(CallFailed) as raised:
            await channel.start(RecordingInbox())
        await channel.stop()

    assert raised.value.cause is Cause.CREDENTIALS
    assert words in raised.value.reason
    assert "https://discord.com/developers/applications" in raised.value.reason


async def test_a_refused_token_is_not_tried_again(local: Local, ctx_with: MakeContext) -> None:
    local.token = "another"
    async with ctx_with() as ctx:
        channel = build_channel(ctx)
        for _ in range(3):
            with pytest.raises(ChannelError):
                await channel.login()
        await channel.stop()
    assert local.calls == ["GET /users/@me"]


# --- commands and buttons


async def test_the_answer_to_a_command_replaces_its_pending_line(opened: Opened) -> None:
    async with opened() as talk:
        talk.local.command("new", "chat")
        assert await talk.heard() == ["/new chat"]
        message = talk.inbox.stored[0]
        assert message.is_addressed
        await talk.send("Done.", reply_to=message.dedupe_key)
        await talk.send("And more.")

    assert talk.local.transcript() == "nano: Done.\nnano: And more."


async def test_a_command_that_comes_again_leaves_its_answer(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with opened() as talk:
        talk.local.command("new")
        await talk.heard()
        await talk.send("Done.", reply_to=talk.inbox.stored[0].dedupe_key)
        talk.local.repeat_command()
        talk.local.say("end")
        await talk.heard(2)
        await talk.until(lambda: talk.local.calls.count(talk.local.calls[-1]) > 1)
    assert talk.local.transcript() == "nano: Done.\nanna_x: end"
    assert discord_api.TOKEN not in caplog.text
    assert "token-" not in caplog.text


async def test_a_refused_command_leaves_nothing(opened: Opened) -> None:
    async with opened(inbox=RecordingInbox(admits=lambda _: False)) as talk:
        talk.local.command("new")
        await talk.inbox.wait_for_attempts(1)
        await talk.until(lambda: talk.local.calls[-1].startswith("DELETE /webhooks"))
        assert talk.local.transcript() == ""


async def test_the_answer_to_a_command_can_grow(opened: Opened) -> None:
    async with opened() as talk:
        talk.local.command("new")
        await talk.heard()
        key = talk.inbox.stored[0].dedupe_key
        await talk.channel.show_draft(Draft(id="d", chat_id=DM, content="One", reply_to=key))
        await talk.send("One two.", reply_to=key, draft_id="d")
    assert talk.local.transcript() == "nano: One two. (edited)"


async def test_a_command_is_confirmed_while_the_history_is_read(opened: Opened) -> None:
    async with opened() as talk:
        talk.local.say("in time")
        await talk.heard()
        talk.local.forget_sessions()
        talk.local.message("missed")
        talk.local.hold_history()
        talk.local.close_sockets(4009)
        await talk.until(lambda: talk.local.sessions == 2)
        talk.local.command("new")
        await talk.until(lambda: talk.local.calls[-1].endswith("/callback"))
        talk.local.let_go()
        assert await talk.heard(3) == ["in time", "missed", "/new"]


async def test_an_expired_command_gets_a_message(opened: Opened) -> None:
    async with opened() as talk:
        talk.local.fail("/callback", status=404, code=10062, message="Unknown interaction")
        talk.local.command("new")
        await talk.heard()
        await talk.send("Done.", reply_to=talk.inbox.stored[0].dedupe_key)
        assert [shown.text for shown in talk.local.shown()] == ["Done."]


async def test_commands_are_registered_once(opened: Opened, ctx_with: MakeContext) -> None:
    ctx = ctx_with()
    known = ctx.data_dir / "session.json"
    for each in (ctx, ctx_with()):
        async with opened(ctx=each) as talk:
            await talk.until(lambda: bool(talk.local.commands))
            await talk.until(lambda: known.exists() and "commands of" in known.read_text())
            await talk.until(lambda: "GET /oauth2/applications/@me" in talk.local.calls)
    assert [command["name"] for command in talk.local.commands] == ["new", "stop"]
    assert sum(call.startswith("PUT") for call in talk.local.calls) == 1


@pytest.mark.parametrize(
    ("channel", "value", "remain"),
    [(DM, "/approve 1", False), (CHANNEL, "/approve 1", True), (CHANNEL, "https://x", False)],
)
async def test_a_pressed_button_is_a_message(
    opened: Opened, channel: str, value: str, remain: bool
) -> None:
    async with opened() as talk:
        buttons = ((Button("Yes", value), Button("No", value)),)
        await talk.send("Sure?", chat_id=channel, buttons=buttons)
        shown = talk.local.shown(channel)[0]
        talk.local.press(shown, "Yes", channel=channel)
        assert await talk.heard() == [value]
        talk.local.command("end")
        await talk.heard(2)
        if not remain:
            await talk.until(lambda: shown.buttons == [])
    assert bool(shown.buttons) is remain


async def test_a_message_carries_a_reaction_until_it_is_answered(opened: Opened) -> None:
    async with opened(read_receipt_emoji="👀") as talk:
        key = talk.local.say("hello")
        await talk.heard()
        mine = talk.local.all_shown(DM)[0]
        await talk.until(lambda: mine.reactions == ["👀"])
        await talk.send("Hi.", reply_to=key)
        assert mine.reactions == []
