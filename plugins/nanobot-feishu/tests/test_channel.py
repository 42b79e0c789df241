"""What a person on Feishu sees, and what the platform gets, with the local Feishu."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nanobot_core import Button, DeliveryError, Draft, OutboundMessage, SystemClock
from nanobot_core.chat import CallFailed, Cause, ChatChannel
from nanobot_core.testing import (
    ChatFile,
    FakePluginContext,
    LocalResponse,
    RecordingInbox,
    answers,
    load_stand_in,
)
from nanobot_feishu.channel import build_channel

LocalFeishu: Any = load_stand_in(Path(__file__).with_name("local_feishu.py"))
LIMIT_S = 10.0
Platform: TypeAlias = Any
"""The module of the local Feishu is loaded by path, so its types are unknown here."""


@dataclass
class Talk:
    """A running channel and its platform."""

    channel: ChatChannel
    inbox: RecordingInbox
    ctx: FakePluginContext
    platform: Platform

    async def send(self, content: str = "", chat_id: str = "ou_anna", **fields: Any) -> None:
        message = OutboundMessage(channel="feishu", chat_id=chat_id, content=content, **fields)
        await self.channel.send(message)

    def texts(self, chat_id: str = "ou_anna") -> list[str]:
        return [shown.text for shown in answers(self.platform, chat_id)]


@asynccontextmanager
async def running(platform: Platform, folder: Path, **section: Any) -> AsyncIterator[Talk]:
    settings = platform.section() | section
    ctx = FakePluginContext(folder, settings=settings, plugin_id="feishu", clock=SystemClock())
    channel, inbox = build_channel(ctx), RecordingInbox()
    async with asyncio.timeout(3 * LIMIT_S), ctx, asyncio.TaskGroup() as group:
        group.create_task(channel.start(inbox))
        try:
            yield Talk(channel, inbox, ctx, platform)
        finally:
            await channel.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - the platform has no event to wait for
            await asyncio.sleep(0.01)


async def test_an_answer_grows_in_one_card_that_is_no_longer_written_at_the_end(
    tmp_path: Path,
) -> None:
    async with LocalFeishu() as platform, running(platform, tmp_path) as talk:
        for text in ("Once", "Once **upon** a time", "Once **upon** a time."):
            await talk.channel.show_draft(Draft(id="d", chat_id="ou_anna", content=text))
            (shown,) = answers(platform, "ou_anna")
            assert shown.text == text.replace("*", "")
        (card,) = platform.cards.values()
        assert card.is_streaming
        buttons = ((Button("More", "more"),),)
        await talk.send("Once **upon** a time.", draft_id="d", buttons=buttons)
        (shown,) = answers(platform, "ou_anna")
        assert (shown.text, shown.buttons) == ("Once upon a time.", ("More",))
        assert not card.is_streaming
        assert card.sequence == 4


async def test_a_card_whose_streaming_ended_by_itself_goes_on(tmp_path: Path) -> None:
    async with LocalFeishu() as platform, running(platform, tmp_path) as talk:
        await talk.channel.show_draft(Draft(id="d", chat_id="ou_anna", content="one"))
        (card,) = platform.cards.values()
        card.content["config"]["streaming_mode"] = False
        await talk.channel.show_draft(Draft(id="d", chat_id="ou_anna", content="one two"))
        assert talk.texts() == ["one two"]
        await talk.channel.drop_draft("ou_anna", "d")
        assert talk.texts() == []


async def test_a_pressed_button_is_a_message_of_its_chat(tmp_path: Path) -> None:
    async with LocalFeishu() as platform, running(platform, tmp_path) as talk:
        buttons = ((Button("Allow", "/approve 1"), Button("Deny", "/deny 1")),)
        await talk.send("Run it?", platform.group, buttons=buttons)
        (shown,) = answers(platform, platform.group)
        assert shown.buttons == ("Allow", "Deny")
        await platform.press(shown, "Allow", sender=platform.bert)
        await talk.inbox.wait_for_stored(1)
        (message,) = talk.inbox.stored
        assert (message.sender_id, message.chat_id) == ("ou_bert", platform.group)
        assert message.content == "/approve 1"
        await until(lambda: bool(platform.answered))
        (answer,) = platform.answered.values()
        assert answer["toast"]["type"] == "info"


async def test_a_topic_is_answered_in_its_thread(tmp_path: Path) -> None:
    async with LocalFeishu() as platform, running(platform, tmp_path) as talk:
        root = await platform.say("a topic", chat=platform.group, mention=True)
        await talk.inbox.wait_for_stored(1)
        await talk.send("in the thread", f"{platform.group}:{root}")
        assert f"POST /open-apis/im/v1/messages/{root}/reply" in platform.calls
        assert talk.texts(platform.group) == ["in the thread"]
        with pytest.raises(DeliveryError, match="is not a chat of Feishu"):
            await talk.send("hello", "../../evil")


async def test_messages_are_confirmed_by_a_reaction_and_quote_each_other(tmp_path: Path) -> None:
    async with (
        LocalFeishu() as platform,
        running(platform, tmp_path, react_emoji="OK", reply_to_message=True) as talk,
    ):
        first = await platform.say("the plan")
        await platform.say("why?", quote=first)
        await talk.inbox.wait_for_stored(2)
        assert talk.inbox.stored[1].content == "[in reply to a message]\n> the plan\nwhy?"
        await until(lambda: len(platform.reactions) == 2)
        assert platform.reactions[0] == (first, "OK")
        await talk.send("because", reply_to=first)
        assert answers(platform, "ou_anna")[0].quotes == first


async def test_events_in_parts_and_of_other_kinds_are_taken(tmp_path: Path) -> None:
    async with LocalFeishu() as platform, running(platform, tmp_path) as talk:
        platform.parts = 3
        platform.offer("im.chat.updated_v1", {"x": 1}, "other")
        platform.offer("im.message.receive_v1", {"message": 1}, "broken")
        await until(lambda: len(platform.lines) == 1)
        await platform.lines[0].connection.send(b"\xff\xff")
        await platform.lines[0].connection.send("text")
        platform.duplicate_next()
        key = await platform.say("Grüße")
        await until(lambda: set(platform.answered) == {"other", "broken", key})
        assert [message.content for message in talk.inbox.stored] == ["Grüße"]


async def test_an_old_event_is_dropped(tmp_path: Path) -> None:
    async with LocalFeishu() as platform, running(platform, tmp_path) as talk:
        sender = {"sender_id": {"open_id": "ou_anna"}, "sender_type": "user"}
        message = {"message_id": "om_old", "chat_id": "oc_1", "chat_type": "p2p"}
        message |= {"message_type": "text", "content": '{"text": "old"}', "create_time": "1000"}
        event = {"sender": sender, "message": message}
        platform.offer("im.message.receive_v1", event, "om_old")
        await platform.say("new")
        await until(lambda: len(platform.acknowledged) == 2)
        assert [message.content for message in talk.inbox.stored] == ["new"]


async def test_files_arrive_and_leave(tmp_path: Path) -> None:
    names = {"a.png": "image", "b.ogg": "voice", "c.mp4": "video", "d.pdf": "file"}
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    async with LocalFeishu() as platform, running(platform, tmp_path) as talk:
        await platform.say("look", files=[ChatFile("p.png", b"one", "image")])
        await platform.say(files=[ChatFile("notes.pdf", b"two")])
        await talk.inbox.wait_for_stored(2)
        first, second = talk.inbox.stored
        assert first.content == "look"
        contents = [Path(path).read_bytes() for path in (*first.media, *second.media)]
        assert contents == [b"one", b"two"]
        await talk.send(media=tuple(str(tmp_path / name) for name in names))
        sent = [shown.files[0] for shown in answers(platform, "ou_anna")]
        assert {file.name: file.kind for file in sent} == {**names, "a.png": "image"}
        assert [file.content.decode() for file in sent] == list(names)


async def test_a_forged_key_of_a_file_reaches_no_other_address(tmp_path: Path) -> None:
    async with LocalFeishu() as platform, running(platform, tmp_path) as talk:
        sender = {"sender_id": {"open_id": "ou_anna"}, "sender_type": "user"}
        message = {"message_id": "om_x", "chat_id": "oc_1", "chat_type": "p2p"}
        message |= {"message_type": "image", "content": '{"image_key": "../../../bot/v3/info"}'}
        platform.offer("im.message.receive_v1", {"sender": sender, "message": message}, "om_x")
        await talk.inbox.wait_for_stored(1)
        assert talk.inbox.stored[0].media == ()
        assert "could not be fetched" in talk.inbox.stored[0].content
        assert not any("resources" in call for call in platform.calls)


async def test_an_unknown_outcome_is_repeated_with_the_same_key(tmp_path: Path) -> None:
    async with LocalFeishu() as platform, running(platform, tmp_path) as talk:
        await talk.send("hello", idempotency_key="k")
        (key,) = platform.keys
        assert len(key) == 40
        other = build_channel(talk.ctx)
        talk.ctx._shared.clear()  # as after a restart before the record
        again = build_channel(talk.ctx)
        message = OutboundMessage(
            channel="feishu", chat_id="ou_anna", content="hello", idempotency_key="k"
        )
        await again.send(message)
        await again.stop()
        await other.stop()
        assert talk.texts() == ["hello"]


async def test_refused_formatting_is_sent_plain_and_limits_are_not_final(tmp_path: Path) -> None:
    path = "/open-apis/im/v1/messages"
    async with LocalFeishu() as platform, running(platform, tmp_path) as talk:
        platform.answers[path] = [LocalResponse({"code": 230099, "msg": "11310"}, 400)]
        await talk.send("**bold**")
        (shown,) = answers(platform, "ou_anna")
        assert (shown.text, shown.spans) == ("bold", ())
        platform.busy(7.0)
        with pytest.raises(DeliveryError, match="too many calls") as raised:
            await talk.send("later")
        assert (raised.value.retryable, raised.value.retry_after_s) == (True, 7.0)
        platform.block("ou_bert")
        with pytest.raises(DeliveryError, match="stopped its messages") as raised:
            await talk.send("hello", "ou_bert")
        assert not raised.value.retryable
        platform.tokens.clear()
        await talk.send("with a new token")
        assert talk.texts()[-1] == "with a new token"


async def test_a_silent_connection_ends_the_channel(tmp_path: Path) -> None:
    async with LocalFeishu() as platform:
        platform.client_config["PingInterval"] = 0.2
        ctx = FakePluginContext(tmp_path, settings=platform.section(), clock=SystemClock())
        channel = build_channel(ctx)
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            silencing = group.create_task(_silence(platform))
            with pytest.raises(CallFailed, match="sent nothing for"):
                await channel.start(RecordingInbox())
        assert silencing.done()
        await channel.stop()


async def test_a_pong_changes_the_interval(tmp_path: Path) -> None:
    async with LocalFeishu() as platform:
        platform.pong = b'{"PingInterval": 0.01}'
        async with running(platform, tmp_path):
            await until(lambda: platform.pings > 5)


async def _silence(platform: Platform) -> None:
    await until(lambda: len(platform.lines) == 1)
    await platform.go_silent()


@pytest.mark.parametrize(
    ("section", "said"),
    [({"app_id": ""}, "are empty"), ({"app_secret": "wrong"}, "does not accept the credentials")],
)
async def test_wrong_credentials_are_one_sentence_with_the_page(
    tmp_path: Path, section: dict[str, str], said: str
) -> None:
    async with LocalFeishu() as platform:
        settings = platform.section() | section
        ctx = FakePluginContext(tmp_path, settings=settings, clock=SystemClock())
        channel = build_channel(ctx)
        with pytest.raises(CallFailed) as raised:
            await channel.login()
        await channel.stop()
        assert raised.value.cause is Cause.CREDENTIALS
        assert said in raised.value.reason
        assert "open.feishu.cn" in raised.value.reason
        assert "wrong" not in raised.value.reason


async def test_a_missing_permission_names_the_page(tmp_path: Path) -> None:
    async with LocalFeishu() as platform, running(platform, tmp_path) as talk:
        platform.refuse_credentials("permission")
        with pytest.raises(DeliveryError, match="Permissions & Scopes"):
            await talk.send("hello")
