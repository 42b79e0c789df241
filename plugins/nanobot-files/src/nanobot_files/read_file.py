"""read_file: a page of a text file or document, or an image."""

from __future__ import annotations

import base64
import difflib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, TYPE_CHECKING, NoReturn

from pydantic import Field

from nanobot_core import (
    ImageBlock,
    PathGuard,
    TextBlock,
    ToolContext,
    ToolInputError,
    ToolOutput,
)
from nanobot_files.documents import Documents, may_be_document
from nanobot_files.files import FileParams, FileTool, Version
from nanobot_files.text_file import SAMPLE_BYTES, UTF8, Encoding, detect_encoding
from nanobot_files.worker import Watch, run_to_end

if TYPE_CHECKING:
    from nanobot_core import PluginContext


_PIECE_CHARS = 65_536
_LINES_PER_CHECK = 1_000


@dataclass(frozen=True, slots=True)
class Page:
    """What a page holds.

    Attributes:
        lines: rendered as ``LINE|CONTENT``.
        first: number of the first of them.
        total: lines in the whole file, or ``None`` where it was not counted to its end.
    """

    lines: tuple[str, ...]
    first: int
    total: int | None

    @property
    def last(self) -> int:
        """Number of the last line; ``first - 1`` for an empty page."""
        return self.first + len(self.lines) - 1


@dataclass(frozen=True, slots=True)
class PageLimits:
    """Where a page begins and how long it may get.

    Attributes:
        first: number of its first line, from 1.
        max_lines: most lines, or ``None``.
        max_chars: most characters; one line is given in any case, cut to this.
        count_on: whether to read to the file's end for the number of lines.
    """

    first: int
    max_lines: int | None
    max_chars: int
    count_on: bool


def read_page(file: IO[bytes], encoding: Encoding, limits: PageLimits, watch: Watch) -> Page:
    """Read one page; memory is limited by the page, not by the length of file and lines.

    Args:
        file: positioned after its byte order mark; closed afterwards.
        encoding: of the file; bytes that do not fit it are shown replaced.
    """
    lines: list[str] = []
    room = limits.max_chars
    number = 0
    with io.TextIOWrapper(file, encoding.name, errors="replace", newline="\n") as text:
        for number, start, length in _lines(text, limits.max_chars, watch):
            if number < limits.first:
                continue
            line = _numbered(number, start, length, limits.max_chars)
            full = limits.max_lines is not None and len(lines) >= limits.max_lines
            if not full and (not lines or len(line) < room):
                lines.append(line)
                room -= len(line) + 1
            elif limits.count_on:
                room = 0
            else:
                return Page(tuple(lines), limits.first, None)
    return Page(tuple(lines), limits.first, number)


def _lines(text: IO[str], max_chars: int, watch: Watch) -> Iterator[tuple[int, str, int]]:
    """Yield (number, beginning, length) of each line; only a line feed ends one."""
    number = 0
    while piece := text.readline(_PIECE_CHARS):
        number += 1
        if number % _LINES_PER_CHECK == 0:
            watch.check()
        start, length = piece, len(piece)
        while not piece.endswith("\n"):
            watch.check()
            more = text.readline(_PIECE_CHARS)
            if not more:
                break
            piece = more
            length += len(piece)
            if len(start) <= max_chars:
                start += piece
        length -= len(piece) - len(piece.rstrip("\r\n"))
        yield number, start[:length], length


def _numbered(number: int, start: str, length: int, max_chars: int) -> str:
    shown = start[:max_chars]
    if length <= len(shown):
        return f"{number}|{shown}"
    return f"{number}|{shown}… [line of {length:,} characters, cut here]"


_COUNTED_BYTES = 64_000_000
"""Lines of larger files are not counted to the end."""


class ReadFileParams(FileParams):
    """Parameters of `ReadFileTool`."""

    path: str = Field(description="File, absolute or relative to the workspace.")
    offset: int = Field(default=1, ge=1, description="Number of the first line, from 1.")
    limit: int | None = Field(default=None, ge=1, description="Most lines to read.")


