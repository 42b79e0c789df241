"""What was shown in a chat and is in no history: replies to commands, errors, messages of tools."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from nanobot_core import finish_in_thread
from nanobot_core.chat import RichText, split_rich

if TYPE_CHECKING:
    from nanobot_core import PluginContext

_T = TypeVar("_T")
MAX_NOTICES: Final = 5_000
"""Notices of all chats together; the oldest are dropped."""
MAX_SHOWN: Final = 200
MAX_CHARS: Final = 50_000
"""Longer notices are shown in parts, so that showing one does not keep a browser busy."""
_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS notices (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        session TEXT NOT NULL,
        after INTEGER NOT NULL,
        text TEXT NOT NULL,
        media TEXT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS notices_of_session ON notices (session, after);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something that was shown.

    Attributes:
        id: the same when it is delivered again.
        session: key of the session in whose chat it is.
        after: number of messages of the session that come before it.
        text: Markdown.
        media: local paths of files.
        number: counts all notices.
    """

    id: str
    session: str
    after: int
    text: str
    media: tuple[str, ...] = ()
    number: int = 0


def parts_of(notice: Notice) -> Sequence[Notice]:
    """Return a notice in parts of at most `MAX_CHARS`, the files with the last one.

    Parts end after a line feed or a space where they can. All have ids that follow from that of the
    notice, so that a repeated one is recognised.
    """
    texts = [part.text for part in split_rich(RichText(notice.text), MAX_CHARS, _characters)]
    if len(texts) < 2:
        return [notice]
    parts = [
        replace(notice, id=f"{notice.id} {number}", text=text, media=())
        for number, text in enumerate(texts, 1)
    ]
    return [*parts[:-1], replace(parts[-1], media=notice.media)]


def _characters(part: RichText) -> int:
    return len(part.text)


class Notices:
    """The notices, in an SQLite file; get it with ``ctx.shared(Notices)``.

    All methods raise `sqlite3.Error` if the file cannot be used.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._file = ctx.data_dir / "notices.sqlite"

    async def add(self, *notices: Notice) -> Sequence[Notice]:
        """Keep all notices or none, and return them with their numbers.

        One with a known id stays as it was.
        """
        return await self._do(partial(_add, notices))

    async def of(self, session: str, first: int, end: int | None) -> Sequence[Notice]:
        """Return the notices of a session after `first` messages, and before more than `end`."""
        return await self._do(partial(_select, session, first, end))

    async def forget(self, session: str) -> None:
        """Delete the notices of a session."""

        def delete(database: sqlite3.Connection) -> None:
            database.execute("DELETE FROM notices WHERE session = ?", (session,))

        await self._do(delete)

    async def _do(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        def run() -> _T:
            with closing(sqlite3.connect(self._file, timeout=10)) as database, database:
                database.executescript(_SCHEMA)
                return work(database)

        return await finish_in_thread(run)


def _add(notices: Sequence[Notice], database: sqlite3.Connection) -> list[Notice]:
    database.executemany(
        "INSERT OR IGNORE INTO notices (id, session, after, text, media) VALUES (?, ?, ?, ?, ?)",
        [(one.id, one.session, one.after, one.text, json.dumps(one.media)) for one in notices],
    )
    found = [
        _notice(row)
        for one in notices
        for row in database.execute(f"{_COLUMNS} WHERE id = ?", (one.id,))
    ]
    database.execute(
        "DELETE FROM notices WHERE number <= (SELECT max(number) FROM notices) - ?", (MAX_NOTICES,)
    )
    return found


def _select(
    session: str, first: int, end: int | None, database: sqlite3.Connection
) -> list[Notice]:
    rows = database.execute(
        f"{_COLUMNS} WHERE session = ? AND after >= ? AND after < ? ORDER BY number DESC LIMIT ?",
        (session, first, 2**62 if end is None else end, MAX_SHOWN),
    )
    return [_notice(row) for row in rows][::-1]


_COLUMNS: Final = "SELECT id, session, after, text, media, number FROM notices"


def _notice(row: tuple[str, str, int, str, str, int]) -> Notice:
    key, session, after, text, media, number = row
    return Notice(
        id=key,
        session=session,
        after=after,
        text=text,
        media=tuple(json.loads(media)),
        number=number,
    )
