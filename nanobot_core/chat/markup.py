"""Writes text with formatting in the markup of a platform."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from string import punctuation
from typing import Literal, NamedTuple, TypeAlias

from nanobot_core.chat.rich_text import RichText, Span, SpanKind
from nanobot_core.record import dataclass

Flanks: TypeAlias = Literal["any", "words", "commonmark"]
Escape: TypeAlias = Literal["backslash", "entity", "joint"]

_ODD = str.maketrans({"\r": " ", "\0": "\ufffd"})
"""Characters that some platforms read as line feeds or refuse."""
_JOINTS = "\u200b\u200c"
_NO_BREAK_SPACE = "\u00a0"
_RUN = re.compile("`+")
_TICKS = re.compile("``(?=`)")
_TICK = re.compile("`(?=`)")
_LANGUAGE = re.compile(r"[A-Za-z0-9_+.#-]{1,40}")
_HOST = re.compile(r"//[^\s/?#]")
_MARKS = frozenset("*_~`")
_UNSAFE = re.compile(r"""[\s<>"|\\`()*~\x00-\x1f\x7f]""")
"""Characters of an address that could end it; written as ``%XX``, which means the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    r"""How a platform writes formatting.

    Patterns are applied to one piece of a line at a time; its ends count as any character.

    Attributes:
        styles: marks before and after bold, italic and struck text.
        flanks: where marks have an effect: anywhere; only next to the edge of a word; or by the
            rules of CommonMark.
        escape: how a character loses its meaning: by a backslash, as ``&#NN;``, or by characters
            of no width on both sides of it.
        joint: a character of no width.
        special: characters of a text that are markup there.
        label_special: the same in the words of a link.
        entities: what is written for some of these characters instead.
        replaced: what is written for characters everywhere, in code too.
        line_start: a beginning of a line that is markup, up to the character to escape; after a
            number, a `joint` is inserted.
        mentions: what would notify people, up to the place for a `joint`; also applied to code.
        line_break: ends a line within a paragraph.
        keeps_indents: white space at the start of a line is shown.
        is_tagged: blocks and styles are tags, which need no lines of their own.
        code: marks around code in a line.
        code_fences: how often these marks can be written, so that code can contain fewer of them;
            empty if they need no repetition, such as tags.
        pads_code: one space on both sides of code is removed; otherwise only beside a mark.
        pre: marks around a block of code; ``{}`` is the place of `language`.
        language: how the language is written there; empty if it is not.
        grows_pre: the marks around a block of code can be longer than those within.
        quote: what begins and ends a quote.
        quote_prefix: begins each line of a quote.
        pre_in_quote: a quote can contain a block of code.
        parts_quote: a blank line must follow a quote.
        heading: what begins and ends a heading; empty if it is bold text.
        link: a link, with ``{url}`` and ``{label}``; empty if addresses are written in brackets.
        address: an address in brackets.
        styles_in_links: the words of a link can have formatting.
        refused_labels: words that cannot be a link.
        schemes: of addresses that can be links.
        bare_url: an address that the platform recognises in a text, and in which nothing is markup.
        closes_url: written around such an address if a character follows that would be added to it.
    """

    styles: Mapping[SpanKind, tuple[str, str]]
    flanks: Flanks = "any"
    escape: Escape = "backslash"
    joint: str = "\u200b"
    special: re.Pattern[str]
    label_special: re.Pattern[str] | None = None
    entities: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)
    line_start: re.Pattern[str] | None = None
    mentions: re.Pattern[str] | None = None
    line_break: str = "\n"
    keeps_indents: bool = True
    is_tagged: bool = False
    code: tuple[str, str] = ("`", "`")
    code_fences: Sequence[int] = (1,)
    pads_code: bool = False
    pre: tuple[str, str] = ("```{}\n", "\n```")
    language: str = ""
    grows_pre: bool = False
    quote: tuple[str, str] = ("", "")
    quote_prefix: str = "> "
    pre_in_quote: bool = True
    parts_quote: bool = False
    heading: tuple[str, str] | None = None
    link: str = ""
    address: str = "({})"
    styles_in_links: bool = True
    refused_labels: re.Pattern[str] | None = None
    schemes: Collection[str] = ("http", "https", "mailto")
    bare_url: re.Pattern[str] | None = None
    closes_url: tuple[str, str] = ("", "")


def write_markup(text: RichText, dialect: Dialect) -> str:
    """Return a text in the markup of a platform.

    Every character is shown as in `text`; what would be markup, or notify people, is escaped.
    Formatting that the platform cannot show at a place is left out there. Blank lines beside
    blocks, and white space at the end of a line, may be lost.
    """
    return _Writer(text, dialect).write()


class _Style(NamedTuple):
    """A style within a line."""

    begin: int
    end: int
    opening: str
    closing: str


class _Part(NamedTuple):
    """A part of a line: text, or what is written for it."""

    begin: int
    end: int
    written: str | None = None


class _Writer:
    """Writes blocks and lines."""

    def __init__(self, rich: RichText, dialect: Dialect) -> None:
        self._text = rich.text.translate(_ODD)
        self._dialect = dialect
        self._replaced = str.maketrans(dict(dialect.replaced))
        shown = [span for span in rich.spans if not self._is_blank(span.offset, span.end)]
        self._quotes = _outermost(shown, "quote")
        self._pres = _outermost(shown, "pre")
        self._headings = _outermost(shown, "heading") if dialect.heading else []
        self._inline = _Inline(rich, self._text, dialect)
        self._out: list[str] = []
        self._prefix = ""
        self._feeds = 0
        self._least = 0
        self._is_edge = True
        self._is_text = False

    def write(self) -> str:
        for quote, begin, end in _cut(self._quotes, 0, len(self._text)):
            if quote and not self._is_blank(begin, end):
                self._quote(begin, end)
            else:
                self._content(begin, end)
        written = "".join(self._out)
        mentions, joint = self._dialect.mentions, self._dialect.joint
        return mentions.sub(lambda found: found[0] + joint, written) if mentions else written

    def _content(self, begin: int, end: int) -> None:
        for pre, first, last in _cut(self._pres, begin, end):
            if pre and not self._is_blank(first, last):
                self._pre(pre.language, self._text[first:last].removesuffix("\n"))
            else:
                self._paragraphs(first, last)

    def _quote(self, begin: int, end: int) -> None:
        opening, closing = self._dialect.quote
        self._start_line(is_block=True)
        self._prefix = self._dialect.quote_prefix
        self._out += [opening, self._prefix]
        self._is_edge = True
        self._content(begin, end)
        self._out.append(closing)
        self._prefix = ""
        self._end_block(2 if self._dialect.parts_quote else 1)

    def _pre(self, language: str, code: str) -> None:
        dialect, prefix = self._dialect, self._prefix
        if prefix and not dialect.pre_in_quote:
            if self._is_edge:
                self._out.pop()
            self._prefix = ""
        self._start_line(is_block=True)
        opening, closing = dialect.pre
        if dialect.grows_pre:
            longest = max((len(run) for run in _RUN.findall(code)), default=0)
            more = "`" * max(0, longest - 2)
            opening, closing = more + opening, closing + more
        elif dialect.code_fences:
            code = _TICKS.sub("``" + dialect.joint, code)
            code = dialect.joint + code if opening[-1] == code[0] else code
            code = code + dialect.joint if closing[0] == code[-1] else code
        named = dialect.language.format(language) if _LANGUAGE.fullmatch(language) else ""
        # Not `format`, because `opening` can contain what looks like a field.
        written = opening.replace("{}", named) + code.translate(self._replaced) + closing
        self._out.append(written.replace("\n", "\n" + self._prefix))
        self._prefix = prefix
        self._end_block(1)

    def _end_block(self, least: int) -> None:
        self._is_edge, self._is_text = self._dialect.is_tagged, False
        self._feeds, self._least = 0, least

    def _start_line(self, *, is_block: bool = False) -> None:
        """Write the line feeds before a line or a block. The edge of a block needs none."""
        dialect, feeds = self._dialect, max(self._feeds, self._least)
        if dialect.is_tagged:
            feeds = 0 if is_block else self._feeds
        elif is_block:
            feeds = max(feeds, 1)
        if not self._is_edge:
            is_break = dialect.is_tagged or (feeds == 1 and self._is_text)
            self._out.append(((dialect.line_break if is_break else "\n") + self._prefix) * feeds)
        self._feeds = self._least = 0

    def _paragraphs(self, begin: int, end: int) -> None:
        for heading, first, last in _cut(self._headings, begin, end):
            if heading and self._dialect.heading and not self._is_blank(first, last):
                opening, closing = self._dialect.heading
                self._start_line(is_block=True)
                self._out.append(opening)
                self._is_edge = True
                self._lines(first, last)
                self._out.append(closing)
                self._end_block(1)
            else:
                self._lines(first, last)

    def _lines(self, begin: int, end: int) -> None:
        while True:
            feed = self._text.find("\n", begin, end)
            last = end if feed < 0 else feed
            shown = begin + len(self._text[begin:last].rstrip())
            if begin < shown:
                self._start_line()
                self._out.append(self._inline.line(begin, shown))
                self._is_edge, self._is_text = False, True
            if feed < 0:
                return
            self._feeds += 1
            begin = feed + 1

    def _is_blank(self, begin: int, end: int) -> bool:
        return not self._text[begin:end].strip()


class _Inline:
    """Writes what is on one line."""

    def __init__(self, rich: RichText, text: str, dialect: Dialect) -> None:
        self._text = text
        self._dialect = dialect
        self._replaced = str.maketrans(dict(dialect.replaced))
        atoms = _outermost(rich.spans, "code", "link")
        # White space at the end of a line is not written, and an address follows what is.
        lengths = [len(text[atom.offset : atom.end].rstrip()) for atom in atoms]
        self._atoms = [
            replace(atom, length=length)
            for atom, length in zip(atoms, lengths, strict=True)
            if length
        ]
        self._styles: list[tuple[tuple[str, str], list[Span]]] = []
        for kind, marks in dialect.styles.items():
            is_bold = kind == "bold" and dialect.heading is None
            spans = _outermost(rich.spans, kind, "heading" if is_bold else kind)
            self._styles.append((marks, spans))

    def line(self, begin: int, end: int) -> str:
        """Return what is written for a line that is not blank."""
        parts = list(_joined(self._parts(begin, end)))
        out: list[str] = []
        for index, part in enumerate(parts):
            if part.written is None:
                before = parts[index - 1].written if index else None
                behind = parts[index + 1].written if index + 1 < len(parts) else None
                sides = (before or " ")[-1], (behind or " ")[0]
                out.append(self._styled(part, sides, self._dialect.special))
            else:
                if f"{''.join(out[-1:])[-1:]}{part.written[0]}" in {"![", "``"}:
                    out.append(self._dialect.joint)  # a picture, or code with another fence
                out.append(part.written)
        return self._begun("".join(out))

    def _begun(self, line: str) -> str:
        """Escape the beginning of a line."""
        dialect = self._dialect
        if not dialect.keeps_indents:
            bare = line.lstrip(" \t")
            indent = line[: len(line) - len(bare)]
            line = indent.replace("\t", "    ").replace(" ", _NO_BREAK_SPACE) + bare
        found = dialect.line_start.match(line) if dialect.line_start else None
        if not found:
            return line
        head, tail = line[: found.end()], line[found.end() :]
        if head[-1:].isdigit() or dialect.escape == "joint":
            return head + dialect.joint + tail
        return head + self._shielded(tail[0]) + tail[1:]

    # --- parts

    def _parts(self, begin: int, end: int) -> Iterator[_Part]:
        for span, first, last in _cut(self._atoms, begin, end):
            written = None
            if span and span.kind == "code":
                written = self._code(self._text[first:last])
            elif span:
                written = self._link(span, first, last)
            if written is not None:
                yield _Part(first, last, written)
                continue
            yield from self._texts(first, last)
            if span and span.kind == "link" and last == span.end:
                yield from self._address(span)

    def _texts(self, begin: int, end: int) -> Iterator[_Part]:
        """Yield a text and the addresses in it."""
        pattern = self._dialect.bare_url
        for found in pattern.finditer(self._text, begin, end) if pattern else ():
            if begin < found.start():
                yield _Part(begin, found.start())
            begin = found.end()
            url = self._inert(found[0])
            if begin == end < len(self._text) or self._text[begin : begin + 1].strip():
                opening, closing = self._dialect.closes_url
                url = f"{opening}{url}{closing}"
            yield _Part(found.start(), begin, url.translate(self._replaced))
        if begin < end:
            yield _Part(begin, end)

    def _code(self, code: str) -> str | None:
        """Return a code, or ``None`` if the dialect cannot write it."""
        dialect = self._dialect
        opening, closing = dialect.code
        if not dialect.code_fences:
            return opening + code.translate(self._replaced) + closing
        if not code.strip() or code[0] in _JOINTS or code[-1] in _JOINTS:
            return None
        for form in (code, _TICK.sub("`" + dialect.joint, code)):
            fence = self._fence(form)
            if fence:
                padded = self._padded(form).translate(self._replaced)
                return fence * opening + padded + fence * closing
        return None

    def _fence(self, code: str) -> int:
        """Return how many marks to write on both sides of a code, or 0."""
        runs = {len(run) for run in _RUN.findall(code)}
        if self._dialect.escape == "joint":
            return next((n for n in self._dialect.code_fences if max(runs, default=0) < n), 0)
        return next((n for n in self._dialect.code_fences if n not in runs), 0)

    def _padded(self, code: str) -> str:
        left, right = code[0] == "`", code[-1] == "`"
        if self._dialect.pads_code:
            left = right = left or right or code[0] == code[-1] == " "
        elif self._dialect.escape != "joint":
            left, right = code.lstrip(" ")[0] == "`", code.rstrip(" ")[-1] == "`"
        pad = self._dialect.joint if self._dialect.escape == "joint" else " "
        return f"{pad * left}{code}{pad * right}"

    def _link(self, span: Span, begin: int, end: int) -> str | None:
        """Return a link, or ``None`` if the dialect has none or does not take this one."""
        dialect, label = self._dialect, self._text[begin:end]
        refused = dialect.refused_labels is not None and dialect.refused_labels.search(label)
        if not (dialect.link and label.strip()) or refused or not self._opens(span.url):
            return None
        special = dialect.label_special or dialect.special
        if dialect.styles_in_links:
            words = self._styled(_Part(begin, end), ("[", "]"), special)
        else:
            words = self._escaped(label, special)
        return dialect.link.format(label=words, url=self._target(span.url))

    def _address(self, link: Span) -> Iterator[_Part]:
        """Yield the address of a link that is not written as one."""
        label = self._text[link.offset : link.end]
        if label != link.url:
            url = link.url.translate(_ODD).replace("\n", " ")
            if self._opens(url):
                written = self._dialect.address.format(self._inert(self._target(url)))
            else:
                written = f"({self._escaped(url, self._dialect.special)})"
            yield _Part(link.end, link.end, f" {written}")

    def _opens(self, url: str) -> bool:
        scheme, colon, rest = url.partition(":")
        is_whole = _HOST.match(rest) if scheme in {"http", "https"} else rest.strip()
        return bool(colon and is_whole) and scheme in self._dialect.schemes

    def _target(self, url: str) -> str:
        return _UNSAFE.sub(_percent, url).translate(self._replaced)

    def _inert(self, url: str) -> str:
        """Return an address in a text, in which marks of the dialect mean nothing."""
        is_joint = self._dialect.escape == "joint"
        return self._dialect.special.sub(_percent, url) if is_joint else url

    # --- text

    def _styled(self, part: _Part, sides: tuple[str, str], special: re.Pattern[str]) -> str:
        """Return a text with its styles.

        Args:
            sides: the characters before and after the text.
        """
        out: list[str] = []
        position = part.begin
        opened: list[_Style] = []
        for style in (*self._fitted(part, sides), _Style(part.end, part.end, "", "")):
            while opened and opened[-1].end <= style.begin:
                closed = opened.pop()
                out += [self._escaped(self._text[position : closed.end], special), closed.closing]
                position = closed.end
            out += [self._escaped(self._text[position : style.begin], special), style.opening]
            position = style.begin
            opened.append(style)
        return "".join(out)

    def _fitted(self, part: _Part, sides: tuple[str, str]) -> list[_Style]:
        """Return the styles within a part that have an effect there, the outer ones first."""
        styles = [
            _Style(first, last, *marks)
            for marks, spans in self._styles
            for span, first, last in _cut(spans, part.begin, part.end)
            if span
        ]
        styles.sort(key=lambda style: (style.begin, -style.end))
        if self._dialect.is_tagged:
            return styles
        fitted: list[_Style] = []
        opened: list[_Style] = []
        closed = -1
        for style in styles:
            while opened and opened[-1].end <= style.begin:
                closed = max(closed, opened.pop().end)
            around = opened[-1] if opened else _Style(part.begin, part.end, "", "")
            fit = self._fit(style, around, part, sides)
            # A mark directly after another one could belong to it.
            if fit and fit.begin > closed:
                fitted.append(fit)
                opened.append(fit)
        return fitted

    def _fit(
        self, style: _Style, around: _Style, part: _Part, sides: tuple[str, str]
    ) -> _Style | None:
        """Return the longest range within a style that the dialect can mark, if there is one."""
        text, flanks = self._text, self._dialect.flanks
        begin, end = max(style.begin, around.begin), min(style.end, around.end)
        left = text[begin - 1] if begin > part.begin else sides[0]
        right = text[end] if end < part.end else sides[1]
        while begin < end and _is_outside(text[begin], left, flanks):
            left = text[begin]
            begin += 1
        while begin < end and _is_outside(text[end - 1], right, flanks):
            right = text[end - 1]
            end -= 1
        if begin >= end or (style.opening == "~~" and "~" in {text[begin], text[end - 1]}):
            return None
        if flanks == "words" and (
            _is_word(left) or _is_word(right) or {text[begin], text[end - 1]} & _MARKS
        ):
            return None
        if flanks == "commonmark" and around.opening[:1] not in {"", style.opening[0]}:
            # Other marks are punctuation for the mark around them.
            if begin == around.begin and not _is_open(left):
                return None
            if end == around.end and not _is_open(right):
                return None
        return style._replace(begin=begin, end=end)

    def _escaped(self, text: str, special: re.Pattern[str]) -> str:
        out: list[str] = []
        begin = 0
        for found in special.finditer(text):
            out += [text[begin : found.start()].translate(self._replaced), self._shielded(found[0])]
            begin = found.end()
        out.append(text[begin:].translate(self._replaced))
        return "".join(out)

    def _shielded(self, character: str) -> str:
        entity = self._dialect.entities.get(character)
        if entity is not None:
            return entity
        match self._dialect.escape:
            case "backslash":
                return f"\\{character}"
            case "entity":
                return f"&#{ord(character)};"
            case "joint":
                return f"{self._dialect.joint}{character}{self._dialect.joint}"


def _outermost(spans: Sequence[Span], *kinds: SpanKind) -> list[Span]:
    """Return the spans of these kinds that are not within another one of them."""
    found: list[Span] = []
    for span in spans:
        if span.kind in kinds and (not found or span.offset >= found[-1].end):
            found.append(span)
    return found


def _cut(spans: list[Span], begin: int, end: int) -> Iterator[tuple[Span | None, int, int]]:
    """Yield what is within and between separate spans, in order."""
    index = bisect_right(spans, begin, key=lambda span: span.end)
    while index < len(spans) and spans[index].offset < end:
        span = spans[index]
        if begin < span.offset:
            yield None, begin, span.offset
        begin, last = max(begin, span.offset), min(span.end, end)
        yield span, begin, last
        begin = last
        index += 1
    if begin < end:
        yield None, begin, end


def _joined(parts: Iterable[_Part]) -> Iterator[_Part]:
    """Join adjacent texts."""
    text: _Part | None = None
    for part in parts:
        if part.written is None:
            text = _Part(text.begin if text else part.begin, part.end)
            continue
        if text:
            yield text
            text = None
        yield part
    if text:
        yield text


def _is_outside(inner: str, outer: str, flanks: Flanks) -> bool:
    """Whether a mark between two characters has no effect, but could have one further inside."""
    if inner.isspace() or inner in _JOINTS:
        return True
    is_mark = inner in punctuation or unicodedata.category(inner)[0] in "PS"
    return flanks == "commonmark" and is_mark and not _is_open(outer)


def _is_open(character: str) -> bool:
    """Whether CommonMark takes it for white space or punctuation, in all its versions."""
    category = unicodedata.category(character)
    return character in " \t" or character in punctuation or category[0] == "P" or category == "Zs"


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "replace"))
