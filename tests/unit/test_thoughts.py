"""Thinking is distinguished from the answer, and an answer about thinking from thinking."""

from __future__ import annotations

import sys
from itertools import pairwise
from types import FrameType
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, strategies as st

from nanobot_core.thoughts import ThoughtFilter, split_thoughts

if TYPE_CHECKING:
    from _typeshed import TraceFunction

PARTS = [
    "<think>", "</think>", "<thinking>", "</thinking>", "<thought>", "</thought>", "<reasoning>",
    "</reasoning>", "[THINK]", "[/THINK]", "◁think▷", "◁/think▷", "<|channel|>analysis<|message|>",
    "<|channel|>commentary", "<|channel|>final<|message|>", "<|end|>", "<|start|>assistant",
    "<", "<th", "</thi", ">", "a", "b c", " ", "    ", "\n", "\r\n", "```", "~~~", "`", "  ",
]  # fmt: skip
tagged_text = st.lists(st.sampled_from(PARTS), max_size=25).map("".join)


def filtered(pieces: list[str]) -> tuple[str, str]:
    """Put the portions of `pieces` together as a reader of the stream does."""
    thoughts = ThoughtFilter()
    visible = thought = ""
    for portion in [*(thoughts.feed(piece) for piece in pieces), thoughts.finish()]:
        if portion.is_void:
            visible, thought = "", visible + thought
        visible, thought = visible + portion.visible, thought + portion.thought
    return visible, thought


@given(tagged_text, st.lists(st.integers(0, 300), max_size=12))
@example("reasoning\n</think>\n\nanswer", [10, 11, 14, 18, 19])
@example("text\n<think>why</think>more", [5, 6, 7, 13, 16, 20])
def test_thoughts_are_the_same_however_the_text_is_split(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]

    assert filtered(pieces) == filtered([text]) == filtered(list(text))


@given(tagged_text)
def test_a_complete_text_is_split_as_its_stream_is(text: str) -> None:
    visible, thought = filtered([text])

    assert split_thoughts(text) in ((visible, thought.strip()), (visible.strip(), thought.strip()))


@given(tagged_text)
def test_every_word_is_answer_or_thought(text: str) -> None:
    visible, thought = filtered([text])

    words = sum(text.count(word) for word in "abc")
    tags = sum(text.count(tag) * sum(map(tag.count, "abc")) for tag in PARTS if len(tag) > 3)
    assert sum((visible + thought).count(word) for word in "abc") >= words - tags


@pytest.mark.parametrize(
    ("text", "visible", "thought"),
    [
        ("plain", "plain", ""),
        ("<think>b</think>c", "c", "b"),
        (" \n\n <think>\nb\n</think>\n\nc", "c", "b"),
        ("<think></think>\n\nc", "c", ""),
        ("<think>b</think>\n<think>c</think>d", "d", "bc"),
        ("<thinking>b</think>c</thinking>d", "d", "b</think>c"),
        ("<thought>b</thought>c", "c", "b"),
        ("<reasoning>b</reasoning>c", "c", "b"),
        ("<seed:think>b</seed:think>c", "c", "b"),
        ("[THINK]b[/THINK]c", "c", "b"),
        ("◁think▷b◁/think▷c", "c", "b"),
        ("<|channel>thought\nb<channel|>c", "c", "b"),
        ("<think>never closed", "", "never closed"),
        ("</think>\n\nc", "c", ""),
        ("</thought>c", "c", ""),
        ("<|channel|>analysis<|message|>b<|channel|>final<|message|>c", "c", "b"),
        (
            "<|channel|>analysis<|message|>b<|end|><|start|>assistant<|channel|>final<|message|>c",
            "c",
            "b",
        ),
        (
            "<|channel|>commentary to=functions.look <|constrain|>json<|message|>{}<|call|>c",
            "c",
            "to=functions.look <|constrain|>json<|message|>{}",
        ),
        ("<|channel|>final<|message|>c", "c", ""),
        ("Let me see.\n<think>\nb\n</think>\nc", "Let me see.\n\nc", "b"),
        ("Let me see.\n<think>b</think> <think>c</think>d", "Let me see.\n d", "bc"),
        ("b, so it is\n</think>\n\nc", "c", "b, so it is"),
        ("b, so I call it\n</think>", "", "b, so I call it"),
        ("b\n</thinking>\r\nc", "c", "b"),
    ],
)
def test_thinking_is_recognised_where_models_put_it(text: str, visible: str, thought: str) -> None:
    assert split_thoughts(text) == (visible, thought)


