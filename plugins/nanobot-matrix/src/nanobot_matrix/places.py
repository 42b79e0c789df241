"""RoomRef: the id of a chat, which is a room or a thread in one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, unquote


@dataclass(frozen=True, slots=True)
class RoomRef:
    """A room or a thread, written as ``<room>`` or ``<room>:<thread>``.

    Ids of rooms contain colons, which separate the thread in ids of chats, so they are escaped:
    ``!room%3Aexample.org``. A person may also write them as they are.

    Attributes:
        room: id of the room, such as ``!room:example.org``.
        thread: id of the event that begins the thread, or ``None``.
    """

    room: str
    thread: str | None = None

    @classmethod
    def parse(cls, chat_id: str) -> Self | None:
        """Return the place that `chat_id` names, or ``None`` if it is invalid."""
        room, separator, thread = chat_id.partition(":$")
        room = room if ":" in room else unquote(room)
        if len(room) < 2 or room[0] != "!" or not room.isprintable():
            return None
        return cls(room, f"${unquote(thread)}" if separator else None)

    def __str__(self) -> str:
        key = room_key(self.room)
        return key if self.thread is None else f"{key}:{quote(self.thread, safe='$-_')}"


def room_key(room: str) -> str:
    """Return the id of a room as it is written in ids of chats."""
    return quote(room, safe="!-_") if ":" in room else room
