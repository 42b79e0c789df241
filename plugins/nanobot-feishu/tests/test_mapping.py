"""From Feishu's events to messages, and from its codes to failures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from nanobot_core import Button, JsonObject
from nanobot_core.chat import Cause, Piece, Received, RichText, render_markdown, split_rich
from nanobot_feishu import wire
from nanobot_feishu.card import LIMITS, build_card, packed
from nanobot_feishu.failure import CODES, StreamEnded, failure_of
from nanobot_feishu.mapping import read_message, read_press, with_quote
from nanobot_feishu.settings import FeishuSettings

BOT = "ou_bot"
MESSAGE: dict[str, Any] = {
    "message_id": "om_1",
    "chat_id": "oc_1",
    "chat_type": "group",
    "message_type": "text",
    "content": json.dumps({"text": "@_user_1 hello"}),
    "create_time": "1790000000000",
    "mentions": [{"key": "@_user_1", "id": {"open_id": BOT}, "name": "Nano"}],
}
SENDER: dict[str, Any] = {"sender_id": {"open_id": "ou_1"}, "sender_type": "user"}


def received(sender: dict[str, Any] | None = None, **fields: Any) -> Received | None:
    event = {"sender": sender or SENDER, "message": MESSAGE | fields}
    return read_message(wire.Received.model_validate(event), BOT)


def said(kind: str = "text", content: object = None, **fields: Any) -> str:
    packed_content = json.dumps(content) if content is not None else MESSAGE["content"]
    found = received(message_type=kind, content=packed_content, **fields)
    assert found is not None
    return found.message.content


def test_the_mention_of_the_bot_is_removed_and_others_are_named() -> None:
    found = received()
    assert found is not None
    assert (found.message.content, found.message.is_addressed) == ("hello", True)
    assert said(content={"text": "@_user_1, hello"}) == "hello"
    assert said(content={"text": "@_user_1/stop"}) == "/stop"
    mentions = [
        {"key": "@_user_1", "id": {"open_id": BOT}, "name": "Nano"},
        {"key": "@_user_10", "id": {"open_id": "ou_2"}, "name": "Ann\nx"},
    ]
    text = {"text": "ask @_user_10 and @_user_1"}
    assert said(content=text, mentions=mentions) == "ask @Ann x and"
    plain = received(mentions=None, content=json.dumps({"text": "hello"}))
    assert plain is not None
    assert not plain.message.is_addressed


def test_the_text_of_other_kinds() -> None:
    rows = [[{"tag": "text", "text": "see "}, {"tag": "a", "text": "it", "href": "https://a.b"}]]
    rows.append([{"tag": "img", "image_key": "k"}])
    rows.append([{"tag": "code_block", "language": "py", "text": "x"}])
    post = {"title": "T", "content": rows}
    expected = "T\nsee it (https://a.b)\n```py\nx\n```"
    for content in (post, {"zh_cn": post}, {"post": {"en_us": post}}):
        assert said("post", content) == expected
    found = received(message_type="post", content=json.dumps(post))
    assert found is not None
    assert [file.ref for file in found.files] == ["om_1:image:k"]
    assert said("sticker", {"file_key": "k"}) == "[sticker]"
    assert said("location", {"name": "Ulm", "latitude": "1", "longitude": "2"}) == (
        "[location: Ulm (1, 2)]"
    )
    card = {"title": "A", "elements": [[{"tag": "text", "text": "b"}]]}
    assert said("interactive", card) == "A b"
    assert "type 'hologram'" in said("hologram", {})


def test_topics_and_private_chats_have_ids_of_their_own() -> None:
    topic = received(thread_id="omt_1", root_id="om_0")
    first = received(thread_id="omt_1", root_id=None)
    private = received(chat_type="p2p")
    assert topic is not None
    assert first is not None
    assert private is not None
    ids = [found.message.chat_id for found in (topic, first, private)]
    assert ids == ["oc_1:om_0", "oc_1:om_1", "ou_1"]
    assert not private.message.is_group


def test_bots_and_unknown_senders_are_not_answered() -> None:
    for sender in (
        {"sender_id": {"open_id": "ou_2"}, "sender_type": "app"},
        {"sender_id": {"open_id": BOT}, "sender_type": "user"},
        {"sender_id": None, "sender_type": "user"},
    ):
        assert received(sender) is None


def test_a_quote_is_context_except_for_commands() -> None:
    found = received()
    command = received(content=json.dumps({"text": "/stop"}))
    assert found is not None
    assert command is not None
    quoted: JsonObject = {
        "msg_type": "text",
        "sender": {"id": "cli_1"},
        "body": {"content": '{"text": "plan"}'},
    }
    answered = with_quote(found, quoted, "cli_1").message
    assert answered.content == "[in reply to your message]\n> plan\nhello"
    assert with_quote(command, quoted, "cli_2").message.content == "/stop"
    assert with_quote(found, {}, "cli_1").message.content == "hello"


def test_a_button_belongs_to_its_chat() -> None:
    def press(sender: str, chat: str) -> Received | None:
        event = {
            "operator": {"open_id": sender},
            "action": {"value": {"nanobot": "/approve 1", "chat": chat}},
            "context": {"open_message_id": "om_2", "open_chat_id": "oc_x"},
        }
        return read_press(wire.Pressed.model_validate(event), "ev1")

    found = press("ou_2", "oc_1:om_0")
    assert found is not None
    assert (found.message.sender_id, found.message.chat_id) == ("ou_2", "oc_1:om_0")
    assert (found.message.content, found.message.dedupe_key) == ("/approve 1", "press:ev1")
    assert press("ou_2", "ou_2") is not None
    assert press("ou_2", "ou_1") is None
    assert press("ou_2", "") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KINDS = st.sampled_from(["text", "post", "interactive", "image", "file", "location", "new"])


@given(
    st.dictionaries(st.sampled_from([*sorted(MESSAGE), "thread_id", "root_id"]), JSON),
    KINDS,
    JSON.map(json.dumps),
)
def test_odd_fields_never_give_a_wrong_sender(odd: dict[str, Any], kind: str, body: str) -> None:
    message = MESSAGE | {"message_type": kind, "content": body} | odd
    try:
        parsed = wire.Received.model_validate({"sender": SENDER, "message": message})
    except ValidationError:
        return
    found = read_message(parsed, BOT)
    if found is not None:
        assert found.message.sender_id == "ou_1"
        place = found.message.chat_id
        assert place == "ou_1" or place.startswith(parsed.message.chat_id)


@pytest.mark.parametrize("code", sorted(CODES))
def test_each_code_has_its_cause(code: int) -> None:
    failure = failure_of(400, {"code": code, "msg": "?"})
    assert failure is not None
    assert (failure.cause, failure.reason) == CODES[code]


def test_other_codes() -> None:
    assert failure_of(200, {"code": 0}) is None
    assert failure_of(502, {}) is None
    assert isinstance(failure_of(400, {"code": 300309}), StreamEnded)
    unknown = failure_of(400, {"code": 4711, "msg": "no"})
    assert unknown is not None
    assert (unknown.cause, "4711" in unknown.reason) == (Cause.REFUSED, True)


@pytest.mark.parametrize("text", ["汉" * 9_000, '😀\0\\"' * 3_000, '**b** `c`\n"' * 500])
def test_each_part_fits_into_a_card(text: str) -> None:
    rows = ((Button("Allow", "x" * 64), Button("Deny", "y" * 64)),)
    for part in split_rich(render_markdown(text), LIMITS.text, LIMITS.measure):
        assert len(part.text) <= 6_000
        assert len(packed(packed(build_card(Piece(part, buttons=rows), "oc_1"))).encode()) < 30_000


def test_text_of_a_model_mentions_no_one() -> None:
    for text in ('<at id=all></at> `<at id="ou_1"></at>`', "```\n<at id=all></at>\n```"):
        card = build_card(Piece(render_markdown(text)), "oc_1")
        assert "<at" not in packed(card["body"])
    plain = build_card(Piece(RichText("<at id=all></at>")), "oc_1")
    assert plain["body"]["elements"][0]["text"]["tag"] == "plain_text"  # type: ignore[index,call-overload]


def test_the_settings_of_the_original_are_read() -> None:
    given_section = {
        "enabled": True,
        "appId": "cli_1",
        "appSecret": "canary",
        "allowFrom": ["ou_1"],
        "reactEmoji": "OK",
        "domain": "lark",
        "topicIsolation": False,
        "replyToMessage": True,
    }
    found = FeishuSettings.model_validate(given_section)
    assert (found.app_id, found.react_emoji, found.topic_isolation) == ("cli_1", "OK", False)
    assert found.address == "https://open.larksuite.com"
    assert "canary" not in repr(found)
