"""What channels share: Markdown as text with formatting, and how to split it.

It needs markdown-it-py, which the core does not depend on: a plugin that uses it requires
``nanobot-core[chat]``. Modules are imported on first use (PEP 562).
"""

from __future__ import annotations

from nanobot_core.lazy import lazy_names

# Type checkers know this name; importing it from typing would cost every command milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from nanobot_core.chat.markdown import (
        WEB_SCHEMES as WEB_SCHEMES,
        render_markdown as render_markdown,
    )
    from nanobot_core.chat.rich_text import (
        Measure as Measure,
        RichText as RichText,
        Span as Span,
        SpanKind as SpanKind,
        split_rich as split_rich,
        utf16_length as utf16_length,
        utf16_size as utf16_size,
    )

if not TYPE_CHECKING:  # type checkers take the imports above for the list
    _HOMES, __getattr__, __dir__ = lazy_names(
        "nanobot_core.chat",
        {
            "markdown": "WEB_SCHEMES render_markdown",
            "rich_text": "Measure RichText Span SpanKind split_rich utf16_length utf16_size",
        },
    )
    __all__ = sorted(_HOMES)  # noqa: PLE0605 - made of the table
