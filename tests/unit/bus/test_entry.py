"""Stored messages: nothing is lost on the way, and what another version wrote is understood."""

from __future__ import annotations

import json
from datetime import UTC

import pytest
from hypothesis import given, strategies as st

from nanobot_core.bus.entry import decode_inbound, decode_outbound, encode_inbound, encode_outbound
from nanobot_core.messages import Button, InboundMessage, JsonObject, JsonValue, OutboundMessage

TEXTS = st.text(st.characters(), max_size=20)  # half surrogate pairs among them
OPTIONAL = st.none() | TEXTS
VALUES: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
METADATA = st.dictionaries(TEXTS, VALUES, max_size=3)
MEDIA = st.lists(TEXTS, max_size=3).map(tuple)
BUTTONS = st.lists(
    st.lists(st.builds(Button, TEXTS, TEXTS), max_size=3).map(tuple), max_size=3
).map(tuple)

INBOUND = st.builds(
    InboundMessage,
    channel=TEXTS,
    sender_id=TEXTS,
    chat_id=TEXTS,
    content=TEXTS,
    id=TEXTS,
    media=MEDIA,
    timestamp=st.none() | st.datetimes(timezones=st.just(UTC)),
    metadata=METADATA,
    session_key_override=OPTIONAL,
    dedupe_key=OPTIONAL,
    is_group=st.booleans(),
    is_addressed=st.booleans(),
    is_control=st.booleans(),
)
OUTBOUND = st.builds(
    OutboundMessage,
    channel=TEXTS,
    chat_id=TEXTS,
    content=TEXTS,
    kind=st.sampled_from(["final", "progress", "tool_hint", "notice"]),
    reply_to=OPTIONAL,
    media=MEDIA,
    metadata=METADATA,
    idempotency_key=TEXTS,
    buttons=BUTTONS,
    draft_id=OPTIONAL,
)


@given(INBOUND)
def test_a_received_message_comes_back_as_it_was(message: InboundMessage) -> None:
    text = encode_inbound(message)
    assert text.isascii()
    assert decode_inbound(text) == message


@given(OUTBOUND)
def test_a_reply_comes_back_as_it_was(message: OutboundMessage) -> None:
    text = encode_outbound(message)
    assert text.isascii()
    assert decode_outbound(text) == message


def test_what_a_newer_version_added_is_ignored() -> None:
    record: JsonObject = {"channel": "c", "chat_id": "1", "content": "x", "mood": {"glad": True}}
    plain = InboundMessage(channel="c", sender_id="", chat_id="1", content="x")
    assert decode_inbound(json.dumps(record)) == plain
    buttons: list[JsonValue] = [[["Yes", "y"], {"label": "3D"}], "row"]
    reply: JsonObject = {**record, "kind": "hologram", "buttons": buttons}
    assert decode_outbound(json.dumps(reply)) == OutboundMessage(
        channel="c", chat_id="1", content="x", buttons=((Button("Yes", "y"),),)
    )


def test_a_field_of_a_wrong_type_reads_as_absent() -> None:
    record: JsonObject = dict.fromkeys(
        ("sender_id", "media", "timestamp", "metadata", "dedupe_key", "is_control", "buttons"), 7
    )
    record |= {"channel": "c", "chat_id": "1", "content": "x", "media": ["a", 1]}
    assert decode_inbound(json.dumps(record)) == InboundMessage(
        channel="c", sender_id="", chat_id="1", content="x", media=("a",)
    )


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"channel": "c"}', '{"chat_id": "1", "channel": 1}', "[" * 10**5],
)
def test_a_damaged_text_is_refused(text: str) -> None:
    for decode in (decode_inbound, decode_outbound):
        with pytest.raises(ValueError, match=r"^(it |Expecting)"):
            decode(text)
