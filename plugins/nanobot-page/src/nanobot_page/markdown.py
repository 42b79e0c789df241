"""Markdown of models to HTML that can do nothing but be read. Everything here blocks.

The libraries are imported for the first text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token
    from markdown_it.utils import EnvType, OptionsDict
    from nh3 import Cleaner

MAX_CHARS: Final = 200_000
"""Longer texts are shown as they are."""
MAX_BRACKETS: Final = 2_000
"""Texts with more of ``[`` are shown as they are: looking for the end of links is quadratic."""
MAX_CODE_CHARS: Final = 20_000
"""Longer code is not coloured, which can take seconds."""
_INLINE_TAGS: Final = ("br", "em", "strong", "s", "a", "code", "span")
_TABLE_TAGS: Final = ("table", "thead", "tbody", "tr", "th", "td")
_BLOCK_TAGS: Final = ("p", "hr", "pre", "blockquote", "ul", "ol", "li")
_HEADING_TAGS: Final = ("h1", "h2", "h3", "h4", "h5", "h6")
_LINK: Final = re.compile(r"(https?://|mailto:)", re.IGNORECASE)
_COLOUR: Final = re.compile(r"(s-[a-z0-9]{1,4} ?)+")
_LANGUAGE: Final = re.compile(r"language-[\w+#.-]{1,30}")
_HEADING: Final = re.compile(r"<(/?)h([1-6])>")


def to_html(text: str) -> Markup:
    """Return a whole text as HTML."""
    if len(text) > MAX_CHARS or text.count("[") > MAX_BRACKETS:
        return Markup('<pre class="plain" tabindex="0">{}</pre>').format(text)
    return _clean(_parser().render(text))


def to_blocks(text: str) -> Sequence[Markup]:
    """Return the top-level blocks of a text that is still being written, each as HTML.

    A block is rendered by itself and kept, so that only the last ones cost something when text is
    added. `to_html` of the whole text can differ: later lines can change earlier blocks.
    """
    if len(text) > MAX_CHARS or text.count("[") > MAX_BRACKETS:
        return [to_html(text)]
    # The lines that the parser counts; `splitlines` knows more kinds of them.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    starts = [
        token.map[0]
        for token in _parser().parse(text)
        if token.level == 0 and token.map and token.nesting >= 0
    ]
    ends = [*starts[1:], len(lines)] if starts else []
    return [_block("\n".join(lines[start:end])) for start, end in zip(starts, ends, strict=True)]


@lru_cache(maxsize=512)
def _block(source: str) -> Markup:
    return _clean(_parser().render(source))


def _clean(rendered: str) -> Markup:
    cleaned = _cleaner().clean(rendered)
    # Headings of an answer stay below the heading of the page; what is wide scrolls by itself,
    # and can be reached with the keyboard.
    cleaned = _HEADING.sub(lambda found: f"<{found[1]}h{min(int(found[2]) + 1, 6)}>", cleaned)
    cleaned = cleaned.replace("<pre>", '<pre tabindex="0">')
    table = '<div class="scroll" role="group" aria-label="Table" tabindex="0"><table>'
    cleaned = cleaned.replace("<table>", table).replace("</table>", "</table></div>")
    return Markup(cleaned)  # noqa: S704 - the cleaner has made it


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "highlight": _highlighted, "maxNesting": 20})
    parser.enable(["table", "strikethrough"])
    parser.add_render_rule("image", _image)
    parser.add_render_rule("th_open", _cell)
    parser.add_render_rule("td_open", _cell)
    return parser


@cache
def _cleaner() -> Cleaner:
    from nh3 import Cleaner

    return Cleaner(
        tags={*_INLINE_TAGS, *_TABLE_TAGS, *_BLOCK_TAGS, *_HEADING_TAGS},
        attributes={
            "a": {"href", "title"},
            "code": {"class"},
            "span": {"class"},
            "ol": {"start"},
            "th": {"align"},
            "td": {"align"},
        },
        attribute_filter=_filtered,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )


def _filtered(tag: str, attribute: str, value: str) -> str | None:
    """Return the value of an attribute, or ``None`` to leave the attribute out."""
    pattern = {
        ("a", "href"): _LINK,
        ("span", "class"): _COLOUR,
        ("code", "class"): _LANGUAGE,
    }.get((tag, attribute))
    if pattern is None:
        return value
    is_right = pattern.match(value) if attribute == "href" else pattern.fullmatch(value)
    return value if is_right else None


def _image(
    self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    """Return a picture as a link: loading it would tell its server that the answer is read."""
    token = tokens[index]
    address = str(token.attrGet("src") or "")
    label = self.renderInlineAsText(token.children or [], options, env) or address
    return f'<a href="{html.escape(address)}">{html.escape(label)}</a>'


def _cell(
    self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    """Return the beginning of a cell; pages may have no styles in attributes."""
    token = tokens[index]
    style = str(token.attrs.pop("style", ""))
    if side := style.removeprefix("text-align:"):
        token.attrSet("align", side)
    return self.renderToken(tokens, index, options, env)


def _highlighted(code: str, language: str, _attributes: str) -> str:
    """Return code as HTML with a class for each colour; empty if the language is unknown."""
    if not language or len(code) > MAX_CODE_CHARS:
        return ""
    from pygments import highlight
    from pygments.formatters.html import HtmlFormatter
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return ""
    return str(highlight(code, lexer, HtmlFormatter(nowrap=True, classprefix="s-")))
