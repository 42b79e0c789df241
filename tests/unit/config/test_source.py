"""Reading YAML and JSON: exact values, lines, and texts made to hurt."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from nanobot_core.config.source import MAX_BYTES, parse_source, read_text
from nanobot_core.errors import ConfigInvalid, ConfigUnreadable
from nanobot_core.messages import JsonObject

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_SCALARS = st.none() | st.booleans() | st.integers() | _TEXT
_TREES = st.dictionaries(
    _TEXT,
    st.recursive(
        _SCALARS | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
        max_leaves=20,
    ),
    max_size=5,
)


@given(_TREES, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_json_reads_back_what_was_written(
    tree: JsonObject, indent: int | str | None, is_ascii: bool
) -> None:
    text = json.dumps(tree, indent=indent, ensure_ascii=is_ascii)
    assert parse_source(text, "c.json", is_json=True).tree == tree


@given(st.text("ud8cDf0zZ\ufffd\\", max_size=12).map(r"\ud83d\ud".__add__))
def test_escapes_that_are_nearly_a_pair_are_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigUnreadable):
        parse_source(f'{{"a": "{text}"}}', "c.json", is_json=True)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigUnreadable, ConfigInvalid):
        assert isinstance(parse_source(text, "c.yaml").tree, dict)


@settings(max_examples=300)
@given(st.text("[]{}:-,&*!|>'\"#%@?~<a \n\t", max_size=60))
def test_any_punctuation_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigUnreadable, ConfigInvalid):
        assert isinstance(parse_source(text, "c.yaml").tree, dict)


def test_scalars_follow_the_core_schema() -> None:
    text = (
        "a: no\nb: 12:30\nc: 1e3\nd: 2024-01-01\ne: 0123\nf: ~\ng: +5\nh: .5\ni: -\u00b2\n"
        "j: 'true'\nk: !!str 5\nl: !!int '5'\nm: .\nn: 1_000\no: -\n1: x\n"
    ).replace("o: -\n", "o: '-'\n")
    assert parse_source(text, "c").tree == {
        "a": "no",
        "b": "12:30",
        "c": 1000.0,
        "d": "2024-01-01",
        "e": "0123",
        "f": None,
        "g": 5,
        "h": 0.5,
        "i": "-\u00b2",
        "j": "true",
        "k": "5",
        "l": 5,
        "m": ".",
        "n": "1_000",
        "o": "-",
        "1": "x",
    }


def test_anchors_and_merge_keys_work_and_keep_the_lines_of_their_values() -> None:
    text = "base: &base\n  a: 1\n  b: 2\nx:\n  <<: *base\n  b: 3\ny:\n  <<: [*base, {c: 4}]\n"
    source = parse_source(text, "c")
    assert source.tree["x"] == {"a": 1, "b": 3}
    assert source.tree["y"] == {"a": 1, "b": 2, "c": 4}
    assert (source.lines["x.a"], source.lines["x.b"], source.lines["y.c"]) == (2, 6, 8)


def test_copies_of_an_alias_are_independent() -> None:
    tree = parse_source("a: &a [1]\nb: *a\n", "c").tree
    assert tree["a"] is not tree["b"]


def test_keys_that_stand_twice_are_told_with_both_lines() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_source("a:\n  b: 1\n  b: 2\nc: 1\nc: 2\n", "c.yaml")
    assert [str(problem) for problem in caught.value.problems] == [
        "c.yaml:3: a.b: expected each key once in a mapping; remove it here or in line 2",
        "c.yaml:5: c: expected each key once in a mapping; remove it here or in line 4",
    ]


_LAUGHS = "a0: &a0 [1, 2]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
_MERGED_LAUGHS = "a0: &a0 {}\n" + "".join(
    f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
_MERGE_CHAIN = "a0: &a0 {}\n" + "".join(f"a{n}: &a{n} {{<<: *a{n - 1}}}\n" for n in range(1, 3000))
_DEEP_ALIASES = "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [[*a{n - 1}]]\n" for n in range(1, 3000))


@pytest.mark.parametrize(
    "text",
    [
        _LAUGHS,
        _MERGED_LAUGHS,
        _MERGE_CHAIN,
        _DEEP_ALIASES,
        "[" * 1_000_000,
        "a: " + "{b: " * 100_000,
        "- " * 100_000,
        "a: &a [*a]",
        "a: &a {<<: *a}",
        "a: !!python/object/apply:os.system [id]",
        "a: 1\n---\nb: 2\n",
        "[1]",
        "text",
        "a: {<<: 3}",
        "? {a: 1}\n: 2",
        "a: \x00",
        "a: [1",
    ],
)
@pytest.mark.parametrize("has_libyaml", [True, False])
def test_hostile_and_broken_texts_are_refused(
    text: str, has_libyaml: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_libyaml:
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
        text = text[:20_000]
    with pytest.raises(ConfigUnreadable):
        parse_source(text, "c.yaml")


def test_an_empty_file_says_nothing() -> None:
    assert parse_source("# only a comment\n", "c").tree == {}


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    with pytest.raises(ConfigUnreadable, match="No such file"):
        read_text(path)
    path.write_bytes(b"a: \xff")
    with pytest.raises(ConfigUnreadable, match="UTF-8"):
        read_text(path)
    path.write_bytes(b"a" * (MAX_BYTES + 1))
    with pytest.raises(ConfigUnreadable, match="larger"):
        read_text(path)
    path.write_bytes(b"\xef\xbb\xbfa: 1")
    assert read_text(path) == "a: 1"
