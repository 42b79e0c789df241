"""The file of the queues: locked, checked, of a version that we know, kept aside when damaged."""

from __future__ import annotations

import os
import shutil
import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Final

from filelock import FileLock, Timeout

from nanobot_core.bus.ledger import SCHEMA
from nanobot_core.bus.salvage import TABLES, salvage
from nanobot_core.bus.transaction import DAMAGE_CODES, Transactions, bus_error, primary_code
from nanobot_core.bus.wal import Progress, has_pages, loss_in, read_mark
from nanobot_core.disk import make_folder
from nanobot_core.errors import BusError

if TYPE_CHECKING:
    from pathlib import Path

VERSION: Final = 1
"""Of the tables, in SQLite's ``user_version``."""

_MODE: Final = 0o600
_PAGE_BYTES: Final = 4096
_FORMAT: Final = 2
"""Of the file, for writers and for readers, where there is a log."""
_LOG_BYTES: Final = 4 * 1024 * 1024
"""What the log is cut to after a flood."""


class QueueFile:
    """A database file that this process alone works on. Blocking; for one thread.

    Args:
        path: where it is or shall be.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark = self._beside("-mark")
        self._repaired = self._beside(".repaired")
        self._kept: Path | None = None
        self._lock = FileLock(f"{path}.lock", timeout=0, mode=_MODE)
        self.repaired: tuple[str, ...] = ()
        """What was found damaged when it was opened, and what was done about it."""

    def open(self) -> Transactions:
        """Open the file, which is made if need be.

        Raises:
            BusError: another process has it open, a newer version wrote it, or the disk failed.
        """
        try:
            make_folder(self._path.parent)
            self._lock.acquire()
        except Timeout as error:
            msg = (
                f"message queue '{self._path}' is in use by another process; "
                "stop the other gateway, or give this one a data directory of its own"
            )
            raise BusError(msg) from error
        except OSError as error:
            raise self._unusable(error) from error
        try:
            return self._open_locked()
        except sqlite3.Error as error:
            self.unlock()
            raise bus_error(str(self._path), error) from error
        except OSError as error:
            self.unlock()
            raise self._unusable(error) from error
        except BaseException:
            self.unlock()
            raise

    def unlock(self) -> None:
        """Let others open the file."""
        self._lock.release()

    def _open_locked(self) -> Transactions:
        self._finish_repair()
        try:
            self._check_log()
            database = self._connect(self._path)
        except sqlite3.DatabaseError as error:
            # All statements are our own, so what fails in one of them is the file.
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
        """Compare the log with what was noted of it, before SQLite cuts it off.

        Raises:
            sqlite3.DatabaseError: something is missing.
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
            sqlite3.DatabaseError: with a damage code where it is damaged.
        """
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, _MODE))
        path.chmod(_MODE)
        if 0 < path.stat().st_size < _PAGE_BYTES:
            msg = "it ends within its first page"  # SQLite would take it for an empty one
            raise _Damaged(msg)
        with path.open("rb") as file:
            if any(version > _FORMAT for version in file.read(20)[18:]):
                msg = "its header is damaged"  # SQLite would take it for one that it may only read
                raise _Damaged(msg)
        database = sqlite3.connect(path, isolation_level=None, cached_statements=256)
        # What is damaged is for whoever reads the message to judge.
        database.text_factory = partial(str, encoding="utf-8", errors="replace")
        try:
            # Kept for as long as it is open; also saves the file of shared memory.
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
            if isinstance(error, UnicodeDecodeError):  # SQLite's message quotes what is damaged
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
                f"{VERSION}; upgrade nanobot-core, or move the file away to begin an empty one"
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
        """Keep the damaged file aside, and put a new one with what can be read in its place.

        The damaged one stays in its place until the new one is whole, so that a repair that is cut
        off is begun again by the next start, or finished.
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
            f"{saved} could be read out of it; what could not be read is not answered"
        )
        self.repaired = (finding,)

    def _finish_repair(self) -> None:
        """Put the new file, if there is a whole one, in the place of the damaged one."""
        if self._repaired.exists():
            # A log is replayed into whatever file has its name.
            _log_of(self._path).unlink(missing_ok=True)
            self._mark.unlink(missing_ok=True)
            self._repaired.replace(self._path)

    def _copy_aside(self) -> Path:
        self._path.touch(_MODE)  # where only its log is left
        number = 1
        while (kept := self._beside(f".corrupt-{number}")).exists():
            number += 1
        for source, target in ((_log_of(self._path), _log_of(kept)), (self._path, kept)):
            if source.exists():
                shutil.copy2(source, target)
                _fsync(target)
        return kept

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _unusable(self, error: OSError) -> BusError:
        return BusError(
            f"cannot use message queue '{self._path}': {error}; look at the disk and the rights"
        )


class _Damaged(sqlite3.DatabaseError):
    """The check found damage that no statement had met."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def _is_damage(error: BaseException) -> bool:
    return isinstance(error, sqlite3.DatabaseError) and primary_code(error) in DAMAGE_CODES


def _log_of(path: Path) -> Path:
    """Return SQLite's name for the write-ahead log of a database file."""
    return path.with_name(f"{path.name}-wal")


def _fsync(path: Path) -> None:
    """Make the content of a file, or the names in a folder, last."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
