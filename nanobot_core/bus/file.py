"""The file of the queues: locked, checked, of a known version, repaired if it is damaged."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from filelock import FileLock, Timeout

from nanobot_core.bus.entry import OUT
from nanobot_core.bus.ledger import SCHEMA
from nanobot_core.bus.transaction import DAMAGE_CODES, Transactions, bus_error, primary_code
from nanobot_core.bus.wal import Progress, apply_log, has_pages, loss_in, read_mark
from nanobot_core.disk import corrupt_name, make_folder
from nanobot_core.errors import BusError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nanobot_core.bus.wal import Mark

VERSION: Final = 1
"""Of the tables, in SQLite's ``user_version``."""

_MODE: Final = 0o600
_PAGE_BYTES: Final = 4096
_FORMAT: Final = 2
"""Of the file, for writers and for readers, where there is a log."""
_LOG_BYTES: Final = 4 * 1024 * 1024
"""What the log is cut to after a flood."""
TABLES: Final = {
    "message": "number, queue, lane, urgent, state, due_us, attempts, stored_us, payload",
    "dead": "burial, number, queue, lane, urgent, attempts, stored_us, payload, buried_us, reason",
    "seen": "number, key, at_us",
}
_HEADER: Final = {
    0: b"SQLite format 3\0\x10\0\1\1\0\x40\x20\x20",
    44: b"\0\0\0\4",
    56: b"\0\0\0\1",
}
"""Name, page size, versions and room in pages; format of the schema; UTF-8."""


class QueueFile:
    """A database file that only this process uses. Blocking; for one thread.

    Args:
        path: the file; created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark = self._beside("-mark")
        self._repaired = self._beside(".repaired")
        self._kept: Path | None = None
        self._lock = FileLock(f"{path}.lock", timeout=0, mode=_MODE)
        self.repaired: tuple[str, ...] = ()
        """Sentences on damage that was found when it was opened, and on the repair."""

    def open(self) -> Transactions:
        """Open the file, and create it if it does not exist.

        Raises:
            BusError: another process has it open, a newer version wrote it, or the disk failed.
        """
        try:
            make_folder(self._path.parent)
            self._lock.acquire()
            try:
                return self._open_locked()
            except BaseException:
                self.unlock()
                raise
        except Timeout as error:
            msg = (
                f"message queue '{self._path}' is in use by another process; "
                "stop the other gateway, or give this one its own data directory"
            )
            raise BusError(msg) from error
        except sqlite3.Error as error:
            raise bus_error(str(self._path), error) from error
        except OSError as error:
            msg = (
                f"cannot use message queue '{self._path}': {error}; check the disk and the "
                "permissions"
            )
            raise BusError(msg) from error

    def unlock(self) -> None:
        """Let other processes open the file."""
        self._lock.release()

    def _open_locked(self) -> Transactions:
        self._finish_repair()
        try:
            self._check_log()
            database = self._connect(self._path)
        except sqlite3.DatabaseError as error:
            # All statements are our own, so a failure in one of them means a damaged file.
            if not _is_damage(error) and primary_code(error) != sqlite3.SQLITE_ERROR:
                raise
            self._repair(error)
            database = self._connect(self._path)
        try:
            progress = Progress(_log_of(self._path), self._mark)
            return Transactions(database, str(self._path), progress)
        except BaseException:
            database.close()
            raise

    def _check_log(self) -> None:
        """Compare the log with the note on it, before SQLite cuts it off.

        Raises:
            sqlite3.DatabaseError: a part is missing.
        """
        log = _log_of(self._path)
        if not self._path.exists() or not self._path.stat().st_size:
            if has_pages(log):  # SQLite would remove it
                msg = "it is empty or missing, and its log is not"
                raise _Damaged(msg)
            self._mark.unlink(missing_ok=True)
        elif loss := loss_in(log, read_mark(self._mark)):
            raise _Damaged(loss)

    def _connect(self, path: Path) -> sqlite3.Connection:
        """Return a connection to the undamaged file `path` with the tables in it.

        Raises:
            sqlite3.DatabaseError: with a damage code if it is damaged.
        """
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, _MODE))
        path.chmod(_MODE)
        if 0 < path.stat().st_size < _PAGE_BYTES:
            msg = "it ends within its first page"  # SQLite would treat it as empty
            raise _Damaged(msg)
        with path.open("rb") as file:
            if any(version > _FORMAT for version in file.read(20)[18:]):
                msg = "its header is damaged"  # SQLite would treat it as read-only
                raise _Damaged(msg)
        database = sqlite3.connect(path, isolation_level=None, cached_statements=256)
        # Damaged text is reported by the reader of the message.
        database.text_factory = partial(str, encoding="utf-8", errors="replace")
        try:
            # Held while it is open; also makes the file of shared memory unnecessary.
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            database.execute("PRAGMA journal_mode = WAL").fetchall()
            database.execute("PRAGMA synchronous = FULL")
            database.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
            self._check(database)
        except BaseException as error:
            # Before closing, which writes the log into the file and removes it.
            is_damaged = isinstance(error, UnicodeDecodeError) or _is_damage(error)
            if path == self._path and is_damaged:
                self._kept = self._copy_aside()
            if isinstance(error, UnicodeDecodeError):  # SQLite's message quotes damaged bytes
                database.close()
                msg = "the names of its tables cannot be read"
                raise _Damaged(msg) from error
            database.close()
            raise
        _fsync(path.parent)
        return database

    def _check(self, database: sqlite3.Connection) -> None:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            msg = (
                f"message queue '{self._path}' has version {version} and this nanobot-core knows "
                f"{VERSION}; upgrade nanobot-core, or move the file away to begin with an empty one"
            )
            raise BusError(msg)
        (tables,) = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        if not tables and not version and pages <= 1:
            database.execute("BEGIN IMMEDIATE")
            for statement in SCHEMA:
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {VERSION}")
            database.execute("COMMIT")
            return
        for table, columns in TABLES.items():
            database.execute(f"SELECT {columns} FROM {table} LIMIT 0")  # noqa: S608 - our names
        # The quick check would not find a message that an index has lost.
        (finding,) = database.execute("PRAGMA integrity_check(1)").fetchone()
        if version != VERSION or not tables:
            finding = f"its version is {version} and it has {tables} tables and indexes"
        if finding != "ok":
            raise _Damaged(finding)

    def _repair(self, error: sqlite3.DatabaseError) -> None:
        """Keep a copy of the damaged file, and replace it by a new one with the readable content.

        The damaged one stays in place until the new one is complete, so that the next start repeats
        or finishes an interrupted repair.
        """
        kept = self._kept or self._copy_aside()
        fresh = self._beside(".new")
        for left_over in (fresh, _log_of(fresh)):
            left_over.unlink(missing_ok=True)
        database = self._connect(fresh)
        try:
            saved = salvage(kept, read_mark(self._mark), database)
        finally:
            database.close()
        fresh.replace(self._repaired)
        self._finish_repair()
        finding = (
            f"message queue '{self._path}' was damaged ({error}); it is kept as '{kept}', and "
            f"{saved} could be read; messages that could not be read get no answer"
        )
        self.repaired = (finding,)

    def _finish_repair(self) -> None:
        """Replace the damaged file by the new one, if that is complete."""
        if self._repaired.exists():
            # SQLite replays a log into any file of its name.
            _log_of(self._path).unlink(missing_ok=True)
            self._mark.unlink(missing_ok=True)
            self._repaired.replace(self._path)

    def _copy_aside(self) -> Path:
        self._path.touch(_MODE)  # if only its log is left
        kept = corrupt_name(self._path)
        for source, target in ((_log_of(self._path), _log_of(kept)), (self._path, kept)):
            if source.exists():
                shutil.copy2(source, target)
                _fsync(target)
        return kept

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)


class _Damaged(sqlite3.DatabaseError):
    """A check found damage that no statement has met."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def _is_damage(error: BaseException) -> bool:
    return isinstance(error, sqlite3.DatabaseError) and primary_code(error) in DAMAGE_CODES


