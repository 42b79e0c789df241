"""Index: full-text search over the history and the files of each memory, in SQLite."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from nanobot_core import MemoryEntry
from nanobot_memory.files import folder_of, is_template

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_memory.files import MemoryFiles
    from nanobot_memory.history import HistoryEntry

SCHEMA_VERSION: Final = 2
BUSY_LIMIT_S: Final = 4.0
_MAX_TERMS = 50
_WORDS = re.compile(r"\w+")
# Han, kana and Hangul have no spaces between words, so that each two neighbours count as one.
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_SCHEMA = """
CREATE VIRTUAL TABLE entries USING fts5 (
    terms, source UNINDEXED, id UNINDEXED, text UNINDEXED, time UNINDEXED, session UNINDEXED,
    tokenize = "unicode61 remove_diacritics 2"
);
CREATE TABLE sources (source TEXT PRIMARY KEY, stamp TEXT NOT NULL, cursor INTEGER NOT NULL);
"""


class Index:
    """Finds entries of a memory. It holds copies only: a missing or damaged one is built again.

    Each memory has a file of its own. Blocks; use it in a thread, from any thread. Several
    processes may use it at once.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._folder: Path = ctx.data_dir / "search"
        self._lock = Lock()

    def search(self, files: MemoryFiles, query: str, limit: int) -> list[MemoryEntry]:
        """Return what matches `query` best of one memory, best first.

        Of an entry of the history, these are the lines that match. At most `limit` lines are
        returned.

        Raises:
            OSError: the memory cannot be read.
            sqlite3.Error: the index cannot be built.
        """
        terms = list(dict.fromkeys(terms_of(query)))[:_MAX_TERMS]
        if not terms:
            return []
        path = self._path(files)
        with self._lock:
            try:
                return _search(path, files, terms, limit)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                    raise
                _remove(path)
                return _search(path, files, terms, limit)

    def forget(self, files: MemoryFiles) -> None:
        """Remove the index of a memory with its copies of what was forgotten."""
        with self._lock:
            _remove(self._path(files))

    def _path(self, files: MemoryFiles) -> Path:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        return self._folder / f"{folder_of(f'{files.root.path}/{files.scope}')[-16:]}.sqlite"


def terms_of(text: str) -> Iterator[str]:
    """Yield the terms by which a text is found: words, and pairs of characters without spaces."""
    for word in _WORDS.findall(text.casefold()):
        end = 0
        for match in _UNSPACED.finditer(word):
            if match.start() > end:
                yield word[end : match.start()]
            run, end = match.group(), match.end()
            yield from (run[at : at + 2] for at in range(max(len(run) - 1, 1)))
        if end < len(word):
            yield word[end:]


def lines_of(files: MemoryFiles) -> Iterator[MemoryEntry]:
    """Yield the lines of the long-term files that say something."""
    for name in (*files.names, *files.topics()):
        text = files.read(name)
        if name == "MEMORY.md" and is_template(text):
            continue
        for line in dict.fromkeys(map(str.strip, text.splitlines())):
            if line and not line.startswith("#"):
                yield MemoryEntry(id=f"{name}:{line_id(line)}", text=line, place=name)


def line_id(line: str) -> str:
    """Return what names a line of a file for as long as it stays the same."""
    return hashlib.sha256(line.strip().encode(errors="replace")).hexdigest()[:12]


def history_memory(entry: HistoryEntry) -> MemoryEntry:
    """Return an entry of the history as callers of the backend see it."""
    time = None
    with suppress(ValueError):
        time = datetime.fromisoformat(entry.timestamp).replace(tzinfo=UTC)
    return MemoryEntry(
        id=f"history:{entry.cursor}",
        text=entry.content,
        time=time,
        session_key=entry.session_key,
        place="history",
    )


def _search(path: Path, files: MemoryFiles, terms: list[str], limit: int) -> list[MemoryEntry]:
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(path, timeout=BUSY_LIMIT_S, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        _prepare(connection)
        _update_history(connection, files)
        _update_lines(connection, files)
        connection.execute("COMMIT")
        quoted = " OR ".join(f'"{term}"' for term in terms)
        rows = connection.execute(
            "SELECT rowid, id, text, time, session, source FROM entries WHERE terms MATCH ? "
            "ORDER BY bm25(entries) LIMIT ?",
            (f"terms : ({quoted})", limit),
        ).fetchall()
    passages: dict[str, list[tuple[int, str, str, str, str, str]]] = {}
    for row in rows:
        passages.setdefault(row[1], []).append(row)
    return [_passage(sorted(lines)) for lines in passages.values()]


def _passage(lines: list[tuple[int, str, str, str, str, str]]) -> MemoryEntry:
    """Return the lines of one entry that match, in their order."""
    _, name, _, time, session, place = lines[0]
    return MemoryEntry(
        id=name,
        text="\n".join(line[2] for line in lines),
        time=datetime.fromisoformat(time) if time else None,
        session_key=session,
        place=place,
    )


def _prepare(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == SCHEMA_VERSION:
        return
    for name in ("entries", "sources"):
        connection.execute(f"DROP TABLE IF EXISTS {name}")
    for statement in filter(str.strip, _SCHEMA.split(";")):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _update_history(connection: sqlite3.Connection, files: MemoryFiles) -> None:
    inode, size, changed = files.history_stamp
    archive = " ".join(map(str, files.archive_stamp))
    stamp = f"{inode} {size} {changed} {archive}"
    row = connection.execute(
        "SELECT stamp, cursor FROM sources WHERE source = 'history'"
    ).fetchone()
    former, cursor = row or ("0 0 0 0 0 0", 0)
    if former == stamp:
        return
    former_inode, former_size, _, former_archive = former.split(maxsplit=3)
    is_appended = former_inode == str(inode) and int(former_size) <= size
    if not is_appended or former_archive != archive:
        connection.execute("DELETE FROM entries WHERE source = 'history'")
        cursor = 0
    new = files.all_entries(cursor)
    _add(connection, (line for entry in new for line in _lines_of_entry(entry)))
    newest = max((entry.cursor for entry in new), default=cursor)
    connection.execute("REPLACE INTO sources VALUES ('history', ?, ?)", (stamp, newest))


def _lines_of_entry(entry: HistoryEntry) -> Iterator[MemoryEntry]:
    whole = history_memory(entry)
    yield from (replace(whole, text=line) for line in whole.text.splitlines() if line.strip())


def _update_lines(connection: sqlite3.Connection, files: MemoryFiles) -> None:
    lines = list(lines_of(files))
    stamp = line_id("\n".join(line.id for line in lines))
    row = connection.execute("SELECT stamp FROM sources WHERE source = 'lines'").fetchone()
    if row is not None and row[0] == stamp:
        return
    connection.execute("DELETE FROM entries WHERE source != 'history'")
    _add(connection, lines)
    connection.execute("REPLACE INTO sources VALUES ('lines', ?, 0)", (stamp,))


def _add(connection: sqlite3.Connection, entries: Iterable[MemoryEntry]) -> None:
    connection.executemany(
        "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)",
        (
            (
                " ".join(terms_of(entry.text)),
                entry.place,
                entry.id,
                entry.text,
                entry.time.isoformat() if entry.time else "",
                entry.session_key,
            )
            for entry in entries
        ),
    )


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
