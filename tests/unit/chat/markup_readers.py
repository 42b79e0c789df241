"""Readers of the markup of platforms, which follow the rules that these document.

A reader returns the text that a person sees. It fails on markup that no text with formatting has,
such as a list, a heading or a mention.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser

from markdown_it import MarkdownIt
from markdown_it.token import Token

_COMMONMARK = MarkdownIt("commonmark", {"maxNesting": 1000}).enable(["table", "strikethrough"])
_SILENT = {
    f"{name}_{edge}"
    for name in ("paragraph", "blockquote", "strong", "em", "s", "link")
    for edge in ("open", "close")
}


def read_commonmark(markup: str) -> str:
    return "".join(_shown(_COMMONMARK.parse(markup)))


def _shown(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type == "inline":
            yield from _shown(token.children or [])
        elif token.type in {"softbreak", "hardbreak"}:
            yield "\n"
        elif token.type == "fence":
            yield f"\n{token.content}\n"
        elif token.type in {"text", "code_inline"}:
            yield token.content
        else:
            assert token.type in _SILENT, f"unexpected {token.type}"
            yield "\n" if token.block else ""


class _Html(HTMLParser):
    _BLOCKS = frozenset({"blockquote", "pre", "h3"})
    _TAGS = frozenset({"b", "i", "s", "code", "a"}) | _BLOCKS

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.shown: list[str] = []
        self.opened: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "br":
            self.shown.append("\n")
            return
        assert tag in self._TAGS, tag
        for name, value in attrs:
            assert value
            assert (tag, name) in {("a", "href"), ("code", "class")}
            assert name != "href" or re.match(r"(https?://|mailto:)", value)
        self.opened.append(tag)
        self.shown.append("\n" if tag in self._BLOCKS else "")

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag
        self.shown.append("\n" if tag in self._BLOCKS else "")

    def handle_data(self, data: str) -> None:
        self.shown.append(data)

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)

    handle_comment = handle_pi = unknown_decl


def read_html(markup: str) -> str:
    reader = _Html()
    reader.feed(markup)
    reader.close()
    assert not reader.opened
    return "".join(reader.shown)


_TICKED = re.compile(r"(`+)([\s\S]*?[^`])\1(?!`)")
_DISCORD_BLOCK = re.compile(r"```(?:([a-z0-9_+\-.#]+?)\n)?\n*([^\n][\s\S]*?)\n*```", re.IGNORECASE)
_DISCORD_LINK = re.compile(
    r"\[((?:\[[^\]]*\]|[^\[\]]|\](?=[^\[]*\]))*)\]"
    r"\(\s*<?((?:\([^)]*\)|[^\s\\]|\\.)*?)>?\s*\)"
)
_DISCORD_TEXT = re.compile(
    r"[\s\S]+?(?=[^0-9A-Za-z\s\u00c0-\uffff-]|\n|(?a:\w)+:\S|\Z)",
)
_DISCORD_STYLES = tuple(
    map(
        re.compile,
        (
            r"\*\*((?:\\[\s\S]|[^\\])+?)\*\*(?!\*)",
            r"__((?:\\[\s\S]|[^\\])+?)__(?!_)",
            r"(?a:\b)_((?:__|\\[\s\S]|[^\\_])+?)_(?a:\b)",
            r"\*(?=\S)((?:\*\*|\\[\s\S]|\s+(?:\\[\s\S]|[^\s*\\]|\*\*)|[^\s*\\])+?)\*(?!\*)",
            r"~~([\s\S]+?)~~",
            r"\|\|([\s\S]+?)\|\|",
        ),
    )
)
_DISCORD_REFUSED = re.compile(
    r"<@[!&]?\d+>|<#\d+>|<a?:\w+:\d+>|<t:-?\d+(?::\w)?>|</[^>]+:\d+>|<id:\w+>|@everyone|@here"
)
_DISCORD_LINES = re.compile(r"#{1,3} |-# | *(?:[-*]|\d+\.) ")


def read_discord(markup: str) -> str:
    return _discord(markup, is_start=True)


def _discord(markup: str, *, is_start: bool) -> str:
    shown: list[str] = []
    while markup:
        if is_start and (quote := re.match(r"(?: *> [^\n]*(?:\n|\Z))+", markup)):
            inner = re.sub(r"(?m)^ *> ", "", quote[0])
            shown += ["\n", _discord(inner, is_start=True), "\n"]
            markup = markup[quote.end() :]
            continue
        assert not (is_start and _DISCORD_LINES.match(markup)), markup[:40]
        text, length = _discord_step(markup)
        is_start = markup[:length].endswith("\n") or (is_start and not markup[:length].strip())
        shown.append(text)
        markup = markup[length:]
    return "".join(shown)


def _discord_step(markup: str) -> tuple[str, int]:
    assert not _DISCORD_REFUSED.match(markup), markup[:40]
    if found := re.match(r"\\([^0-9A-Za-z\s])", markup):
        return found[1], found.end()
    if found := _DISCORD_BLOCK.match(markup):
        return f"\n{found[2]}\n", found.end()
    if found := re.match(r"<([^: >]+:/[^ >]+)>", markup):
        return found[1], found.end()
    if found := re.match(r"""(?:https?|steam)://[^\s<]+[^<.,:;"'\]\s]""", markup):
        return found[0], found.end()
    if found := _DISCORD_LINK.match(markup):
        assert re.match("https?://", found[2])
        return _discord(found[1], is_start=False), found.end()
    if found := _TICKED.match(markup):
        return re.sub(r"^ (?= *`)|(` *) $", r"\1", found[2]), found.end()
    styles = [found for style in _DISCORD_STYLES if (found := style.match(markup))]
    if styles:
        found = max(styles, key=lambda found: found.end())
        return _discord(found[1], is_start=False), found.end()
    text = _DISCORD_TEXT.match(markup)
    assert text
    return text[0], text.end()


