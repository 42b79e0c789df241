"""What outlives a request: results of idempotent requests, stored responses, sessions to delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nanobot_api.answer import Result
from nanobot_api.database import Database

if TYPE_CHECKING:
    from nanobot_core import PluginContext

KEEP_REQUESTS_S: Final = 24 * 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRequest:
    """A request that was sent before.

    Attributes:
        digest: hash of what was asked.
        id: id of the answer.
        created_s: when it was sent first, in seconds since 1970.
        result: its result, or ``None`` if it had none when the process ended.
    """

    digest: str
    id: str
    created_s: int
    result: Result | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """A response that can be continued.

    Attributes:
        id: its id without prefix.
        name: of the key that it belongs to.
        session: its session.
        until: number of messages of the session at its end.
    """

    id: str
    name: str
    session: str
    until: int


class Records:
    """Blocks; all methods raise `StoreUnusable`."""

    def __init__(self, ctx: PluginContext) -> None:
        self._database = ctx.shared(Database)

    def claim(
        self, name: str, key: str, digest: str, answer_id: str, *, at_s: float
    ) -> KnownRequest | None:
        """Record that a request begins; return the earlier one with the same key, if any.

        Args:
            name: of the API key.
            key: the ``Idempotency-Key``.
            digest: hash of what is asked.
            answer_id: id of the answer to come.
            at_s: the time now, in seconds since 1970.
        """
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM requests WHERE at_s < ?", (at_s - KEEP_REQUESTS_S,))
            found = connection.execute(
                "INSERT OR IGNORE INTO requests VALUES (?, ?, ?, ?, ?, NULL)",
                (name, key, digest, at_s, answer_id),
            )
            if found.rowcount:
                return None
            known, known_id, known_at_s, text = connection.execute(
                "SELECT digest, id, at_s, result FROM requests WHERE name = ? AND key = ?",
                (name, key),
            ).fetchone()
        result = None if text is None else Result.model_validate_json(text)
        return KnownRequest(digest=known, id=known_id, created_s=int(known_at_s), result=result)

    def settle(self, name: str, key: str, result: Result) -> None:
        """Record the result of a request."""
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE requests SET result = ? WHERE name = ? AND key = ?",
                (result.model_dump_json(), name, key),
            )

    def keep(self, response: StoredResponse, *, at_s: float) -> None:
        """Keep a response, and its session with it."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO responses VALUES (?, ?, ?, ?, ?, 0)",
                (response.id, response.name, response.session, response.until, at_s),
            )
            connection.execute("DELETE FROM temporary WHERE session = ?", (response.session,))

    def response(self, name: str, response_id: str) -> StoredResponse | None:
        """Return a stored response of a key."""
        with self._database.transaction() as connection:
            row = connection.execute(
                "SELECT session, until FROM responses WHERE id = ? AND name = ?",
                (response_id, name),
            ).fetchone()
        return (
            StoredResponse(id=response_id, name=name, session=row[0], until=row[1]) if row else None
        )

    def go_on(self, response_id: str) -> bool:
        """Reserve the session of a response for what follows it; False if something does."""
        with self._database.transaction() as connection:
            return (
                connection.execute(
                    "UPDATE responses SET continued = 1 WHERE id = ? AND continued = 0",
                    (response_id,),
                ).rowcount
                > 0
            )

    def add_temporary(self, session: str) -> None:
        """Record a session that must be deleted."""
        with self._database.transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO temporary VALUES (?)", (session,))

    def forget_temporary(self, session: str) -> None:
        """Record that a session was deleted."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM temporary WHERE session = ?", (session,))

    def is_temporary(self, session: str) -> bool:
        """Whether a session must be deleted."""
        with self._database.transaction() as connection:
            query = "SELECT 1 FROM temporary WHERE session = ?"
            return connection.execute(query, (session,)).fetchone() is not None

    def temporary(self) -> list[str]:
        """Return the sessions that must be deleted."""
        with self._database.transaction() as connection:
            return [row[0] for row in connection.execute("SELECT session FROM temporary")]

    def expire(self, before_s: float) -> None:
        """Forget old responses; sessions without a newer one become temporary."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO temporary SELECT session FROM responses "
                "GROUP BY session HAVING max(at_s) < ?",
                (before_s,),
            )
            connection.execute("DELETE FROM responses WHERE at_s < ?", (before_s,))
