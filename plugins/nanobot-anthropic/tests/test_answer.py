"""From events and whole messages to answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nanobot_anthropic.answer import MessageReader
from nanobot_core import (
    AnswerTooLong,
    JsonObject,
    LLMResponse,
    ProviderProtocolError,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
)

Events = list[dict[str, Any]]


def read(*payloads: dict[str, Any]) -> tuple[list[StreamEvent], LLMResponse]:
    reader = MessageReader("anthropic")
    events = [event for payload in payloads for event in reader.feed(payload)]
    return events, reader.response()


def opened(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stopped(reason: str = "end_turn", **fields: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason, **fields}}


def whole(*blocks: JsonObject, reason: str = "end_turn", **fields: Any) -> dict[str, Any]:
    return {"type": "message", "content": list(blocks), "stop_reason": reason, **fields}


def test_a_stream_gives_its_deltas_and_a_complete_answer() -> None:
    events, answer = read(
        {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}},
        {"type": "ping"},
        opened(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="h"),
        delta(0, "thinking_delta", thinking="m"),
        delta(0, "signature_delta", signature="s1"),
        {"type": "content_block_stop", "index": 0},
        opened(1, type="text", text=""),
        delta(1, "text_delta", text="I "),
        delta(1, "text_delta", text="look"),
        opened(2, type="tool_use", id="t1", name="look", input={}),
        delta(2, "input_json_delta", partial_json=""),
        delta(2, "input_json_delta", partial_json='{"at":'),
        delta(2, "input_json_delta", partial_json=' "x"}'),
        {"type": "something_new", "of": "the future"},
        stopped("tool_use") | {"usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    )
    assert events == [
        ReasoningDelta("h"),
        ReasoningDelta("m"),
        TextDelta("I "),
        TextDelta("look"),
        ToolCallDelta(0, "look"),
    ]
    assert (answer.content, answer.reasoning, answer.finish_reason) == (
        "I look",
        "hm",
        "tool_calls",
    )
    assert [(call.id, call.name, call.arguments) for call in answer.tool_calls] == [
        ("t1", "look", {"at": "x"})
    ]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (9, 7)
    assert answer.provider_blocks == (
        {
            "provider": "anthropic",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s1"},
                {"type": "text", "chars": 6},
                {"type": "tool_use"},
            ],
        },
    )


def test_a_whole_message_gives_the_same() -> None:
    _, answer = read(
        whole(
            {"type": "thinking", "thinking": "hm", "signature": "s1"},
            {"type": "redacted_thinking", "data": "zz"},
            {"type": "text", "text": "I look"},
            {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "x"}},
            reason="tool_use",
        )
    )
    assert (answer.content, answer.reasoning) == ("I look", "hm")
    assert answer.tool_calls[0].arguments == {"at": "x"}
    content = answer.provider_blocks[0]["content"]
    assert isinstance(content, list)
    assert content[1] == {"type": "redacted_thinking", "data": "zz"}


def test_an_answer_without_thinking_leaves_nothing_to_hand_back() -> None:
    assert read(whole({"type": "text", "text": "x"}))[1].provider_blocks == ()


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("a_new_reason", "stop"),
    ],
)
def test_each_stop_reason_is_known(reason: str, expected: str) -> None:
    assert read(whole({"type": "text", "text": "x"}, reason=reason))[1].finish_reason == expected


def test_a_refusal_without_a_text_is_explained() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "It could do harm."}
    events, answer = read(stopped("refusal", stop_details=details))
    assert events == [TextDelta("It could do harm.")]
    assert (answer.content, answer.finish_reason) == ("It could do harm.", "content_filter")
    _, partly = read(opened(0, type="text", text="Well"), stopped("refusal", stop_details=details))
    assert partly.content == "Well"


def test_arguments_that_the_limit_cut_are_not_completed() -> None:
    _, answer = read(
        opened(0, type="tool_use", id="t", name="rm", input={}),
        delta(0, "input_json_delta", partial_json='{"path": "/tmp/o'),
        stopped("max_tokens"),
    )
    assert answer.finish_reason == "length"
    assert answer.tool_calls[0].unparsed == '{"path": "/tmp/o'


def test_usage_counts_what_was_cached_and_what_was_thought() -> None:
    started = {
        "input_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 1,
    }
    ended = {
        "output_tokens": 9,
        "input_tokens": None,
        "output_tokens_details": {"thinking_tokens": 4},
    }
    usage = read(
        {"type": "message_start", "message": {"usage": started}}, stopped() | {"usage": ended}
    )[1].usage
    assert (usage.prompt_tokens, usage.cached_tokens) == (125, 100)
    assert (usage.completion_tokens, usage.reasoning_tokens) == (9, 4)


def test_the_end_of_a_stream_is_known() -> None:
    reader = MessageReader("anthropic")
    seen = []
    for payload in ({"type": "ping"}, stopped(), {"type": "message_stop"}):
        list(reader.feed(payload))
        seen.append((reader.is_complete, reader.has_ended))
    assert seen == [(False, False), (True, False), (True, True)]


def _endless() -> Iterator[dict[str, Any]]:
    for index in range(3_000):
        yield opened(index, type="tool_use", id=f"t{index}", name="look", input={})


def _deep() -> Iterator[dict[str, Any]]:
    value: dict[str, Any] = {}
    for _ in range(100_000):
        value = {"x": value}
    yield whole({"type": "tool_use", "id": "t", "name": "look", "input": value})


@pytest.mark.parametrize(
    ("payloads", "error"),
    [
        (_endless, AnswerTooLong),
        (_deep, ProviderProtocolError),
        (lambda: iter([{"type": "message"}]), ProviderProtocolError),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error(
    payloads: Callable[[], Iterator[dict[str, Any]]], error: type[Exception]
) -> None:
    with pytest.raises(error):
        read(*payloads())


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "content_block_start"},
        {"type": "content_block_start", "index": "x", "content_block": 5},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "image"}},
        {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "content_block_delta", "index": 0, "delta": None},
        {"type": "message_start", "message": None},
        {"type": "message_delta", "delta": [], "usage": 5},
        {"type": 5},
        {},
    ],
)
def test_events_of_an_unknown_form_are_ignored(payload: dict[str, Any]) -> None:
    events, answer = read(payload, stopped())
    assert events == []
    assert answer.content is None
