"""What is known of the queues without a look at their tables.

Each SQL statement lets the event loop's thread in between, which costs both of them more than the
statement does.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from nanobot_core.bus.entry import DELAYED, OUT

if TYPE_CHECKING:
    import sqlite3

DEAD: Final = "dead"
"""Where `Standing.counts` counts dead letters; the other names are queues."""

_K = TypeVar("_K")
Lane = tuple[str, bytes]
"""A queue, and a session or chat in it."""


class Place(NamedTuple):
    """Where a message stands."""

    queue: str
    lane: bytes
    is_control: bool


class Standing:
    """How many messages there are, and which of them are out.

    Args:
        database: with the tables of the queues; nothing else writes to it.

    Attributes:
        counts: how many messages are stored, by queue; dead letters under `DEAD`.
        readied: how many messages can be handed out since somebody last cleared this, by queue.
        delayed: queues in which a message may be delayed.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.counts: Counter[str] = Counter()
        self.readied: Counter[str] = Counter()
        self.delayed: set[str] = set()
        self._stored: Counter[Lane] = Counter()
        self._out: dict[int, tuple[int, Place]] = {}
        """By number: which attempt, and where."""
        self._out_of: Counter[Lane] = Counter()
        self._is_known = False

    def begin(self) -> None:
        """Be right about the tables; called first in each transaction."""
        if self._is_known:
            return
        select = self._database.execute
        self.counts = Counter(dict(select("SELECT queue, count(*) FROM message GROUP BY queue")))
        (self.counts[DEAD],) = select("SELECT count(*) FROM dead").fetchone()
        delayed = select("SELECT DISTINCT queue FROM message WHERE state = ?", (DELAYED,))
        self.delayed = {queue for (queue,) in delayed}
        self._stored.clear()
        for queue, lane, count in select(
            "SELECT queue, lane, count(*) FROM message WHERE urgent = 0 GROUP BY queue, lane"
        ):
            self._stored[queue, lane] = count
        self._out.clear()
        self._out_of.clear()
        for number, attempt, queue, lane, urgent in select(
            "SELECT number, attempts, queue, lane, urgent FROM message WHERE state = ?", (OUT,)
        ):
            self.hand_out(number, attempt, Place(queue, lane, bool(urgent)))
        self._is_known = True

    def roll_back(self, readied: Counter[str]) -> None:
        """Know no more of the tables; called when a transaction has failed.

        Args:
            readied: what it was before.
        """
        self.readied = readied
        self._is_known = False

    def add(self, place: Place) -> None:
        """Count a message that was stored."""
        self.counts[place.queue] += 1
        if not place.is_control:
            self._stored[place.queue, place.lane] += 1

    def remove(self, place: Place) -> None:
        """Count a message no more."""
        _take_one(self.counts, place.queue)
        if not place.is_control:
            _take_one(self._stored, (place.queue, place.lane))

    def hand_out(self, number: int, attempt: int, place: Place) -> None:
        """Count a message as out."""
        self._out[number] = attempt, place
        if not place.is_control:
            self._out_of[place.queue, place.lane] += 1

    def take_back(self, number: int, attempt: int) -> Place | None:
        """Count a message as out no more; ``None`` when it is not out on this attempt."""
        former, place = self._out.get(number, (0, None))
        if place is None or former != attempt:
            return None
        del self._out[number]
        if not place.is_control:
            _take_one(self._out_of, (place.queue, place.lane))
        return place

    def take_all_back(self) -> list[Lane]:
        """Count no message as out, and return the lanes that had one."""
        lanes = list(self._out_of)
        self._out.clear()
        self._out_of.clear()
        return lanes

    def has_stored(self, queue: str, lane: bytes) -> bool:
        """Whether a lane has a message that is not urgent."""
        return self._stored[queue, lane] > 0

    def has_out(self, queue: str, lane: bytes) -> bool:
        """Whether of a lane a message is out that is not urgent."""
        return self._out_of[queue, lane] > 0


def _take_one(counts: Counter[_K], key: _K) -> None:
    """Count one less; what there is none of takes no memory."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
