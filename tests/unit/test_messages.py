from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from nanobot_core import (
    Assignment,
    LLMResponse,
    ToolDefinition,
    ToolOutcome,
    ToolResult,
    messages as module,
)
from nanobot_core.events import NoticeGiven, ProgressMade
from nanobot_core.messages import (
    ROLES,
    Button,
    ImageBlock,
    InboundMessage,
    JsonObject,
    JsonValue,
    Message,
    OutboundMessage,
    TextBlock,
    ToolCall,
    Usage,
    message_from_json,
    message_to_json,
)
from nanobot_core.text import Repaired

OWN_KEYS = {
    "role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content",
    "provider_blocks", "timestamp", "inbound_id", "origin", "is_error",
}  # fmt: skip
json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(max_size=8), json_values, max_size=4)
tool_calls = st.builds(
    ToolCall, id=st.text(max_size=8), name=st.text(max_size=8), arguments=json_objects
) | st.builds(
    ToolCall,
    id=st.text(max_size=8),
    name=st.text(max_size=8),
    arguments=st.just({}),
    unparsed=st.text(max_size=20).map(lambda text: f"not JSON {text}"),
)
blocks = st.builds(TextBlock, st.text(max_size=20)) | st.builds(
    ImageBlock,
    st.sampled_from(["image/png", "image/jpeg"]),
    st.text(max_size=10),
    st.none() | st.text(max_size=10),
)
texts_or_none = st.none() | st.text(max_size=10)
messages = st.builds(
    Message,
    role=st.sampled_from(ROLES),
    content=st.text(max_size=40) | st.lists(blocks, max_size=4).map(tuple),
    tool_calls=st.lists(tool_calls, max_size=3).map(tuple),
    tool_call_id=texts_or_none,
    name=texts_or_none,
    reasoning=texts_or_none,
    provider_blocks=st.lists(json_objects, max_size=2).map(tuple),
    timestamp=st.none() | st.datetimes(timezones=st.just(UTC)),
    inbound_id=texts_or_none,
    origin=texts_or_none,
    is_error=st.booleans(),
    extra=json_objects.map(lambda extra: {k: v for k, v in extra.items() if k not in OWN_KEYS}),
)


@given(messages)
def test_a_message_survives_being_stored(message: Message) -> None:
    stored = json.dumps(message_to_json(message))

    assert message_from_json(json.loads(stored)) == message


@given(st.sampled_from(ROLES), st.dictionaries(st.sampled_from(sorted(OWN_KEYS)), json_values))
def test_fields_of_any_type_cost_no_message(role: str, fields: JsonObject) -> None:
    message = message_from_json({**fields, "role": role})

    assert message.role == role
    assert message_from_json(message_to_json(message)) == message


@pytest.mark.parametrize("role", [None, "developer", 5, ["user"], {}])
def test_an_unknown_role_is_named(role: JsonValue) -> None:
    with pytest.raises(ValueError, match="role must be one of system, user, assistant, tool"):
        message_from_json({"role": role, "content": "x"})


def test_fields_of_other_writers_are_kept() -> None:
    record: JsonObject = {"role": "user", "content": "hi", "mood": {"level": 3}}

    message = message_from_json(record)

    assert message.extra == {"mood": {"level": 3}}
    assert message_to_json(message) == record


def test_openai_tool_calls_and_image_urls_are_read() -> None:
    message = message_from_json(
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
            ],
            "tool_calls": [
                {"id": "1", "function": {"name": "a", "arguments": '{"x": 1}'}},
                {"id": "2", "function": {"name": "b", "arguments": "broken"}},
                {"id": "3", "function": {}},
            ],
        }
    )

    assert message.content == (TextBlock("look"), ImageBlock("image/png", "QUJD"))
    assert message.text == "look"
    assert message.tool_calls == (
        ToolCall("1", "a", {"x": 1}),
        ToolCall("2", "b", {}, unparsed="broken"),
    )


def test_absent_parts_are_not_stored() -> None:
    assert message_to_json(Message(role="user", content="hi")) == {"role": "user", "content": "hi"}


def test_timestamps_that_are_none_are_read_as_absent() -> None:
    assert message_from_json({"role": "user", "timestamp": "yesterday"}).timestamp is None
    stored = message_from_json({"role": "user", "timestamp": "2026-01-02T03:04:05+00:00"})
    assert stored.timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_usage_adds_up_and_an_unknown_price_adds_nothing() -> None:
    known = Usage(prompt_tokens=2, completion_tokens=3, cost_usd=0.5)
    unknown = Usage(prompt_tokens=1, cached_tokens=1, reasoning_tokens=1)

    assert known + unknown == Usage(3, 3, 1, 1, 0.5)
    assert (unknown + unknown).cost_usd is None
    assert known.total_tokens == 5


