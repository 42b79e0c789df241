"""What happens, for streams: a bounded record that a page can follow without a gap."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nanobot_core import JsonObject, PluginContext

MAX_EVENTS: Final = 5_000
MAX_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        number: counts from 1.
        data: JSON in one line.
        session: key of the session in which it happened; empty if it is in no session.
        is_private: for the owner only.
    """

    number: int
    data: str
    session: str = ""
    is_private: bool = False


class Events:
    """The latest events; get it with ``ctx.shared(Events)``.

    The id of an event is ``epoch-number``. The epoch is new in each process, so that the id of a
    previous process is recognised.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._epoch = secrets.token_hex(4)
        self._kept: deque[Event] = deque()
        self._bytes = 0
        self._number = 0
        self._changed = asyncio.Event()

    @property
    def last(self) -> str:
        """Id of the latest event; an id that no event has if nothing has happened."""
        return self.id_of(self._number)

    def id_of(self, number: int) -> str:
        """Return the id of an event."""
        return f"{self._epoch}-{number}"

    def add(self, data: JsonObject, *, is_private: bool = False) -> None:
        """Add an event and wake those who wait."""
        self._number += 1
        text = json.dumps(data, ensure_ascii=True)
        event = Event(self._number, text, str(data.get("s", "")), is_private)
        self._kept.append(event)
        self._bytes += len(event.data)
        while len(self._kept) > MAX_EVENTS or (self._bytes > MAX_BYTES and len(self._kept) > 1):
            self._bytes -= len(self._kept.popleft().data)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def after(self, event_id: str) -> Sequence[Event] | None:
        """Return the events after an id; ``None`` if it is unknown, or some are gone."""
        epoch, _, number = event_id.rpartition("-")
        if epoch != self._epoch or not number.isdecimal() or len(number) > 15:
            return None
        wanted = int(number) + 1
        if wanted > self._number:
            return [] if wanted == self._number + 1 else None
        missing = wanted - self._kept[0].number
        return None if missing < 0 else [*self._kept][missing:]

    @property
    def changed(self) -> asyncio.Event:
        """Set when the next event is added."""
        return self._changed
