"""What can still be read out of a damaged file of queues."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from nanobot_core.bus.entry import OUT
from nanobot_core.bus.wal import apply_log
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nanobot_core.bus.wal import Mark

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
_KEYS: Final = {"message": "number", "dead": "burial", "seen": "number"}


@dataclass(frozen=True, slots=True)
class Saved:
    """How much was saved."""

    messages: int
    letters: int

    def __str__(self) -> str:
        return f"{self.messages} waiting messages and {self.letters} dead letters"


def salvage(damaged: Path, mark: Mark | None, database: sqlite3.Connection) -> Saved:
    """Copy every row that can be read from the file `damaged`, which stays as it is.

    Tables are read from both ends, because what lies behind a damaged page is out of reach from
    one side only.

    Args:
        damaged: the file; its log lies beside it.
        mark: what was noted of the log.
        database: empty, with the tables; the queues are loaded from it afterwards.
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
            # Pages of different ages may have a letter in its queue too, from before its burial,
            # and damage may have divided the move; as a letter it waits for the owner.
            database.execute("DELETE FROM message WHERE number IN (SELECT number FROM dead)")
            # As if they had been out: their places in line are worked out anew.
            database.execute("UPDATE message SET state = ? WHERE NOT urgent", (OUT,))
            database.execute("COMMIT")
    finally:
        copy.unlink(missing_ok=True)
        log.unlink(missing_ok=True)
    counts = (database.execute(f"SELECT count(*) FROM {name}") for name in ("message", "dead"))  # noqa: S608 - our names
    return Saved(*(count.fetchone()[0] for count in counts))


def _restore_header(database: Path) -> None:
    """Write what is the same at the beginning of every file of ours that has no log."""
    with database.open("r+b") as file:
        for place, content in _HEADER.items():
            file.seek(place)
            file.write(content)


def _rows(source: sqlite3.Connection, table: str, columns: str) -> Iterator[tuple[object, ...]]:
    for direction in ("ASC", "DESC"):
        # `NOT INDEXED`, because indexes are as likely to be damaged and are not needed.
        statement = f"SELECT {columns} FROM {table} NOT INDEXED ORDER BY {_KEYS[table]} {direction}"  # noqa: S608 - our names
        try:
            yield from source.execute(statement)
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            continue  # SQLite's message may quote what is damaged, in no encoding
        return


def _insert(database: sqlite3.Connection, table: str, row: tuple[object, ...]) -> None:
    marks = ", ".join("?" * len(row))
    # A row that no longer fits the table is damaged too.
    with suppress(sqlite3.IntegrityError):
        database.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)  # noqa: S608 - our names
