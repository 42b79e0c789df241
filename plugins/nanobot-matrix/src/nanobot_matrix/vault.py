"""Vault: the keys of the agent's device, in a database that only the owner can read."""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from nanobot_core.chat import CallFailed, Cause

ResultT = TypeVar("ResultT")
_WAIT_S = 10.0
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE users (
    user_id TEXT PRIMARY KEY, changes INTEGER NOT NULL, asked INTEGER NOT NULL,
    master TEXT NOT NULL);
CREATE TABLE devices (
    user_id TEXT, device_id TEXT, curve25519 TEXT NOT NULL, ed25519 TEXT NOT NULL,
    master TEXT NOT NULL, is_gone INTEGER NOT NULL, PRIMARY KEY (user_id, device_id));
CREATE TABLE olm (
    sender_key TEXT, session_id TEXT, pickle TEXT NOT NULL, used INTEGER NOT NULL,
    PRIMARY KEY (sender_key, session_id));
CREATE TABLE heard (digest BLOB PRIMARY KEY, at INTEGER NOT NULL);
CREATE TABLE rooms (
    room TEXT PRIMARY KEY, algorithm TEXT NOT NULL, messages INTEGER NOT NULL,
    period_s INTEGER NOT NULL);
CREATE TABLE outbound (
    room TEXT PRIMARY KEY, session_id TEXT NOT NULL, pickle TEXT NOT NULL, began_s REAL NOT NULL);
CREATE TABLE shared (
    session_id TEXT, user_id TEXT, device_id TEXT, curve25519 TEXT NOT NULL,
    number INTEGER NOT NULL, PRIMARY KEY (session_id, user_id, device_id));
CREATE TABLE inbound (
    id INTEGER PRIMARY KEY, room TEXT NOT NULL, session_id TEXT NOT NULL, user_id TEXT NOT NULL,
    sender_key TEXT NOT NULL, ed25519 TEXT NOT NULL, pickle TEXT NOT NULL,
    UNIQUE (room, session_id, user_id, sender_key));
CREATE INDEX inbound_users ON inbound (user_id, id);
CREATE TABLE seen (
    inbound INTEGER REFERENCES inbound ON DELETE CASCADE, number INTEGER, event_id TEXT NOT NULL,
    is_settled INTEGER NOT NULL, PRIMARY KEY (inbound, number));
CREATE INDEX seen_events ON seen (event_id);
CREATE TABLE unread (
    room TEXT, event_id TEXT, event TEXT NOT NULL, why TEXT NOT NULL, since_s REAL NOT NULL,
    has_notice INTEGER NOT NULL, PRIMARY KEY (room, event_id));
CREATE TABLE counts (room TEXT PRIMARY KEY, number INTEGER NOT NULL);
"""


class Vault:
    """A database with the keys of one device. What `run` returns, is on disk.

    Keys are read from the disk, used and written again in one transaction, so that a process that
    is killed uses no key twice, and so that two processes can use the file.

    Args:
        file: the database; it is created for the owner only.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        # One thread: operations run in the order of their calls, and a cancelled caller leaves
        # nothing half done.
        self._worker = ThreadPoolExecutor(1, "matrix keys")
        self._connection: sqlite3.Connection | None = None

    async def run(self, work: Callable[[Keys], ResultT]) -> ResultT:
        """Return the result of `work`, after what it changed is on disk.

        Cancellation:
            `work` is completed in the background.

        Raises:
            CallFailed: the keys cannot be read or stored; nothing is changed.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, self._changed, work)

    async def aclose(self) -> None:
        """Close the database after pending operations. Can be called again."""
        with suppress(RuntimeError):  # it is closed
            await asyncio.get_running_loop().run_in_executor(self._worker, self._close)
        self._worker.shutdown(wait=False)

    def _changed(self, work: Callable[[Keys], ResultT]) -> ResultT:
        try:
            if self._connection is None:
                self._connection = _opened(self._file)
            with _transaction(self._connection):
                pickle_key = _meta(self._connection, "pickle key", lambda: secrets.token_bytes(32))
                return work(Keys(self._connection, pickle_key))
        # Work reports what is wrong with its arguments by its result.
        except (OSError, ValueError, sqlite3.Error) as error:
            reason = f"the keys of encrypted rooms in '{self._file}' cannot be used: {error}"
            raise CallFailed(Cause.UNREACHABLE, reason) from error

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Keys:
    """A transaction of a `Vault`.

    Attributes:
        pickle_key: with which vodozemac encrypts its objects.
    """

    def __init__(self, connection: sqlite3.Connection, pickle_key: bytes) -> None:
        self._connection = connection
        self.pickle_key: bytes = pickle_key

    def all(self, query: str, *values: str | float | bytes) -> list[tuple[str, ...]]:
        """Return the rows of texts that a query finds."""
        return self._connection.execute(query, values).fetchall()

    def numbers(self, query: str, *values: str | float | bytes) -> list[tuple[int, ...]]:
        """Return the rows of numbers that a query finds."""
        return self._connection.execute(query, values).fetchall()

    def change(self, statement: str, *values: str | float | bytes) -> int:
        """Return the number of rows that a statement changes."""
        return self._connection.execute(statement, values).rowcount

    def value(self, name: str) -> str | None:
        """Return a named text, if it exists."""
        found = self.all("SELECT value FROM meta WHERE name = ?", name)
        return found[0][0] if found else None

    def set_value(self, name: str, value: str) -> None:
        """Store a named text."""
        self.change("INSERT OR REPLACE INTO meta VALUES (?, ?)", name, value)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _opened(file: Path) -> sqlite3.Connection:
    # SQLite gives its other files the mode of this one.
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(
        file, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
    )
    try:
        file.chmod(0o600)
        # A commit must also survive a power failure: otherwise keys would be used twice. With
        # SQLite's usual journal, that needs EXTRA; WAL cannot be switched on by two at once.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA foreign_keys = ON")
        with _transaction(connection):
            if connection.execute("PRAGMA user_version").fetchone() == (0,):
                for statement in _TABLES.split(";"):
                    connection.execute(statement)
                connection.execute("PRAGMA user_version = 1")
    except BaseException:
        connection.close()
        raise
    return connection


def _meta(connection: sqlite3.Connection, name: str, make: Callable[[], bytes]) -> bytes:
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    if row is not None:
        return bytes(row[0])
    value = make()
    connection.execute("INSERT INTO meta VALUES (?, ?)", (name, value))
    return value
