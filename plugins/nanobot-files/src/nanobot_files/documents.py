"""Text of PDF and office documents, from a process that can be ended at any moment."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from nanobot_core import ToolFailed, ToolInputError
from nanobot_files.extract import Outcome
from nanobot_files.files import Version
from nanobot_files.settings import FilesSettings
from nanobot_files.worker import Watch

INSTALL_LINE = "python3 -m pip install 'nanobot-files[documents]'"
_MAX_TEXT_BYTES = 8_000_000
_KEPT = 4
_POLL_MS = 50
_PIECE_BYTES = 65_536
_PDF, _ZIP, _OLE = b"%PDF-", b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The text of a document, as far as it was read.

    Attributes:
        data: its text, UTF-8.
        gap: why the text ends before the document does; empty when it does not.
    """

    data: bytes
    gap: str = ""


def may_be_document(sample: bytes) -> bool:
    """Whether a file that begins with `sample` is a PDF, an archive or an older office document."""
    return sample.startswith((_PDF, _ZIP, _OLE))


class Documents:
    """Reads documents, and keeps the newest texts, so that the next page is not parsed again.

    Blocking; call it in a thread.
    """

    def __init__(self, settings: FilesSettings) -> None:
        self._settings = settings
        self._texts: OrderedDict[tuple[Path, Version], DocumentText] = OrderedDict()
        self._lock = threading.Lock()

    def text(self, file: BufferedReader, path: Path, watch: Watch) -> DocumentText | None:
        """Return the text of a document, or ``None`` for an archive that is not a document.

        Args:
            watch: checked while the parser works.

        Raises:
            ToolInputError: it cannot be read: too large, encrypted, broken.
            ToolFailed: the parsers are not installed, or it takes too long.
        """
        facts = os.fstat(file.fileno())
        key = path, Version.of(facts)
        with self._lock:
            if key in self._texts:
                self._texts.move_to_end(key)
                return self._texts[key]
        text = self._read(file, path, facts.st_size, watch)
        if text is not None:
            with self._lock:
                self._texts[key] = text
                while len(self._texts) > _KEPT:
                    self._texts.popitem(last=False)
        return text

    def _read(
        self, file: BufferedReader, path: Path, size: int, watch: Watch
    ) -> DocumentText | None:
        limit = self._settings.max_document_bytes
        if size > limit:
            raise ToolInputError(
                f"the document '{path}' has {size:,} bytes, and {limit:,} are read; "
                "split it with a command"
            )
        file.seek(0)
        if file.peek(len(_OLE)).startswith(_OLE):
            raise ToolInputError(
                f"'{path}' is an office document in the format of before 2007, or has a password; "
                "save it as docx, xlsx or pptx without one (libreoffice --convert-to)"
            )
        output, code = _run(file.fileno(), self._settings.document_timeout_s, watch)
        match code:
            case Outcome.WHOLE:
                return DocumentText(output)
            case Outcome.NO_DOCUMENT:
                return None
            case Outcome.NO_EXTRA:
                raise ToolFailed(
                    f"reading PDF and office documents needs more packages; ask the owner to run "
                    f"{INSTALL_LINE}"
                )
            case Outcome.ENCRYPTED:
                raise ToolInputError(f"'{path}' is encrypted; ask for a copy without a password")
        gap = self._gap(code)
        if not output.strip():
            raise ToolInputError(f"the document '{path}' cannot be read: {gap}")
        return DocumentText(output, gap)

    def _gap(self, code: int | None) -> str:
        if code is None:
            return (
                f"reading it did not end within {self._settings.document_timeout_s:g} seconds "
                f"and {_MAX_TEXT_BYTES:,} bytes of text"
            )
        if code == Outcome.BROKEN:
            return "it is broken or breaks the rules of its format"
        return "it unpacks to more than fits in memory"


def _run(handle: int, limit_s: float, watch: Watch) -> tuple[bytes, int | None]:
    """Return output and exit code of the parser; ``None`` if it was ended."""
    # Neither the environment nor the current folder affects what it imports.
    command = [sys.executable, "-E", "-P", "-X", "utf8", "-m", "nanobot_files.extract"]
    try:
        process = subprocess.Popen(
            command,
            stdin=handle,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
        )
    except OSError as error:
        raise ToolFailed(f"the parser cannot be started: {error.strerror}") from error
    with process:
        try:
            return _collect(process, time.monotonic() + limit_s, watch)
        finally:
            process.kill()


def _collect(
    process: subprocess.Popen[bytes], end: float, watch: Watch
) -> tuple[bytes, int | None]:
    output = bytearray()
    if process.stdout is None:
        raise ToolFailed("the parser has no output")
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    while time.monotonic() < end and len(output) < _MAX_TEXT_BYTES:
        watch.check()
        if not poll.poll(_POLL_MS):
            continue
        piece = os.read(process.stdout.fileno(), _PIECE_BYTES)
        if not piece:
            return bytes(output), process.wait()
        output += piece
    return bytes(output), None
