"""Transactions on the queues: all operations of a batch together, or each alone when that fails."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from nanobot_core.bus.entry import Taken
from nanobot_core.bus.ledger import Ledger
from nanobot_core.errors import BusError, BusFull
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nanobot_core.bus.wal import Progress
    from nanobot_core.tasks import Outcome

DAMAGE_CODES: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PRIMARY_CODE: Final = 0xFF
"""SQLite's extended result codes hold the primary one in their lowest byte."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A change or a query of the queues.

    Attributes:
        work: does it; called again after its changes were rolled back.
        is_durable: it must be on disk when it is done. Otherwise it survives the end of this
            process, but perhaps not a power failure.
    """

    work: Callable[[Ledger], object]
    is_durable: bool = True


def undoing(result: object) -> Operation | None:
    """Return the operation that puts back a message whose receiver was cancelled, if any.

    Args:
        result: of the operation that the receiver asked for.
    """
    taken = result[0] if isinstance(result, tuple) else result
    if not isinstance(taken, Taken):
        return None
    return Operation(lambda ledger: ledger.give_back(taken), is_durable=False)


class Transactions:
    """Runs operations on one database. Blocking; for one thread.

    Args:
        database: in autocommit mode, with the tables of the queues.
        name: its name in errors.
        progress: notes how much of its log is on the disk; ``None`` in memory.

    Raises:
        BusError: the queues cannot be read.
    """

    def __init__(
        self, database: sqlite3.Connection, name: str, progress: Progress | None = None
    ) -> None:
        self._database = database
        self._name = name
        self._progress = progress
        self._ledger = Ledger(database)
        self._synchronous = ""
        self._is_log_suspect = False
        ((_, failure),) = self.run([Operation(Ledger.load)])
        if failure is not None:
            raise failure

    def run(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Run all operations in one transaction, written to disk once.

        If that fails, each operation runs in its own transaction, so that one message that cannot
        be stored fails alone.
        """
        try:
            return self._attempt(operations)
        except Exception as error:  # noqa: BLE001 - isolation point: every caller must get the error
            if len(operations) == 1:
                return [(None, self._translate(error))]
        return [outcome for one in operations for outcome in self.run([one])]

    def take_readied(self) -> set[str]:
        """Return the queues in which a message has become ready since the last call."""
        counts = self._ledger.counts
        readied, counts.readied = counts.readied, set()
        return readied

    def close(self) -> None:
        """Close the database; its log goes into its file.

        Raises:
            BusError: it could not be closed.
        """
        if self._progress is not None:
            self._progress.forget()
        try:
            self._database.close()
        except sqlite3.Error as error:
            raise self._translate(error) from error
        finally:
            if self._progress is not None:
                self._progress.close()

    def _attempt(self, operations: Sequence[Operation]) -> list[Outcome]:
        readied = self._ledger.counts.readied.copy()
        is_durable = any(operation.is_durable for operation in operations)
        try:
            self._prepare(is_durable)
            self._database.execute("BEGIN")
            self._ledger.counts.begin()
            outcomes = [self._outcome(operation) for operation in operations]
            self._database.execute("COMMIT")
        except BaseException:
            self._ledger.counts.roll_back(readied)
            with suppress(sqlite3.Error):  # some failures have rolled back already
                self._database.execute("ROLLBACK")
            self._is_log_suspect = True
            raise
        if is_durable and self._progress is not None:
            self._progress.note()
        return outcomes

    def _outcome(self, operation: Operation) -> Outcome:
        try:
            return operation.work(self._ledger), None
        except BusFull as error:  # nothing was written
            return None, error

    def _prepare(self, is_durable: bool) -> None:
        if self._is_log_suspect:
            # A write or an fsync failed. The log may end in a transaction that was reported as
            # failed, or lack some that the disk has lost. Empty it before the next write.
            if self._progress is not None:
                self._progress.forget()
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._is_log_suspect = False
        synchronous = "FULL" if is_durable else "NORMAL"
        if synchronous != self._synchronous:
            self._database.execute(f"PRAGMA synchronous = {synchronous}")
            self._synchronous = synchronous

    def _translate(self, error: Exception) -> Exception:
        if not isinstance(error, sqlite3.Error):
            return error
        return bus_error(self._name, error)


def bus_error(name: str, error: sqlite3.Error) -> BusError:
    """Return our error for a failure of the database `name`, with a remedy."""
    code = primary_code(error)
    remedy = "check the disk and the permissions of the file; nothing was stored"
    if code == sqlite3.SQLITE_FULL:
        remedy = "make room on the disk; nothing was stored"
    elif code in DAMAGE_CODES:
        remedy = "restart nanobot: it keeps a copy and continues with the readable messages"
    failure = BusError(f"cannot use message queue '{name}': {error}; {remedy}")
    failure.__cause__ = error
    return failure


def primary_code(error: sqlite3.Error) -> int | None:
    """Return SQLite's primary result code; ``None`` for errors of the Python module itself."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY_CODE
