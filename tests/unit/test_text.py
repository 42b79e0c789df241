from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from nanobot_core.text import (
    ThoughtFilter,
    nearest,
    parse_json_object,
    repair_json_object,
    shorten,
    split_thoughts,
    truncate_middle,
)

tagged_text = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<thinking>", "</thinking>", "<", "<th", "</thi", ">", "a", "b\n"]
    ),
    max_size=30,
).map("".join)


def filtered(pieces: list[str]) -> tuple[str, str]:
    thoughts = ThoughtFilter()
    parts = [thoughts.feed(piece) for piece in pieces] + [thoughts.finish()]
    return "".join(visible for visible, _ in parts), "".join(thought for _, thought in parts)


@given(tagged_text, st.lists(st.integers(0, 200), max_size=12))
def test_thoughts_are_the_same_however_the_text_is_split(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]

    assert filtered(pieces) == filtered([text])


@given(tagged_text)
def test_nothing_but_tags_is_lost_between_answer_and_thoughts(text: str) -> None:
    def without_tags(part: str) -> str:
        for tag in ("<thinking>", "</thinking>", "<think>", "</think>"):
            part = part.replace(tag, "")
        return part

    visible, thought = filtered([text])

    assert len(visible) + len(thought) >= len(without_tags(text))
    assert "<think>" not in visible
    assert "<thinking>" not in visible


@pytest.mark.parametrize(
    ("text", "visible", "thought"),
    [
        ("plain", "plain", ""),
        ("a<think>b</think>c", "ac", "b"),
        ("a<thinking>b</think>c</thinking>d", "ad", "b</think>c"),
        ("a<think>never closed", "a", "never closed"),
        ("a </think> b", "a </think> b", ""),
        ("1 < 2 and <thin", "1 < 2 and <thin", ""),
    ],
)
def test_thoughts_are_told_from_the_answer(text: str, visible: str, thought: str) -> None:
    assert filtered([text]) == (visible, thought)


def test_text_without_a_tag_is_visible_before_the_end() -> None:
    assert ThoughtFilter().feed("all of it") == ("all of it", "")


def test_many_passages_in_one_delta_are_each_looked_at_a_bounded_number_of_times() -> None:
    """Guards against rescanning the rest at each tag: a quadratic filter exceeds the time limit."""
    text = "<think>t</think>v" * 200_000

    assert filtered([text]) == ("v" * 200_000, "t" * 200_000)


def test_split_trims_joints_only_where_there_were_thoughts() -> None:
    assert split_thoughts("<think> why </think>\n\nanswer\n") == ("answer", "why")
    assert split_thoughts("  kept \n") == ("  kept \n", "")


@given(st.text(max_size=300), st.integers(2, 100))
def test_truncation_keeps_head_and_tail_and_counts_the_gap(text: str, max_chars: int) -> None:
    cut = truncate_middle(text, max_chars)

    if len(text) <= max_chars:
        assert cut == text
        return
    head, tail = (max_chars + 1) // 2, max_chars // 2
    assert cut.startswith(text[:head])
    assert cut.endswith(text[len(text) - tail :])
    assert f"[{len(text) - max_chars:,} characters left out]" in cut
    assert len(cut) <= max_chars + 60


@given(st.text(alphabet="ab \n\t", max_size=200), st.integers(1, 40))
def test_shortened_text_is_one_line_and_says_when_it_is_cut(text: str, max_chars: int) -> None:
    line = " ".join(text.split())
    short = shorten(text, max_chars)

    assert len(short) <= max_chars
    assert "\n" not in short
    assert short == line if len(line) <= max_chars else short == f"{line[: max_chars - 1]}…"


def test_shortening_sees_words_behind_long_white_space() -> None:
    assert shorten("a" + " " * 1_000 + "b", 10) == "a b"


def test_nearest_names_come_best_first() -> None:
    assert nearest("raed_file", ["write_file", "read_file", "exec"])[0] == "read_file"
    assert nearest("zzz", ["read_file"]) == []


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_strict_json_objects_are_taken_as_they_are(value: dict[str, object]) -> None:
    assert repair_json_object(json.dumps(value)) == value
    assert parse_json_object(json.dumps(value)) == value


@given(st.text(alphabet='{}[]":,\\ \n`abc0123tfn', max_size=60))
def test_repair_gives_an_object_or_nothing(text: str) -> None:
    assert isinstance(repair_json_object(text), dict | None)


@given(st.text(alphabet='{"a":1,}[] ', max_size=40))
def test_repair_of_what_begins_like_an_object_never_raises(text: str) -> None:
    assert isinstance(repair_json_object("{" + text), dict | None)


@pytest.mark.parametrize(
    "text",
    [
        '{"path": "a.txt"',
        '{"path": "a.txt",}',
        "{'path': 'a.txt'}",
        '```json\n{"path": "a.txt"}\n```',
    ],
)
def test_common_slips_of_models_are_repaired(text: str) -> None:
    assert repair_json_object(text) == {"path": "a.txt"}


@pytest.mark.parametrize("text", ["", "[]", "null", "read the file", "[1, 2", "{" * 100_001])
def test_what_is_no_object_is_not_guessed_at(text: str) -> None:
    assert repair_json_object(text) is None


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_lacks_are_refused(constant: str) -> None:
    """Guards against arguments that no service takes back in the history."""
    assert parse_json_object(f'{{"a": {constant}}}') is None


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_bottomless_json_is_no_object(text: str) -> None:
    assert parse_json_object(text) is None
