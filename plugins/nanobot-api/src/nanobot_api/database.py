"""The SQLite file of the plugin. Processes share it: the gateway, and the commands for keys."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Final, TypeVar

from nanobot_core import GatheredWork, NanobotError

if TYPE_CHECKING:
    from nanobot_core import PluginContext

T = TypeVar("T")
FILE_NAME: Final = "api.sqlite"
SCHEMA_VERSION: Final = 1
_BUSY_LIMIT_S: Final = 5.0
_SCHEMA: Final = """
CREATE TABLE keys (
    name TEXT PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    detail TEXT NOT NULL
);
CREATE TABLE spent (
    name TEXT NOT NULL,
    day TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    PRIMARY KEY (name, day)
) WITHOUT ROWID;
CREATE TABLE requests (
    name TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    at_s REAL NOT NULL,
    id TEXT NOT NULL,
    result TEXT,
    PRIMARY KEY (name, key)
) WITHOUT ROWID;
CREATE TABLE responses (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    session TEXT NOT NULL,
    until INTEGER NOT NULL,
    at_s REAL NOT NULL,
    continued INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX responses_of_session ON responses (session);
CREATE TABLE temporary (
    session TEXT PRIMARY KEY
) WITHOUT ROWID;
"""


class StoreUnusable(NanobotError):
    """The plugin's file cannot be used."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path: Path = path
        self.reason: str = reason
        super().__init__(f"'{path}' cannot be used: {reason}")


class Database:
    """Opens the file for each use, so that nothing is left to close.

    Args:
        ctx: names the folder.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._path = ctx.data_dir / FILE_NAME
        self._lock = RLock()
        self._begun: sqlite3.Connection | None = None
        self._work = GatheredWork(self.transaction)

    async def finish(self, work: Callable[[], T]) -> T:
        """Run `work`, which blocks, in a thread and return its result.

        What is asked for at the same time shares one transaction, so that many requests wait for
        the disk together, and in one thread of the few that the process has. What fails by itself
        leaves the rest as it is.

        Raises:
            StoreUnusable: see `transaction`.

        Cancellation:
            Passed on after `work` has ended.
        """
        return await self._work.finish(work)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Do all statements of the block, or none; a block inside of another is a part of it.

        Blocks.

        Raises:
            StoreUnusable: the file cannot be read or written, or a later release wrote it.
        """
        try:
            # One thread at a time: waiting here is cheaper than SQLite's polling of a busy file.
            with self._lock, self._begin() as connection:
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise StoreUnusable(self._path, str(error)) from error

    @contextmanager
    def _begin(self) -> Iterator[sqlite3.Connection]:
        if self._begun is not None:
            with _part(self._begun):
                yield self._begun
            return
        with closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            self._prepare(connection)
            self._begun = connection
            try:
                yield connection
            finally:
                self._begun = None
            connection.execute("COMMIT")

    def _connect(self) -> sqlite3.Connection:
        if not self._path.exists():
            # SQLite gives its other files the mode of the first one.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(self._path, timeout=_BUSY_LIMIT_S, isolation_level=None)
        # A power cut may damage the newest transaction, not the file.
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif version > SCHEMA_VERSION:
            reason = f"it has format {version}, this release knows {SCHEMA_VERSION}"
            raise StoreUnusable(self._path, f"{reason}; upgrade nanobot-api")


@contextmanager
def _part(connection: sqlite3.Connection) -> Iterator[None]:
    """Undo the block, and no more of the transaction, if it fails."""
    # After some errors, such as a full disk, SQLite itself undoes all of it.
    if not connection.in_transaction:
        msg = "another change in the same transaction has failed"
        raise sqlite3.OperationalError(msg)
    connection.execute("SAVEPOINT part")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO part")
            connection.execute("RELEASE part")
        raise
    connection.execute("RELEASE part")
