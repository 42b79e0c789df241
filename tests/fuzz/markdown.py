"""Markdown for chats: plain text stays as it is, formatting is legal, parts are the whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from nanobot_core.chat import RichText, Span, render_markdown, split_rich, utf16_length
from tests.fuzz.choices import Choices

TOKENS: Final = (
    b"**", b"__", b"~~", b"`", b"```py\n", b"\n```\n", b"](https://x.y)", b"![a](b)", b"[a]: b\n",
    b"> ", b"- ", b"1. ", b"# ", b"| a | b |\n|---|---|\n| c | d |\n", b"---\n", b"\\", b"<b>",
    b"&amp;", b"__init__.py", b"https://a.b/_x_/y*z*", b"    ", b"\t", b"  \n", "🙂".encode(),
    b"&#0;",    b"tg://user?id=1", b"***", b"\xe2\x80\x8d", b"| ", b"~~~", b'"title")',
)  # fmt: skip
_LINE: Final = re.compile(r"[^\W\d_](?:[^\W_]|[ ,;?.()'/🙂])*")
_WORD: Final = re.compile(r"[^\W_]{3,}")
_NO_NESTING: Final = frozenset({"code", "pre"})


def fuzz_one(data: bytes) -> None:
    """Render a text and divide it."""
    choices = Choices(data)
    limit = 2 + choices.byte() * 4
    text = choices.rest().decode("utf-8", "replace")
    rich = render_markdown(text)
    check_spans(rich)
    if _is_plain(text):
        assert rich == RichText(text), f"plain text became {rich}"
    _check_words(text, rich)
    parts = split_rich(rich, limit)
    for part in parts:
        assert part.text.strip()
        assert utf16_length(part.text) <= limit
        check_spans(part)
    shown = "".join(rich.text.split())
    assert "".join("".join(part.text for part in parts).split()) == shown


def seeds() -> Iterator[bytes]:
    """Yield what models write."""
    for text in (
        "Hello, this is plain (really). See /tmp/__init__.py and https://a.b/_x_y_",
        "# Title\n\nSome **bold _both_** and `code` and ~~gone~~.\n\n- one\n  - two\n3. three\n",
        "```python\nprint('x')\n```\n\n> quoted\n> > twice\n\n[a](https://x.y \"t\") ![i](u)",
        "| a | b |\n|---|---|\n| `c` | 🙂 | surplus |\n\n---\n\n<b>html</b> &lt; \\*",
        "**a `b` c** [x](javascript:1) [y]() [z](tg://user?id=1)\n\n    code\n",
    ):
        yield b"\x20" + text.encode()
        yield b"\x01" + text.encode()


def check_spans(rich: RichText) -> None:
    """Check that spans are within the text and in order, and that they nest as promised."""
    for span in rich.spans:
        assert span.length > 0
        assert 0 <= span.offset < span.end <= len(rich.text)
        assert span.kind != "link" or span.url
    for one, other in pairwise(rich.spans):
        assert (one.offset, -one.length) <= (other.offset, -other.length)
    _check_nesting(rich.spans)


def _check_nesting(spans: Sequence[Span]) -> None:
    """Spans are nested or separate, and only a quote contains code."""
    open_spans: list[Span] = []
    for span in spans:
        while open_spans and open_spans[-1].end <= span.offset:
            open_spans.pop()
        for around in open_spans:
            assert span.end <= around.end, f"{span} reaches out of {around}"
            if (span.offset, span.length) == (around.offset, around.length):
                continue
            assert around.kind not in _NO_NESTING, f"{span} within {around}"
            assert span.kind not in _NO_NESTING or around.kind == "quote", f"{span}, {around}"
        open_spans.append(span)


def _is_plain(text: str) -> bool:
    return bool(_LINE.fullmatch(text)) and text == text.strip()


def _check_words(text: str, rich: RichText) -> None:
    """No word vanishes.

    Entities such as ``&amp;`` become what they stand for, and of a picture within a link only one
    address can be shown.
    """
    if "&" in text or "\\" in text or ("![" in text and text.count("](") > 1):
        return
    shown = rich.text + "".join(f"{span.url}{span.language}" for span in rich.spans)
    for word in _WORD.findall(text):
        if word.isascii():
            assert word in shown, f"'{word}' is gone"
