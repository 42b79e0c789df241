"""Markdown to formatted text, and how that is divided."""

from __future__ import annotations

import importlib
import re
import unicodedata
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import assume, given, settings, strategies as st

from nanobot_telegram.markdown import render_markdown
from nanobot_telegram.rich_text import RichText, split_rich, utf16_length

bot_api: Any = importlib.import_module("telegram_bot_api")

PIECES = st.sampled_from(
    [
        *"*_~`#>-+|[]()!<>&\\\n\t .:1$😀é🇩🇪",
        "**",
        "~~",
        "```",
        "```python\n",
        "``` py name=x\n",
        "\n\n",
        "\n> ",
        "\n- ",
        "\n1. ",
        "\n    ",
        "| a | b |\n|---|---|\n| c | d |\n",
        "| e | f | g |\n",
        "[x](https://e.org)",
        '[x](https://e.org "title")',
        '![x](y "title")',
        "[x](javascript:alert(1))",
        "![y](/z)",
        "snake_case_name",
        "<b>",
        "word",
        "\ud83d",
        "\x00",
    ]
)
MARKDOWN = st.lists(PIECES, max_size=60).map("".join)
ANYTHING = st.text(max_size=300) | MARKDOWN


def spans(rich: RichText) -> list[tuple[str, str]]:
    units = rich.text.encode("utf-16-le")
    return [
        (span.kind, units[2 * span.offset : 2 * span.end].decode("utf-16-le"))
        for span in rich.spans
    ]


def entities(rich: RichText) -> list[dict[str, Any]]:
    return [
        {"type": span.kind, "offset": span.offset, "length": span.length, "url": span.url}
        for span in rich.spans
    ]


@given(ANYTHING)
def test_telegram_takes_the_formatting_of_any_text(markdown: str) -> None:
    rich = render_markdown(markdown)

    assert bot_api.entity_problem(rich.text, entities(rich)) == ""
    rich.text.encode()


@given(ANYTHING, st.integers(2, 80))
def test_parts_are_short_enough_and_together_the_whole(markdown: str, limit: int) -> None:
    rich = render_markdown(markdown)

    parts = split_rich(rich, limit)

    assert "".join("".join(part.text for part in parts).split()) == "".join(rich.text.split())
    for part in parts:
        assert 0 < utf16_length(part.text) <= limit
        assert part.text.strip()
        assert bot_api.entity_problem(part.text, entities(part)) == ""


@given(ANYTHING, st.integers(2, 80))
def test_what_was_formatted_stays_formatted_when_it_is_cut(markdown: str, limit: int) -> None:
    rich = render_markdown(markdown)

    def dressed(parts: list[RichText]) -> list[str]:
        found = []
        for part in parts:
            for index, letter in enumerate(part.text):
                unit = utf16_length(part.text[:index])
                kinds = {span.kind for span in part.spans if span.offset <= unit < span.end}
                found += [f"{letter} {sorted(kinds)}"] if letter.strip() else []
        return found

    assert dressed(split_rich(rich, limit)) == dressed([rich])


@given(ANYTHING)
def test_no_word_is_lost(markdown: str) -> None:
    # The numbers of a list are counted.
    counted = re.sub(r"\d+[.)]", " ", unicodedata.normalize("NFC", markdown))
    wanted = re.findall(r"[^\W_]+", counted)
    rich = render_markdown(markdown)
    # Addresses and languages of code are shown by Telegram, not written into the text.
    shown = rich.text + "".join(span.url + span.language for span in rich.spans)
    shown = unicodedata.normalize("NFC", shown + unquote(shown))

    # Character references such as `&lt;` stand for what they mean.
    assert "&" in markdown or [word for word in wanted if word not in shown] == []


@given(st.text(alphabet="aZ 9äß漢😀,", max_size=200))
def test_text_without_markup_is_unchanged(text: str) -> None:
    assume(not text.startswith(" " * 4))  # which is code
    lines = render_markdown(text).text
    assert lines.split() == text.split()
    assert render_markdown(text).spans == ()


