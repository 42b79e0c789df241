"""Text with formatting becomes markup, which shows the same text on every platform."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, strategies as st

pytest.importorskip("markdown_it")
from nanobot_core.chat import (
    COMMONMARK,
    DISCORD,
    FEISHU,
    HTML,
    MRKDWN,
    PLAIN,
    WHATSAPP,
    Dialect,
    RichText,
    Span,
    SpanKind,
    render_markdown,
    split_rich,
    write_markup,
)
from tests.unit.chat import markup_readers as readers

DIALECTS: dict[str, tuple[Dialect, Callable[[str], str]]] = {
    "commonmark": (COMMONMARK, readers.read_commonmark),
    "feishu": (FEISHU, readers.read_commonmark),
    "discord": (DISCORD, readers.read_discord),
    "mrkdwn": (MRKDWN, readers.read_mrkdwn),
    "whatsapp": (WHATSAPP, readers.read_whatsapp),
    "html": (HTML, readers.read_html),
    "plain": (PLAIN, str),
}
MENTIONS = [
    "@everyone",
    "@here",
    "<@123>",
    "<@!123>",
    "<@&45>",
    "<#77>",
    "<:wave:12>",
    "<a:wave:12>",
    "<!channel>",
    "<!subteam^S1>",
    "<@U123>",
    "<at id=all></at>",
    "<at user_id='ou_1'>x</at>",
    "<qqbot-at-everyone />",
    "</ping:123>",
    "<t:1:R>",
    "@room",
    "https://matrix.to/#/@ann:e.org",
]
LIVE_MENTIONS: dict[str, str] = {
    "commonmark": r"<(?:[@#]|!(?:channel|subteam)|/?at\b|qqbot)|@(?:everyone|here)",
    "feishu": r"<(?:[@#]|!(?:channel|subteam)|/?at\b|qqbot)|@(?:everyone|here)",
    "discord": r"<[@#/]|<a?:|<t:|@(?:everyone|here)",
    "mrkdwn": r"<[!@#]",
    "whatsapp": r"(?!)",
    "plain": r"(?!)",
    "html": r"<at|<!|<@|@room|matrix\.to/#/@",
}
PIECES = [
    *"*_~`#>-+=|[]()!<>&\\\n\t .:;1a中（。é€😀\u00a0\u200b\u2003",
    *"  \n\nab",
    "**",
    "***",
    "~~",
    "||",
    "``",
    "```",
    "```python\n",
    "```\n",
    "\n\n",
    "\n> ",
    "\n> > ",
    "\n- ",
    "\n1. ",
    "\n7) ",
    "\n    ",
    "\n# ",
    "\n---\n",
    "\n===\n",
    "| a | b |\n|---|---|\n| c | d |\n",
    "|---|---|\n",
    "[x](https://e.org/a_(b)*c)",
    "[**x** y](https://e.org)",
    "[x](mailto:a@e.org)",
    "![x](https://e.org)",
    "[1]: https://e.org\n",
    "<https://e.org/x_y_z>",
    " https://e.org/_a_*b*~c~ ",
    "https://e.org",
    "snake_case_name",
    "__init__",
    "&amp;",
    "&lt;",
    "&#42;",
    "<b>",
    "<!-- x -->",
    "word",
    " word ",
    "**bold**",
    "*it*",
    "~~gone~~",
    "`code`",
    "`` a`b ``",
    *MENTIONS,
]
MARKDOWN = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
STYLES: list[SpanKind] = ["bold", "italic", "strikethrough"]


@st.composite
def rich_texts(draw: st.DrawFn) -> RichText:
    """Texts with spans that are nested or separate, which no Markdown may produce."""
    text = draw(MARKDOWN)
    spans: list[Span] = []

    def fill(begin: int, end: int, kinds: list[SpanKind]) -> None:
        while kinds and begin < end and draw(st.booleans()):
            first = draw(st.integers(begin, end - 1))
            last = draw(st.integers(first + 1, end))
            kind = draw(st.sampled_from(kinds))
            url = "https://e.org/a_b*c" if kind == "link" else ""
            spans.append(Span(kind, first, last - first, url, "py" if kind == "pre" else ""))
            inner: list[SpanKind] = [other for other in kinds if other != kind]
            if kind in {"code", "pre"}:
                inner = []
            elif kind != "quote":
                inner = [other for other in inner if other not in {"pre", "quote", "heading"}]
            fill(first, last, inner)
            begin = last

    fill(0, len(text), [*STYLES, "code", "pre", "link", "quote", "heading"])
    return RichText(text, tuple(sorted(spans, key=lambda span: (span.offset, -span.length))))


@pytest.mark.parametrize("name", DIALECTS)
@given(rich=st.one_of(MARKDOWN.map(render_markdown), rich_texts(), st.text().map(RichText)))
def test_markup_shows_the_text(name: str, rich: RichText) -> None:
    check(name, rich)


@pytest.mark.parametrize("name", DIALECTS)
@given(markdown=MARKDOWN, limit=st.integers(12, 80))
def test_parts_are_within_the_limit_as_they_are_sent(name: str, markdown: str, limit: int) -> None:
    dialect, _ = DIALECTS[name]

    def size(part: RichText) -> int:
        return max(len(part.text), len(write_markup(part, dialect)))

    for part in split_rich(render_markdown(markdown), limit, size):
        assert len(write_markup(part, dialect)) <= limit


@pytest.mark.parametrize(
    ("name", "markdown", "markup"),
    [
        ("commonmark", "a **b *c*** ~~d~~ `e`", "a **b *c*** ~~d~~ `e`"),
        ("commonmark", "# Title\n\n* one\n  * two", "**Title**\n\n• one  \n\u00a0\u00a0• two"),
        ("commonmark", "2 \\* 3 and \\*x\\*", "2 * 3 and \\*x\\*"),
        ("commonmark", "snake_case \\_x", "snake_case \\_x"),
        ("commonmark", "\\# a\n\\+ b", "\\# a  \n\\+ b"),
        ("commonmark", "&amp;amp; <b> a < b", "&amp;amp; &lt;b> a < b"),
        ("commonmark", "[a](https://e.org/x_(y))", "[a](<https://e.org/x_%28y%29>)"),
        ("commonmark", "\\![a](https://e.org)", "!\u200b[a](<https://e.org>)"),
        ("commonmark", "````md\n```\nx\n```\n````", "````md\n```\nx\n```\n````"),
        ("commonmark", "> a\n\nb", "> a\n\nb"),
        ("commonmark", "``a ` b``", "``a ` b``"),
        ("commonmark", "`` ` ``", "`` ` ``"),
        ("feishu", "\\*x\\* <at id=all>", "&#42;x&#42; &lt;at id=all>"),
        ("discord", "__init__ a_b", "\\_\\_init\\_\\_ a\\_b"),
        ("discord", "a **b** [c](https://e.org)", "a **b** [c](<https://e.org>)"),
        ("discord", "[e.org/a](https://e.org/a_b)", "[e.org/a](<https://e.org/a_b>)"),
        ("discord", "[see https://a](https://e.org)", "see https://a (<https://e.org>)"),
        ("discord", "https://e.org/a_b_*c", "https://e.org/a_b_*c"),
        ("discord", "**see https://e.org/a_b**", "**see** https://e.org/a_b"),
        ("discord", "```c++\nx\n```", "```c++\nx\n```"),
        ("discord", "> a\n> b", "> a\n> b"),
        ("discord", "@everyone <@1>", "@\u200beveryone \\<\u200b@1>"),
        ("discord", "a || b", "a \\|\\| b"),
        ("mrkdwn", "**a _b_** ~~c~~ & <d>", "*a _b_* ~c~ &amp; &lt;d&gt;"),
        ("mrkdwn", "[a & b](https://e.org?x&y)", "<https://e.org?x&amp;y|a &amp; b>"),
        ("mrkdwn", "<!channel> <@U1>", "&lt;!channel&gt; &lt;@U1&gt;"),
        ("mrkdwn", "2 \\* 3 = a_b", "2 * 3 = a_b"),
        ("mrkdwn", "\\*x\\*", "\u200b*\u200bx\u200b*\u200b"),
        ("mrkdwn", "**a**b", "ab"),
        ("mrkdwn", "```py\nx < y\n```", "```\nx &lt; y\n```"),
        ("whatsapp", "**a _b_** ~~c~~ `d`", "*a _b_* ~c~ ```d```"),
        ("whatsapp", "[a](https://e.org) https://e.org", "a (https://e.org) https://e.org"),
        ("whatsapp", "<https://e.org/a_b>", "https://e.org/a_b"),
        ("whatsapp", "> a\n\nb", "> a\n\nb"),
        ("html", "**a** *b* ~~c~~ `d`", "<b>a</b> <i>b</i> <s>c</s> <code>d</code>"),
        ("html", "a\nb\n\n* c\n  * d", "a<br>b<br><br>• c<br>\u00a0 • d"),
        ("html", "# T\n\nx", "<h3>T</h3>x"),
        ("html", "> a\n\nb", "<blockquote>a</blockquote>b"),
        ("html", "```py\nx\n```", '<pre><code class="language-py">x</code></pre>'),
        ("html", '[a](https://e.org?"&b)', '<a href="https://e.org?%22&amp;b">a</a>'),
        ("html", "@room", "@\u200broom"),
        ("plain", "# a\n\n**b** `c` [d](https://e.org)", "a\n\nb c d (https://e.org)"),
        ("plain", "```py\nx\n```\n\n> y\n> z", "x\n\n> y\n> z"),
    ],
)
def test_markup_of_a_platform(name: str, markdown: str, markup: str) -> None:
    assert write_markup(render_markdown(markdown), DIALECTS[name][0]) == markup


def test_an_address_follows_a_link_that_ends_with_a_line() -> None:
    rich = RichText("x\ny", (Span("link", 0, 2, "https://e.org"),))

    assert write_markup(rich, WHATSAPP) == "x (https://e.org)\ny"


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", "http:///x", "//e.org"])
def test_only_web_addresses_become_links(name: str, url: str) -> None:
    rich = RichText("x", (Span("link", 0, 1, url),))

    markup = write_markup(rich, DIALECTS[name][0])

    assert not re.search(r"href|\]\(|\|x>", markup), markup
    assert re.sub("[\\\\\u200b\u200c]", "", markup).startswith("x (")


@pytest.mark.parametrize("name", DIALECTS)
def test_markup_of_long_texts_takes_no_longer_for_each_character(name: str) -> None:
    line = "a *b* _c_ https://e.org/_d [e](f) <@1> `g\n"
    spans = [Span(STYLES[index % 3], 5 * index, 4) for index in range(20_000)]
    rich = RichText(line * 2_500, tuple(spans))

    write_markup(rich, DIALECTS[name][0])  # else it runs into the time limit of tests


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", DIALECTS)
def test_markup_shows_the_text_of_40000_answers(name: str) -> None:
    chance = random.Random(14)
    for _ in range(40_000):
        markdown = "".join(chance.choices(PIECES, k=chance.randint(1, 40)))
        check(name, render_markdown(markdown))


def check(name: str, rich: RichText) -> None:
    dialect, read = DIALECTS[name]
    markup = write_markup(rich, dialect)
    read_text, source = plain(read(markup)), plain("".join(shown(rich, dialect)))
    if name == "plain":  # nothing distinguishes its quotes from a text that looks like one
        read_text, source = plain(read_text.replace(">", "")), plain(source.replace(">", ""))
    assert read_text == source, (rich, markup)
    assert not re.search(LIVE_MENTIONS[name], markup), markup


def shown(rich: RichText, dialect: Dialect) -> Iterator[str]:
    """Yield the text with the addresses that are written after their links, and block edges."""
    edges: dict[int, str] = {}
    addresses: dict[int, str] = {}
    last = 0
    for span in rich.spans:
        blocks = {"pre", "quote"} | ({"heading"} if dialect.heading else set())
        if span.kind in blocks and rich.text[span.offset : span.end].strip():
            edges[span.offset] = "\n" + edges.get(span.offset, "")
            edges[span.end] = edges.get(span.end, "") + "\n"
        label = rich.text[span.offset : span.end].rstrip()
        is_bare = span.kind == "link" and not is_linked(span, label, dialect)
        if is_bare and label.strip() and span.url != label:
            addresses[span.offset + len(label)] = f" ({span.url})"
    for place in sorted({*edges, *addresses}):
        yield rich.text[last:place] + addresses.get(place, "") + edges.get(place, "")
        last = place
    yield rich.text[last:]


def is_linked(span: Span, label: str, dialect: Dialect) -> bool:
    is_refused = dialect.refused_labels and dialect.refused_labels.search(label)
    scheme = span.url.partition(":")[0]
    return bool(dialect.link and not is_refused and scheme in dialect.schemes)


def plain(text: str) -> str:
    """Return a text without what may change: white space at edges, joints, forms of addresses."""
    text = re.sub("[\u200b\u200c]", "", text).replace("\u00a0", " ").replace("\r", " ")
    text = text.replace("\0", "\ufffd")
    text = re.sub("%(2A|5F|7E|60|28|29)", lambda found: chr(int(found[1], 16)), text)
    return "\n".join(line.strip() for line in text.split("\n") if line.strip())
