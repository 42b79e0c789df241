"""Formatting as entities of the Bot API."""

from __future__ import annotations

import importlib
from typing import Any

from hypothesis import given, strategies as st

from nanobot_core.chat import RichText, Span, render_markdown, split_rich
from nanobot_telegram.client import entities_of
from nanobot_telegram.platform import SCHEMES

bot_api: Any = importlib.import_module("telegram_bot_api")

PIECES = st.sampled_from(
    [
        *"*_~`#>-[]()\n 1$😀é🇩🇪",
        *("**", "~~", "```", "```python\n", "\n\n", "\n> ", "\n- ", "\n    "),
        *("| a | b |\n|---|---|\n| c | d |\n", "[x](https://e.org)", "[x](tg://user?id=1)"),
        *('![x](y "title")', "# ", "**bold**"),
    ]
)


@given(st.lists(PIECES, max_size=40).map("".join), st.integers(2, 80))
def test_telegram_accepts_the_formatting_of_any_part(markdown: str, limit: int) -> None:
    for part in split_rich(render_markdown(markdown, SCHEMES), limit):
        found = [
            {"type": each.type, "offset": each.offset, "length": each.length, "url": each.url}
            for each in entities_of(part) or ()
        ]
        assert bot_api.entity_problem(part.text, found) == ""


def test_offsets_count_utf16_units() -> None:
    text = RichText("😀 a 😀b", (Span("heading", 2, 1), Span("link", 4, 2, "https://e.org")))

    found = entities_of(text) or []

    assert [(each.type, each.offset, each.length) for each in found] == [
        ("bold", 3, 1),
        ("text_link", 5, 3),
    ]