@pytest.mark.parametrize(
    ("markdown", "text", "expected"),
    [
        ("**b** *i* ~~s~~ `c`", "b i s c", "bold b|italic i|strikethrough s|code c"),
        ("a snake_case_name b", "a snake_case_name b", ""),
        ("# Title\ntext", "Title\n\ntext", "bold Title"),
        ("**a `c` b**", "a c b", "bold a |code c|bold  b"),
        ("***x***", "x", "bold x|italic x"),
        ("# A **b** c", "A b c", "bold A b c"),
        ("> quoted\n> more\n\nplain", "quoted\nmore\n\nplain", "blockquote quoted\nmore"),
        ("> a\n> > b", "a\n\n> b", "blockquote a\n\n> b"),
        ("[x](https://e.org/a_b)", "x", "text_link x"),
        ("[`x`](https://e.org)", "x", "text_link x"),
        ("<https://e.org>", "https://e.org", "text_link https://e.org"),
        ("[m](mailto:a@b.org) [t](tg://user?id=1)", "m t", "text_link m|text_link t"),
        ("[x](javascript:alert)", "[x](javascript:alert)", ""),
        ("[x](file:///etc/passwd)", "[x](file:///etc/passwd)", ""),
        ("[x](ftp://e.org)", "x (ftp://e.org)", ""),
        ("[x](docs/a.md)", "x (docs/a.md)", ""),
        ("![alt](https://e.org/p.png)", "alt", "text_link alt"),
        ("![](https://e.org/p.png)", "https://e.org/p.png", "text_link https://e.org/p.png"),
        ("- a\n- b\n  - c", "• a\n• b\n  • c", ""),
        ("3. a\n4. b", "3. a\n4. b", ""),
        ("- a\n\n  more\n- b", "• a\n\n  more\n\n• b", ""),
        ("a Vec<T> <b>x</b> &lt;", "a Vec<T> <b>x</b> <", ""),
        ("<div>\nx\n</div>", "<div>\nx\n</div>", ""),
        ("[ref]: https://e.org", "[ref]: https://e.org", ""),
        ("---", "———", ""),
        ("    indented", "indented", "pre indented"),
        ("😀 **b**", "😀 b", "bold b"),
        ("half \ud83d", "half �", ""),
        ("```\n```", "```\n```", ""),
        ("", "", ""),
    ],
)
def test_forms(markdown: str, text: str, expected: str) -> None:
    rich = render_markdown(markdown)

    assert rich.text == text
    assert "|".join(f"{kind} {words}" for kind, words in spans(rich)) == expected


def test_code_keeps_its_language_and_its_markup() -> None:
    rich = render_markdown("before\n\n```python\nx = **y**\n\n  z\n```\nafter")

    assert rich.text == "before\n\nx = **y**\n\n  z\n\nafter"
    assert spans(rich) == [("pre", "x = **y**\n\n  z")]
    assert rich.spans[0].language == "python"


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("```py name=x\ny\n```", "name=x\ny"),
        ("a\n```py name=x\n```", "a\n\npy name=x"),
        ('[a](https://e.org "b")', "a (b)"),
        ('![a](c "b")', "a (c) (b)"),
        ('| a |\n|---|\n| [b](c "d") |', "a\n---------\nb (c (d))"),
        ("| a |\n|---|\n| b | c | d |", "a\n---------\nb | c | d"),
        ("0. a\n0. b\n7. c", "0. a\n1. b\n7. c"),
    ],
)
def test_what_telegram_has_no_place_for_stands_in_the_text(markdown: str, text: str) -> None:
    assert render_markdown(markdown).text == text


def test_tables_are_columns_of_fixed_width() -> None:
    rich = render_markdown("| name | n |\n|---|--:|\n| 漢字 | **1** |\n| x | [l](http://e.org) |")

    assert rich.text.splitlines() == [
        "name | n",
        "-----+-----------------",
        "漢字 | 1",
        "x    | l (http://e.org)",
    ]
    assert [kind for kind, _ in spans(rich)] == ["pre"]


def test_text_nested_deeper_than_anybody_reads_is_kept_as_it_is() -> None:
    deep = "> " * 200 + "x"

    assert render_markdown(deep).text == deep


def test_a_long_text_is_cut_at_line_feeds_then_at_spaces() -> None:
    lines = [f"line {number} of many words" for number in range(20)]
    parts = split_rich(RichText("\n".join(lines)), 100)
    assert [part.text.rstrip("\n").splitlines()[0] for part in parts] == lines[::4]

    words = split_rich(RichText("word " * 50), 99)
    assert {part.text.replace("word ", "") for part in words} == {""}


def test_a_link_is_not_cut_where_it_can_be_kept_whole() -> None:
    rich = render_markdown("x" * 80 + " [a link of many words](https://e.org)")

    first, second = split_rich(rich, 100)

    assert spans(first) == []
    assert spans(second) == [("text_link", "a link of many words")]


def test_cut_code_goes_on_as_code() -> None:
    rich = render_markdown("```py\n" + "\n".join(f"line_{n} = {n}" for n in range(40)) + "\n```")

    parts = split_rich(rich, 200)

    assert len(parts) > 2
    for part in parts:
        assert [(span.kind, span.language) for span in part.spans] == [("pre", "py")]
        assert part.spans[0].length == utf16_length(part.text)


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(["*", "_", "[", "`", "> ", "~~", "|", "![", "<", "&", "- ", "\\"]))
def test_hostile_repetition_is_read_in_reasonable_time(piece: str) -> None:
    markdown = piece * 4_000

    parts = split_rich(render_markdown(markdown), 4_000)

    assert all(utf16_length(part.text) <= 4_000 for part in parts)
