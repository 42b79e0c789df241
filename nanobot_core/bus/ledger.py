"""The queues as tables: which message is next, out, already seen, or given up. Blocking.

A message is in one of four states. Of the messages of a lane (a session, a chat) that are not
urgent, either some are *out*, or the oldest is *ready* or *delayed*; all others are *behind*. So
the next message of a queue is the first *ready* row of an index, however many there are, and no
statement looks at more rows than it changes or returns.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from nanobot_core.bus.entry import BEHIND, DELAYED, OUT, READY, Taken, decode_dead, instant
from nanobot_core.contracts.bus import DeadLetter
from nanobot_core.errors import BusFull

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from nanobot_core.bus.entry import Entry

DEAD: Final = "dead"
"""Where `QueueCounts.by_queue` counts dead letters; the other names are queues."""

_K = TypeVar("_K")
KEPT_US: Final = 7 * 24 * 3600 * 1_000_000
"""How long a repeated message is recognised."""

# Checked when the file is opened, so that a damaged row is found there and not by a receiver. The
# instants are those that `datetime` can hold.
_SOUND: Final = """
        typeof(queue) = 'text' AND typeof(lane) = 'blob' AND typeof(payload) = 'text'
        AND urgent IN (0, 1) AND typeof(attempts) = 'integer' AND attempts BETWEEN 0 AND 1000000000
        AND typeof(stored_us) = 'integer' AND stored_us BETWEEN 0 AND 250000000000000000"""

SCHEMA: Final = (
    f"""CREATE TABLE message (
        number INTEGER PRIMARY KEY, queue TEXT NOT NULL, lane BLOB NOT NULL,
        urgent INTEGER NOT NULL, state INTEGER NOT NULL, due_us INTEGER NOT NULL,
        attempts INTEGER NOT NULL, stored_us INTEGER NOT NULL, payload TEXT NOT NULL,
        CHECK ({_SOUND} AND state IN (0, 1, 2, 3) AND typeof(due_us) = 'integer'))""",
    "CREATE INDEX message_lane ON message (queue, lane, urgent, state)",
    f"CREATE INDEX message_ready ON message (queue, urgent DESC, number) WHERE state = {READY}",
    f"CREATE INDEX message_delayed ON message (queue, due_us) WHERE state = {DELAYED}",
    f"""CREATE TABLE dead (
        burial INTEGER PRIMARY KEY, number INTEGER NOT NULL UNIQUE, queue TEXT NOT NULL,
        lane BLOB NOT NULL, urgent INTEGER NOT NULL, attempts INTEGER NOT NULL,
        stored_us INTEGER NOT NULL, payload TEXT NOT NULL,
        buried_us INTEGER NOT NULL, reason TEXT NOT NULL,
        CHECK ({_SOUND} AND typeof(number) = 'integer' AND typeof(reason) = 'text'
        AND typeof(buried_us) = 'integer' AND buried_us BETWEEN 0 AND 250000000000000000))""",
    """CREATE TABLE seen (
        number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, at_us INTEGER NOT NULL,
        CHECK (typeof(at_us) = 'integer'))""",
)

_PRUNED_AT_ONCE: Final = 4
"""Outdated keys that one new key removes: more than one, so that they do not pile up."""


class Place(NamedTuple):
    """The place of a message: a lane of a queue, or its control commands."""

    queue: str
    lane: bytes
    is_control: bool


class QueueCounts:
    """The numbers of messages, and those that are out, known without reading the tables.

    Each SQL statement hands over to the event loop's thread in between, which costs both of them
    more than the statement does.

    Args:
        database: with the tables of the queues; nothing else writes to it.

    Attributes:
        by_queue: how many messages are stored, by queue; dead letters under `DEAD`.
        readied: queues in which a message has become ready since this was last cleared.
        delayed: queues in which a message may be delayed.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.by_queue: Counter[str] = Counter()
        self.readied: set[str] = set()
        self.delayed: set[str] = set()
        self._stored: Counter[Place] = Counter()
        self._out: dict[int, tuple[int, Place]] = {}
        """By number: which attempt, and where."""
        self._out_of: Counter[Place] = Counter()
        self._is_known = False

    def begin(self) -> None:
        """Read the tables if the counts are unknown; called first in each transaction."""
        if self._is_known:
            return
        select = self._database.execute
        self.by_queue = Counter(dict(select("SELECT queue, count(*) FROM message GROUP BY queue")))
        (self.by_queue[DEAD],) = select("SELECT count(*) FROM dead").fetchone()
        delayed = select("SELECT DISTINCT queue FROM message WHERE state = ?", (DELAYED,))
        self.delayed = {queue for (queue,) in delayed}
        self._stored.clear()
        for queue, lane, urgent, count in select(
            "SELECT queue, lane, urgent, count(*) FROM message GROUP BY queue, lane, urgent"
        ):
            self._stored[Place(queue, lane, bool(urgent))] = count
        self._out.clear()
        self._out_of.clear()
        for number, attempt, queue, lane, urgent in select(
            "SELECT number, attempts, queue, lane, urgent FROM message WHERE state = ?", (OUT,)
        ):
            self.hand_out(number, attempt, Place(queue, lane, bool(urgent)))
        self._is_known = True

    def roll_back(self, readied: set[str]) -> None:
        """Forget the counts; called when a transaction has failed.

        Args:
            readied: the previous value of the attribute.
        """
        self.readied = readied
        self._is_known = False

    def add(self, place: Place) -> None:
        """Count a message that was stored."""
        self.by_queue[place.queue] += 1
        self._stored[place] += 1

    def remove(self, place: Place) -> None:
        """Stop counting a message."""
        _take_one(self.by_queue, place.queue)
        _take_one(self._stored, place)

    def hand_out(self, number: int, attempt: int, place: Place) -> None:
        """Count a message as out."""
        self._out[number] = attempt, place
        self._out_of[place] += 1

    def take_back(self, number: int, attempt: int) -> Place | None:
        """Count a message as not out; ``None`` if it is not out on this attempt."""
        former, place = self._out.get(number, (0, None))
        if place is None or former != attempt:
            return None
        del self._out[number]
        _take_one(self._out_of, place)
        return place

    def take_all_back(self) -> list[Place]:
        """Count all messages as not out, and return the places that had one out."""
        places = list(self._out_of)
        self._out.clear()
        self._out_of.clear()
        return places

    def has_stored(self, place: Place) -> bool:
        """Whether a message is stored in this place."""
        return self._stored[place] > 0

    def has_out(self, place: Place) -> bool:
        """Whether a message of this place is out."""
        return self._out_of[place] > 0


