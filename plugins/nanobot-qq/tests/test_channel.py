"""What a person on QQ sees, and what the platform gets, with the local QQ."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nanobot_core import Button, Clock, DeliveryError, OutboundMessage, SystemClock
from nanobot_core.chat import CallFailed, Cause, ChatChannel
from nanobot_core.testing import (
    ChatFile,
    FakePluginContext,
    LocalResponse,
    RecordingInbox,
    answers,
    load_stand_in,
)
from nanobot_qq.channel import build_channel

LocalQQ: Any = load_stand_in(Path(__file__).with_name("local_qq.py"))
LIMIT_S = 10.0
Platform: TypeAlias = Any
"""The module of the local QQ is loaded by path, so its types are unknown here."""
ANNA, BERT = "ANNA0A1B", "BERT0C2D"
BUTTONS = ((Button("Allow", "/approve 1"), Button("Deny", "/deny 1")),)


@dataclass
class Talk:
    """A running channel and its platform."""

    channel: ChatChannel
    inbox: RecordingInbox
    platform: Platform

    async def send(self, content: str = "", chat_id: str = ANNA, **fields: Any) -> None:
        await self.channel.send(
            OutboundMessage(channel="qq", chat_id=chat_id, content=content, **fields)
        )

    async def asked(self, text: str = "hello", **fields: Any) -> str:
        """Let a person write, and return the id of the stored message."""
        count = len(self.inbox.stored)
        key: str = await self.platform.say(text, **fields)
        await self.inbox.wait_for_stored(count + 1)
        return key

    def texts(self, chat_id: str = ANNA) -> list[str]:
        return [shown.text for shown in answers(self.platform, chat_id)]

    def sent(self) -> list[tuple[str, int]]:
        """Return message and number of each call that answers a message."""
        bodies = [body for path, body in self.platform.calls if path.endswith("/messages")]
        return [(body["msg_id"], body["msg_seq"]) for body in bodies if "msg_id" in body]


@asynccontextmanager
async def running(
    platform: Platform,
    folder: Path,
    inbox: RecordingInbox | None = None,
    clock: Clock | None = None,
    **section: Any,
) -> AsyncIterator[Talk]:
    settings = platform.section() | section
    ctx = FakePluginContext(folder, settings=settings, plugin_id="qq", clock=clock or SystemClock())
    channel, inbox = build_channel(ctx), inbox or RecordingInbox()
    async with asyncio.timeout(3 * LIMIT_S), ctx, asyncio.TaskGroup() as group:
        group.create_task(channel.start(inbox))
        try:
            yield Talk(channel, inbox, platform)
        finally:
            await channel.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - the platform has no event to wait for
            await asyncio.sleep(0.01)


# --- answers


async def test_a_group_message_is_answered_in_the_group(tmp_path: Path) -> None:
    async with LocalQQ() as platform, running(platform, tmp_path) as talk:
        await platform.say("not for the agent", chat=platform.group)
        key = await talk.asked(chat=platform.group, sender=platform.bert, mention=True)
        (message,) = talk.inbox.stored
        assert (message.sender_id, message.chat_id) == (BERT, platform.group)
        assert (message.content, message.dedupe_key) == ("hello", key)
        assert message.sender_names == ()
        await talk.send("**Hello**\nBert", platform.group)
        (shown,) = answers(platform, platform.group)
        assert (shown.text, shown.spans) == ("Hello\nBert", (("bold", "Hello"),))
        assert talk.sent() == [(key, 1)]


async def test_a_lost_answer_is_repeated_with_its_number_after_a_restart(tmp_path: Path) -> None:
    async with LocalQQ() as platform:
        async with running(platform, tmp_path) as talk:
            key = await talk.asked()
            await talk.send("one", idempotency_key="a")
            platform.lost_answers = 1
            with pytest.raises(DeliveryError) as raised:
                await talk.send("two", idempotency_key="b")
            assert raised.value.retryable
        async with running(platform, tmp_path) as talk:
            await talk.send("two", idempotency_key="b")
            await talk.send("three", idempotency_key="c")
            assert talk.texts() == ["one", "two", "three"]
            assert talk.sent() == [(key, 1), (key, 2), (key, 2), (key, 3)]


async def test_a_lost_answer_is_not_doubled_when_qq_is_busy_with_its_repetition(
    tmp_path: Path,
) -> None:
    async with LocalQQ() as platform, running(platform, tmp_path) as talk:
        key = await talk.asked()
        platform.lost_answers = 1
        with pytest.raises(DeliveryError):
            await talk.send("one", idempotency_key="a")
        platform.busy(0.1, times=1)
        with pytest.raises(DeliveryError):
            await talk.send("one", idempotency_key="a")
        await talk.send("one", idempotency_key="a")
        assert talk.texts() == ["one"]
        assert talk.sent() == [(key, 1), (key, 1), (key, 1)]


async def test_a_number_that_is_taken_by_another_message_is_not_a_success(tmp_path: Path) -> None:
    async with LocalQQ() as platform:
        async with running(platform, tmp_path) as talk:
            key = await talk.asked()
            await talk.send("one", idempotency_key="a")
        for file in (tmp_path / "data" / "qq").glob("reply-*.json"):
            file.unlink()
        async with running(platform, tmp_path) as talk:
            await talk.send("two", idempotency_key="b", reply_to=key)
            assert talk.texts() == ["one", "two"]
            assert talk.sent() == [(key, 1), (key, 1), (key, 2)]


async def test_the_sixth_answer_waits_for_the_next_message(tmp_path: Path) -> None:
    async with LocalQQ() as platform:
        async with running(platform, tmp_path) as talk:
            await talk.asked()
            for number in range(4):
                await talk.send(f"{number}", idempotency_key=f"{number}")
            await talk.send("I am looking", kind="progress", idempotency_key="p")
            await talk.send("4", idempotency_key="4")
            calls = len(platform.calls)
            with pytest.raises(DeliveryError, match="when someone writes") as raised:
                await talk.send("5", idempotency_key="5")
            assert raised.value.retryable
            assert len(platform.calls) == calls
        async with running(platform, tmp_path) as talk:
            with pytest.raises(DeliveryError, match="when someone writes"):
                await talk.send("5", idempotency_key="5")
            await talk.asked("go on")
            await talk.send("5", idempotency_key="5")
            assert talk.texts() == ["0", "1", "2", "3", "4", "5"]


async def test_answers_to_many_messages_use_the_calls_of_all_of_them(tmp_path: Path) -> None:
    async with LocalQQ() as platform, running(platform, tmp_path) as talk:
        first, second = [await talk.asked(f"{number}") for number in range(2)]
        for number in range(10):
            await talk.send(f"{number}", idempotency_key=f"{number}")
        assert talk.texts() == [f"{number}" for number in range(10)]
        assert talk.sent()[4:6] == [(second, 5), (first, 1)]
        with pytest.raises(DeliveryError, match="when someone writes"):
            await talk.send("10")


@pytest.mark.parametrize(("place", "seconds"), [("private", 3_600.0), ("group", 300.0)])
async def test_an_expired_message_is_reported_and_the_newest_one_is_answered(
    tmp_path: Path, place: str, seconds: float
) -> None:
    async with LocalQQ() as platform, running(platform, tmp_path) as talk:
        chat = platform.group if place == "group" else ANNA
        first = await talk.asked("a long task", chat=chat, mention=True)
        platform.age(first, seconds)
        with pytest.raises(DeliveryError, match="60 minutes, in groups within 5") as raised:
            await talk.send("done", chat, idempotency_key="a")
        assert raised.value.retryable
        second = await talk.asked("and?", chat=chat, mention=True)
        await talk.send("done", chat, idempotency_key="a")
        assert talk.texts(chat) == ["done"]
        assert talk.sent() == [(first, 1), (second, 1)]


async def test_an_older_message_that_comes_again_does_not_become_the_newest(
    tmp_path: Path,
) -> None:
    async with LocalQQ() as platform, running(platform, tmp_path) as talk:
        key = await talk.asked()
        old = {
            "id": "ROBOT1.0_old!",
            "author": {"user_openid": ANNA},
            "content": "old",
            "timestamp": "2026-11-22T14:00:00+08:00",
        }
        platform.offer("C2C_MESSAGE_CREATE", old)
        await talk.inbox.wait_for_stored(2)
        await talk.send("answer")
        assert talk.sent() == [(key, 1)]


@pytest.mark.parametrize("is_allowed", [False, True])
async def test_active_messages_need_the_setting(tmp_path: Path, *, is_allowed: bool) -> None:
    async with (
        LocalQQ() as platform,
        running(platform, tmp_path, active_messages=is_allowed) as talk,
    ):
        platform.takes_active = True
        if is_allowed:
            await talk.send("a reminder")
            assert talk.texts() == ["a reminder"]
        else:
            with pytest.raises(DeliveryError, match="only answers") as raised:
                await talk.send("a reminder")
            assert not raised.value.retryable
        with pytest.raises(DeliveryError, match="not the id of a chat"):
            await talk.send("x", "../users/x")


async def test_a_refused_call_does_not_count_and_its_number_is_not_used_again(
    tmp_path: Path,
) -> None:
    async with LocalQQ() as platform, running(platform, tmp_path) as talk:
        key = await talk.asked()
        platform.busy(30.0, times=2)
        for _ in range(2):
            with pytest.raises(DeliveryError) as raised:
                await talk.send("one", idempotency_key="a")
            assert raised.value.retry_after_s == 30.0
        for number in range(5):
            await talk.send(f"{number}", idempotency_key=f"{number}")
        assert talk.sent()[-1] == (key, 7)
        assert len(talk.texts()) == 5


async def test_a_blocked_recipient_is_final(tmp_path: Path) -> None:
    async with LocalQQ() as platform, running(platform, tmp_path) as talk:
        await talk.asked(sender=platform.bert)
        platform.block(BERT)
        with pytest.raises(DeliveryError, match="does not accept messages") as raised:
            await talk.send("hello", BERT)
        assert not raised.value.retryable


# --- forms of an answer


async def test_what_the_bot_may_not_send_is_sent_as_text(tmp_path: Path) -> None:
    async with LocalQQ() as platform, running(platform, tmp_path) as talk:
        platform.takes_buttons = False
        await talk.asked()
        await talk.send("Run **it**?", buttons=BUTTONS)
        platform.takes_markdown = platform.takes_links = False
        await talk.send("see **<https://a.example.org/b>**")
        assert talk.texts() == ["Run it?", "see a[.]example[.]org/b"]
        platform.takes_markdown = platform.takes_buttons = True
        await talk.send("Run **it**?", buttons=BUTTONS)
        assert answers(platform, ANNA)[-1].buttons == ("Allow", "Deny")


async def test_the_default_format_is_plain(tmp_path: Path) -> None:
    async with LocalQQ() as platform, running(platform, tmp_path, msg_format="plain") as talk:
        able = talk.channel.capabilities
        assert (able.buttons, able.markdown) == (False, "none")
        await talk.asked()
        await talk.send("**b** and `c`")
        assert platform.calls[-1][1]["content"] == "b and c"
        assert platform.intents == 1 << 25


async def test_a_pressed_button_is_stored_and_confirmed(tmp_path: Path) -> None:
    async with LocalQQ() as platform, running(platform, tmp_path) as talk:
        key = await talk.asked()
        await talk.send("Run it?", buttons=BUTTONS)
        await platform.press(answers(platform, ANNA)[0], "Deny")
        await talk.inbox.wait_for_stored(2)
        press = talk.inbox.stored[1]
        assert (press.content, press.sender_id) == ("/deny 1", ANNA)
        await until(lambda: len(platform.confirmed_presses) == 1)
        assert platform.intents == 1 << 25 | 1 << 26
        await talk.send("Denied.", reply_to=press.dedupe_key)
        assert talk.sent()[-1] == (key, 2)


async def test_files_arrive_and_leave(tmp_path: Path) -> None:
    picture, notes = tmp_path / "chart.png", tmp_path / "notes.gif"
    picture.write_bytes(b"PNG")
    notes.write_bytes(b"GIF")
    async with LocalQQ() as platform, running(platform, tmp_path) as talk:
        await talk.asked("look", files=[ChatFile("a.png", b"one", "image")])
        (message,) = talk.inbox.stored
        assert [Path(path).read_bytes() for path in message.media] == [b"one"]
        await talk.send("here", media=(str(picture), str(notes)))
        files = [shown.files for shown in answers(platform, ANNA)]
        assert files == [
            (),
            (ChatFile("", b"PNG", "image"),),
            (ChatFile("notes.gif", b"GIF", "file"),),
        ]


async def test_a_very_long_answer_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    async with LocalQQ() as platform, running(platform, tmp_path) as talk:
        await talk.asked()
        whole = "The beginning.\n\n```\n" + "汉字 code\n" * 1_500 + "```\nThe end."
        await talk.send(whole, idempotency_key="a")
        text, file = answers(platform, ANNA)
        assert text.text.startswith("The beginning.")
        assert "The whole answer is in answer.md" in text.text
        assert file.files[0].content.decode() == whole
        assert not list(temporary.iterdir())


async def test_a_file_that_is_too_large_is_named_in_the_text(tmp_path: Path) -> None:
    large = tmp_path / "large.zip"
    with large.open("wb") as file:
        file.truncate(20 * 1024 * 1024 + 1)
    async with LocalQQ() as platform, running(platform, tmp_path) as talk:
        await talk.asked()
        await talk.send("here", media=(str(large),))
        assert "large.zip could not be sent: it is larger than 20 MB" in talk.texts()[0]


# --- the gateway


@pytest.mark.parametrize("end", ["close 4009", "operation 7"])
async def test_a_planned_end_is_resumed_after_the_stored_message(tmp_path: Path, end: str) -> None:
    inbox = RecordingInbox()
    async with LocalQQ() as platform, running(platform, tmp_path, inbox) as talk:
        inbox.hold()
        await platform.say("one")
        await inbox.wait_for_attempts(1)
        await (platform.close(4009) if end == "close 4009" else platform.order(7))
        await platform.say("two")
        await until(lambda: len(platform.resumed) == 1)
        inbox.let_go()
        await until(lambda: len(platform.acknowledged) == 2)
        assert [message.content for message in talk.inbox.stored] == ["one", "two"]
        assert (platform.identified, platform.resumed) == (1, [1])


async def test_a_session_outlives_a_restart(tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with LocalQQ() as platform:
        async with running(platform, tmp_path, inbox):
            await platform.say("one")
            await until(lambda: len(platform.acknowledged) == 1)
            inbox.hold()
            await platform.say("two")
            await inbox.wait_for_attempts(2)
        await platform.say("three")
        async with running(platform, tmp_path) as talk:
            await talk.inbox.wait_for_stored(2)
            assert [message.content for message in talk.inbox.stored] == ["two", "three"]
        assert (platform.identified, platform.resumed) == (1, [2])
        stored = json.loads((tmp_path / "data" / "qq" / "gateway.json").read_text())
        assert stored["session"]["app"] == "102000001"
        async with running(platform, tmp_path, app_id="999") as talk:
            with pytest.raises(CallFailed):
                await talk.channel.login()


@pytest.mark.parametrize("end", ["close 4006", "close 4905", "operation 9"])
async def test_a_session_that_is_over_is_replaced(tmp_path: Path, end: str) -> None:
    async with LocalQQ() as platform, running(platform, tmp_path) as talk:
        await talk.asked("one")
        kind, code = end.split()
        await (platform.close(int(code)) if kind == "close" else platform.order(int(code)))
        await until(lambda: platform.identified == 2)
        await talk.asked("two")
        assert platform.resumed == []


async def test_a_session_that_qq_forgot_is_replaced(tmp_path: Path) -> None:
    async with LocalQQ() as platform:
        async with running(platform, tmp_path) as talk:
            await talk.asked("one")
        platform.end_session()
        async with running(platform, tmp_path) as talk:
            await talk.asked("two")
            assert platform.identified == 2


async def test_an_old_token_is_renewed_and_the_session_resumed(tmp_path: Path) -> None:
    async with LocalQQ() as platform, running(platform, tmp_path) as talk:
        await talk.asked("one")
        await talk.send("1")
        platform.tokens.clear()
        await talk.send("2")
        assert talk.texts() == ["1", "2"]
        await platform.close(4004)
        await talk.asked("two")
        assert len(platform.resumed) == 1
        paths = [path for path, _ in platform.calls]
        assert paths.count("/app/getAppAccessToken") == 2


async def test_after_too_many_connections_it_waits_and_resumes(tmp_path: Path) -> None:
    waits: list[float] = []

    class QuickClock(SystemClock):
        async def sleep(self, delay_s: float) -> None:
            if delay_s >= 60:
                waits.append(delay_s)
            await super().sleep(0 if delay_s >= 60 else delay_s)

    async with LocalQQ() as platform, running(platform, tmp_path, clock=QuickClock()) as talk:
        await talk.asked("one")
        await platform.close(4008)
        await talk.asked("two")
        assert (platform.identified, len(platform.resumed), waits) == (1, 1, [60.0])


async def test_a_gateway_that_refuses_new_tokens_too_needs_the_owner(tmp_path: Path) -> None:
    async with LocalQQ() as platform:
        platform.refuses_tokens = True
        ctx = FakePluginContext(tmp_path, settings=platform.section(), clock=SystemClock())
        channel = build_channel(ctx)
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(CallFailed, match="does not accept the credentials"):
                await channel.start(RecordingInbox())
        await channel.stop()
        assert len(platform.tokens) == 2


async def test_duplicates_and_odd_events_are_settled(tmp_path: Path) -> None:
    async with LocalQQ() as platform, running(platform, tmp_path) as talk:
        platform.offer("NEW_KIND", {"id": "1"})
        platform.offer("GROUP_AT_MESSAGE_CREATE", {"id": "broken"})
        platform.offer("FRIEND_ADD", {"id": "2"})
        platform.duplicate_next()
        key = await talk.asked("once")
        await until(lambda: key in platform.acknowledged)
        await talk.asked("twice")
        assert [message.content for message in talk.inbox.stored] == ["once", "twice"]


@pytest.mark.parametrize("fault", ["silence", "a broken connection"])
async def test_a_lost_connection_ends_the_channel(tmp_path: Path, fault: str) -> None:
    async with LocalQQ() as platform:
        ctx = FakePluginContext(tmp_path, settings=platform.section(), clock=SystemClock())
        channel = build_channel(ctx)

        async def disturb() -> None:
            await until(lambda: platform.identified == 1)
            await (platform.go_silent() if fault == "silence" else platform.hang_up())

        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            group.create_task(disturb())
            with pytest.raises(CallFailed) as raised:
                await channel.start(RecordingInbox())
        assert raised.value.cause is Cause.UNREACHABLE
        await channel.stop()


# --- credentials


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"app_id": ""}, "are empty"),
        ({"secret": "wrong"}, "does not accept the credentials"),
    ],
)
async def test_wrong_credentials_are_one_sentence_with_the_page(
    tmp_path: Path, section: dict[str, str], said: str
) -> None:
    async with LocalQQ() as platform:
        settings = platform.section() | section
        ctx = FakePluginContext(tmp_path, settings=settings, clock=SystemClock())
        channel = build_channel(ctx)
        with pytest.raises(CallFailed) as raised:
            await channel.login()
        await channel.stop()
        assert raised.value.cause is Cause.CREDENTIALS
        assert said in raised.value.reason
        assert "q.qq.com" in raised.value.reason
        assert "secret" in raised.value.reason
        assert "wrong" not in raised.value.reason


@pytest.mark.parametrize(("why", "said"), [("permission", "Events"), ("revoked", "banned")])
async def test_a_refused_bot_names_the_reason(tmp_path: Path, why: str, said: str) -> None:
    async with LocalQQ() as platform:
        platform.refuse_credentials(why)
        ctx = FakePluginContext(tmp_path, settings=platform.section(), clock=SystemClock())
        channel = build_channel(ctx)
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(CallFailed, match=said) as raised:
                await channel.start(RecordingInbox())
        await channel.stop()
        assert raised.value.cause is Cause.CREDENTIALS
        assert all(secret.startswith("canary") for secret in ctx.concealed["access token"])


async def test_an_upload_that_fails_costs_no_answer(tmp_path: Path) -> None:
    picture = tmp_path / "chart.png"
    picture.write_bytes(b"PNG")
    async with LocalQQ() as platform, running(platform, tmp_path) as talk:
        await talk.asked()
        platform.answers = [LocalResponse({"code": 50055001, "message": "?"}, 500)]
        with pytest.raises(DeliveryError) as raised:
            await talk.send(media=(str(picture),), idempotency_key="a")
        assert raised.value.retryable
        await talk.send(media=(str(picture),), idempotency_key="a")
        assert len(answers(platform, ANNA)) == 1