_JOINTS = "\u200b\u200c"


def read_mrkdwn(markup: str) -> str:
    assert not re.search(r"<(?!(?:https?://|mailto:)[^|>]+\|)", markup), markup
    return "\n".join(_mrkdwn_lines(markup))


def read_whatsapp(markup: str) -> str:
    shown: list[str] = []
    for index, part in enumerate(re.split(r"```([\s\S]+?)```", markup)):
        if index % 2:
            shown.append(part)
            continue
        first, *rest = part.split("\n")
        shown.append(_words(first, is_slack=False) if index else _line(first))
        shown += [f"\n{_line(line)}" for line in rest]
    return "".join(shown)


def _line(line: str) -> str:
    assert not re.match(r"\s*(?:[-*]|\d+\.) ", line), line
    return _words(line.removeprefix("> "), is_slack=False)


def _mrkdwn_lines(markup: str) -> Iterator[str]:
    lines = iter(markup.split("\n"))
    for line in lines:
        if line != "```":
            assert not line.startswith("&gt;"), line
            yield unescape(_words(line.removeprefix("> "), is_slack=True))
            continue
        for inner in lines:
            if inner == "```":
                break
            assert "```" not in inner
            yield unescape(inner)
        else:
            raise AssertionError("a block of code has no end")


def _words(line: str, *, is_slack: bool) -> str:
    code = r"`([^`\n]+)`"
    shown: list[str] = []
    before = ""
    while line:
        if is_slack and (found := re.match(code, line)) and _is_live(found[1]):
            shown.append(found[1])
        elif is_slack and (found := re.match(r"<([^|>]+)\|([^>]*)>", line)):
            shown.append(found[2])
        elif found := _styled(before, line):
            shown.append(_words(found[1], is_slack=is_slack))
        else:
            found = re.match(r"[\s\S]", line)
            assert found
            shown.append(found[0])
        before, line = found[0][-1], line[found.end() :]
    return "".join(shown)


def _is_live(inner: str) -> bool:
    return inner[0] not in _JOINTS and inner[-1] not in _JOINTS


def _styled(before: str, line: str) -> re.Match[str] | None:
    """Return a range in marks at the start of `line`, if they have an effect there."""
    mark = line[0]
    if mark not in "*_~" or before.isalnum():
        return None
    # A joint on the inner side of a mark makes it a character.
    edge = rf"[^\s{_JOINTS}]"
    return re.match(rf"\{mark}(?={edge})(.*?{edge})\{mark}(?![^\W_])", line)
