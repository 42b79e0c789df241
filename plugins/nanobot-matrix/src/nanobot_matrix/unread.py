"""Messages that cannot be read yet: bounded in number and time, and counted.

Functions take `Keys`, and run in a transaction, in the thread of the vault.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot_matrix import wire

if TYPE_CHECKING:
    from nanobot_matrix.vault import Keys

WAIT_S = 86_400.0
"""How long a message waits for its key."""
_OF_ROOM, _OF_ALL = 50, 300
_COUNTED_ROOMS = 2_000


@dataclass(frozen=True, slots=True)
class Unread:
    """A message that waits for its key."""

    room: str
    event: wire.Event


def count(keys: Keys, room: str) -> int:
    """Count a message that cannot be read, and return how many there are of its room."""
    keys.change(
        "INSERT INTO counts VALUES (?, 1) ON CONFLICT DO UPDATE SET number = number + 1", room
    )
    keys.change(
        "DELETE FROM counts WHERE rowid IN (SELECT rowid FROM counts ORDER BY rowid DESC"
        " LIMIT -1 OFFSET ?)",
        _COUNTED_ROOMS,
    )
    found = keys.numbers("SELECT number FROM counts WHERE room = ?", room)
    return found[0][0] if found else 1


def keep(keys: Keys, room: str, event: wire.Event, why: str, now_s: float) -> bool:
    """Keep a message until it can be read; return whether it is new.

    The oldest message is dropped if there are too many of its room, or altogether.
    """
    place = (room, event.event_id)
    known = keys.all("SELECT why FROM unread WHERE room = ? AND event_id = ?", *place)
    if known:
        if known[0][0] != why:
            keys.change("UPDATE unread SET why = ? WHERE room = ? AND event_id = ?", why, *place)
        return False
    text = json.dumps(event.model_dump())
    keys.change("INSERT INTO unread VALUES (?, ?, ?, ?, ?, 0)", *place, text, why, now_s)
    keys.change(
        "DELETE FROM unread WHERE rowid IN (SELECT rowid FROM unread WHERE room = ?"
        " ORDER BY rowid DESC LIMIT -1 OFFSET ?)",
        *(room, _OF_ROOM),
    )
    keys.change(
        "DELETE FROM unread WHERE rowid IN (SELECT rowid FROM unread ORDER BY rowid DESC"
        " LIMIT -1 OFFSET ?)",
        _OF_ALL,
    )
    return True


def waiting(keys: Keys, now_s: float) -> list[Unread]:
    """Return the messages that wait, oldest first, without those that have waited too long."""
    keys.change("DELETE FROM unread WHERE since_s < ?", now_s - WAIT_S)
    found = keys.all("SELECT room, event FROM unread ORDER BY rowid")
    return [Unread(room, wire.Event.model_validate(json.loads(event))) for room, event in found]


def unexplained(keys: Keys, before_s: float) -> list[tuple[str, ...]]:
    """Return the rooms, without a notice, of messages that arrived before, and the reasons."""
    query = (
        "SELECT DISTINCT room, why FROM unread WHERE has_notice = 0 AND since_s <= ? ORDER BY room"
    )
    return keys.all(query, before_s)


def note_notice(keys: Keys, room: str) -> None:
    """Note that a room has a notice about its messages."""
    keys.change("UPDATE unread SET has_notice = 1 WHERE room = ?", room)


def drop(keys: Keys, room: str, event_id: str) -> None:
    """Forget a message."""
    keys.change("DELETE FROM unread WHERE room = ? AND event_id = ?", room, event_id)
