"""Bytes of a web page as text."""

from __future__ import annotations

import codecs
import re
from email.message import Message

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
    """Return `content` as text; bytes that are none in its encoding are shown replaced.

    The encoding is that of a byte order mark, of the header, of the page's own ``meta``, else UTF-8
    where the bytes are that, else Windows-1252 (WHATWG Encoding and HTML standards).

    Args:
        content: the body.
        charset: what the header says, or empty.
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
        # A character cut in half at the end is no sign of another encoding.
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
