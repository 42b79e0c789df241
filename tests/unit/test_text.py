from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given, strategies as st

from nanobot_core.text import (
    MAX_JSON_DEPTH,
    PairJoiner,
    as_label,
    count_chars,
    is_deeper,
    nearest,
    parse_json_object,
    repair_json_object,
    repair_text,
    repair_texts,
    shorten,
    truncate_middle,
)

halves = st.text(st.sampled_from("\ud83d\ude00\udfff\ud800a\n é🦀\x00"), max_size=30)


@given(halves)
def test_repaired_text_can_be_encoded_and_keeps_what_was_whole(text: str) -> None:
    repaired = repair_text(text)

    assert repaired.encode().decode() == repaired
    whole = [character for character in text if not "\ud800" <= character <= "\udfff"]
    assert [c for c in repaired if c in "a\n é🦀\x00"] == whole
    assert repair_text(repaired) is repaired


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("\ud83d\ude00", "😀"),
        ("a\ud83d\ude00b\ud83d", "a😀b\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
        ("name\udcff.png", "name\ufffd.png"),
    ],
)
def test_pairs_are_joined_and_lone_halves_replaced(text: str, repaired: str) -> None:
    assert repair_text(text) == repaired


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_without_fault_stays_the_same_object(text: str) -> None:
    assert repair_text(text) is text


@given(halves, st.lists(st.integers(0, 40), max_size=8))
@example("\ud83d\ude00", [1])
def test_text_in_pieces_is_repaired_as_the_whole_is(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    joiner = PairJoiner()

    pieces = [joiner.feed(text[start:end]) for start, end in pairwise(edges)]

    assert "".join([*pieces, joiner.finish()]) == repair_text(text)


def test_data_is_repaired_to_its_keys_and_stays_the_same_object_without_fault() -> None:
    whole = {"a": ["é", 1, None, {"b": ("c",)}]}
    assert repair_texts(whole) is whole
    assert repair_texts({"\ud83d": ["\ud83d\ude00", 1, {"k": ("\udcff",)}]}) == {
        "\ufffd": ["😀", 1, {"k": ("\ufffd",)}]
    }


def nested(levels: int, innermost: object) -> object:
    value = innermost
    for _ in range(levels):
        value = [value]
    return value


def test_bottomless_data_is_looked_through_and_dropped_only_where_it_needs_repair() -> None:
    clean, damaged = nested(100_000, "é"), nested(100_000, "\ud83d")

    assert repair_texts(clean) is clean
    assert repair_texts(damaged) == []


def test_characters_and_levels_of_data_are_counted() -> None:
    assert count_chars({"ab": ["c", 1, None]}) == 7
    assert [is_deeper(nested(levels, 1), 3) for levels in (0, 3, 4)] == [False, False, True]


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


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Water the plants", "Water the plants"),
        ("file_name.txt: done?", "file_name.txt: done?"),
        ("a\n- **b** `c`\t~~d~~", "a - b 'c' d"),
        ("[here](http://x) <b>||y||", "(here)(http://x) by"),
        ("\u202e\x1b[2Jx\x00", "(2Jx"),
        ("x" * 100_000, "x" * 19 + "…"),
        ("*\u200b", ""),
    ],
)
def test_a_label_cannot_look_like_anything_else(text: str, label: str) -> None:
    assert as_label(text, 20) == label


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


@pytest.mark.parametrize(
    "text",
    [
        '{"a": ' + "[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH + "}",
        '{"a": ' + "[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH,
        "{" * 20_000,
    ],
)
def test_deep_arguments_are_not_taken(text: str) -> None:
    """Guards against calls that can be parsed but not stored, and against seconds of repair."""
    assert repair_json_object(text) is None


def test_arguments_of_the_deepest_level_are_taken() -> None:
    levels = MAX_JSON_DEPTH - 1
    text = '{"a": ' + "[" * levels + "]" * levels + "}"

    assert repair_json_object(text) == json.loads(text)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_numbers_that_json_lacks_are_refused(number: str) -> None:
    """Guards against arguments that can be neither stored nor sent back to a service."""
    assert parse_json_object(f'{{"a": {number}}}') is None
    assert repair_json_object(f'{{"a": [{number}]}}') is None
    json.dumps(repair_json_object(f'{{"a": [{number}],}}'), allow_nan=False)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_bottomless_json_is_no_object(text: str) -> None:
    assert parse_json_object(text) is None