@pytest.mark.parametrize(
    "text",
    [
        "Use `<think>` to begin and `</think>` to end.",
        "The <think> tag begins it, and </think> ends it.",
        "A template:\n\n```xml\n<think>\nhm\n</think>\n```\n\nThat is all.",
        "Nested:\n\n````\n```\n<think>a</think>\n```\n<think>b</think>\n````\n",
        "Tildes:\n~~~\n</think>\n~~~\nend",
        "1. Like this:\n   ```\n   <think>a</think>\n   ```\n",
        "Indented:\n\n    <think>a</think>\n    </think>\n",
        "A tab:\n\t<think>a</think>\n",
        "> <think>quoted</think>\n",
        "- <think>listed</think>\n",
        "One that is never closed:\n<think>\nand so on",
        "1 < 2 and <thin",
        "a <think>b</think> c",
        "Ends with </think>",
        "Text\n</think> in a line of words",
        "<reason>no tag</reason>",
        "<|channel|>",
        "gpt-oss writes <|channel|>analysis<|message|> before its thinking.\n",
        "Its order:\n<|channel|>analysis<|message|>\n<thought>\n[THINK]\n",
        "  kept \n",
    ],
)
def test_an_answer_that_speaks_of_thinking_is_left_whole(text: str) -> None:
    """Guards against answers that end where they mention a tag."""
    assert split_thoughts(text) == (text, "")


def test_an_answer_is_visible_before_its_end() -> None:
    thoughts = ThoughtFilter()

    assert thoughts.feed("all of it").visible == "all of it"
    assert thoughts.feed("\n <thi").visible == "\n "
    assert thoughts.feed("s>").visible == "<this>"


def test_what_turns_out_to_be_thinking_is_taken_back() -> None:
    thoughts = ThoughtFilter()

    assert thoughts.feed("so it is 4\n").visible == "so it is 4\n"
    taken_back = thoughts.feed("</think>\n4")
    assert (taken_back.visible, taken_back.is_void) == ("4", True)


@pytest.mark.parametrize(
    "unit",
    [
        "<think>t</think>v\n",
        "v",
        " ",
        "\n",
        "<",
        "\n<think>",
        "\n<thin",
        "</think>",
        "`",
        "\n```",
        "\n</think",
        "<|channel|>",
        "<think>" + "<" * 20,
    ],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_work_grows_with_the_text_and_not_with_its_square(unit: str, size: int) -> None:
    def lines_run(repeats: int) -> int:
        text = unit * repeats
        count = 0

        def trace(frame: FrameType, event: str, _: object) -> TraceFunction:
            nonlocal count
            count += event == "line"
            return trace

        former = sys.gettrace()
        sys.settrace(trace)
        try:
            thoughts = ThoughtFilter()
            for start in range(0, len(text), size):
                thoughts.feed(text[start : start + size])
            thoughts.finish()
        finally:
            sys.settrace(former)
        return count

    assert lines_run(400) <= 3 * lines_run(200) + 1_000


@pytest.mark.parametrize("size", [1, 1_000, 10_000_000])
def test_many_passages_take_time_for_their_length_only(size: int) -> None:
    """Guards against rescanning the rest at each tag: a quadratic filter exceeds the time limit."""
    text = "<think>t</think>v\n" * (2_000 if size == 1 else 100_000)
    pieces = [text[start : start + size] for start in range(0, len(text), size)]

    visible, thought = filtered(pieces)

    assert thought == "t" * text.count("t</")
    assert visible == "v\n" * text.count("v")
