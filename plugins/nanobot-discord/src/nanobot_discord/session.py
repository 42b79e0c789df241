"""The session of the event stream: how far its events are processed."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot_core import JsonObject
    from nanobot_core.chat import Records
    from nanobot_discord.settings import DiscordSettings

_KEY = "session"
_MOST_OPEN = 500


class Backlog:
    """The events of a session that are not finished yet.

    Discord sends events after a number again when a session is resumed. That number must not pass
    an event that is not stored.

    Args:
        finished: number of the last event before those of this backlog.
    """

    def __init__(self, finished: int = 0) -> None:
        self._received = finished
        self._open: dict[int, None] = {}
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def is_full(self) -> bool:
        """Whether no more events are taken until one is finished."""
        return not self._has_room.is_set()

    @property
    def finished(self) -> int:
        """The number up to which all events are finished."""
        oldest = next(iter(self._open), None)
        return self._received if oldest is None else oldest - 1

    def take(self, number: int) -> bool:
        """Note an event; False if it was received before."""
        if number <= self._received:
            return False
        self._received = number
        self._open[number] = None
        if len(self._open) >= _MOST_OPEN:
            self._has_room.clear()
        return True

    def finish(self, number: int) -> None:
        """Note that an event is stored, refused or of no interest."""
        self._open.pop(number, None)
        if len(self._open) < _MOST_OPEN:
            self._has_room.set()

    async def wait_for_room(self) -> None:
        """Wait while many events are open. Discord keeps the others, at least for a while."""
        await self._has_room.wait()


class Session:
    """A session that a later connection, also one of a later process, can resume.

    Attributes:
        id: empty if there is no session to resume.
        url: where it is resumed.
        backlog: its events.
        is_complete: what earlier sessions have missed is stored too. Before, it is not saved, so
            that the next process begins another one.

    Args:
        records: where it is kept.
        owner: identifies the bot; a session of another is not resumed.
    """

    def __init__(self, records: Records, owner: str) -> None:
        self.id: str = ""
        self.url: str = ""
        self.backlog: Backlog = Backlog()
        self.is_complete: bool = True
        self._records = records
        self._owner = owner
        self._saved: JsonObject = {}

    def begin(self, session_id: str, url: str, number: int) -> None:
        """Start a session with its first event, which is finished."""
        self.id, self.url, self.backlog = session_id, url, Backlog(number)
        self.is_complete = False

    def drop(self) -> None:
        """Forget the session, because Discord has."""
        self.begin("", "", 0)

    async def load(self) -> None:
        """Read what an earlier channel has saved; events that it had not finished come again."""
        found = await self._records.get(_KEY)
        if not isinstance(found, dict) or found.get("owner") != self._owner:
            return
        session_id, url, number = found.get("id"), found.get("url"), found.get("finished")
        if isinstance(session_id, str) and isinstance(url, str) and isinstance(number, int):
            self.begin(session_id, url, number)
            self.is_complete = True
            self._saved = found

    async def save(self) -> None:
        """Write it, if it has changed.

        Raises:
            OSError: it cannot be written. Then more events come again than necessary.
        """
        state: JsonObject = {
            "owner": self._owner,
            "id": self.id if self.is_complete else "",
            "url": self.url,
            "finished": self.backlog.finished,
        }
        if state != self._saved:
            await self._records.put(_KEY, state)
            self._saved = state

    def finisher(self, number: int) -> Callable[[], None]:
        """Return a function that finishes an event of this session, even if another one begins."""
        backlog = self.backlog
        return lambda: backlog.finish(number)


def open_session(records: Records, settings: DiscordSettings) -> Session:
    """Return a session that is not loaded."""
    parts = (settings.token.get_secret_value(), settings.api_base, str(settings.intents))
    owner = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return Session(records, owner)
