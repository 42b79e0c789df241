"""Converts formatted text to Slack's blocks.

A ``rich_text`` block contains text and formatting separately, so that no character of a text is
markup: nothing can fail to parse, and no text can notify people.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import TypeAlias

from nanobot_core import Button, JsonObject, JsonValue, shorten
from nanobot_core.chat import Piece, RichText, Span

_STYLES = {
    "bold": "bold",
    "heading": "bold",
    "italic": "italic",
    "strikethrough": "strike",
    "code": "code",
}
_CONTAINERS = ("pre", "quote")
_URL_CHARS = 3_000
_LABEL_CHARS = 75
_ROW_BUTTONS = 25
_ROWS = 40
"""A message has at most 50 blocks."""

_Run: TypeAlias = tuple[str, tuple[Span, ...]]
"""A passage, and the formatting of all of it."""


def escape(text: str) -> str:
    """Return `text` such that Slack shows it, where it would read markup and mentions."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def measure(part: RichText) -> int:
    """Return the characters that count for Slack's limits, in either of the two forms."""
    return len(escape(part.text)) + sum(len(span.url) for span in part.spans)


def build_content(piece: Piece) -> JsonObject:
    """Return the arguments of ``chat.postMessage`` that show `piece`.

    The ``text`` is what notifications, screen readers and other programs read. Plain text needs no
    blocks, so that it arrives if Slack refuses them.
    """
    if piece.text.spans or piece.buttons:
        return _with_blocks(piece)
    return {"text": escape(piece.text.text), "mrkdwn": False}


def build_edit(piece: Piece) -> JsonObject:
    """Return the arguments of ``chat.update``, which cannot switch off markup in a plain text."""
    return _with_blocks(piece)


def _with_blocks(piece: Piece) -> JsonObject:
    blocks: list[JsonValue] = [*_text_blocks(piece.text), *_rows(piece.buttons)]
    return {"text": escape(piece.text.text), "blocks": blocks}


def _text_blocks(rich: RichText) -> Iterator[JsonObject]:
    elements: list[JsonValue] = []
    for container, runs in groupby(_runs(rich), key=lambda run: _container(run[1])):
        element = _element(container, list(runs))
        if element is not None:
            elements.append(element)
    if elements:
        yield {"type": "rich_text", "elements": elements}


def _runs(rich: RichText) -> Iterator[_Run]:
    """Divide a text where its formatting changes."""
    ends = {0, len(rich.text)}
    for span in rich.spans:
        ends |= {span.offset, span.end}
    cuts = sorted(ends)
    open_spans: list[Span] = []
    waiting = list(reversed(rich.spans))
    for begin, end in pairwise(cuts):
        open_spans = [span for span in open_spans if span.end > begin]
        while waiting and waiting[-1].offset <= begin:
            open_spans.append(waiting.pop())
        yield rich.text[begin:end], tuple(open_spans)


def _container(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Return the spans that are blocks of their own; those of a quote may contain code."""
    return tuple(span for span in spans if span.kind in _CONTAINERS)


def _element(container: tuple[Span, ...], runs: list[_Run]) -> JsonObject | None:
    # Slack begins a line before and after each of these.
    text = "".join(text for text, _ in runs)
    lead, tail = len(text) - len(text.lstrip("\n")), len(text) - len(text.rstrip("\n"))
    runs = _trimmed(runs, lead, len(text) - tail)
    if not runs:
        return None
    kinds = [span.kind for span in container]
    if "pre" in kinds:
        code: JsonValue = [{"type": "text", "text": "".join(text for text, _ in runs)}]
        border: JsonObject = {"border": 1} if "quote" in kinds else {}
        return {"type": "rich_text_preformatted", "elements": code, **border}
    kind = "rich_text_quote" if kinds else "rich_text_section"
    return {"type": kind, "elements": [_inline(text, spans) for text, spans in runs]}


def _trimmed(runs: list[_Run], begin: int, end: int) -> list[_Run]:
    """Return the runs between two positions of their text."""
    kept, at = [], 0
    for text, spans in runs:
        part = text[max(begin - at, 0) : max(end - at, 0)]
        if part:
            kept.append((part, spans))
        at += len(text)
    return kept


def _inline(text: str, spans: Sequence[Span]) -> JsonObject:
    style: JsonObject = {_STYLES[span.kind]: True for span in spans if span.kind in _STYLES}
    url = next((span.url for span in spans if span.kind == "link"), "")
    element: JsonObject = {"type": "text", "text": text}
    if url and len(url) <= _URL_CHARS:
        element = {"type": "link", "url": url, "text": text}
    return element | ({"style": style} if style else {})


def _rows(buttons: Sequence[Sequence[Button]]) -> Iterator[JsonObject]:
    for row, each in enumerate(buttons[:_ROWS]):
        elements: list[JsonValue] = [
            {
                "type": "button",
                "action_id": f"button-{row}-{column}",
                "text": {"type": "plain_text", "text": shorten(button.label, _LABEL_CHARS)},
                "value": button.value,
            }
            for column, button in enumerate(each[:_ROW_BUTTONS])
        ]
        if elements:
            yield {"type": "actions", "elements": elements}
