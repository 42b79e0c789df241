"""Sending: what people see, and what happens when Slack refuses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nanobot_core import DeliveryError, Draft
from nanobot_core.chat import CallFailed, Cause

Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]
Talk: TypeAlias = Any
"""A class of conftest.py, which cannot be imported."""
BOT = "https://api.slack.com/apps, page OAuth & Permissions"
APP = "https://api.slack.com/apps, page Basic Information, App-Level Tokens"

MARKDOWN = """# Title

Some **bold**, *italic*, ~~gone~~ and `code` with a [link](https://a.example/x).

> a quote

```python
if a < b & c: pass
```

- one
- two

| a | b |
| - | - |
| 1 | 2 |
"""


async def test_formatting_is_shown_and_nothing_is_markup(opened: Opened) -> None:
    async with opened() as talk:
        await talk.send(MARKDOWN)
        [shown] = talk.answers()
    spans = dict(shown.spans)
    assert spans["italic"] == "italic"
    assert spans["strikethrough"] == "gone"
    assert spans["code"] == "code"
    assert spans["link"] == "link"
    assert spans["quote"] == "a quote"
    assert ("pre", "if a < b & c: pass") in shown.spans
    assert ("bold", "Title") in shown.spans
    assert "# " not in shown.text
    assert talk.slack.pings == []


@pytest.mark.parametrize(
    "text",
    ["<!channel> and <@U0BERT>", "**x** <!here>", "`<!everyone>`", "[<!here>](https://a.example)"],
)
async def test_no_text_notifies_people(opened: Opened, text: str) -> None:
    async with opened() as talk:
        await talk.send(text, "C0GROUP")
        [shown] = talk.answers("C0GROUP")
    assert talk.slack.pings == []
    assert "<" in shown.text  # it is shown as it is written


async def test_plain_text_with_marks_stays_plain(opened: Opened) -> None:
    async with opened() as talk:
        await talk.send("2 * 3 * 4 and a_b_c")
        arguments = next(
            given for method, given in talk.slack.calls if method == "chat.postMessage"
        )
    assert arguments["mrkdwn"] is False
    assert (arguments["unfurl_links"], arguments["unfurl_media"]) == (False, False)


async def test_an_answer_goes_into_the_thread_of_its_question(opened: Opened) -> None:
    async with opened() as talk:
        key = await talk.slack.say("hello", chat="C0GROUP", mention=True)
        await talk.inbox.wait_for_stored(1)
        await talk.send("hi", talk.inbox.stored[0].chat_id)
        assert talk.answers("C0GROUP")[0].quotes == key


async def test_blocks_that_slack_refuses_become_plain_text(opened: Opened) -> None:
    async with opened() as talk:
        talk.slack.fail("chat.postMessage", "invalid_blocks")
        await talk.send("**bold** & <plain>")
        [shown] = talk.answers()
    assert (shown.text, shown.spans) == ("bold & <plain>", ())


async def test_files_are_one_message_in_the_thread(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "b.png").write_bytes(b"picture")
    media = (str(tmp_path / "a.txt"), str(tmp_path / "b.png"))
    async with opened() as talk:
        root = await talk.slack.say("files, please", chat="C0GROUP", mention=True)
        await talk.send("here", f"C0GROUP:{root}", media=media)
        words, files = talk.answers("C0GROUP")
    assert words.text == "here"
    assert [(file.name, file.content) for file in files.files] == [
        ("a.txt", b"text"),
        ("b.png", b"picture"),
    ]
    assert files.quotes == root


async def test_a_user_id_is_a_direct_message(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    async with opened() as talk:
        await talk.send("hello", "U0BERT", media=(str(tmp_path / "a.txt"),))
        assert len(talk.answers("D0BERT")) == 2


@pytest.mark.parametrize("chat_id", ["general", "C0GROUP:x", "D0ANNA:1.2:3", "", "c0group\n"])
async def test_what_is_no_conversation_is_refused_for_good(opened: Opened, chat_id: str) -> None:
    async with opened() as talk:
        with pytest.raises(DeliveryError, match="is not the id of a Slack conversation") as raised:
            await talk.send("hello", chat_id)
    assert not raised.value.retryable


async def test_a_dead_conversation_is_refused_for_good(opened: Opened) -> None:
    async with opened() as talk:
        talk.slack.block("C0GROUP")
        with pytest.raises(DeliveryError, match="unknown until the app is invited with /invite"):
            await talk.send("hello", "C0SECRET")
        with pytest.raises(DeliveryError, match="is_archived") as raised:
            await talk.send("hello", "C0GROUP")
    assert not raised.value.retryable


async def test_slack_asks_to_wait(opened: Opened) -> None:
    async with opened() as talk:
        talk.slack.busy(7)
        with pytest.raises(DeliveryError) as raised:
            await talk.send("hello")
        assert (raised.value.retryable, raised.value.retry_after_s) == (True, 7.0)
        await talk.send("hello")
        assert len(talk.answers()) == 1


async def test_an_answer_without_json_is_an_outage(opened: Opened) -> None:
    async with opened() as talk:
        talk.slack.fail("chat.postMessage", "<html> gateway", status=503, **{"Retry-After": "3"})
        talk.slack.fail("chat.postMessage", "all is well, but no JSON")
        for pause_s in (3.0, None):
            with pytest.raises(DeliveryError) as raised:
                await talk.send("hello")
            assert (raised.value.retryable, raised.value.retry_after_s) == (True, pause_s)


async def test_a_lost_answer_sends_nothing_twice_by_itself(opened: Opened) -> None:
    async with opened() as talk:
        talk.slack.loses_answers_of = "chat.postMessage"
        with pytest.raises(DeliveryError) as raised:
            await talk.send("hello")
        assert raised.value.retryable
        assert len(talk.answers()) == 1


async def test_a_call_follows_no_redirect(opened: Opened) -> None:
    async with opened() as talk:
        location = f"http://{talk.slack.host}/api/chat.postMessage"
        talk.slack.fail("chat.postMessage", "", status=307, Location=location)
        with pytest.raises(DeliveryError, match="no connection to Slack"):
            await talk.send("hello")
        assert talk.answers() == []


# --- drafts


def draft(content: str, chat_id: str = "D0ANNA", **fields: Any) -> Draft:
    return Draft(id="d", chat_id=chat_id, content=content, **fields)


async def test_a_draft_in_a_direct_message_grows_by_edits(opened: Opened) -> None:
    async with opened() as talk:
        await talk.channel.show_draft(draft("one"))
        await talk.channel.show_draft(draft("one two"))
        assert [shown.text for shown in talk.answers()] == ["one two"]
        await talk.send("one **two** three", draft_id="d")
        [shown] = talk.answers()
    assert (shown.text, shown.spans) == ("one two three", (("bold", "two"),))


async def in_a_thread(talk: Talk) -> str:
    await talk.slack.say("hello", chat="C0GROUP", mention=True)
    await talk.inbox.wait_for_stored(1)
    chat_id: str = talk.inbox.stored[0].chat_id
    # The host calls it again and again, so that it does not matter what came first.
    await talk.until(lambda: bool(talk.slack.acknowledged))
    await talk.channel.show_typing(chat_id)
    return chat_id


def methods(talk: Talk) -> list[str]:
    return [method for method, _ in talk.slack.calls if method.startswith("chat.")]


async def test_a_draft_in_a_thread_is_a_stream(opened: Opened) -> None:
    async with opened() as talk:
        chat_id = await in_a_thread(talk)
        with pytest.raises(DeliveryError):  # no whole word yet
            await talk.channel.show_draft(draft("On", chat_id))
        await talk.channel.show_draft(draft("One two", chat_id))
        [shown] = talk.answers("C0GROUP")
        assert shown.text == "One"
        await talk.channel.show_draft(draft("One two **thr", chat_id))
        await talk.channel.show_draft(draft("One two **three**\nfour", chat_id))
        assert talk.answers("C0GROUP")[0].text == "One two **three**"
        await talk.send("One two **three**\nfour", chat_id, draft_id="d")
        [shown] = talk.answers("C0GROUP")
    assert (shown.text, shown.spans) == ("One two three\nfour", (("bold", "three"),))
    assert methods(talk) == [
        *("chat.startStream", "chat.appendStream", "chat.appendStream"),
        *("chat.stopStream", "chat.update"),
    ]
    assert talk.slack.calls[-4][1].get("ts") == shown.id


async def test_a_stream_that_slack_ended_becomes_edits(opened: Opened) -> None:
    async with opened() as talk:
        chat_id = await in_a_thread(talk)
        await talk.channel.show_draft(draft("One two", chat_id))
        talk.slack.note(talk.answers("C0GROUP")[0].id).is_streaming = False
        await talk.channel.show_draft(draft("One two three", chat_id))
        assert talk.answers("C0GROUP")[0].text == "One two three"
        await talk.send("One two three four", chat_id, draft_id="d")
        assert [shown.text for shown in talk.answers("C0GROUP")] == ["One two three four"]


async def test_a_stream_is_ended_although_its_text_is_complete(opened: Opened) -> None:
    async with opened() as talk:
        chat_id = await in_a_thread(talk)
        await talk.channel.show_draft(draft("One two.", chat_id))
        await talk.send("One two.", chat_id, draft_id="d")
        [shown] = talk.answers("C0GROUP")
        assert shown.text == "One two."
        assert not talk.slack.note(shown.id).is_streaming


async def test_a_draft_that_changes_its_beginning_becomes_edits(opened: Opened) -> None:
    async with opened() as talk:
        chat_id = await in_a_thread(talk)
        await talk.channel.show_draft(draft("One two", chat_id))
        await talk.channel.show_draft(draft("Another beginning", chat_id))
        assert talk.answers("C0GROUP")[0].text == "Another beginning"
        await talk.channel.drop_draft(chat_id, "d")
        assert talk.answers("C0GROUP") == []


async def test_a_dropped_stream_is_removed(opened: Opened) -> None:
    async with opened() as talk:
        chat_id = await in_a_thread(talk)
        await talk.channel.show_draft(draft("One two", chat_id))
        await talk.channel.drop_draft(chat_id, "d")
        assert talk.answers("C0GROUP") == []


async def test_an_app_without_streams_uses_edits(opened: Opened) -> None:
    async with opened() as talk:
        chat_id = await in_a_thread(talk)
        talk.slack.fail("chat.startStream", "feature_not_enabled")
        await talk.channel.show_draft(draft("One two", chat_id))
        await talk.channel.show_draft(draft("One two three", chat_id))
        assert [shown.text for shown in talk.answers("C0GROUP")] == ["One two three"]


async def test_a_stream_notifies_nobody(opened: Opened) -> None:
    async with opened() as talk:
        chat_id = await in_a_thread(talk)
        await talk.channel.show_draft(draft("<!channel> look\n<@U0BERT> here\n", chat_id))
        assert talk.answers("C0GROUP")
    assert talk.slack.pings == []


async def test_the_stream_of_a_killed_process_is_removed(opened: Opened) -> None:
    async with opened() as talk:
        chat_id = await in_a_thread(talk)
        await talk.channel.show_draft(draft("One two", chat_id))
        await talk.channel.stop()
        async with opened(talk.slack) as again:
            await again.until(lambda: not again.answers("C0GROUP"))


async def test_drafts_leave_room_for_answers(opened: Opened) -> None:
    async with opened() as talk:
        await talk.channel.show_draft(draft("0"))
        for number in range(1, 36):
            await talk.channel.show_draft(draft(str(number)))
        with pytest.raises(DeliveryError, match="used up"):
            await talk.channel.show_draft(draft("36"))
        await talk.send("37", draft_id="d")
        assert [shown.text for shown in talk.answers()] == ["37"]


# --- signs of work


async def test_a_reaction_while_working(opened: Opened) -> None:
    async with opened(done_emoji="white_check_mark") as talk:
        key = await talk.slack.say("hello")
        await talk.inbox.wait_for_stored(1)
        await talk.until(lambda: talk.slack.acknowledged == [key])
        await talk.channel.show_typing("D0ANNA")
        note = talk.slack.note(key)
        assert note.reactions == ["eyes"]
        await talk.channel.show_typing("D0ANNA")
        await talk.send("a line of progress")
        assert note.reactions == ["eyes"]
        assert [method for method, _ in talk.slack.calls].count("reactions.add") == 1
        await talk.send("done", reply_to=talk.inbox.stored[0].dedupe_key)
        await talk.until(lambda: note.reactions == ["white_check_mark"])
    assert talk.slack.statuses == []


async def test_a_reaction_although_the_host_was_faster(opened: Opened) -> None:
    async with opened() as talk:
        await talk.channel.show_typing("D0ANNA")
        key = await talk.slack.say("hello")
        await talk.until(lambda: talk.slack.note(key).reactions == ["eyes"])


async def test_the_reaction_ends_with_a_draft_that_becomes_the_answer(opened: Opened) -> None:
    async with opened() as talk:
        chat_id = await in_a_thread(talk)
        message = talk.inbox.stored[0]
        note = talk.slack.note(message.metadata["message_id"])
        assert note.reactions == ["eyes"]
        assert [given["thread_ts"] for given in talk.slack.statuses] == [note.ts]
        await talk.channel.show_draft(draft("One two", chat_id, reply_to=message.dedupe_key))
        assert note.reactions == ["eyes"]
        await talk.send("One two", chat_id, draft_id="d", reply_to=message.dedupe_key)
        await talk.until(lambda: note.reactions == [])


async def test_no_reaction_for_a_stranger_or_without_an_emoji(opened: Opened) -> None:
    async with opened(react_emoji="") as talk:
        key = await talk.slack.say("hello")
        await talk.inbox.wait_for_stored(1)
        await talk.channel.show_typing("D0ANNA")
        assert talk.slack.note(key).reactions == []


# --- credentials


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"bot_token": ""}, f"channels.slack.bot_token is not set; copy it from {BOT}"),
        (
            {"bot_token": "xapp-1"},
            f"channels.slack.bot_token does not begin with xoxb-; copy it from {BOT}",
        ),
        (
            {"app_token": "xoxb-1"},
            f"channels.slack.app_token does not begin with xapp-; copy it from {APP}",
        ),
        (
            {"bot_token": "xoxb-wrong"},
            f"Slack does not accept channels.slack.bot_token (invalid_auth); copy it from {BOT}",
        ),
        (
            {"app_token": "xapp-wrong"},
            f"Slack does not accept channels.slack.app_token (invalid_auth); copy it from {APP}",
        ),
    ],
)
async def test_a_wrong_token_is_one_sentence(
    opened: Opened, section: dict[str, str], sentence: str
) -> None:
    async with opened(**section) as talk:
        with pytest.raises(CallFailed) as raised:
            await talk.task
    assert (raised.value.cause, str(raised.value)) == (Cause.CREDENTIALS, sentence)


@pytest.mark.parametrize(
    ("why", "words"),
    [
        ("token", "invalid_auth"),
        ("revoked", "install the app again"),
        ("permission", "lacks the scope chat:write"),
    ],
)
async def test_refused_credentials_are_reported(opened: Opened, why: str, words: str) -> None:
    async with opened() as talk:
        await talk.until(lambda: bool(talk.slack.sockets))
        talk.slack.refuse_credentials(why)
        with pytest.raises(CallFailed, match=words) as raised:
            await talk.channel.login()
        assert raised.value.cause is Cause.CREDENTIALS
        with pytest.raises(DeliveryError) as failed:
            await talk.send("hello")
        assert failed.value.retryable


async def test_no_token_text_or_address_is_logged(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with opened() as talk:
        await talk.slack.say("a secret")
        await talk.inbox.wait_for_stored(1)
        await talk.send("another secret")
    written = caplog.text
    assert not any(word in written for word in ("xoxb-", "xapp-", "ticket", "secret"))


async def test_the_proxy_of_the_environment_is_not_used(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with opened() as talk:
        await talk.send("hello")
        assert len(talk.answers()) == 1


async def test_the_proxy_of_the_settings_is_used(opened: Opened) -> None:
    async with opened(proxy="http://127.0.0.1:9") as talk:
        with pytest.raises(CallFailed, match=r"auth\.test: no connection to Slack") as raised:
            await talk.task
    assert raised.value.cause is Cause.UNREACHABLE
