"""From DingTalk's frames to messages, and from its codes to failures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from nanobot_core import JsonObject
from nanobot_core.chat import Cause, Received, render_markdown, split_rich
from nanobot_dingtalk.client import encrypted, text_message
from nanobot_dingtalk.failure import CODES, EXPIRED, WebhookExpired, failure_of
from nanobot_dingtalk.mapping import read_message
from nanobot_dingtalk.platform import LIMITS, _written
from nanobot_dingtalk.settings import DingTalkSettings
from nanobot_dingtalk.wire import BotMessage, Frame, read_data

BASE: dict[str, Any] = {
    "msgId": "m1",
    "conversationId": "cid1",
    "conversationType": "1",
    "senderId": "$:s1",
    "senderStaffId": "anna01",
    "chatbotUserId": "$:robot",
    "robotCode": "ding1",
    "createAt": 1_790_000_000_000,
    "msgtype": "text",
    "text": {"content": " hello "},
}


def received(**fields: Any) -> Received | None:
    return read_message(BotMessage.model_validate(BASE | fields))


def said(**fields: Any) -> str:
    found = received(**fields)
    assert found is not None
    return found.message.content


def test_the_text_of_each_kind_of_message() -> None:
    assert said() == "hello"
    assert said(msgtype="audio", text=None, content={"recognition": "hi", "downloadCode": "c"}) == (
        "hi"
    )
    rich = [{"text": "see "}, {"text": "this", "downloadCode": "c", "type": "picture"}, "odd", None]
    assert said(msgtype="richText", text=None, content={"richText": rich}) == "see this"
    assert "type 'chatRecord'" in said(msgtype="chatRecord", text=None, content="[...]")
    assert "type 'newKind'" in said(msgtype="newKind", text=None, content={"a": 1})
    assert received(text={"content": "  "}) is None


def test_files_keep_the_robot_that_received_them() -> None:
    found = received(msgtype="picture", text=None, content={"downloadCode": "c:1"})
    assert found is not None
    assert [(file.ref, file.name) for file in found.files] == [("ding1:c:1", "picture.jpg")]
    voice = received(msgtype="audio", text=None, content={"downloadCode": "c", "recognition": ""})
    assert voice is not None
    assert voice.files[0].name == "voice.amr"


def test_a_quote_is_context_except_for_commands() -> None:
    quoted = {"msgType": "text", "content": {"text": "the\nplan"}}
    assert said(text={"content": "why?", "repliedMsg": quoted}) == (
        "[in reply to a message]\n> the plan\nwhy?"
    )
    assert said(text={"content": "/stop", "repliedMsg": quoted}) == "/stop"
    odd = {"msgType": "picture", "content": "x"}
    assert said(text={"content": "why?", "repliedMsg": odd}).startswith("[in reply to")


def test_the_agent_does_not_answer_itself() -> None:
    assert received(senderId="$:robot") is None
    assert received(senderStaffId="group:cid1") is None


def test_names_cannot_match_as_senders() -> None:
    found = received(senderNick="anna\n01|x")
    assert found is not None
    assert (found.message.sender_id, found.message.sender_names) == ("anna01", ())
    assert found.message.metadata["name"] == "anna 01|x"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*sorted(BASE), "content", "isInAtList"]), JSON))
def test_odd_fields_never_give_a_wrong_sender(odd: dict[str, Any]) -> None:
    try:
        message = BotMessage.model_validate(BASE | odd)
    except ValidationError:
        return
    found = read_message(message)
    if found is not None:
        staff = message.sender_staff_id
        assert found.message.sender_id == (staff or message.sender_id)
        chats = {found.message.sender_id, f"group:{message.conversation_id}"}
        assert found.message.chat_id in chats


@given(st.text() | JSON.map(json.dumps))
def test_what_a_frame_carries_is_an_object_or_nothing(data: str) -> None:
    assert isinstance(read_data(Frame(type="CALLBACK", data=data)), dict)


@pytest.mark.parametrize("code", sorted(CODES))
def test_each_code_has_its_cause(code: str) -> None:
    answer: JsonObject = {"code": code, "message": "拒绝"}
    if code.lstrip("-").isdigit():
        answer = {"errcode": int(code), "errmsg": "拒绝"}
    failure = failure_of(400, answer)
    assert failure is not None
    assert failure.cause is CODES[code][0]
    if failure.cause is Cause.CREDENTIALS:
        assert "open-dev.dingtalk.com" in failure.reason


@pytest.mark.parametrize(
    ("status", "answer", "cause"),
    [
        (200, {"errcode": 0, "errmsg": "ok"}, None),
        (200, {"processQueryKey": "x"}, None),
        (200, {"errcode": 12345, "errmsg": "?"}, Cause.REFUSED),
        (400, {"code": "staffId.notExisted"}, Cause.FORBIDDEN),
        (400, {"code": "Throttling.User"}, Cause.BUSY),
        (403, {"code": "Forbidden.AccessDenied.QpsLimitForNewThing"}, Cause.BUSY),
        (401, {}, Cause.CREDENTIALS),
        (503, {"code": "ServiceUnavailable"}, None),
        (404, {}, None),
    ],
)
def test_other_answers(status: int, answer: JsonObject, cause: Cause | None) -> None:
    failure = failure_of(status, answer)
    assert (failure.cause if failure else None) is cause


@pytest.mark.parametrize("code", sorted(EXPIRED))
def test_an_expired_webhook_is_recognised(code: str) -> None:
    assert isinstance(failure_of(200, {"errcode": int(code)}), WebhookExpired)


@pytest.mark.parametrize("text", ["汉" * 9_000, "😀\0\\" * 4_000, "**b** `c`\n" * 500])
def test_each_part_fits_into_both_ways_of_sending(text: str) -> None:
    parts = split_rich(render_markdown(text), LIMITS.text, LIMITS.measure)
    for part in parts:
        written = _written(part)
        assert len(written) <= 3_500
        reply, _, param = text_message("x" * 60, written, is_markdown=True)
        assert len(param.encode()) <= 15_000
        assert len(json.dumps(reply, ensure_ascii=False).encode()) <= 20_000


def test_files_are_not_fetched_in_clear_text() -> None:
    assert encrypted("http://cdn.example/f?s=1", "https://api.example") == (
        "https://cdn.example/f?s=1"
    )
    assert encrypted("http://127.0.0.1:1/f", "http://127.0.0.1:1") == "http://127.0.0.1:1/f"


def test_the_settings_of_the_original_are_read() -> None:
    found = DingTalkSettings.model_validate(
        {
            "enabled": True,
            "clientId": "ding1",
            "clientSecret": "canary",
            "allowFrom": ["1"],
            "groupUserIsolation": True,
        }
    )
    assert (found.client_id, found.allow_from, found.group_user_isolation) == ("ding1", ["1"], True)
    assert "canary" not in repr(found)
