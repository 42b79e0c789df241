"""The content of a text file, with what is needed to write it back unchanged."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from nanobot_core import ToolInputError

SAMPLE_BYTES = 65_536
"""Size of the beginning of a file from which its encoding is detected."""

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    # The byte order mark of UTF-16 is the beginning of that of UTF-32.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MULTIBYTE = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)
_HIGH = re.compile(rb"[\x80-\xff]")


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a file's characters are stored.

    Attributes:
        name: Python's name of the codec.
        bom: byte order mark at the file's beginning, or nothing.
    """

    name: str
    bom: bytes = b""


UTF8 = Encoding("utf-8")


def detect_encoding(sample: bytes) -> Encoding | None:
    """Return the encoding of a file that begins with `sample`, or ``None`` for binary data.

    A byte order mark decides; else UTF-8, also where it is damaged in places; else Windows-1252.
    """
    for bom, name in _BOMS:
        if sample.startswith(bom):
            return Encoding(name, bom)
    if b"\0" in sample:
        return None
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        sound = len(_MULTIBYTE.findall(sample))
        damaged = len(_HIGH.findall(_MULTIBYTE.sub(b"", sample)))
        return UTF8 if sound > damaged else Encoding("cp1252")
    return UTF8


@dataclass(frozen=True, slots=True)
class TextFile:
    """A decoded file.

    Attributes:
        text: its characters, line endings as they are; undecodable bytes are lone surrogates.
        encoding: how they are stored.
    """

    text: str
    encoding: Encoding = UTF8

    @classmethod
    def parse(cls, data: bytes, shown: str) -> TextFile:
        """Decode a file.

        Args:
            shown: its path, for the error.

        Raises:
            ToolInputError: it is not text.
        """
        encoding = detect_encoding(data[:SAMPLE_BYTES])
        if encoding is None:
            raise ToolInputError(f"'{shown}' is a binary file and cannot be edited as text")
        errors = "surrogateescape" if encoding.name in {"utf-8", "cp1252"} else "strict"
        try:
            text = data[len(encoding.bom) :].decode(encoding.name, errors)
        except UnicodeDecodeError as error:
            problem = f"'{shown}' is damaged {encoding.name} and cannot be edited as text"
            raise ToolInputError(problem) from error
        return cls(text, encoding)

    @property
    def newline(self) -> str:
        """The line ending that most lines have."""
        windows = self.text.count("\r\n")
        return "\r\n" if windows > self.text.count("\n") - windows else "\n"

    def with_newlines(self, text: str) -> str:
        """Return `text` with this document's line ending."""
        plain = text.replace("\r\n", "\n")
        return plain if self.newline == "\n" else plain.replace("\n", self.newline)

    def render(self, text: str) -> bytes:
        """Return `text`, made from this document's text, as the bytes of a file.

        Raises:
            ToolInputError: it has characters that the encoding lacks.
        """
        errors = "surrogateescape" if self.encoding.name in {"utf-8", "cp1252"} else "strict"
        try:
            return self.encoding.bom + text.encode(self.encoding.name, errors)
        except UnicodeEncodeError as error:
            wrong = error.object[error.start].encode("unicode_escape").decode()
            raise ToolInputError(
                f"the file is in {error.encoding}, which has no character '{wrong}'; "
                "use another character"
            ) from error


def require_characters(text: str) -> str:
    """Return `text`, which a model wrote, unless it has half characters.

    Raises:
        ToolInputError: it contains a lone surrogate, which would become a stray byte.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        problem = f"the text has half a character (a lone surrogate) at position {error.start}"
        raise ToolInputError(f"{problem}; write it whole") from error
    return text
