"""GatewaySession: the session with QQ's gateway, which outlives connections and processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from nanobot_core.chat import Records

if TYPE_CHECKING:
    from nanobot_core import PluginContext

_SESSION = "session"


class GatewaySession:
    """The id of a session, and the number of the last event that needs no repetition.

    An event is settled when it is stored in the inbox. QQ repeats the events after `sequence` when
    the session is resumed, so the number on disk never passes an event that is not settled.

    Attributes:
        id: empty if there is no session.
        sequence: all events up to this one are settled, and this number is on disk.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._app = ""
        self._open: set[int] = set()
        self._highest = 0
        self._changed = asyncio.Event()
        self.id: str = ""
        self.sequence: int = 0

    async def load(self, app: str) -> None:
        """Read the session of a bot, and count what is not settled as not received."""
        stored = await self._records.get(_SESSION)
        self._app, self.id, sequence = app, "", 0
        if isinstance(stored, dict) and stored.get("app") == app:
            number = stored.get("sequence")
            self.id = str(stored.get("id") or "")
            sequence = number if isinstance(number, int) else 0
        self._restart(sequence)

    def resume(self) -> None:
        """Count what is not settled as not received, because QQ sends it again."""
        self._restart(self.sequence)

    async def begin(self, session_id: str, sequence: int) -> None:
        """Start a session."""
        self.id = session_id
        self._restart(sequence)
        await self._store(sequence)

    async def forget(self) -> None:
        """End the session: the next connection starts a new one."""
        await self.begin("", 0)

    def receive(self, number: int) -> Callable[[], None]:
        """Note an event, and return what settles it."""
        still_open = self._open
        still_open.add(number)
        self._highest = max(self._highest, number)

        def settle() -> None:
            # After a resumption, the set is another one: the event is received again.
            still_open.discard(number)
            self._changed.set()

        return settle

    @property
    def open_count(self) -> int:
        """Number of events that are not settled."""
        return len(self._open)

    async def keep(self) -> None:
        """Store the number whenever events are settled, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            settled = min(self._open) - 1 if self._open else self._highest
            if settled > self.sequence:
                await self._store(settled)

    def _restart(self, sequence: int) -> None:
        self._open = set()
        self._highest = self.sequence = sequence

    async def _store(self, sequence: int) -> None:
        session, open_events = self.id, self._open
        with suppress(OSError):  # the events are only repeated, and the inbox knows them
            await self._records.put(
                _SESSION, {"app": self._app, "id": session, "sequence": sequence}
            )
            if open_events is self._open:
                self.sequence = max(self.sequence, sequence)


def build_session(ctx: PluginContext) -> GatewaySession:
    """Return the session of the plugin's channel, for ``ctx.shared``."""
    return GatewaySession(Records(ctx.data_dir / "gateway.json"))
