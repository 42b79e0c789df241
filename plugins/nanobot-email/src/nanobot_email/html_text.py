"""Turns the HTML of a mail into the text that its reader sees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape

_LONGEST = 500_000
_DEEPEST = 200
_BLOCKS = re.compile(
    r"address|article|aside|blockquote|center|d[dlt]|div|fieldset|fig(ure|caption)|footer|form|h[1-6r]"
    r"|header|li|main|nav|[ou]l|p|pre|section|table|tr"
)
_UNSEEN = re.compile(r"head|iframe|math|noscript|object|script|style|svg|template|title")
_EMPTY = re.compile(r"area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr")
_HIDDEN = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|mso-hide\s*:\s*all"
    r"|(font-size|opacity|max-height|line-height)\s*:\s*0(\.0*)?\s*(px|pt|em|rem|%)?\s*(;|!|$)"
)
_LINES = re.compile(r"\n{3,}")
_SCHEMES = ("http://", "https://", "mailto:")


_TAG = re.compile(r"""<(/?)([a-z][a-z0-9:-]*)((?:[^>"']++|"[^"]*+"|'[^']*+')*+)>""", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""([a-z-]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+))?""", re.IGNORECASE)
_RAW = frozenset({"script", "style", "title"})


def render_html(html: str) -> str:
    """Return the visible text: quotations as ``> `` lines, links with their address.

    What its style hides is left out, because only the model would read it. Text in the colour of
    its background is not recognised.
    """
    reader = _Reader()
    for token in _tokens(html[:_LONGEST]):
        if isinstance(token, str):
            reader.add(token)
        elif token.is_end:
            reader.end(token.name)
        else:
            reader.begin(token)
    return reader.text


@dataclass(frozen=True, slots=True)
class _Tag:
    name: str
    is_end: bool
    attributes: str

    def get(self, name: str) -> str | None:
        for found, value in _ATTRIBUTE.findall(self.attributes):
            if found.lower() == name:
                return unescape(value.strip("\"'"))
        return None


def _tokens(html: str) -> Iterator[_Tag | str]:
    """Yield tags and texts.

    The time grows with the length, whatever is malformed; that of html.parser grows with its
    square. What is open at the end is left out, as in browsers.
    """
    lowered, position = html.lower(), 0
    while position < len(html):
        start = html.find("<", position)
        if start < 0:
            start = len(html)
        if start > position:
            yield unescape(html[position:start])
        position = start
        if html.startswith("<!--", start):
            position = _after(html, "-->", start + 4)
        elif html.startswith(("<!", "<?"), start):
            position = _after(html, ">", start)
        elif html[start + 1 : start + 2].isalpha() or html.startswith("</", start):
            tag = _TAG.match(html, start)
            if tag is None and html.startswith("</", start):
                position = _after(html, ">", start)
            elif tag is None:
                return
            else:
                name, position = tag[2].lower(), tag.end()
                yield _Tag(name, bool(tag[1]), tag[3])
                if name in _RAW and not tag[1]:
                    position = _before(lowered, f"</{name}", position)
        elif start < len(html):
            yield "<"
            position += 1


def _after(text: str, mark: str, position: int) -> int:
    """Return where `text` continues after `mark`, or its end if `mark` does not follow."""
    found = text.find(mark, position)
    return len(text) if found < 0 else found + len(mark)


def _before(text: str, mark: str, position: int) -> int:
    found = text.find(mark, position)
    return len(text) if found < 0 else found


class _Reader:
    """Collects lines; elements that end in the wrong order end with the one around them."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._hidden_from: int | None = None
        self._link = ("", "")
        self._line: list[str] = []
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        """The lines so far."""
        self._end_line()
        return _LINES.sub("\n\n", "\n".join(self._lines)).strip()

    def begin(self, tag: _Tag) -> None:
        """Begin an element."""
        name = tag.name
        if _BLOCKS.fullmatch(name) or name == "br":
            self._end_line()
        if name in {"p", "blockquote"} or name[1:].isdigit():
            self._lines.append(self._prefix)
        if _EMPTY.fullmatch(name) or len(self._open) >= _DEEPEST:
            return
        self._open.append(name)
        style = (tag.get("style") or "").lower()
        is_hidden = (
            _UNSEEN.fullmatch(name) or tag.get("hidden") is not None or _HIDDEN.search(style)
        )
        if is_hidden and self._hidden_from is None:
            self._hidden_from = len(self._open)
        if name == "li" and self._hidden_from is None:
            self._line.append("- ")
        if name == "a":
            self._link = ((tag.get("href") or "").strip(), "")

    def end(self, name: str) -> None:
        """End an element and those in it that are still open."""
        if name not in self._open:
            return
        if name == "a":
            self._end_link()
        if _BLOCKS.fullmatch(name):
            self._end_line()
        while self._open.pop() != name:
            pass
        if self._hidden_from is not None and len(self._open) < self._hidden_from:
            self._hidden_from = None
        if name == "blockquote":
            self._lines.append(self._prefix)

    def add(self, data: str) -> None:
        """Add text."""
        if self._hidden_from is not None:
            return
        if "pre" in self._open:
            first, *rest = data.split("\n")
            self._line.append(first)
            for line in rest:
                self._end_line()
                self._line.append(line)
            return
        words = " ".join(data.split())
        if data[:1].isspace() and self._line:
            self._line.append(" ")
        self._line.append(words + (" " if words and data[-1:].isspace() else ""))
        address, said = self._link
        self._link = (address, said + words)

    @property
    def _prefix(self) -> str:
        return "> " * min(self._open.count("blockquote"), 10)

    def _end_link(self) -> None:
        address, said = self._link
        self._link = ("", "")
        if self._hidden_from is None and address.lower().startswith(_SCHEMES):
            shown = address.removeprefix("mailto:")
            if said and shown.rstrip("/") not in said:
                self._line.append(f" ({shown})")

    def _end_line(self) -> None:
        line = "".join(self._line)
        self._line = []
        if "pre" not in self._open:
            line = " ".join(line.split())
        if line.strip():
            self._lines.append(self._prefix + line)
