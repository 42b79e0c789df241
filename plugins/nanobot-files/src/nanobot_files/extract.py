"""The program that turns a PDF or office document into text, run as a separate process.

Parsers of these formats are large, and documents come from strangers: in a process with a limit of
memory, and of time from outside, a document that was made to hold the parser costs its call and
nothing else. The document is standard input, so that what the guard opened is what is read.

    python -m nanobot_files.extract < DOCUMENT

Writes text in UTF-8, part by part, and exits with an `Outcome`.
"""

from __future__ import annotations

import os
import resource
import sys
import zipfile
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import BinaryIO

_MEMORY_BYTES = 1_000_000_000
_MAX_UNPACKED_BYTES = 500_000_000
_MAX_PARTS = 20_000
_MAX_MANIFEST_BYTES = 1_000_000
_ENCRYPTED_FLAG = 1
"""Bit 0 of the general purpose flags, section 4.4.4 of PKWARE's APPNOTE."""


class Outcome(IntEnum):
    """Exit codes."""

    WHOLE = 0
    NO_DOCUMENT = 3
    NO_EXTRA = 4
    ENCRYPTED = 5
    BROKEN = 6
    TOO_LARGE = 7


class Refused(Exception):
    """The document is not read.

    Attributes:
        outcome: why.
    """

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.name)
        self.outcome = outcome


def main() -> int:
    """Read the document on standard input."""
    _limit_memory()
    file = os.fdopen(0, "rb")
    file.seek(0)
    try:
        for text in _texts(file):
            sys.stdout.buffer.write(text.encode(errors="replace") + b"\n")
            sys.stdout.buffer.flush()
    except Refused as refusal:
        return refusal.outcome
    except ImportError:
        return Outcome.NO_EXTRA
    except (MemoryError, RecursionError):
        return Outcome.TOO_LARGE
    except Exception:  # noqa: BLE001 - isolation point: what parsers raise at broken files
        return Outcome.BROKEN
    return Outcome.WHOLE


def _limit_memory() -> None:
    soft_limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if soft_limit == resource.RLIM_INFINITY and sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _texts(file: BinaryIO) -> Iterator[str]:
    if file.peek(5).startswith(b"%PDF-"):  # type: ignore[attr-defined]  # a BufferedReader
        return _pdf(file)
    try:
        archive = zipfile.ZipFile(file)
    except zipfile.BadZipFile:
        raise Refused(Outcome.BROKEN) from None
    parts = archive.infolist()
    names = {part.filename for part in parts}
    reader = _reader_of(archive, names)
    if any(part.flag_bits & _ENCRYPTED_FLAG for part in parts) or _is_encrypted(archive, names):
        raise Refused(Outcome.ENCRYPTED)
    # zipfile reads at most as many bytes as a part declares.
    if len(parts) > _MAX_PARTS or sum(part.file_size for part in parts) > _MAX_UNPACKED_BYTES:
        raise Refused(Outcome.TOO_LARGE)
    return reader(archive)


def _reader_of(
    archive: zipfile.ZipFile, names: set[str]
) -> Callable[[zipfile.ZipFile], Iterator[str]]:
    from nanobot_files import markup

    if "xl/workbook.xml" in names:
        return _workbook
    if "word/document.xml" in names:
        return markup.word_text
    if "ppt/presentation.xml" in names:
        return markup.slides_text
    if "mimetype" in names and "content.xml" in names:
        with archive.open("mimetype") as kind:
            if kind.read(100).startswith(b"application/vnd.oasis.opendocument."):
                return markup.open_document_text
    raise Refused(Outcome.NO_DOCUMENT)


def _is_encrypted(archive: zipfile.ZipFile, names: set[str]) -> bool:
    """Whether an OpenDocument file says so in its manifest, section 3.4 of ODF 1.3, part 2."""
    if "META-INF/manifest.xml" not in names:
        return False
    with archive.open("META-INF/manifest.xml") as manifest:
        return b"encryption-data" in manifest.read(_MAX_MANIFEST_BYTES)


def _pdf(file: BinaryIO) -> Iterator[str]:
    from pypdf import PdfReader
    from pypdf.errors import DependencyError

    reader = PdfReader(file)
    try:
        # Many are encrypted with an empty password, only to forbid printing.
        if reader.is_encrypted and not reader.decrypt(""):
            raise Refused(Outcome.ENCRYPTED)
    except DependencyError:
        raise Refused(Outcome.ENCRYPTED) from None
    for number, page in enumerate(reader.pages, 1):
        yield f"[page {number}]"
        yield page.extract_text()


def _workbook(archive: zipfile.ZipFile) -> Iterator[str]:
    from openpyxl import load_workbook

    if archive.fp is None:
        raise Refused(Outcome.BROKEN)
    workbook = load_workbook(archive.fp, read_only=True, data_only=True, keep_links=False)
    for sheet in workbook.worksheets:
        yield f"[sheet {sheet.title}]"
        # A sheet can declare a million empty rows of the maximum width.
        sheet.reset_dimensions()
        for row in sheet.iter_rows(values_only=True):
            cells = ["" if cell is None else str(cell).replace("\n", " ") for cell in row]
            if line := "\t".join(cells).rstrip("\t"):
                yield line


if __name__ == "__main__":
    sys.exit(main())
