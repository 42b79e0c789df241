"""What is known of each chat: its place, and the newest message that was processed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot_discord.mapping import Place

if TYPE_CHECKING:
    from nanobot_core import JsonValue
    from nanobot_core.chat import Records
    from nanobot_discord import wire


@dataclass(slots=True)
class _Watched:
    place: Place
    newest: int


class Chats:
    """The places of channels and threads, and the watermarks of chats that people write in.

    Messages after a watermark are fetched after a lost session. A chat without one starts at its
    newest message.

    Attributes:
        must_save: set when something is new that must be on disk soon.

    Args:
        records: where the watermarks are kept. They are written some time after a message, which
            then is fetched again and recognised by its id.
    """

    def __init__(self, records: Records) -> None:
        self.must_save: asyncio.Event = asyncio.Event()
        self._records = records
        self._places: dict[str, Place] = {}
        self._watched: dict[str, _Watched] = {}
        self._changed: set[str] = set()

    async def load(self) -> None:
        """Read the watermarks of earlier processes."""
        for channel_id, entry in (await self._records.entries()).items():
            watched = _watched(channel_id, entry)
            if watched is not None:
                self._watched[channel_id] = watched
                self._places.setdefault(channel_id, watched.place)

    async def save(self) -> None:
        """Write the watermarks that have changed; errors of the disk are ignored."""
        changed, self._changed = self._changed, set()
        with suppress(OSError):
            # The writes of one moment are one write.
            await asyncio.gather(
                *(self._records.put(channel_id, self._entry(channel_id)) for channel_id in changed)
            )

    def place_of(self, channel_id: str, guild_id: str | None) -> Place | None:
        """Return the place of a message, or ``None`` if Discord must be asked for it."""
        known = self._places.get(channel_id)
        if known is None and guild_id is None:
            return Place(channel_id)
        return known

    def learn(self, channel: wire.Channel, guild_id: str | None) -> None:
        """Note the place of a channel or thread."""
        place = Place(channel.id, channel.thread_parent, channel.guild_id or guild_id)
        self._places[channel.id] = place

    def note(self, place: Place, message_id: str) -> None:
        """Note that a message is processed."""
        number = int(message_id)
        watched = self._watched.get(place.channel_id)
        if watched is None:
            self._watched[place.channel_id] = _Watched(place, number)
            # Without a watermark, nothing of this chat would be fetched.
            self.must_save.set()
        elif watched.newest >= number:
            return
        else:
            watched.newest = number
        self._changed.add(place.channel_id)

    def most_recent(self, most: int) -> list[tuple[Place, int]]:
        """Return the places with the newest watermarks, and these."""
        found = sorted(self._watched.values(), key=lambda watched: -watched.newest)
        return [(watched.place, watched.newest) for watched in found[:most]]

    def _entry(self, channel_id: str) -> JsonValue:
        watched = self._watched[channel_id]
        place = watched.place
        return {
            "guild": place.guild_id or "",
            "parent": place.parent_id or "",
            "newest": str(watched.newest),
        }


def _watched(channel_id: str, entry: JsonValue) -> _Watched | None:
    if not isinstance(entry, dict):
        return None
    guild, parent, newest = (entry.get(key) for key in ("guild", "parent", "newest"))
    if not isinstance(newest, str) or not newest.isdecimal():
        return None
    place = Place(channel_id, str(parent or "") or None, str(guild or "") or None)
    return _Watched(place, int(newest))
