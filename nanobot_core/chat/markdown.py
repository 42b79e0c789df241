"""Converts Markdown, as models write it, to text with formatting that chats can show.

Chats know less formatting than Markdown: code contains no other formatting, quotes are not nested,
there are no tables, and only some addresses are links.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import escapedSplit, table
from markdown_it.rules_inline import (
    StateInline,
    autolink,
    emphasis,
    entity,
    escape,
    link,
    strikethrough,
)
from markdown_it.token import Token

from nanobot_core.chat.plain_names import sparing_names
from nanobot_core.chat.rich_text import RichText, Span, SpanKind

WEB_SCHEMES: frozenset[str] = frozenset({"http", "https", "mailto"})
_PART_OF_NAME = re.compile(r"[A-Za-z0-9_)\]]")
_ADDRESSED = re.compile(r"\[[^\[\]]*\]\(<?([a-z]+):")
_SCHEMES = "schemes"
"""Key of the parser's environment: the schemes of addresses that the platform opens."""
_MAX_NESTING = 120
_RULE = "———"
_BULLET = "•"
_COVERED_BY: dict[SpanKind, frozenset[SpanKind]] = {
    "bold": frozenset({"bold", "heading"}),
    "italic": frozenset({"italic"}),
    "strikethrough": frozenset({"strikethrough"}),
    "link": frozenset({"link"}),
    "heading": frozenset(),
}
"""Formatting that has no effect within another, such as bold words in a heading."""
_STYLES: dict[str, SpanKind] = {"strong": "bold", "em": "italic", "s": "strikethrough"}


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _MAX_NESTING})
    parser.block.ruler.at("table", _table_of_all_cells, {"alt": ["paragraph", "reference"]})
    inline = parser.inline.ruler
    inline.at("escape", sparing_names(escape))
    inline.at("entity", sparing_names(entity))
    inline.at("emphasis", sparing_names(emphasis.tokenize))
    inline.at("strikethrough", sparing_names(strikethrough.tokenize))
    inline.at("autolink", _autolink_to_open)
    inline.at("link", _link_of_words)
    # Unused reference definitions would disappear, so references are not parsed. Nor are underlined
    # headings, because a line of one hyphen or equals sign would disappear.
    return parser.enable(["table", "strikethrough"]).disable(["reference", "lheading"])


def _autolink_to_open(state: StateInline, silent: bool) -> bool:
    """Parse `<https://…>`; `<std::string>` and `<ann@example.org>` keep their brackets."""
    scheme, colon, _ = state.src[state.pos + 1 : state.pos + 8].partition(":")
    return bool(colon) and scheme.lower() in state.env[_SCHEMES] and bool(autolink(state, silent))


def _link_of_words(state: StateInline, silent: bool) -> bool:
    """Parse a link, but not `handlers[name](event)`."""
    is_index = state.pos > 0 and _PART_OF_NAME.match(state.src, state.pos - 1) is not None
    addressed = _ADDRESSED.match(state.src, state.pos) if is_index else None
    if is_index and (addressed is None or addressed[1] not in state.env[_SCHEMES]):
        return False
    return bool(link(state, silent))


