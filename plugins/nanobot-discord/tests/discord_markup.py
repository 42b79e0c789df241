"""Reads Discord's markup, as its clients show it."""

from __future__ import annotations

import re

_QUOTE = re.compile(r"(?:^> [^\n]*(?:\n|\Z))+", re.MULTILINE)
_BLOCK = re.compile(r"```(?:([\w+#.-]+)\n)?\n*([\s\S]+?)\n*```")
_HEADING = re.compile(r"#{1,3} +([^\n]+)")
_ITEM = re.compile(r" *(?:[-*]|\d+\.) ")
_ESCAPED = re.compile(r"\\([^0-9A-Za-z\s])")
_CODE = re.compile(r"(`+)([\s\S]*?[^`])\1(?!`)")
_LINK = re.compile(r"\[((?:\\.|[^\[\]\\])+)\]\(<?(https?://[^\s<>]+?)>?\)")
_ANGLED = re.compile(r"<(https?://[^\s>]+)>")
_URL = re.compile(r"https?://[^\s<]+[^\s<.,:;\"')\]]")
_STYLES = (
    ("bold", re.compile(r"\*\*((?:\\[\s\S]|[^\\])+?)\*\*(?!\*)")),
    ("underline", re.compile(r"__((?:\\[\s\S]|[^\\])+?)__(?!_)")),
    ("italic", re.compile(r"\*(?=\S)((?:\*\*|\\[\s\S]|[^\\*])+?)(?<!\s)\*(?!\*)")),
    ("italic", re.compile(r"\b_((?:__|\\[\s\S]|[^\\_])+?)_\b")),
    ("strikethrough", re.compile(r"~~([\s\S]+?)~~")),
    ("spoiler", re.compile(r"\|\|([\s\S]+?)\|\|")),
)
_INVISIBLE = "\u200b"


class Reading:
    """What a person sees of a message.

    Attributes:
        text: the words.
        spans: kind and words of each formatted part.
    """

    def __init__(self, markup: str) -> None:
        self._out: list[str] = []
        self.spans: list[tuple[str, str]] = []
        self._read(markup, is_start=True)
        self.text = "".join(self._out).replace(_INVISIBLE, "").strip("\n")

    def _read(self, markup: str, *, is_start: bool) -> None:
        position = 0
        while position < len(markup):
            at_start = position == 0 and is_start
            is_line = at_start or (position > 0 and markup[position - 1] == "\n")
            found = self._block(markup, position) if is_line else 0
            found = found or self._part(markup, position)
            if not found:
                self._out.append(markup[position])
            position += found or 1

    def _block(self, markup: str, position: int) -> int:
        quote = _QUOTE.match(markup, position)
        if quote:
            inner = re.sub(r"^> ", "", quote[0], flags=re.MULTILINE)
            self._note("quote", inner)
            return quote.end() - position
        heading = _HEADING.match(markup, position)
        if heading:
            self._note("heading", heading[1])
            return heading.end() - position
        item = _ITEM.match(markup, position)
        if item:
            self._out.append("• ")
            return item.end() - position
        return 0

    def _part(self, markup: str, position: int) -> int:
        escaped = _ESCAPED.match(markup, position)
        if escaped:
            self._out.append(escaped[1])
            return 2
        for kind, pattern, group in (("pre", _BLOCK, 2), ("code", _CODE, 2)):
            code = pattern.match(markup, position)
            if code:
                self._out.append("\n" * (kind == "pre") + code[group] + "\n" * (kind == "pre"))
                self.spans.append((kind, code[group]))
                return code.end() - position
        link = _LINK.match(markup, position)
        if link:
            self._note("link", link[1])
            return link.end() - position
        url = _ANGLED.match(markup, position) or _URL.match(markup, position)
        if url:
            self._out.append(url[0].strip("<>"))
            return url.end() - position
        for kind, pattern in _STYLES:
            style = pattern.match(markup, position)
            if style:
                self._note(kind, style[1])
                return style.end() - position
        return 0

    def _note(self, kind: str, markup: str) -> None:
        before = len(self._out)
        self._read(markup, is_start=kind == "quote")
        self.spans.append((kind, "".join(self._out[before:]).replace(_INVISIBLE, "")))
