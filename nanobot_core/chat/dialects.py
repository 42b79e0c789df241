"""The markup of chat platforms, as data.

Slack and WhatsApp have no escapes. Their users report that characters of no width beside a mark
prevent formatting; the documentation does not promise it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from nanobot_core.chat.markup import Dialect

_WEB = frozenset({"http", "https"})
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ALONE = r"[^\W_]"
"""Letters and digits; a mark between two of them means nothing to Slack and WhatsApp."""
_MARKS_OF_WORDS = rf"(?<!{_ALONE})[*_~`](?!\s)|(?<!\s)[*_~`](?!{_ALONE})|`"

_COMMONMARK = (
    r"\\(?![0-9A-Za-z\s])|`|(?<!\S )\*|\*(?! )|(?<![^\W_])_|_(?![^\W_])|(?<=\S)~|~(?=~|\Z)"
    r"|(?<=\])[(:]|<(?=[^\s<=-]|\Z)|&(?=#|[A-Za-z][A-Za-z0-9]{0,31};)"
)
COMMONMARK: Final = Dialect(
    styles={"bold": ("**", "**"), "italic": ("*", "*"), "strikethrough": ("~~", "~~")},
    flanks="commonmark",
    special=re.compile(_COMMONMARK),
    label_special=re.compile(rf"[\[\]]|{_COMMONMARK}"),
    entities={"<": "&lt;", "&": "&amp;"},
    line_start=re.compile(
        r"[ \t]*(?:\d{1,9}(?=[.)](?:[ \t]|\Z))"
        r"|(?=#{1,6}(?:[ \t]|\Z)|[-+](?:[ \t]|\Z)|>|=+[ \t]*\Z|[-:|][-:| \t]*\Z))"
    ),
    # Also in code, which has no escapes: tags of Feishu and QQ, mentions of Slack.
    mentions=re.compile(
        r"<(?=/?(?:at|person|qqbot|emoji)\b|[@#]|!(?:channel|here|everyone|subteam|date)\b)"
        r"|@(?=everyone|here)",
        re.IGNORECASE,
    ),
    line_break="  \n",
    keeps_indents=False,
    code_fences=range(1, 1 << 20),
    pads_code=True,
    language="{}",
    grows_pre=True,
    parts_quote=True,
    link="[{label}](<{url}>)",
    schemes=_WEB,
)
"""CommonMark with strikethrough."""

FEISHU: Final = replace(COMMONMARK, escape="entity")
"""Markdown of Feishu's cards, which documents entities as its only escapes."""

DISCORD: Final = Dialect(
    styles={"bold": ("**", "**"), "italic": ("*", "*"), "strikethrough": ("~~", "~~")},
    special=re.compile(
        r"\\(?![0-9A-Za-z\s])|[`*_]|(?<=\S)~|~(?=~|\Z)"
        r"|\|(?=\|)|(?<=\|)\||(?<=\])\(|<(?! )"
    ),
    line_start=re.compile(
        r"[ \t]*(?:\d+(?=\.(?:[ \t]|\Z))"
        r"|(?=#{1,3}(?:[ \t]|\Z)|-(?:[ \t#]|\Z)|>(?:>>)?(?:[ \t]|\Z)))"
    ),
    mentions=re.compile(r"<(?=[@#:/]|(?:a|t|id):)|@(?=everyone|here)"),
    code_fences=(1, 2),
    language="{}",
    link="[{label}](<{url}>)",
    address="(<{}>)",
    refused_labels=re.compile(r"[\[\]]|://"),
    schemes=_WEB,
    bare_url=re.compile(r"(?:https?|steam)://[^\s<>]+"),
    closes_url=("<", ">"),
)

MRKDWN: Final = Dialect(
    styles={"bold": ("*", "*"), "italic": ("_", "_"), "strikethrough": ("~", "~")},
    flanks="words",
    escape="joint",
    special=re.compile(_MARKS_OF_WORDS),
    replaced=_HTML,
    line_start=re.compile(r"[ \t]*(?=&gt;)"),
    pre=("```\n", "\n```"),
    pre_in_quote=False,
    link="<{url}|{label}>",
    styles_in_links=False,
    bare_url=re.compile(r"https?://[^\s<>|]+"),
)
"""Slack's own markup."""

WHATSAPP: Final = Dialect(
    styles={"bold": ("*", "*"), "italic": ("_", "_"), "strikethrough": ("~", "~")},
    flanks="words",
    escape="joint",
    joint="\u200c",
    special=re.compile(_MARKS_OF_WORDS),
    line_start=re.compile(r"[ \t]*(?:\d+(?=\. )|(?=[-*>] ))"),
    code_fences=(3,),
    pre=("```", "```"),
    pre_in_quote=False,
    bare_url=re.compile(r"https?://\S+"),
)

HTML: Final = Dialect(
    styles={"bold": ("<b>", "</b>"), "italic": ("<i>", "</i>"), "strikethrough": ("<s>", "</s>")},
    special=re.compile(r" (?= )"),
    entities={" ": "\u00a0"},
    replaced={**_HTML, '"': "&quot;"},
    mentions=re.compile(r"@(?=room)|matrix\.to/#/(?=@|%40)"),
    line_break="<br>",
    keeps_indents=False,
    is_tagged=True,
    code=("<code>", "</code>"),
    code_fences=(),
    pre=("<pre><code{}>", "</code></pre>"),
    language=' class="language-{}"',
    quote=("<blockquote>", "</blockquote>"),
    quote_prefix="",
    heading=("<h3>", "</h3>"),
    link='<a href="{url}">{label}</a>',
)
"""HTML for mail and Matrix."""

PLAIN: Final = Dialect(
    styles={},
    special=re.compile(r"(?!)"),
    code=("", ""),
    code_fences=(),
    pre=("", ""),
)
"""Text without markup, which shows only links and quotes."""
