"""The SQLite file of the plugin. Processes share it: the gateway, and the commands for keys."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from nanobot_core import NanobotError

if TYPE_CHECKING:
    from nanobot_core import PluginContext

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
    """Opens the file for each use, so that nothing is left to close. All methods block.

    Args:
        ctx: names the folder.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._path = ctx.data_dir / FILE_NAME
        self._lock = Lock()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Do all statements of the block, or none.

        Raises:
            StoreUnusable: the file cannot be read or written, or a later release wrote it.
        """
        try:
            # One thread at a time: waiting here is cheaper than SQLite's polling of a busy file.
            with self._lock, closing(self._connect()) as connection:
                connection.execute("BEGIN IMMEDIATE")
                self._prepare(connection)
                yield connection
                connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise StoreUnusable(self._path, str(error)) from error

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