class Ledger:
    """Every operation on the queues, each to be called inside a transaction.

    Args:
        database: with the tables of `SCHEMA`; nothing else writes to it.

    Attributes:
        counts: how many messages there are, and which are out.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.counts: QueueCounts = QueueCounts(database)
        self._nothing_outdated_until_us = 0
        self._last_number = 0

    def load(self) -> None:
        """Take back what was out when the last process ended."""
        # Numbers are not used twice, not even those of messages that are done.
        (self._last_number,) = self._database.execute(
            "SELECT max(ifnull((SELECT max(number) FROM message), 0),"
            " ifnull((SELECT max(number) FROM dead), 0), ifnull((SELECT max(number) FROM seen), 0))"
        ).fetchone()
        self._database.execute(
            "UPDATE message SET state = iif(urgent, ?, ?), due_us = 0 WHERE state = ?",
            (READY, BEHIND, OUT),
        )
        for place in self.counts.take_all_back():
            self._settle(place)

    def publish(self, entry: Entry, now_us: int, limit: int | None = None) -> bool:
        """Store a message; False when its key is known.

        Args:
            entry: the message.
            now_us: the present instant.
            limit: messages that the queue may hold.

        Raises:
            BusFull: the queue is full; nothing was written.
        """
        waiting = self.counts.by_queue[entry.queue]
        if limit is not None and waiting >= limit:
            if entry.key is not None and self._is_known(entry.key, now_us):
                return False
            raise BusFull(waiting, limit)
        number = self._last_number = self._last_number + 1
        if entry.key is not None and not self._is_new(number, entry.key, now_us):
            return False
        place = Place(entry.queue, entry.lane, entry.is_control)
        is_behind = not place.is_control and self.counts.has_stored(place)
        state = BEHIND if is_behind else READY
        row = (number, *place, state, 0, 0, now_us, entry.payload)
        self._database.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        self.counts.add(place)
        if state == READY:
            self.counts.readied.add(entry.queue)
        return True

    def take(self, queue: str, now_us: int) -> tuple[Taken | None, int | None]:
        """Hand out the next message of a queue.

        Returns:
            The message, or ``None`` when nothing can be handed out; and when the first of those
            that were released with a delay is due, or ``None``.
        """
        due_us = self._next_due_us(queue, now_us)
        row = self._database.execute(
            "SELECT number, attempts, stored_us, payload, lane, urgent FROM message"
            " WHERE queue = ? AND state = 1 ORDER BY urgent DESC, number LIMIT 1",
            (queue,),
        ).fetchone()
        if row is None:
            return None, due_us
        *found, lane, urgent = row
        if urgent:
            # The message that it refers to, such as the question to stop, begins before it.
            earlier = self._database.execute(
                "SELECT number, attempts, stored_us, payload FROM message"
                " WHERE queue = ? AND lane = ? AND urgent = 0 AND state = 1 AND number < ?",
                (queue, lane, found[0]),
            ).fetchone()
            if earlier:
                found, urgent = earlier, False
        return self._hand_out(Place(queue, lane, bool(urgent)), *found), due_us

    def take_lane(self, queue: str, lane: bytes, now_us: int) -> Taken | None:
        """Hand out the next message of a lane, even while another of it is out."""
        self._next_due_us(queue, now_us)
        # At most one of the first three has rows besides urgent ones: see the states above.
        for urgent, state in ((1, READY), (0, READY), (0, DELAYED), (0, BEHIND)):
            row = self._database.execute(
                "SELECT number, attempts, stored_us, payload, due_us FROM message"
                " WHERE queue = ? AND lane = ? AND urgent = ? AND state = ?"
                " ORDER BY number LIMIT 1",
                (queue, lane, urgent, state),
            ).fetchone()
            if row is not None:
                *found, due_us = row
                place = Place(queue, lane, bool(urgent))
                return self._hand_out(place, *found) if due_us <= now_us else None
        return None

    def acknowledge(self, number: int, attempt: int, replies: Sequence[Entry], now_us: int) -> None:
        """Forget a message that is out, and store its replies."""
        place = self.counts.take_back(number, attempt)
        if place is None:
            return
        self._remove(number, place)
        for reply in replies:
            self.publish(reply, now_us)

    def release(self, number: int, attempt: int, due_us: int) -> bool:
        """Put a message that is out back in its place in line; False when it is not out.

        It is not handed out again before `due_us`.
        """
        place = self.counts.take_back(number, attempt)
        if place is None:
            return False
        self._database.execute(
            "UPDATE message SET state = ?, due_us = ? WHERE number = ?", (BEHIND, due_us, number)
        )
        if place.is_control:
            self._offer(number, place.queue, due_us)
        self._settle(place)
        return True

    def give_back(self, taken: Taken) -> None:
        """Put back a message whose receiver was cancelled, as if it had not been handed out."""
        if self.release(taken.number, taken.attempt, 0):
            self._database.execute(
                "UPDATE message SET attempts = attempts - 1 WHERE number = ?", (taken.number,)
            )

    def bury(self, number: int, attempt: int, reason: str, now_us: int) -> None:
        """Move a message that is out to the dead letters."""
        place = self.counts.take_back(number, attempt)
        if place is None:
            return
        self._database.execute(
            "INSERT INTO dead (number, queue, lane, urgent, attempts, stored_us, payload,"
            " buried_us, reason) SELECT number, queue, lane, urgent, attempts, stored_us, payload,"
            " ?, ? FROM message WHERE number = ?",
            (now_us, reason, number),
        )
        self.counts.by_queue[DEAD] += 1
        self._remove(number, place)

    def dead_letters(self, limit: int) -> list[DeadLetter]:
        """Return the dead letters that were buried last, the last first."""
        rows = self._database.execute(
            "SELECT number, queue, attempts, buried_us, reason, payload FROM dead"
            " ORDER BY burial DESC LIMIT ?",
            (max(limit, 0),),
        )
        return [
            DeadLetter(
                id=str(number),
                message=decode_dead(queue, payload),
                reason=reason,
                attempts=attempts,
                buried_at=instant(buried_us),
            )
            for number, queue, attempts, buried_us, reason, payload in rows
        ]

    def revive(self, number: int) -> bool:
        """Put a dead letter back in its former place in line; False if it does not exist."""
        row = self._database.execute(
            "SELECT queue, lane, urgent FROM dead WHERE number = ?", (number,)
        ).fetchone()
        if row is None:
            return False
        queue, lane, urgent = row
        self._database.execute(
            "INSERT INTO message SELECT number, queue, lane, urgent, ?, 0, attempts, stored_us,"
            " payload FROM dead WHERE number = ?",
            (BEHIND, number),
        )
        place = Place(queue, lane, bool(urgent))
        self.counts.add(place)
        if urgent:
            self._offer(number, queue, 0)
        else:
            self._database.execute(
                "UPDATE message SET state = 0"
                " WHERE queue = ? AND lane = ? AND urgent = 0 AND state IN (1, 2)",
                (queue, lane),
            )
            self._settle(place)
        return self.drop(number)

    def drop(self, number: int) -> bool:
        """Forget a dead letter; False if it does not exist."""
        found = self._database.execute("DELETE FROM dead WHERE number = ?", (number,)).rowcount > 0
        self.counts.by_queue[DEAD] -= found
        return found

    def _hand_out(
        self, place: Place, number: int, attempts: int, stored_us: int, payload: str
    ) -> Taken:
        self._database.execute(
            "UPDATE message SET state = ?, attempts = ?, due_us = 0 WHERE number = ?",
            (OUT, attempts + 1, number),
        )
        self.counts.hand_out(number, attempts + 1, place)
        return Taken(number, attempts + 1, stored_us, payload)

    def _remove(self, number: int, place: Place) -> None:
        self._database.execute("DELETE FROM message WHERE number = ?", (number,))
        self.counts.remove(place)
        self._settle(place)

    def _settle(self, place: Place) -> None:
        """Let the oldest message of a lane, all of which are *behind*, be ready or delayed.

        Nothing is done if one is out. Control commands are never behind.
        """
        counts, (queue, lane, is_control) = self.counts, place
        if is_control or counts.has_out(place) or not counts.has_stored(place):
            return
        number, due_us = self._database.execute(
            "SELECT number, due_us FROM message"
            " WHERE queue = ? AND lane = ? AND urgent = 0 AND state = 0 ORDER BY number LIMIT 1",
            (queue, lane),
        ).fetchone()
        self._offer(number, queue, due_us)

    def _offer(self, number: int, queue: str, due_us: int) -> None:
        """Make a message the next of its lane; one whose delay has passed becomes ready in time."""
        self._database.execute(
            "UPDATE message SET state = ? WHERE number = ?",
            (DELAYED if due_us else READY, number),
        )
        # Also for a delayed one: a waiting receiver must learn when it is due.
        self.counts.readied.add(queue)
        if due_us:
            self.counts.delayed.add(queue)

    def _next_due_us(self, queue: str, now_us: int) -> int | None:
        """End the delays that have passed, and return when the first of the others will."""
        if queue not in self.counts.delayed:
            return None
        ended = self._database.execute(
            "UPDATE message SET state = 1, due_us = 0"
            " WHERE queue = ? AND state = 2 AND due_us <= ?",
            (queue, now_us),
        ).rowcount
        if ended:
            self.counts.readied.add(queue)
        due_us: int | None
        (due_us,) = self._database.execute(
            "SELECT min(due_us) FROM message WHERE queue = ? AND state = 2", (queue,)
        ).fetchone()
        if due_us is None:
            self.counts.delayed.discard(queue)
        return due_us

    def _is_known(self, key: bytes, now_us: int) -> bool:
        found = self._database.execute("SELECT at_us FROM seen WHERE key = ?", (key,)).fetchone()
        return found is not None and found[0] > now_us - KEPT_US

    def _is_new(self, number: int, key: bytes, now_us: int) -> bool:
        """Mark a key as seen; False if it was seen within `KEPT_US`."""
        self._forget_outdated(now_us)
        changed = self._database.execute(
            "INSERT INTO seen VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE"
            " SET number = excluded.number, at_us = excluded.at_us WHERE seen.at_us <= ?",
            (number, key, now_us, now_us - KEPT_US),
        ).rowcount
        return changed > 0

    def _forget_outdated(self, now_us: int) -> None:
        if now_us < self._nothing_outdated_until_us:
            return
        oldest = self._database.execute(
            "SELECT number, at_us FROM seen ORDER BY number LIMIT ?", (_PRUNED_AT_ONCE,)
        ).fetchall()
        for number, at_us in oldest:
            if at_us > now_us - KEPT_US:
                self._nothing_outdated_until_us = at_us + KEPT_US
                return
            self._database.execute("DELETE FROM seen WHERE number = ?", (number,))


def _take_one(counts: Counter[_K], key: _K) -> None:
    """Count one less, and drop a count of zero."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
