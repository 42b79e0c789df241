"""The folder of sessions: which file belongs to which key."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from nanobot_core.contracts.store import SessionSummary
from nanobot_core.disk import make_folder
from nanobot_core.sessions.key import file_name, original_file_name, original_key
from nanobot_core.sessions.records import Header, decode_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FIRST_LINE_BYTES = 256 * 1024
_EPOCH = datetime.fromtimestamp(0, UTC)


class SessionFolder:
    """Finds session files under the present and the original's names. Blocking.

    Args:
        folder: where sessions are.
        legacy_folder: where an older version kept them; a file found there is moved once.
    """

    def __init__(self, folder: Path, legacy_folder: Path | None) -> None:
        self._folder, self._legacy_folder = folder, legacy_folder

    def path_of(self, key: str) -> Path:
        """Return the file of `key`, which need not exist."""
        path = self._folder / file_name(key)
        original = original_file_name(key)
        if path.exists():
            return path
        if _holds(self._folder / original, key):
            return self._folder / original
        if self._legacy_folder is not None and _holds(self._legacy_folder / original, key):
            _move(self._legacy_folder / original, path)
        return path

    def summaries(self) -> list[SessionSummary]:
        """Return all sessions, newest first; of each file one line is read."""
        found: dict[str, SessionSummary] = {}
        for path in self._files():
            try:
                stat = path.stat()
                key = _key_of(path)
            except FileNotFoundError:  # deleted or moved meanwhile
                continue
            updated_at = _EPOCH + timedelta(microseconds=stat.st_mtime_ns // 1000)
            if stat.st_size:
                summary = SessionSummary(key=key, updated_at=updated_at, size=stat.st_size)
                found.setdefault(key, summary)
        return sorted(found.values(), key=lambda summary: summary.updated_at, reverse=True)

    def _files(self) -> Iterator[Path]:
        yield from self._folder.glob("*.jsonl")
        if self._legacy_folder is not None:
            yield from self._legacy_folder.glob("*.jsonl")


def _holds(path: Path, key: str) -> bool:
    """Whether the file exists and is that of `key`: the original's names may collide."""
    try:
        header = _first_header(path)
    except OSError:
        return False
    return header is None or header.key in ("", key)


def _key_of(path: Path) -> str:
    header = _first_header(path)
    return header.key if header and header.key else original_key(path.stem)


def _first_header(path: Path) -> Header | None:
    with path.open("rb") as file:
        record = decode_line(file.readline(_FIRST_LINE_BYTES), _EPOCH)
    return record if isinstance(record, Header) else None


def _move(source: Path, target: Path) -> None:
    """Move over file systems too, so that a crash leaves one whole file at least."""
    make_folder(target.parent)
    temporary = target.with_name(target.name + ".tmp")
    shutil.copy2(source, temporary)
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    temporary.replace(target)
    source.unlink()
