"""From QQ's events to messages, from its codes to failures, and from texts to messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from nanobot_core import Button
from nanobot_core.chat import (
    CallFailed,
    Cause,
    Piece,
    Received,
    render_markdown,
    split_rich,
    utf16_length,
)
from nanobot_qq.client import place_of
from nanobot_qq.failure import ACCEPTED, CODES, ENDED, MARKUP, QQFailed, after_close, failure_of
from nanobot_qq.mapping import instant, read_message, read_press
from nanobot_qq.platform import LIMITS
from nanobot_qq.settings import QQSettings
from nanobot_qq.text import broken_links, message_body, written
from nanobot_qq.wire import Interaction, Message

BASE: dict[str, Any] = {
    "id": "ROBOT1.0_a!",
    "content": " hello ",
    "timestamp": "2026-11-23T14:00:00+08:00",
    "author": {"id": "x", "user_openid": "ANNA", "member_openid": "ANNA_HERE"},
    "attachments": [],
}
PRESS: dict[str, Any] = {
    "id": "p1",
    "user_openid": "ANNA",
    "data": {"resolved": {"button_data": "/approve 1"}},
}


def received(**fields: Any) -> Received | None:
    return read_message(Message.model_validate(BASE | fields))


def test_each_kind_of_chat_has_ids_of_its_own() -> None:
    private, group = received(), received(group_openid="G1", content=" /status")
    assert private is not None
    assert group is not None
    assert (private.message.sender_id, private.message.chat_id) == ("ANNA", "ANNA")
    assert (private.message.content, private.message.dedupe_key) == ("hello", "ROBOT1.0_a!")
    assert (group.message.sender_id, group.message.chat_id) == ("ANNA_HERE", "group:G1")
    assert group.message.content == "/status"
    assert group.message.is_addressed
    assert (place_of("ANNA"), place_of("group:G1")) == ("/v2/users/ANNA", "/v2/groups/G1")


def test_attachments_have_an_address_and_a_name() -> None:
    files = [
        {"url": "//multimedia.qq.com/1", "content_type": "image/png"},
        {"url": "https://x.qpic.cn/2", "content_type": "voice", "size": 7},
        {"url": "https://x.qpic.cn/3", "filename": "a\n.pdf", "content_type": "file"},
        {"content_type": "image/png"},
        "odd",
    ]
    found = received(content="", attachments=files)
    assert found is not None
    assert [(file.ref, file.name, file.size) for file in found.files] == [
        ("https://multimedia.qq.com/1", "image.png", None),
        ("https://x.qpic.cn/2", "voice.silk", 7),
        ("https://x.qpic.cn/3", "a .pdf", None),
    ]


def test_bots_and_empty_messages_are_not_answered() -> None:
    assert received(author={"user_openid": "BOT", "bot": True}) is None
    assert received(content=" ") is None
    assert received(author={"member_openid": "ANNA_HERE"}) is None
    face = received(content='<faceType=1,faceId="5",ext="e30="> hi')
    assert face is not None
    assert face.message.content == "[emoji] hi"


def test_a_pressed_button_is_a_message() -> None:
    private = read_press(Interaction.model_validate(PRESS))
    assert private is not None
    assert (private.message.content, private.message.sender_id) == ("/approve 1", "ANNA")
    in_group = {"group_openid": "G1", "group_member_openid": "ANNA_HERE"}
    group = read_press(Interaction.model_validate(PRESS | in_group))
    assert group is not None
    assert (group.message.chat_id, group.message.sender_id) == ("group:G1", "ANNA_HERE")
    assert read_press(Interaction.model_validate(PRESS | {"data": None})) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*sorted(BASE), "group_openid"]), JSON))
def test_odd_fields_never_give_a_wrong_sender(odd: dict[str, Any]) -> None:
    try:
        message = Message.model_validate(BASE | odd)
    except ValidationError:
        return
    found = read_message(message)
    if found is not None:
        author, group = message.author, message.group_openid
        assert found.message.sender_id == (author.member_openid if group else author.user_openid)
        assert found.message.chat_id == (f"group:{group}" if group else author.user_openid)


@given(st.dictionaries(st.sampled_from([*sorted(PRESS), "group_member_openid"]), JSON))
def test_odd_presses_never_give_a_wrong_sender(odd: dict[str, Any]) -> None:
    try:
        press = Interaction.model_validate(PRESS | odd)
    except ValidationError:
        return
    found = read_press(press)
    if found is not None:
        assert found.message.sender_id in {press.user_openid, press.group_member_openid}


@given(st.text())
def test_any_time_is_read_or_left_out(text: str) -> None:
    found = instant(text)
    assert found is None or found.tzinfo is not None


@pytest.mark.parametrize("code", sorted(CODES))
def test_each_code_has_its_cause(code: int) -> None:
    failure = failure_of(400, {"code": code, "err_code": code, "message": "拒绝"})
    assert isinstance(failure, QQFailed)
    assert (failure.code, failure.cause) == (code, CODES[code][0])
    if failure.cause is Cause.CREDENTIALS:
        assert "q.qq.com" in failure.reason
        assert "app_id" in failure.reason


@pytest.mark.parametrize(
    ("status", "answer", "cause"),
    [
        (200, {"id": "1", "code": 0}, None),
        (202, {"code": 304023}, None),
        (400, {"code": 12345, "message": "?"}, Cause.REFUSED),
        (400, {"code": "40054013"}, Cause.FORBIDDEN),
        (400, {"code": 40034005}, Cause.REFUSED),
        (401, {"code": 999}, Cause.CREDENTIALS),
        (429, {"code": 999}, None),
        (500, {"code": 999}, None),
        (404, {"code": True}, None),
        (400, {"code": [1]}, None),
    ],
)
def test_other_answers(status: int, answer: dict[str, Any], cause: Cause | None) -> None:
    failure = failure_of(status, answer)
    assert (failure.cause if failure else None) is cause


def test_the_tables_of_codes_are_disjoint() -> None:
    assert not (ENDED | ACCEPTED) & CODES.keys()
    assert CODES.keys() > MARKUP


@pytest.mark.parametrize(
    ("codes", "step"),
    [
        ((4009,), "resume"),
        ((4006, 4007, 4900, 4905, 4913), "identify"),
        ((4004,), "token"),
        ((4008,), "wait"),
        ((1000, 1006, 4000, None), None),
    ],
)
def test_closes_that_the_channel_survives(codes: tuple[int | None, ...], step: object) -> None:
    assert {after_close(code) for code in codes} == {step}


@pytest.mark.parametrize("code", [4001, 4002, *range(4010, 4015), 4914, 4915])
def test_closes_that_the_owner_must_know(code: int) -> None:
    failure = after_close(code)
    assert isinstance(failure, CallFailed)
    assert failure.cause is Cause.CREDENTIALS
    assert str(code) in failure.reason


@pytest.mark.parametrize("text", ["汉" * 5_000, "😀\\*" * 3_000, "**b** `c`\n" * 500])
def test_each_part_fits_in_both_forms(text: str) -> None:
    for part in split_rich(render_markdown(text), LIMITS.text, LIMITS.measure):
        assert utf16_length(written(part, "markdown")) <= 2_000
        assert utf16_length(written(part, "text")) <= 2_000


def test_the_forms_of_a_text() -> None:
    buttons = tuple((Button("A very long label", "/v"),) * 6 for _ in range(6))
    piece = Piece(render_markdown("**see** <https://a.example.org/x.html>"), (), buttons)
    markdown = message_body(piece, "markdown")
    assert "**see**" in str(markdown["markdown"])
    keyboard: Any = markdown["keyboard"]
    rows = keyboard["content"]["rows"]
    assert [len(row["buttons"]) for row in rows] == [5] * 5
    assert len(rows[0]["buttons"][0]["render_data"]["label"]) <= 10
    assert message_body(piece, "text")["content"] == "see https://a.example.org/x.html"
    assert "a[.]example[.]org" in str(message_body(piece, "links"))
    assert broken_links("at 10.30, e.g. 3.5 of me") == "at 10.30, e.g. 3.5 of me"


@pytest.mark.parametrize("tag", ["<@!123>", '<qqbot-at-user id="1" />', "<qqbot-at-everyone />"])
def test_a_text_mentions_nobody(tag: str) -> None:
    rich = render_markdown(f"hi {tag} and `{tag}`")
    for form in ("markdown", "text"):
        assert tag not in written(rich, form)


def test_the_settings_of_the_original_are_read() -> None:
    original = {
        "enabled": True,
        "appId": "102",
        "secret": "canary",
        "allowFrom": ["1"],
        "msgFormat": "markdown",
    }
    found = QQSettings.model_validate(original)
    assert (found.app_id, found.allow_from, found.msg_format) == ("102", ["1"], "markdown")
    assert "canary" not in repr(found)
