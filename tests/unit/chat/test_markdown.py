"""Markdown becomes formatted text, which is split into messages."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote

import pytest
from hypothesis import assume, given, settings, strategies as st

pytest.importorskip("markdown_it")
from nanobot_core.chat import RichText, Span, render_markdown, split_rich, utf16_length
from tests.fuzz.markdown import check_spans

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
    return [(span.kind, rich.text[span.offset : span.end]) for span in rich.spans]


@given(ANYTHING)
def test_the_formatting_of_any_text_is_nested(markdown: str) -> None:
    rich = render_markdown(markdown)

    check_spans(rich)
    rich.text.encode()


@given(ANYTHING, st.integers(2, 80))
def test_parts_are_short_enough_and_together_the_whole(markdown: str, limit: int) -> None:
    rich = render_markdown(markdown)

    parts = split_rich(rich, limit)

    assert "".join("".join(part.text for part in parts).split()) == "".join(rich.text.split())
    for part in parts:
        assert 0 < utf16_length(part.text) <= limit
        assert part.text.strip()
        check_spans(part)


@given(ANYTHING, st.integers(2, 80))
def test_what_was_formatted_stays_formatted_when_it_is_cut(markdown: str, limit: int) -> None:
    rich = render_markdown(markdown)

    def dressed(parts: list[RichText]) -> list[str]:
        found = []
        for part in parts:
            for index, letter in enumerate(part.text):
                kinds = {span.kind for span in part.spans if span.offset <= index < span.end}
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


WORD = st.text("abcXYZ019", min_size=1, max_size=4)
MARKED = st.text("ab_*~9", min_size=1, max_size=6)
DUNDER = st.from_regex(r"__[a-z]{1,5}(_[a-z]{1,3})?__", fullmatch=True)
FILE_NAME = st.tuples(st.one_of(WORD, DUNDER, MARKED), st.sampled_from([".py", ".md", ".txt"]))
NAMES = st.one_of(
    DUNDER,
    st.tuples(DUNDER | WORD, st.sampled_from([".py", ".__all__", "()", "(self)"])).map("".join),
    # Addresses and paths, whatever their parts are made of.
    st.lists(MARKED, min_size=1, max_size=4).map(lambda parts: "https://e.org/" + "/".join(parts)),
    st.tuples(MARKED, MARKED).map(lambda pair: f"https://e.org/?{pair[0]}={pair[1]}&copy;=1"),
    st.tuples(WORD, st.lists(MARKED | DUNDER, min_size=1, max_size=3)).map(
        lambda found: "/".join([found[0], *found[1]])
    ),
    st.tuples(DUNDER, FILE_NAME.map("".join)).map("/".join),
    st.lists(MARKED, min_size=1, max_size=3).map(lambda parts: "C:\\" + "\\".join(parts)),
    st.lists(WORD, min_size=2, max_size=4).map("_".join),
    # Calculations and code.
    st.lists(WORD, min_size=2, max_size=4).map("*".join),
    st.lists(WORD, min_size=2, max_size=4).map("**".join),
    st.sampled_from(
        [
            *("**/*.py", "*.log*", "**/node_modules/**", "src/**"),
            *("count(*),", "sum(*)", "KEY=_VALUE_", "--flag=_x_", "2 * 3 * 4", "a.*b(.*)c"),
            *(
                "\\\\server\\_share_\\x",
                ".\\_x_\\run.bat",
                "%TEMP%\\_x_",
                "C:\\dir\\",
                r"^\d+\.\d+$",
            ),
            *("std::vector<std::string>", "Ann <ann_b@e.org>", "handlers[name](event)", "a<b>c"),
            *("a_b_@e.org", "foo@_bar_.com", "~/x/~~y~~/z", "x[1][2](3)", "$_x_", "#_x_"),
        ]
    ),
)


@given(st.lists(st.lists(NAMES | WORD, min_size=1, max_size=5).map(" ".join), min_size=1))
def test_names_paths_and_addresses_are_shown_as_they_are(lines: list[str]) -> None:
    """Of ``__init__.py`` only ``init.py`` was left, and of ``a*b*c`` only ``abc``."""
    # What a line begins with may make it a list or a rule.
    text = "\n".join(f"in {line}" for line in lines)
    rich = render_markdown(text)

    assert rich.text == text
    assert rich.spans == ()


@given(NAMES.filter(lambda name: name[0] not in "*_~" and name[-1].isalnum() and " " not in name))
def test_a_name_in_bold_loses_its_marks_alone(name: str) -> None:
    assume("*" not in name and "[" not in name and "<" not in name)
    rich = render_markdown(f"see **{name}** now")

    assert rich.text == f"see {name} now"
    assert spans(rich) == [("bold", name)]


@pytest.mark.parametrize(
    ("markdown", "text", "expected"),
    [
        (
            "_x_ **yes**/**no** **H**yper**T**ext",
            "x yes/no HyperText",
            "italic x|bold yes|bold no|bold H|bold T",
        ),
        (
            "**/etc/hosts** **.env** **-5%**",
            "/etc/hosts .env -5%",
            "bold /etc/hosts|bold .env|bold -5%",
        ),
        (
            "*Nature*'s **well**-known **a**, (*b*).",
            "Nature's well-known a, (b).",
            "italic Nature|bold well|bold a|italic b",
        ),
        ("请看https://e.org/a_b，**重要**です", "请看https://e.org/a_b，重要です", "bold 重要"),
        (
            "*see /etc/hosts.* snake\\_case \\*",
            "see /etc/hosts. snake_case *",
            "italic see /etc/hosts.",
        ),
        (
            "see[docs](https://e.org) <mailto:a@b.org>",
            "seedocs mailto:a@b.org",
            "link docs|link mailto:a@b.org",
        ),
        ("f(*args, **kwargs) or g(*a)", "f(*args, **kwargs) or g(*a)", ""),
        ("a\n-", "a\n-", ""),
        ("a\n=\nb", "a\n=\nb", ""),
        ("a\n\n#\n\nb", "a\n\n#\n\nb", "heading #"),
        (">", ">", "quote >"),
        ("10) a", "10) a", ""),
        ("C:\\x\\\ny", "C:\\x\\\ny", ""),
        ("**b** *i* ~~s~~ `c`", "b i s c", "bold b|italic i|strikethrough s|code c"),
        ("a snake_case_name b", "a snake_case_name b", ""),
        ("# Title\ntext", "Title\n\ntext", "heading Title"),
        ("**a `c` b**", "a c b", "bold a |code c|bold  b"),
        ("***x***", "x", "bold x|italic x"),
        ("# A **b** c", "A b c", "heading A b c"),
        ("> quoted\n> more\n\nplain", "quoted\nmore\n\nplain", "quote quoted\nmore"),
        ("> a\n> > b", "a\n\n> b", "quote a\n\n> b"),
        ("[x](https://e.org/a_b)", "x", "link x"),
        ("[`x`](https://e.org)", "x", "link x"),
        ("<https://e.org>", "https://e.org", "link https://e.org"),
        ("[m](mailto:a@b.org) [t](http://e.org)", "m t", "link m|link t"),
        ("[x](javascript:alert)", "[x](javascript:alert)", ""),
        ("[x](file:///etc/passwd)", "[x](file:///etc/passwd)", ""),
        ("[x](ftp://e.org)", "x (ftp://e.org)", ""),
        ("[x](docs/a.md)", "x (docs/a.md)", ""),
        ("![alt](https://e.org/p.png)", "alt", "link alt"),
        ("![](https://e.org/p.png)", "https://e.org/p.png", "link https://e.org/p.png"),
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
def test_what_has_no_formatting_is_in_the_text(markdown: str, text: str) -> None:
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
    assert spans(second) == [("link", "a link of many words")]


def test_cut_code_goes_on_as_code() -> None:
    rich = render_markdown("```py\n" + "\n".join(f"line_{n} = {n}" for n in range(40)) + "\n```")

    parts = split_rich(rich, 200)

    assert len(parts) > 2
    for part in parts:
        assert [(span.kind, span.language) for span in part.spans] == [("pre", "py")]
        assert part.spans[0].length == len(part.text)


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(["*", "_", "[", "`", "> ", "~~", "|", "![", "<", "&", "- ", "\\"]))
def test_hostile_repetition_is_read_in_reasonable_time(piece: str) -> None:
    markdown = piece * 4_000

    parts = split_rich(render_markdown(markdown), 4_000)

    assert all(utf16_length(part.text) <= 4_000 for part in parts)


def written(part: RichText) -> int:
    """The size of a part that a chat receives with markup: two characters around each span."""
    return len(part.text.encode()) + sum(4 + len(span.url) for span in part.spans)


@given(ANYTHING, st.integers(4, 80))
def test_parts_fit_in_the_unit_of_the_platform(markdown: str, limit: int) -> None:
    rich = render_markdown(markdown)

    parts = split_rich(rich, limit, written)

    assert "".join("".join(part.text for part in parts).split()) == "".join(rich.text.split())
    for part in parts:
        assert written(part) <= limit
        check_spans(part)


def test_a_link_that_alone_exceeds_the_limit_is_left_as_text() -> None:
    rich = RichText("see this", (Span("link", 4, 4, "https://example.org/" + "x" * 100),))

    assert split_rich(rich, 50, written) == [RichText("see "), RichText("this")]


def test_only_addresses_that_the_chat_opens_are_links() -> None:
    markdown = "[a](tg://user?id=1) and [b](https://e.org)"

    assert spans(render_markdown(markdown)) == [("link", "b")]
    assert spans(render_markdown(markdown, {"tg"})) == [("link", "a")]


def test_bold_words_in_a_heading_are_part_of_it() -> None:
    assert spans(render_markdown("# One **two**\n\n**three**")) == [
        ("heading", "One two"),
        ("bold", "three"),
    ]
