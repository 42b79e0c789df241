"""The record of model calls, in SQLite. Several processes may share one file."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Literal, TypeAlias

from nanobot_usage.spent import Spent

FILE_NAME = "usage.sqlite"
BUSY_LIMIT_S = 5.0
_RETRY_S = 0.01
SCHEMA_VERSION = 1
Grouping: TypeAlias = Literal["model", "session", "day", "source", "plugin"]

# `totals` repeats sums of `usage`, so that a check before a call costs two look-ups whatever was
# recorded before. Both are written in one transaction.
_SCHEMA = """
CREATE TABLE usage (
    day TEXT NOT NULL,
    model TEXT NOT NULL,
    session TEXT NOT NULL,
    source TEXT NOT NULL,
    plugin TEXT NOT NULL,
    calls INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    nano_usd INTEGER NOT NULL,
    unpriced_calls INTEGER NOT NULL,
    PRIMARY KEY (day, model, session, source, plugin)
) WITHOUT ROWID;
CREATE TABLE totals (
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    nano_usd INTEGER NOT NULL,
    warned INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, key)
) WITHOUT ROWID;
"""
_COUNTERS = (
    "calls",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "nano_usd",
    "unpriced_calls",
)
_ADD_CALL = """
INSERT INTO usage VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    calls = calls + 1,
    prompt_tokens = prompt_tokens + excluded.prompt_tokens,
    completion_tokens = completion_tokens + excluded.completion_tokens,
    cached_tokens = cached_tokens + excluded.cached_tokens,
    reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens,
    nano_usd = nano_usd + excluded.nano_usd,
    unpriced_calls = unpriced_calls + excluded.unpriced_calls
"""
_ADD_TO_TOTAL = """
INSERT INTO totals (scope, key, tokens, nano_usd) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    tokens = tokens + excluded.tokens,
    nano_usd = nano_usd + excluded.nano_usd
"""


class StoreTooNewError(RuntimeError):
    """The file was written by a later release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One model call.

    Attributes:
        day: ``YYYY-MM-DD``, in UTC.
        parents: sessions for which the session does work; the call counts for their budgets too.
        nano_usd: what it cost in billionths of a dollar; ``None`` where no price is known.
    """

    day: str
    model: str
    session: str
    source: str
    plugin: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    nano_usd: int | None = None
    parents: tuple[str, ...] = ()

    @property
    def spent(self) -> Spent:
        """What counts towards budgets."""
        return Spent(self.prompt_tokens + self.completion_tokens, self.nano_usd or 0)

    @property
    def payers(self) -> tuple[str, ...]:
        """The sessions whose budgets it counts for."""
        return (self.session, *self.parents)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Sums of all calls of one model, session, day, source or plugin."""

    key: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    nano_usd: int
    unpriced_calls: int

    @property
    def spent(self) -> Spent:
        """Tokens and money."""
        return Spent(self.prompt_tokens + self.completion_tokens, self.nano_usd)


class UsageStore:
    """Blocks: call its methods in a thread. They may be called from any thread.

    Args:
        folder: existing folder of the file.

    Raises:
        OSError: the file cannot be made, or belongs to another account.
        sqlite3.Error: the file cannot be opened, or is not such a file.
        StoreTooNewError: a later release wrote it.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = Lock()
        _make_private(folder / FILE_NAME)
        # Transactions are started by hand: reading a total and writing it back is one.
        self._connection = sqlite3.connect(
            folder / FILE_NAME, timeout=BUSY_LIMIT_S, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def add(self, calls: Iterable[Call]) -> None:
        """Record `calls`, all or none.

        Raises:
            sqlite3.Error: none was recorded.
        """
        # After each statement the event loop's thread may run, so sums are computed before.
        totals: defaultdict[tuple[str, str], Spent] = defaultdict(Spent)
        rows = []
        for call in calls:
            key = (call.day, call.model, call.session, call.source, call.plugin)
            tokens = (
                call.prompt_tokens,
                call.completion_tokens,
                call.cached_tokens,
                call.reasoning_tokens,
            )
            priced = (call.nano_usd or 0, 1 if call.nano_usd is None else 0)
            rows.append((*key, *tokens, *priced))
            totals["day", call.day] += call.spent
            for session in call.payers:
                totals["session", session] += call.spent
        with self._transaction() as connection:
            connection.executemany(_ADD_CALL, rows)
            connection.executemany(
                _ADD_TO_TOTAL,
                [(*key, spent.tokens, spent.nano_usd) for key, spent in totals.items()],
            )

    def total(self, scope: str, key: str) -> Spent:
        """Return what was spent in a ``day`` or a ``session``."""
        with self._lock:
            row = self._connection.execute(
                "SELECT tokens, nano_usd FROM totals WHERE scope = ? AND key = ?", (scope, key)
            ).fetchone()
        return Spent(*row) if row else Spent()

    def mark_warned(self, scope: str, key: str) -> bool:
        """Note that a total was warned of, and return whether this was the first time."""
        with self._transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO totals VALUES (?, ?, 0, 0, 1) "
                "ON CONFLICT DO UPDATE SET warned = 1 WHERE warned = 0",
                (scope, key),
            )
            return cursor.rowcount == 1

    def lines(self, by: Grouping, first_day: str) -> list[Line]:
        """Return sums from a day on, the dearest and largest first; days in their order."""
        sums = ", ".join(f"SUM({name})" for name in _COUNTERS)
        order = "1" if by == "day" else "7 DESC, SUM(prompt_tokens + completion_tokens) DESC, 1"
        query = f"SELECT {by}, {sums} FROM usage WHERE day >= ? GROUP BY 1 ORDER BY {order}"  # noqa: S608 - by is a Grouping
        with self._lock:
            rows: Sequence[tuple[str, int, int, int, int, int, int, int]]
            rows = self._connection.execute(query, (first_day,)).fetchall()
        return [
            Line(
                key=key,
                calls=calls,
                prompt_tokens=prompt,
                completion_tokens=completion,
                cached_tokens=cached,
                reasoning_tokens=reasoning,
                nano_usd=nano_usd,
                unpriced_calls=unpriced,
            )
            for key, calls, prompt, completion, cached, reasoning, nano_usd, unpriced in rows
        ]

    def close(self) -> None:
        """Close the file. Calling it twice is harmless."""
        with self._lock:
            self._connection.close()

    def _prepare(self) -> None:
        self._use_wal()
        # A power cut may cost the newest calls, and nothing else; to wait for the disk at each
        # model call would cost more than that.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        with self._transaction() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > SCHEMA_VERSION:
                msg = (
                    f"{FILE_NAME} has format {version}, this release knows {SCHEMA_VERSION}; "
                    "upgrade nanobot-usage"
                )
                raise StoreTooNewError(msg)
            if version == 0:
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _use_wal(self) -> None:
        """Switch to a write-ahead log. SQLite does not wait here for others that do the same."""
        end_s = time.monotonic() + BUSY_LIMIT_S
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end_s:
                    raise
                time.sleep(_RETRY_S)
            else:
                return

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


def _make_private(file: Path) -> None:
    """Keep other accounts from a database, new or old; SQLite gives its other files that mode."""
    # One that exists is not opened: closing it would drop the locks of SQLite in this process.
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    for path in (file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")):
        with suppress(FileNotFoundError):
            path.chmod(0o600)
