"""What a person on DingTalk sees, and what the platform gets, with the local DingTalk."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nanobot_core import DeliveryError, OutboundMessage, SystemClock
from nanobot_core.chat import CallFailed, Cause, ChatChannel
from nanobot_core.testing import (
    ChatFile,
    FakePluginContext,
    LocalResponse,
    RecordingInbox,
    answers,
    load_stand_in,
)
from nanobot_dingtalk.channel import build_channel

LocalDingTalk: Any = load_stand_in(Path(__file__).with_name("local_dingtalk.py"))
LIMIT_S = 10.0
Platform: TypeAlias = Any
"""The module of the local DingTalk is loaded by path, so its types are unknown here."""
REPLY, GROUP_PUSH = "/robot/sendBySession", "/v1.0/robot/groupMessages/send"
PUSH = "/v1.0/robot/oToMessages/batchSend"


@dataclass
class Talk:
    """A running channel and its platform."""

    channel: ChatChannel
    inbox: RecordingInbox
    ctx: FakePluginContext
    platform: Platform

    async def send(self, content: str = "", chat_id: str = "anna01", **fields: Any) -> None:
        message = OutboundMessage(channel="dingtalk", chat_id=chat_id, content=content, **fields)
        await self.channel.send(message)

    def texts(self, chat_id: str = "anna01") -> list[str]:
        return [shown.text for shown in answers(self.platform, chat_id)]

    def sent(self) -> list[str]:
        return [path for path in self.platform.calls if path in {REPLY, PUSH, GROUP_PUSH}]


@asynccontextmanager
async def running(
    platform: Platform, folder: Path, inbox: RecordingInbox | None = None, **section: Any
) -> AsyncIterator[Talk]:
    settings = platform.section() | section
    ctx = FakePluginContext(folder, settings=settings, plugin_id="dingtalk", clock=SystemClock())
    channel, inbox = build_channel(ctx), inbox or RecordingInbox()
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


async def test_a_group_message_is_answered_in_the_group(tmp_path: Path) -> None:
    async with LocalDingTalk() as platform, running(platform, tmp_path) as talk:
        await platform.say("not for the agent", chat=platform.group)
        key = await platform.say("hello", chat=platform.group, sender=platform.bert, mention=True)
        await talk.inbox.wait_for_stored(1)
        (message,) = talk.inbox.stored
        assert (message.sender_id, message.chat_id) == ("bert02", platform.group)
        assert (message.content, message.dedupe_key) == ("hello", key)
        assert message.is_group
        assert message.is_addressed
        assert message.sender_names == ()
        await talk.send("**Hello**\nBert", platform.group)
        (shown,) = answers(platform, platform.group)
        assert (shown.text, shown.spans) == ("Hello\nBert", (("bold", "Hello"),))
        assert talk.sent() == [REPLY]


async def test_each_person_of_a_group_can_have_a_session(tmp_path: Path) -> None:
    async with (
        LocalDingTalk() as platform,
        running(platform, tmp_path, group_user_isolation=True) as talk,
    ):
        await platform.say("hello", chat=platform.group, mention=True)
        await platform.say("hello")
        await talk.inbox.wait_for_stored(2)
        keys = {message.session_key for message in talk.inbox.stored}
        assert keys == {f"dingtalk:{platform.group}:anna01", "dingtalk:anna01"}


async def test_an_answer_after_the_webhook_has_expired_is_pushed(tmp_path: Path) -> None:
    async with LocalDingTalk() as platform, running(platform, tmp_path) as talk:
        platform.webhook_life_s = 59.0  # within the margin
        await platform.say("a long task", chat=platform.group, mention=True)
        await talk.inbox.wait_for_stored(1)
        await talk.send("one", platform.group)
        assert talk.sent() == [GROUP_PUSH]

        platform.webhook_life_s = 5_400.0
        await platform.say("another")
        await talk.inbox.wait_for_stored(2)
        expired = LocalResponse({"errcode": 300001, "errmsg": "session 不存在"})
        platform.answers[REPLY] = [expired]
        await talk.send("two")
        await talk.send("three")
        assert talk.sent()[1:] == [REPLY, PUSH, PUSH]
        assert talk.texts() == ["two", "three"]


async def test_the_webhook_outlives_the_process_and_others_are_not_called(tmp_path: Path) -> None:
    async with LocalDingTalk() as platform:
        async with running(platform, tmp_path) as talk:
            await platform.say("hello")
            file = tmp_path / "data" / "dingtalk" / "reply-routes.json"
            await until(file.exists)
            assert file.stat().st_mode & 0o077 == 0
        async with running(platform, tmp_path) as talk:
            await talk.send("after the restart")
            assert talk.sent() == [REPLY]
            foreign = platform._message("m9", platform.bert, "bert02") | {
                "sessionWebhook": "https://evil.example/robot?session=1",
                "msgtype": "text",
                "text": {"content": "hi"},
            }
            platform.offer(foreign)
            await until(lambda: any(m.sender_id == "bert02" for m in talk.inbox.stored))
            await talk.send("not to a stranger's server", "bert02")
            assert talk.sent()[-1] == PUSH


async def test_a_planned_end_loses_no_message_and_repeats_none(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalDingTalk() as platform, running(platform, tmp_path, inbox) as talk:
        inbox.hold()
        await platform.say("one")
        await inbox.wait_for_attempts(1)
        await platform.disconnect()
        await platform.say("two")
        await until(lambda: len(platform.lines) == 2)
        inbox.let_go()
        await until(lambda: len(platform.acknowledged) == 2)
        assert [message.content for message in talk.inbox.stored] == ["one", "two"]


async def test_a_silent_stream_ends_the_channel(tmp_path: Path) -> None:
    async with LocalDingTalk() as platform:
        ctx = FakePluginContext(tmp_path, settings=platform.section(), clock=SystemClock())
        channel = build_channel(ctx)
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            silencing = group.create_task(_silence(platform))
            with pytest.raises(CallFailed, match="sent nothing for"):
                await channel.start(RecordingInbox())
        assert silencing.done()
        await channel.stop()


async def _silence(platform: Platform) -> None:
    await until(lambda: len(platform.lines) == 1)
    await platform.go_silent()


async def test_duplicates_and_events_of_other_kinds_are_acknowledged(tmp_path: Path) -> None:
    async with LocalDingTalk() as platform, running(platform, tmp_path) as talk:
        await until(lambda: len(platform.lines) == 1)
        connection = platform.lines[0].connection
        for text in ("not json", "[]", '{"type": "EVENT", "headers": {"topic": "x"}}', "{}"):
            await connection.send(text)
        platform.offer({"msgId": "broken"})
        platform.duplicate_next()
        await platform.say("once")
        await until(lambda: len(platform.acknowledged) == 2)
        assert [message.content for message in talk.inbox.stored] == ["once"]


async def test_files_arrive_and_leave(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>hi</p>")
    picture = tmp_path / "chart.png"
    picture.write_bytes(b"PNG")
    async with LocalDingTalk() as platform, running(platform, tmp_path) as talk:
        await platform.say("look", files=[ChatFile("a.png", b"one", "image")])
        await platform.say(files=[ChatFile("notes.pdf", b"two")])
        await talk.inbox.wait_for_stored(2)
        first, second = talk.inbox.stored
        assert first.content == "look"
        assert [Path(path).read_bytes() for path in (*first.media, *second.media)] == [
            b"one",
            b"two",
        ]
        assert Path(second.media[0]).name.endswith("notes.pdf")

        await talk.send("here", media=(str(picture), str(page)))
        text, image, zipped = answers(platform, "anna01")
        assert text.text == "here"
        assert (image.files[0].kind, image.files[0].content) == ("image", b"PNG")
        assert zipped.files[0].name == "page.zip"
        with zipfile.ZipFile(io.BytesIO(zipped.files[0].content)) as archive:
            assert archive.read("page.html") == b"<p>hi</p>"


async def test_a_token_that_ends_early_is_renewed_once(tmp_path: Path) -> None:
    async with LocalDingTalk() as platform, running(platform, tmp_path) as talk:
        await talk.send("one")
        platform.tokens.clear()
        await talk.send("two")
        assert talk.texts() == ["one", "two"]
        assert platform.calls.count("/v1.0/oauth2/accessToken") == 2
        assert all(secret.startswith("canary") for secret in talk.ctx.concealed["access token"])


async def test_a_blocked_recipient_is_final_and_a_limit_is_not(tmp_path: Path) -> None:
    async with LocalDingTalk() as platform, running(platform, tmp_path) as talk:
        platform.block("bert02")
        with pytest.raises(DeliveryError, match="does not know this person") as raised:
            await talk.send("hello", "bert02")
        assert not raised.value.retryable

        await platform.say("hello")
        await talk.inbox.wait_for_stored(1)
        platform.answers[REPLY] = [LocalResponse({"errcode": 130101, "errmsg": "send too fast"})]
        with pytest.raises(DeliveryError, match="too many calls") as raised:
            await talk.send("later")
        assert raised.value.retryable

        platform.answers[PUSH] = [LocalResponse({"flowControlledStaffIdList": ["carl"]})]
        with pytest.raises(DeliveryError, match="too many messages") as raised:
            await talk.send("later", "carl")
        assert raised.value.retryable


async def test_a_person_without_a_staff_id_gets_replies_only(tmp_path: Path) -> None:
    async with LocalDingTalk() as platform, running(platform, tmp_path) as talk:
        platform.names_staff = False
        platform.webhook_life_s = 1.0
        await platform.say("hello")
        await talk.inbox.wait_for_stored(1)
        chat = talk.inbox.stored[0].chat_id
        assert chat == "$:LWCP_v1:$anna01"
        with pytest.raises(DeliveryError, match="only for replies"):
            await talk.send("too late", chat)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"client_id": ""}, "are empty"),
        ({"client_secret": "wrong"}, "does not accept the credentials"),
    ],
)
async def test_wrong_credentials_are_one_sentence_with_the_page(
    tmp_path: Path, section: dict[str, str], said: str
) -> None:
    async with LocalDingTalk() as platform:
        settings = platform.section() | section
        ctx = FakePluginContext(tmp_path, settings=settings, clock=SystemClock())
        channel = build_channel(ctx)
        with pytest.raises(CallFailed) as raised:
            await channel.login()
        await channel.stop()
        assert raised.value.cause is Cause.CREDENTIALS
        assert said in raised.value.reason
        assert "open-dev.dingtalk.com" in raised.value.reason
        assert "client_secret" in raised.value.reason
        assert "wrong" not in raised.value.reason


async def test_a_missing_permission_names_it(tmp_path: Path) -> None:
    async with LocalDingTalk() as platform, running(platform, tmp_path) as talk:
        platform.refuse_credentials("permission")
        with pytest.raises(DeliveryError, match="qyapi_robot_sendmsg"):
            await talk.send("hello")
