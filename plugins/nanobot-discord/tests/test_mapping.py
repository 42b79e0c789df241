"""What messages and interactions become."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from nanobot_core.chat import Attachment
from nanobot_discord import wire
from nanobot_discord.mapping import Place, Reader, created_at, oldest_id

ME = "900"
READER = Reader(ME)
HERE = Place("5", guild_id="3")
AUTHOR = {"id": "7", "username": "anna", "global_name": "Anna\nBerg"}


def described(**fields: Any) -> dict[str, Any]:
    return {"id": "175928847299117063", "channel_id": "5", "author": AUTHOR} | fields


def content(**fields: Any) -> str:
    message = wire.Message.model_validate(described(**fields))
    received = READER.read_message(message, HERE)
    return "" if received is None else received.message.content


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"content": f"<@{ME}> hi <@!{ME}>", "mentions": [{"id": ME}]}, "hi"),
        ({"content": "<@8> hi", "mentions": [{"id": "8", "username": "bert"}]}, "@bert hi"),
        ({"content": "<@8> hi"}, "@8 hi"),
        ({"content": "<a:dance:123> <:ok:4>"}, ":dance: :ok:"),
        ({"content": "x", "sticker_items": [{"name": "Wave"}]}, "x\n[sticker: Wave]"),
        (
            {
                "poll": {
                    "question": {"text": "When?"},
                    "answers": [{"poll_media": {"text": "now"}}, {"poll_media": {"text": "later"}}],
                }
            },
            "[poll: When? (now; later)]",
        ),
        (
            {"content": "yes", "type": 19, "referenced_message": described(content="Tea?")},
            "[in reply to Anna Berg]\n> Tea?\nyes",
        ),
        (
            {
                "content": "this",
                "referenced_message": described(attachments=[{"url": "u", "filename": "a.png"}]),
            },
            "[in reply to Anna Berg]\n> [a.png]\nthis",
        ),
        ({"content": "/stop", "referenced_message": described(content="Tea?")}, "/stop"),
        (
            {"message_snapshots": [{"message": {"content": "/stop"}}]},
            "[forwarded from an unknown sender]\n/stop",
        ),
        ({"content": "a \ud800 b".encode("utf-8", "replace").decode()}, "a ? b"),
    ],
)
def test_what_a_message_says(fields: dict[str, Any], expected: str) -> None:
    assert content(**fields) == expected


def test_a_forwarded_message_is_a_quotation_with_its_files() -> None:
    snapshot = {"content": "do it", "attachments": [{"url": "https://x/1", "size": 3}]}
    message = wire.Message.model_validate(described(message_snapshots=[{"message": snapshot}]))
    received = READER.read_message(message, HERE)
    assert received is not None
    assert received.message.is_forwarded
    assert received.files == (Attachment(ref="https://x/1", name="attachment", size=3),)


def test_times_are_those_of_the_ids() -> None:
    instant = created_at("175928847299117063")
    assert instant is not None
    assert instant.isoformat() == "2016-04-30T11:18:25.796000+00:00"
    assert int(oldest_id(instant)) <= 175928847299117063 < int(oldest_id(instant)) + (1 << 22)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
_FIELDS = [*wire.Message.model_fields, *wire.Interaction.model_fields]


@given(st.dictionaries(st.sampled_from(_FIELDS), json_values, max_size=6))
@settings(max_examples=300, deadline=None)
def test_any_event_is_read_or_refused_and_never_has_another_sender(odd: dict[str, Any]) -> None:
    extra = {"application_id": "1", "type": 2, "token": "t", "user": AUTHOR}
    for model in (wire.Message, wire.Interaction):
        event = (extra if model is wire.Interaction else {}) | described() | odd
        try:
            found = model.model_validate(event)
        except ValidationError:
            continue
        if isinstance(found, wire.Message):
            received = READER.read_message(found, HERE)
        else:
            received = READER.read_interaction(found, HERE)
        if received is None:
            continue
        senders = {str(AUTHOR["id"])} | {
            user["id"] if isinstance(user, dict) and isinstance(user.get("id"), str) else ""
            for user in (odd.get("author"), odd.get("user"), (odd.get("member") or {}))
        }
        assert received.message.sender_id in senders
        assert received.message.sender_id.isdecimal()
        assert received.message.chat_id == "5"
        assert received.message.is_group


@pytest.mark.parametrize(
    ("author", "message", "names"),
    [
        ({}, {}, ("anna",)),
        ({"discriminator": "0"}, {}, ("anna",)),
        ({"discriminator": "1234"}, {}, ()),
        ({"bot": True}, {}, ()),
        ({"discriminator": "0000"}, {"webhook_id": "7"}, ()),
        ({}, {"webhook_id": "7"}, ()),
    ],
)
def test_only_the_user_name_of_a_person_identifies(
    author: dict[str, Any], message: dict[str, Any], names: tuple[str, ...]
) -> None:
    reader = Reader(ME, allow_bots=frozenset({"7"}))
    fields = described(content="hi", author=AUTHOR | author, **message)
    received = reader.read_message(wire.Message.model_validate(fields), HERE)
    assert received is not None
    assert received.message.sender_names == names
