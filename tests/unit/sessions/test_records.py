from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from nanobot_core.contracts.store import Checkpoint, SessionState
from nanobot_core.messages import ImageBlock, JsonObject, Message, TextBlock, ToolCall
from nanobot_core.sessions.records import Header, decode_line, encode_record, salvage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
instants = st.datetimes(timezones=st.just(UTC))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
json_objects: st.SearchStrategy[JsonObject] = st.dictionaries(texts, json_values, max_size=3)
calls = st.builds(ToolCall, id=texts, name=texts, arguments=json_objects)
images = st.builds(ImageBlock, media_type=texts, data=texts, path=st.none() | texts)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=texts | st.lists(st.builds(TextBlock, texts) | images, max_size=3).map(tuple),
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    tool_call_id=st.none() | texts,
    name=st.none() | texts,
    reasoning=st.none() | texts,
    timestamp=st.none() | instants,
    inbound_id=st.none() | texts,
    origin=st.none() | texts,
    is_error=st.booleans(),
    extra=st.dictionaries(texts.map("x_{}".format), json_values, max_size=2),
)
counts = st.integers(0, 10**9)
headers = st.builds(
    Header,
    key=texts,
    state=st.builds(
        SessionState,
        created_at=instants,
        updated_at=instants,
        last_consolidated=counts,
        checkpoint=st.none()
        | st.builds(
            Checkpoint,
            turn_id=texts,
            inbound_id=st.none() | texts,
            iteration=counts,
            running=st.lists(texts, max_size=3).map(tuple),
        ),
        metadata=json_objects,
    ),
    message_count=st.none() | counts,
    superseded_bytes=counts,
)


@given(messages | headers)
def test_a_record_is_one_line_and_comes_back(record: Message | Header) -> None:
    line = encode_record(record)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode_line(line, NOW) == record


@given(st.binary(max_size=60) | st.text('{}[]":,\\urole user content', max_size=60).map(str.encode))
def test_any_bytes_are_decoded_or_salvaged_without_an_error(line: bytes) -> None:
    decode_line(line, NOW)
    for record in salvage(line, NOW):
        assert decode_line(encode_record(record), NOW) == record


@given(st.text("abc é🙂", max_size=20), st.data())
def test_a_broken_off_user_line_gives_the_text_up_to_the_break(
    text: str, data: st.DataObject
) -> None:
    line = encode_record(Message(role="user", content=text))
    start = len(b'{"role": "user", "content": "')
    cut = line[: data.draw(st.integers(start, start + len(text.encode())))]
    readable = cut[start:].decode("utf-8", "replace")
    expected = [Message(role="user", content=readable)] if readable.strip() else []
    assert salvage(cut, NOW) == expected


def test_a_lone_surrogate_does_not_make_the_file_unreadable() -> None:
    line = encode_record(Message(role="user", content="a\ud83d"))
    assert decode_line(line, NOW) == Message(role="user", content="a\ufffd")


def test_numbers_that_are_no_json_are_refused_and_read_as_null() -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode_record(Message(role="user", extra={"x": float("inf")}))
    found = salvage(b'{"role": "user", "content": "a", "x": NaN, "y": [1e999]}', NOW)
    assert found == [Message(role="user", content="a", extra={"x": None, "y": [None]})]


def test_a_broken_off_metadata_line_gives_no_state() -> None:
    line = encode_record(Header(key="k", state=SessionState(created_at=NOW, updated_at=NOW)))
    assert salvage(line[:-30], NOW) == []


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {
            "key": 1,
            "created_at": "soon",
            "updated_at": [],
            "metadata": [],
            "last_consolidated": "1",
        },
        {"last_consolidated": -3, "runtime_checkpoint": {"turn_id": 4}, "message_count": None},
        {"runtime_checkpoint": "x", "superseded_bytes": True},
    ],
)
def test_fields_of_a_wrong_type_are_read_as_absent(fields: JsonObject) -> None:
    line = json.dumps({"_type": "metadata", **fields}).encode()
    assert decode_line(line, NOW) == Header(
        key="", state=SessionState(created_at=NOW, updated_at=NOW)
    )


def test_times_without_a_zone_are_local() -> None:
    line = b'{"_type": "metadata", "created_at": "2026-02-03T04:05:06"}'
    record = decode_line(line, NOW)
    assert isinstance(record, Header)
    assert record.state.created_at == datetime(2026, 2, 3, 4, 5, 6).astimezone()
    earliest = decode_line(b'{"role": "user", "timestamp": "0001-01-01T00:00:00"}', NOW)
    assert isinstance(earliest, Message)
    assert earliest.timestamp is not None
    assert earliest.timestamp.utcoffset() is not None
    assert earliest.timestamp - datetime(1, 1, 1, tzinfo=UTC) < timedelta(days=1)