class ReadFileTool(FileTool[ReadFileParams]):
    """Reads text page by page without loading the file, documents too, and shows images."""

    def __init__(self, ctx: PluginContext) -> None:
        super().__init__(ctx)
        self._documents = Documents(self._files.settings)

    name = "read_file"
    description = (
        "Read a text file, a PDF or office document (docx, xlsx, pptx, odt, ods, odp), or look at "
        "an image (PNG, JPEG, GIF, WebP). Text comes as LINE|CONTENT; the part before the first | "
        "is not part of the file. Long files come in pages: continue with offset. Use grep to find "
        "something in text files, list_dir for a folder. This does not send the file to the user."
    )
    parameters_model = ReadFileParams
    read_only = True
    compactable = True

    async def run(self, context: ToolContext, params: ReadFileParams) -> ToolOutput:
        """Read one page."""
        return await run_to_end(lambda watch: self._read(context, params, watch))

    def _read(self, context: ToolContext, params: ReadFileParams, watch: Watch) -> ToolOutput:
        guard = self._files.guard(context)
        path = guard.resolve_read(params.path)
        try:
            opened = guard.open_read(path)
        except ToolInputError as error:
            _suggest(guard, path, error)
        with opened as file:
            facts = os.fstat(file.fileno())
            sample = file.peek(SAMPLE_BYTES)[:SAMPLE_BYTES]
            if media_type := _image_type(sample):
                output: ToolOutput = self._show(file, media_type, params.path, path)
            elif may_be_document(sample):
                output = self._document_page(file, params, path, watch)
            else:
                output = self._page(file, params, facts.st_size, watch)
        self._files.versions.remember(context.session_key, path, Version.of(facts))
        return output

    def _show(
        self, file: BufferedReader, media_type: str, shown: str, path: Path
    ) -> tuple[TextBlock, ImageBlock]:
        limit = self._files.settings.max_image_bytes
        data = file.read(limit + 1)
        if len(data) > limit:
            raise ToolInputError(
                f"the image '{shown}' is larger than {limit:,} bytes; scale it down with a command"
            )
        block = ImageBlock(media_type, base64.b64encode(data).decode(), str(path))
        return TextBlock(f"{shown}: {media_type}, {len(data):,} bytes"), block

    def _page(self, file: BufferedReader, params: ReadFileParams, size: int, watch: Watch) -> str:
        encoding = detect_encoding(file.peek(SAMPLE_BYTES)[:SAMPLE_BYTES])
        if encoding is None:
            raise ToolInputError(_binary(params.path, size))
        file.seek(len(encoding.bom))
        page = self._read_page(file, encoding, params, size, watch)
        return "\n".join([*page.lines, _note(page, size)]) if page.lines else _empty(params.path)

    def _document_page(
        self, file: BufferedReader, params: ReadFileParams, path: Path, watch: Watch
    ) -> str:
        text = self._documents.text(file, path, watch)
        size = os.fstat(file.fileno()).st_size
        if text is None:
            raise ToolInputError(_binary(params.path, size))
        page = self._read_page(io.BytesIO(text.data), UTF8, params, len(text.data), watch)
        if not page.lines:
            return _empty(params.path)
        gap = f"\n[the document continues, but {text.gap}]" if text.gap else ""
        return "\n".join([*page.lines, _note(page, size) + gap])

    def _read_page(
        self, file: IO[bytes], encoding: Encoding, params: ReadFileParams, size: int, watch: Watch
    ) -> Page:
        limits = PageLimits(
            first=params.offset,
            max_lines=params.limit,
            max_chars=self._files.settings.max_page_chars,
            count_on=size <= _COUNTED_BYTES,
        )
        page = read_page(file, encoding, limits, watch)
        if not page.lines and params.offset > 1:
            raise ToolInputError(
                f"'{params.path}' has {page.total} lines; choose an offset up to that"
            )
        return page


def _note(page: Page, size: int) -> str:
    if page.total is None:
        of = f"a file of {size:,} bytes"
    elif page.last >= page.total:
        return f"\n[end of file, {page.total} lines]"
    else:
        of = f"{page.total}"
    return f"\n[lines {page.first}-{page.last} of {of}; read on with offset={page.last + 1}]"


def _image_type(sample: bytes) -> str | None:
    if sample.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if sample.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if sample.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if sample.startswith(b"RIFF") and sample[8:12] == b"WEBP":
        return "image/webp"
    return None


def _empty(shown: str) -> str:
    return f"{shown} is empty."


def _binary(shown: str, size: int) -> str:
    return f"'{shown}' is a binary file of {size:,} bytes and not text; use a command to inspect it"


def _suggest(guard: PathGuard, path: Path, error: ToolInputError) -> NoReturn:
    """Raise `error`, with similar names in the folder of `path`."""
    try:
        with guard.open_directory(path.parent) as folder, os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except ToolInputError:
        raise error from None
    close = difflib.get_close_matches(path.name, names, n=3)
    if path.name in names or not close:
        raise error
    raise ToolInputError(f"{error}; similar names there: {', '.join(close)}") from error