def _table_of_all_cells(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a table like the library, but keep surplus cells in the last column."""
    before = len(state.tokens)
    if not table(state, start, end, silent):
        return False
    cells: list[Token] = []
    for token in state.tokens[before:]:
        if token.type == "tr_open":
            cells = []
        elif token.type == "inline":
            cells.append(token)
        elif token.type == "tr_close" and cells[0].map:
            line = state.getLines(cells[0].map[0], cells[0].map[1], state.blkIndent, False)
            given = escapedSplit(line.strip().removeprefix("|").removesuffix("|"))
            surplus = [cell.strip() for cell in given[len(cells) :]]
            cells[-1].content = " | ".join([cells[-1].content, *surplus])
    return True


_PARSER = _parser()


def render_markdown(markdown: str, schemes: Collection[str] = WEB_SCHEMES) -> RichText:
    """Return `markdown` as text with formatting; other text is unchanged.

    HTML is text. A table becomes columns in a font of fixed width. An address that a
    chat cannot open is written in brackets after the linked words.

    Args:
        schemes: the schemes of the addresses that it can open.
    """
    # Platforms refuse half a surrogate pair, which results from cutting an emoji.
    clean = markdown.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    tokens = _PARSER.parse(clean, {_SCHEMES: schemes})
    if any(token.level > _MAX_NESTING - 8 for token in tokens):
        # The parser drops content that is nested too deeply.
        return RichText(clean)
    rendered = _Renderer(schemes).render(tokens)
    return rendered if rendered.text.strip() else RichText(clean)


@dataclass(slots=True)
class _Open:
    kind: SpanKind
    start: int
    url: str = ""
    title: str = ""


class _Renderer:
    """Writes tokens in order; line feeds are written only before more text."""

    def __init__(self, schemes: Collection[str]) -> None:
        self._schemes = schemes
        self._parts: list[str] = []
        self._length = 0
        self._pending = 0
        self._indents: list[str] = []
        self._lists: list[int | None] = []
        self._styles: list[_Open] = []
        self._quotes: list[int] = []
        self._spans: list[Span] = []

    def render(self, tokens: list[Token]) -> RichText:
        index = 0
        while index < len(tokens):
            if tokens[index].type == "table_open":
                end = _closing(tokens, index)
                self._table(tokens[index:end])
                index = end
            else:
                self._block(tokens[index])
            index += 1
        spans = sorted(self._spans, key=lambda span: (span.offset, -span.length))
        return RichText("".join(self._parts), tuple(spans))

    # --- blocks

    def _block(self, token: Token) -> None:
        match token.type:
            case "paragraph_open" | "heading_open":
                self._flush()
                if token.type == "heading_open":
                    self._open("heading")
            case "paragraph_close":
                self._end_block(1 if token.hidden else 2)
            case "heading_close":
                if self._styles[-1].start == self._length:
                    self._write(token.markup)
                self._close("heading")
                self._end_block(2)
            case "inline":
                self._inline(token.children or [])
            case "fence" | "code_block":
                self._code_block(token)
            case "hr":
                self._flush()
                self._write(_RULE)
                self._end_block(2)
            case "blockquote_open" | "blockquote_close":
                self._quote(is_start=token.nesting > 0)
            case _:
                self._list_part(token)

    def _list_part(self, token: Token) -> None:
        match token.type:
            case "bullet_list_open":
                self._lists.append(None)
            case "ordered_list_open":
                self._lists.append(0)
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
                self._end_block(1 if self._lists else 2)
            case "list_item_open":
                self._start_item(token)
            case "list_item_close":
                self._indents.pop()
                self._end_block(1)

    def _start_item(self, token: Token) -> None:
        marker, next_number = _BULLET, self._lists[-1]
        if next_number is not None:
            # Items that all begin with "1." are counted; a skipped number is kept.
            number = max(next_number, int(token.info))
            marker, self._lists[-1] = f"{number}{token.markup}", number + 1
        # If an item begins with a list, its marker is on a separate line.
        self._pending = max(self._pending, 1)
        self._write(f"{marker} ")
        self._indents.append("  ")
        self._pending = 0

    def _quote(self, *, is_start: bool) -> None:
        if is_start:
            if self._quotes:
                self._indents.append("> ")
                self._pending = max(self._pending, 1)
            else:
                self._flush()
            self._quotes.append(self._length)
            return
        start = self._quotes.pop()
        if start == self._length:
            self._write(">")
        if self._quotes:
            self._indents.pop()
        else:
            self._add("quote", start)
        self._end_block(2)

    def _code_block(self, token: Token) -> None:
        language, *rest = token.info.split(maxsplit=1) or [""]
        code = token.content.removesuffix("\n")
        # A span has the language of code, but no other words after the fence.
        if head := " ".join(rest if code else token.info.split()):
            self._write(head)
            self._end_block(1)
        if code:
            self._flush()
            start = self._length
            self._append(code)
            self._add("pre", start, language=language)
        self._end_block(2)

    def _table(self, tokens: list[Token]) -> None:
        rows: list[list[str]] = []
        for token in tokens:
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline":
                rows[-1].append(_cell_text(token.children or []))
        self._flush()
        start = self._length
        self._append(_aligned(rows))
        self._add("pre", start)
        self._end_block(2)

    # --- inside a paragraph

    def _inline(self, tokens: list[Token]) -> None:
        for token in tokens:
            name = token.type.removesuffix("_open").removesuffix("_close")
            if name in _STYLES:
                style = _STYLES[name]
                self._open(style) if token.nesting > 0 else self._close(style)
            elif token.type == "link_open":
                self._open("link", str(token.attrGet("href") or ""), _title(token))
            elif token.type == "link_close":
                self._close("link")
            elif token.type == "image":
                url = str(token.attrGet("src") or "")
                self._open("link", url, _title(token))
                self._write(token.content or url)
                self._close("link")
            elif token.type == "code_inline":
                self._code(token.content)
            elif token.type in {"softbreak", "hardbreak"}:
                self._pending = 1
            else:
                self._write(token.content)

    def _open(self, kind: SpanKind, url: str = "", title: str = "") -> None:
        self._flush()
        self._styles.append(_Open(kind, self._length, url, title))

    def _close(self, kind: SpanKind) -> None:
        index = max(i for i, style in enumerate(self._styles) if style.kind == kind)
        style = self._styles.pop(index)
        if kind == "link" and not _opens(style.url, self._schemes):
            if style.url:
                self._write(f" ({style.url})" if self._length > style.start else style.url)
        elif kind == "link" and self._length == style.start:
            self._write(style.url)
            self._add(kind, style.start, url=style.url)
        elif not any(other.kind in _COVERED_BY[kind] for other in self._styles):
            self._add(kind, style.start, url=style.url)
        self._write(style.title)

    def _code(self, code: str) -> None:
        if any(style.kind == "link" for style in self._styles):
            self._write(code)
            return
        self._flush()
        # Formatting around code ends before it and begins again after it.
        for style in self._styles:
            self._add(style.kind, style.start)
        start = self._length
        self._write(code)
        self._add("code", start)
        for style in self._styles:
            style.start = self._length

    # --- writing

    def _end_block(self, line_feeds: int) -> None:
        self._pending = max(self._pending, line_feeds)

    def _flush(self) -> None:
        if self._pending and self._length:
            prefix = "".join(self._indents)
            self._append("\n" * self._pending + prefix)
        self._pending = 0

    def _write(self, text: str) -> None:
        if text:
            self._flush()
            self._append(text)

    def _append(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)

    def _add(self, kind: SpanKind, start: int, *, url: str = "", language: str = "") -> None:
        if self._length > start:
            self._spans.append(Span(kind, start, self._length - start, url, language))


def _opens(url: str, schemes: Collection[str]) -> bool:
    try:
        address = urlsplit(url)
    except ValueError:
        return False
    if address.scheme in {"http", "https"}:
        return bool(address.hostname) and address.scheme in schemes
    return address.scheme in schemes


def _title(token: Token) -> str:
    """Return the title of a link or an image in brackets, or an empty string."""
    title = token.attrGet("title")
    return f" ({title})" if title else ""


def _closing(tokens: list[Token], index: int) -> int:
    level = tokens[index].level
    return next(
        i
        for i in range(index + 1, len(tokens))
        if tokens[i].type == "table_close" and tokens[i].level == level
    )


def _cell_text(tokens: list[Token]) -> str:
    parts: list[str] = []
    urls: list[str] = []
    for token in tokens:
        if token.type == "link_open":
            urls.append(f"{token.attrGet('href') or ''}{_title(token)}")
        elif token.type == "link_close":
            url = urls.pop()
            parts.append("" if parts and parts[-1] == url else f" ({url})")
        elif token.type == "image":
            parts.append(f"{token.content} ({token.attrGet('src')}{_title(token)})".strip())
        else:
            parts.append(token.content)
    return "".join(parts)


def _aligned(rows: list[list[str]]) -> str:
    columns = max(len(row) for row in rows)
    widths = [max(_width(row[i]) if i < len(row) else 0 for row in rows) for i in range(columns)]
    lines = [
        " | ".join(cell + " " * (widths[i] - _width(cell)) for i, cell in enumerate(row)).rstrip()
        for row in rows
    ]
    lines.insert(1, "-+-".join("-" * width for width in widths))
    return "\n".join(lines)


def _width(text: str) -> int:
    """Return the number of columns of `text` in a font of fixed width."""
    return len(text) + sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
