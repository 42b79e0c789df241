"""The content of a page as text; blocking, for a thread."""

from __future__ import annotations

import codecs
import json
import logging
import re
from dataclasses import dataclass
from email.message import Message
from typing import Literal, TypeAlias

from nanobot_core import ToolFailed

MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Byte order marks, and the encodings that they announce."""

_META = re.compile(
    rb"""<(?:meta|\?xml)[^>]{0,300}?(?:charset|encoding)\s*=\s*["']?([\w:-]{1,40})""", re.IGNORECASE
)
_META_WITHIN = 2_048
_LATIN = frozenset({"iso-8859-1", "iso8859-1", "latin-1", "latin1", "ascii", "us-ascii"})


def media_type(content_type: str) -> tuple[str, str]:
    """Return type and charset of a ``Content-Type`` header, in lower case, each maybe empty."""
    parsed = Message()
    parsed["Content-Type"] = " ".join(content_type.split())
    charset = parsed.get_content_charset("")
    return content_type.partition(";")[0].strip().lower(), charset


def decode(content: bytes, charset: str) -> str:
    """Return `content` as text; invalid bytes are replaced.

    The encoding is that of a byte order mark, of the header, of the page's own ``meta``, else UTF-8
    where the bytes are that, else Windows-1252 (WHATWG Encoding and HTML standards).

    Args:
        charset: from the header, or empty.
    """
    for mark, encoding in MARKS:
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding, "replace")
    if found := _META.search(content[:_META_WITHIN]):
        charset = charset or found[1].decode("ascii", "ignore").lower()
    if encoding := _known(charset):
        return content.decode(encoding, "replace")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character cut in half at the end does not mean another encoding.
        encoding = "utf-8" if error.start > len(content) - 4 else "windows-1252"
        return content.decode(encoding, "replace")


def _known(charset: str) -> str:
    """Return the codec for a charset's name; empty for none. Web pages say latin-1 for 1252."""
    if not charset or charset in _LATIN:
        return "windows-1252" if charset else ""
    try:
        b"x".decode(charset, "replace")  # also refuses codecs that give no text, such as "hex"
    except (LookupError, ValueError):
        return ""
    return charset


ExtractMode: TypeAlias = Literal["markdown", "text"]

MAX_HTML_CHARS = 1_000_000
"""Longer pages are cut: extraction takes seconds for a megabyte."""

_MAX_TEXT_CHARS = 2_000_000
_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_TEXT_TYPES = re.compile(
    r"text/.*|application/(?:.*\+)?(?:xml|yaml|javascript|ecmascript|toml|sql|x-sh|rtf|x-ndjson)"
)
_HTML_START = re.compile(
    rb"\s*(?:<!--.{0,500}?-->\s*)?<(?:!doctype html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_SNIFFED = 1_024
_VISIBLE = "//text()[not(parent::script or parent::style or parent::noscript or parent::template)]"
_TALKATIVE = ("trafilatura", "htmldate", "courlan")
"""Loggers that report the oddities of pages as errors."""


@dataclass(frozen=True, slots=True)
class Extract:
    """Text of a page.

    Attributes:
        text: the content.
        extractor: who found it: ``trafilatura``, ``html``, ``json``, ``pdf`` or ``raw``.
        complete: the page was not shortened for its size.
    """

    text: str
    extractor: str
    complete: bool = True


def image_type(content: bytes) -> str | None:
    """Return the media type of an image that models can look at."""
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES.items() if content.startswith(magic)), None)


def is_pdf(content: bytes) -> bool:
    """Return whether it is a PDF, by its first bytes."""
    return content.startswith(b"%PDF-")


def extract(content: bytes, content_type: str, url: str, mode: ExtractMode) -> Extract:
    """Return the text of `content`. Its first bytes decide on its type before the header does.

    Args:
        content_type: the header of that name, or empty.
        url: where it comes from, for links that are relative.
        mode: keep headings, links, lists and tables as Markdown, or only the text.

    Raises:
        ToolFailed: it is not text.
    """
    kind, charset = media_type(content_type)
    if kind in _HTML_TYPES or _HTML_START.match(content[:_SNIFFED]):
        return _extract_html(decode(content, charset), url, mode)
    if b"\0" in content[:_SNIFFED] and not _is_utf16(content, charset):
        raise _binary(kind, content)
    if kind == "application/json" or kind.endswith("+json"):
        return _extract_json(decode(content, charset))
    if _TEXT_TYPES.fullmatch(kind) or _is_utf8(content):
        text = decode(content, charset)
        return Extract(text[:_MAX_TEXT_CHARS], "raw", len(text) <= _MAX_TEXT_CHARS)
    raise _binary(kind, content)


def _extract_html(page: str, url: str, mode: ExtractMode) -> Extract:
    import trafilatura

    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    complete = len(page) <= MAX_HTML_CHARS
    page = page[:MAX_HTML_CHARS].replace("\0", "")
    text = trafilatura.extract(
        page,
        url=url,
        output_format="markdown" if mode == "markdown" else "txt",
        include_links=mode == "markdown",
        include_tables=True,
        include_comments=False,
        favor_recall=True,
    )
    if text:
        return Extract(text, "trafilatura", complete)
    return Extract(_visible_text(page), "html", complete)


def _visible_text(page: str) -> str:
    """Return all text of a page in which no main content was found."""
    from lxml.etree import ParserError  # type: ignore[import-untyped]  # lxml has no types
    from lxml.html import HTMLParser, document_fromstring  # type: ignore[import-untyped]

    try:
        document = document_fromstring(
            page.encode("utf-8", "replace"), parser=HTMLParser(encoding="utf-8")
        )
    except ParserError:
        return ""
    texts = document.xpath(_VISIBLE)
    return "\n".join(line for text in texts if (line := " ".join(text.split())))


def _extract_json(text: str) -> Extract:
    try:
        pretty = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return Extract(text, "raw")
    return Extract(pretty, "json")


def _is_utf16(content: bytes, charset: str) -> bool:
    return charset.startswith("utf-16") or content.startswith(tuple(mark for mark, _ in MARKS))


def _is_utf8(content: bytes) -> bool:
    try:
        content[:_SNIFFED].decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > _SNIFFED - 4
    return True


def _binary(kind: str, content: bytes) -> ToolFailed:
    return ToolFailed(
        f"it is not text, PDF or an image that can be shown ({kind or 'of no declared type'}, "
        f"{len(content):,} bytes)"
    )