def _log_of(path: Path) -> Path:
    """Return SQLite's name for the write-ahead log of a database file."""
    return path.with_name(f"{path.name}-wal")


def _fsync(path: Path) -> None:
    """Make the content of a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def salvage(damaged: Path, mark: Mark | None, database: sqlite3.Connection) -> str:
    """Copy every readable row of the file `damaged`, which stays unchanged; return how many.

    Tables are read from both ends, because a damaged page stops a reader that comes from one end.

    Args:
        damaged: the file; its log is beside it.
        mark: the note on the log.
        database: with empty tables; the queues are loaded from it afterwards.
    """
    copy = damaged.with_name(f"{damaged.name}.reading")
    log = copy.with_name(f"{copy.name}-wal")
    try:
        shutil.copy2(damaged, copy)
        apply_log(damaged.with_name(f"{damaged.name}-wal"), mark, copy)
        _restore_header(copy)
        with closing(sqlite3.connect(copy, isolation_level=None)) as source:
            source.text_factory = database.text_factory
            source.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("BEGIN")
            for table, columns in TABLES.items():
                for row in _rows(source, table, columns):
                    _insert(database, table, row)
            # Pages of different ages may contain a dead letter as a message too.
            database.execute("DELETE FROM message WHERE number IN (SELECT number FROM dead)")
            # As if they had been out: loading works out their places in line.
            database.execute("UPDATE message SET state = ? WHERE NOT urgent", (OUT,))
            database.execute("COMMIT")
    finally:
        copy.unlink(missing_ok=True)
        log.unlink(missing_ok=True)
    ((messages, letters),) = database.execute(
        "SELECT (SELECT count(*) FROM message), (SELECT count(*) FROM dead)"
    )
    return f"{messages} waiting messages and {letters} dead letters"


def _restore_header(database: Path) -> None:
    """Write the header that all our files without a log have in common."""
    with database.open("r+b") as file:
        for place, content in _HEADER.items():
            file.seek(place)
            file.write(content)


def _rows(source: sqlite3.Connection, table: str, columns: str) -> Iterator[tuple[object, ...]]:
    key = columns.partition(",")[0]
    for direction in ("ASC", "DESC"):
        # `NOT INDEXED`, because indexes are as likely to be damaged and are not needed.
        statement = f"SELECT {columns} FROM {table} NOT INDEXED ORDER BY {key} {direction}"  # noqa: S608 - our names
        try:
            yield from source.execute(statement)
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            continue  # SQLite's message may quote damaged bytes
        return


def _insert(database: sqlite3.Connection, table: str, row: tuple[object, ...]) -> None:
    marks = ", ".join("?" * len(row))
    # A row that does not fit the table is damaged too.
    with suppress(sqlite3.IntegrityError):
        database.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)  # noqa: S608 - our names
