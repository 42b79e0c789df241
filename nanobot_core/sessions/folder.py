"""The folder of sessions: which file belongs to which key."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from nanobot_core.contracts.store import SessionSummary
from nanobot_core.sessions.door import NotRegular, SessionDoor
from nanobot_core.sessions.key import file_name, original_file_name, original_key
from nanobot_core.sessions.records import Header, decode_line

if TYPE_CHECKING:
    from pathlib import Path

_FIRST_LINE_BYTES = 256 * 1024
_EPOCH = datetime.fromtimestamp(0, UTC)
_SUFFIX = ".jsonl"


class SessionFolder:
    """Finds session files under the present and the original's names. Blocking.

    Args:
        folder: where sessions are.
        legacy_folder: where an older version kept them; a file found there is moved once.
        fsync: as `SessionDoor` has it.

    Attributes:
        door: opens the files.
    """

    def __init__(self, folder: Path, legacy_folder: Path | None, *, fsync: bool = True) -> None:
        self.door: SessionDoor = SessionDoor(folder, fsync=fsync)
        self._legacy = None if legacy_folder is None else SessionDoor(legacy_folder, fsync=fsync)

    def name_of(self, key: str) -> str:
        """Return the name of the file of `key`, which need not exist."""
        name, original = file_name(key), original_file_name(key)
        try:
            if self.door.stat(name) is not None:
                return name
        except NotRegular:  # for whoever opens it to judge
            return name
        if _holds(self.door, original, key):
            return original
        if self._legacy is not None and _holds(self._legacy, original, key):
            # In this order, so that a crash leaves one whole file at least.
            with self._legacy.open_read(original) as source, self.door.replacing(name) as target:
                shutil.copyfileobj(source, target)
            self._legacy.remove(original)
        return name

    def summaries(self) -> list[SessionSummary]:
        """Return all sessions, newest first; of each file one line is read."""
        found: dict[str, SessionSummary] = {}
        doors = [self.door] if self._legacy is None else [self.door, self._legacy]
        for door, name in ((one, name) for one in doors for name in one.scan(_SUFFIX)):
            try:
                facts = door.stat(name)
                key = _key_of(door, name)
            except (FileNotFoundError, NotRegular):  # deleted, moved or replaced meanwhile
                continue
            if facts is None or not facts.st_size:
                continue
            updated_at = _EPOCH + timedelta(microseconds=facts.st_mtime_ns // 1000)
            found.setdefault(
                key, SessionSummary(key=key, updated_at=updated_at, size=facts.st_size)
            )
        return sorted(found.values(), key=lambda summary: summary.updated_at, reverse=True)


def _holds(door: SessionDoor, name: str, key: str) -> bool:
    """Whether the file exists and is that of `key`: the original's names may collide."""
    try:
        header = _first_header(door, name)
    except OSError:
        return False
    return header is None or header.key in ("", key)


def _key_of(door: SessionDoor, name: str) -> str:
    header = _first_header(door, name)
    return header.key if header and header.key else original_key(name.removesuffix(_SUFFIX))


def _first_header(door: SessionDoor, name: str) -> Header | None:
    with door.open_read(name) as file:
        record = decode_line(file.readline(_FIRST_LINE_BYTES), _EPOCH)
    return record if isinstance(record, Header) else None