def test_the_session_is_the_chat_unless_another_is_named() -> None:
    message = InboundMessage(channel="web", sender_id="u", chat_id="7", content="")

    assert message.session_key == "web:7"
    named = InboundMessage(
        channel="web", sender_id="u", chat_id="7", content="", session_key_override="shared"
    )
    assert named.session_key == "shared"


# --- half characters ---------------------------------------------------------------------------

HALF, PAIR = "\ud83d", "\ud83d\ude00"
DATA: JsonObject = {f"k{HALF}": [PAIR, {"x": f"{HALF}y"}]}
ENTRANCES = [
    TextBlock(HALF),
    ImageBlock(HALF, HALF, HALF),
    ToolCall(HALF, HALF, DATA, HALF),
    Message(
        role="user",
        content=HALF,
        tool_call_id=HALF,
        name=HALF,
        reasoning=HALF,
        provider_blocks=(DATA,),
        inbound_id=HALF,
        origin=HALF,
        extra=DATA,
    ),
    InboundMessage(
        channel=HALF,
        sender_id=HALF,
        chat_id=HALF,
        content=HALF,
        id=HALF,
        media=(HALF,),
        metadata=DATA,
        session_key_override=HALF,
        dedupe_key=HALF,
    ),
    Button(HALF, HALF),
    OutboundMessage(
        channel=HALF,
        chat_id=HALF,
        content=HALF,
        reply_to=HALF,
        media=(HALF,),
        metadata=DATA,
        idempotency_key=HALF,
        draft_id=HALF,
    ),
    ToolResult(HALF, media=(HALF,), data=DATA),
    ToolOutcome(text=HALF, origin=HALF),
    ToolDefinition(name=HALF, description=HALF, parameters=DATA),
    LLMResponse(content=HALF, reasoning=HALF, provider_blocks=(DATA,)),
    ProgressMade(text=HALF),
    NoticeGiven(text=HALF),
]


def texts_of(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (*texts_of(key), *texts_of(item))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_of(item)
    elif isinstance(value, Repaired):
        for field in dataclasses.fields(value):
            yield from texts_of(getattr(value, field.name))


@pytest.mark.parametrize("entrance", ENTRANCES, ids=lambda value: type(value).__name__)
def test_half_a_character_passes_no_entrance(entrance: Repaired) -> None:
    """Guards against sessions that fail until /new, because a request cannot be encoded."""
    texts = list(texts_of(entrance))

    assert texts
    assert "".join(texts).encode()
    assert any("\ufffd" in text for text in texts)


@pytest.mark.parametrize(
    "kind", [kind for kind in vars(module).values() if dataclasses.is_dataclass(kind)]
)
def test_each_kind_of_message_is_repaired_where_it_is_made(kind: type) -> None:
    """Guards against a new kind that lets half a character through; `Usage` holds no text, and an
    assignment repairs itself."""
    assert kind in {Usage, Assignment} or (
        issubclass(kind, Repaired) and kind in [type(entrance) for entrance in ENTRANCES]
    )


def test_halves_of_a_pair_become_one_character() -> None:
    assert ToolCall("c", "write", {"text": f"a{PAIR}"}).arguments == {"text": "a😀"}
    assert Message(role="user", content=PAIR).content == "😀"


def test_a_stored_message_with_half_a_character_is_read() -> None:
    record = json.loads('{"role": "user", "content": "a \\ud83d b", "mood": ["\\ude00"]}')

    message = message_from_json(record)

    assert message.content == "a \ufffd b"
    assert message.extra == {"mood": ["\ufffd"]}


@given(st.text(max_size=20))
def test_nul_and_other_control_characters_are_kept(text: str) -> None:
    content = f"a\x00{text}\x1f"
    stored = json.dumps(message_to_json(Message(role="user", content=content)))

    assert message_from_json(json.loads(stored)).content == content


@pytest.mark.parametrize("arguments", ["null", "", " \n", "{}"])
def test_stored_calls_without_arguments_have_an_empty_object(arguments: str) -> None:
    record: JsonObject = {
        "role": "assistant",
        "tool_calls": [{"id": "1", "function": {"name": "a", "arguments": arguments}}],
    }

    assert message_from_json(record).tool_calls == (ToolCall("1", "a", {}),)
