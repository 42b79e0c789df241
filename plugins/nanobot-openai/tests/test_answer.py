"""Answers out of chunks, in the forms that vendors send."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from nanobot_core import (
    MAX_ARGUMENT_CHARS,
    MAX_TOOL_CALLS,
    AnswerTooLong,
    LLMResponse,
    ProviderProtocolError,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from nanobot_openai.answer import CompletionReader, read_usage
from nanobot_openai.dialect import dialect_of


def _chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _call(
    name: str = "", arguments: object = "", *, index: int | None = None, identity: str | None = None
) -> dict[str, Any]:
    fragment: dict[str, Any] = {"function": {"name": name or None, "arguments": arguments}}
    if index is not None:
        fragment["index"] = index
    if identity is not None:
        fragment["id"] = identity
    return _chunk(tool_calls=[fragment])


def _read(*chunks: dict[str, Any], cost_field: str | None = None) -> tuple[list[Any], LLMResponse]:
    answer = CompletionReader("vendor", replace(dialect_of("vendor", ""), cost_field=cost_field))
    events = [event for chunk in chunks for event in answer.feed(chunk)]
    return events, answer.response()


def _calls(*chunks: dict[str, Any]) -> list[tuple[str, str, object]]:
    _, response = _read(*chunks)
    return [(call.id, call.name, call.unparsed or call.arguments) for call in response.tool_calls]


def test_text_and_thinking_are_kept_apart_and_empty_deltas_left_out() -> None:
    events, response = _read(
        _chunk(role="assistant", content=""),
        _chunk(reasoning_content="hm"),
        _chunk(reasoning=" so", content=None),
        _chunk(content="Hi"),
        _chunk("stop"),
    )
    assert events == [ReasoningDelta("hm"), ReasoningDelta(" so"), TextDelta("Hi")]
    assert (response.content, response.reasoning) == ("Hi", "hm so")
    assert response.finish_reason == "stop"


def test_content_in_parts_is_read() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    _, response = _read(_chunk(content=[thinking, {"type": "text", "text": "Hi"}, "junk"]))
    assert (response.content, response.reasoning) == ("Hi", "hm")


def test_a_refusal_is_shown_as_text() -> None:
    assert _read(_chunk(refusal="I cannot."))[1].content == "I cannot."


def test_calls_are_joined_by_index() -> None:
    events, response = _read(
        _call("a", index=0, identity="1"),
        _call("b", '{"y"', index=1, identity="2"),
        _call(arguments='{"x": 1}', index=0),
        _call(arguments=": 2}", index=1),
    )
    assert events == [ToolCallDelta(0, "a"), ToolCallDelta(1, "b")]
    assert [call.arguments for call in response.tool_calls] == [{"x": 1}, {"y": 2}]
    assert response.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param(
            [_call("a", "{}", identity="1"), _call("b", "{}", identity="2")], id="no index"
        ),
        pytest.param(
            [_call("a", "{}", index=0, identity="1"), _call("b", "{}", index=0, identity="2")],
            id="one index for all",
        ),
        pytest.param(
            [
                _call("a", "{", identity="1"),
                _call(arguments="}"),
                _call("b", "{", identity="2"),
                _call(arguments="}", identity="2"),
            ],
            id="pieces without index",
        ),
        pytest.param(
            [
                _call("a", "{", index=0, identity="1"),
                _call("a", "}", index=0, identity="1"),
                _call("b", {}, index=1, identity="2"),
            ],
            id="name and id repeated, arguments as an object",
        ),
    ],
)
def test_calls_of_unusual_vendors_are_reported_apart(chunks: list[dict[str, Any]]) -> None:
    assert _calls(*chunks) == [("1", "a", {}), ("2", "b", {})]


def test_calls_without_index_and_id_are_reported_apart_by_their_names() -> None:
    assert _calls(_call("a", "{}"), _call("a", "{}")) == [("", "a", {}), ("", "a", {})]


def test_whole_answers_are_read_like_chunks() -> None:
    call = {"id": "same", "function": {"name": "a", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call, call, "junk"]}
    chunk = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {}}
    assert _calls(chunk) == [("same", "a", {}), ("same", "a", {})]
    text = {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}
    assert _read(text)[1].content == "Hi"


@pytest.mark.parametrize("text", ["", " \n", "null", " null ", "{}"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert _calls(_call("a", text, index=0, identity="1")) == [("1", "a", {})]


@pytest.mark.parametrize("text", ["[]", "nil", "nullify"])
def test_arguments_that_only_resemble_none_are_refused(text: str) -> None:
    assert _calls(_call("a", text, index=0, identity="1")) == [("1", "a", text)]


def test_more_calls_than_an_answer_may_ask_for_are_refused_as_they_come() -> None:
    calls = [_call("a", "{}", index=n, identity=f"c{n}") for n in range(MAX_TOOL_CALLS)]
    assert len(_calls(*calls)) == MAX_TOOL_CALLS
    with pytest.raises(AnswerTooLong, match=f"more than {MAX_TOOL_CALLS} tool calls"):
        _read(*calls, _call("a", "{}", index=3_000, identity="one more"))


@pytest.mark.parametrize("piece", ["x" * 100_000, {"x": ["y" * 100_000]}])
def test_longer_arguments_than_an_answer_may_have_are_refused_as_they_come(piece: object) -> None:
    chunks = [_call("a", piece, index=n % 3) for n in range(MAX_ARGUMENT_CHARS // 100_000)]
    with pytest.raises(AnswerTooLong, match="arguments"):
        _read(*chunks, _call("a", piece, index=1))


def test_many_damaged_arguments_are_not_repaired() -> None:
    """Guards against minutes of repair, in which nothing else runs."""
    damaged = "{'x': '" + "y" * 60_000 + "',}"
    assert _calls(_call("a", damaged, index=0))[0][2] == {"x": "y" * 60_000}
    both = _calls(_call("a", damaged, index=0), _call("b", damaged, index=1))
    assert [arguments for _, _, arguments in both] == [damaged, damaged]


def test_arguments_as_a_bottomless_object_are_not_answer() -> None:
    arguments: dict[str, Any] = {}
    for _ in range(100_000):
        arguments = {"x": arguments}
    with pytest.raises(ProviderProtocolError, match="nested too deeply"):
        _read(_call("a", arguments, index=0))


def test_a_passage_in_many_pieces_is_put_together() -> None:
    pieces = [{"type": "reasoning.text", "text": "ab", "index": 0} for _ in range(50_000)]
    _, response = _read(_chunk(reasoning_details=pieces))
    assert response.provider_blocks[0]["reasoning_details"] == [
        {"type": "reasoning.text", "text": "ab" * 50_000, "index": 0}
    ]


def test_damaged_arguments_are_repaired() -> None:
    assert _calls(_call("a", "{'x': 1,}", index=0, identity="1")) == [("1", "a", {"x": 1})]


def test_arguments_beyond_repair_are_kept_as_text() -> None:
    assert _calls(_call("a", "rm -rf", index=0, identity="1")) == [("1", "a", "rm -rf")]


@pytest.mark.parametrize("text", ['{"path": "/tmp/a', "", "[1]"])
@pytest.mark.parametrize("finish", ["length", "max_tokens", "content_filter"])
def test_arguments_of_a_cut_answer_are_never_completed_by_guess(text: str, finish: str) -> None:
    _, response = _read(_call("delete", text, index=0, identity="1"), _chunk(finish))
    assert response.tool_calls[0].unparsed == text
    assert response.tool_calls[0].arguments == {}


def test_complete_arguments_of_a_cut_answer_are_used() -> None:
    _, response = _read(_call("a", '{"x": 1}', index=0, identity="1"), _chunk("length"))
    assert response.tool_calls[0].arguments == {"x": 1}
    assert response.finish_reason == "length"


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", "stop"),
        ("end_turn", "stop"),
        ("tool_calls", "stop"),
        ("model_length", "length"),
        ("sensitive", "content_filter"),
    ],
)
def test_the_services_word_for_the_end_is_translated(word: str, reason: str) -> None:
    assert _read(_chunk(word, content="x"))[1].finish_reason == reason


def test_what_must_go_back_is_kept_with_its_maker() -> None:
    _, response = _read(
        _chunk(reasoning_details=[{"type": "reasoning.text", "text": "a", "index": 0}]),
        _chunk(
            reasoning_details=[
                {"type": "reasoning.text", "text": "b", "index": 0, "signature": "s"},
                {"type": "reasoning.encrypted", "data": "z", "index": 1},
            ]
        ),
        _chunk(tool_calls=[{"id": "1", "function": {"name": "a"}, "extra_content": {"sig": "x"}}]),
    )
    assert response.provider_blocks == (
        {
            "provider": "vendor",
            "reasoning_details": [
                {"type": "reasoning.text", "text": "ab", "index": 0, "signature": "s"},
                {"type": "reasoning.encrypted", "data": "z", "index": 1},
            ],
        },
        {"provider": "vendor", "call": 0, "extra_content": {"sig": "x"}},
    )


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}, Usage(3, 2)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 8},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(9, 4, 8, 3),
        ),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 5}, Usage(9, 0, 5)),
        ({"prompt_tokens": 9, "cached_tokens": 5}, Usage(9, 0, 5)),
        ({"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 30}, Usage(9, 21)),
        ({"prompt_tokens": None, "completion_tokens": "x", "prompt_tokens_details": None}, Usage()),
    ],
)
def test_usage_is_read_in_every_form(usage: dict[str, Any], expected: Usage) -> None:
    assert read_usage(usage) == expected


def test_cost_is_read_where_the_vendor_reports_it_in_dollars() -> None:
    usage = {"prompt_tokens": 1, "cost": 0.25}
    assert read_usage(usage, "cost").cost_usd == 0.25
    assert read_usage(usage).cost_usd is None


@pytest.mark.parametrize("number", [10**400, -1, True, "1", float("inf"), float("nan")])
def test_numbers_that_nothing_can_count_are_left_out(number: object) -> None:
    """Guards against an overflow, and against budgets that are never used up."""
    usage = read_usage({"prompt_tokens": number, "total_tokens": number, "cost": number}, "cost")
    assert usage.cost_usd is None
    assert usage.total_tokens in (0, 1)


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [], "usage": {"prompt_tokens": 7}},
        {"choices": [{"delta": {}, "usage": {"prompt_tokens": 7}}]},
        {"choices": [{"delta": {}}], "x_groq": {"usage": {"prompt_tokens": 7}}},
    ],
)
def test_usage_is_found_wherever_vendors_put_it(chunk: dict[str, Any]) -> None:
    assert _read(_chunk("stop"), chunk)[1].usage.prompt_tokens == 7


_KEYS = [
    "choices", "delta", "message", "content", "tool_calls", "index", "id", "function", "name",
    "arguments", "usage", "finish_reason", "reasoning", "reasoning_details", "extra_content",
    "text", "type",
]  # fmt: skip
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(_KEYS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(
    st.lists(st.dictionaries(st.sampled_from(["choices", "usage", "x_groq"]), _JSON), max_size=4)
)
def test_no_form_of_chunk_raises_and_deltas_add_up(chunks: list[dict[str, Any]]) -> None:
    events, response = _read(_chunk(), *chunks)
    texts = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(texts) == (response.content or "")
