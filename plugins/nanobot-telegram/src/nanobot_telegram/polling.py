"""Long polling: requests updates, and confirms those that are stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from nanobot_core.chat import CallFailed, Cause

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_core.chat import Intake
    from nanobot_telegram.client import Client

_LOOK_AGAIN_S = 0.5
"""Pause between requests for updates of other chats while some are still being stored."""
_ATTEMPTS = 4
_LONGEST_PAUSE_S = 30.0


class Backlog:
    """Tracks which updates are stored, and determines the next offset.

    Telegram forgets all updates below the requested offset (Bot API, ``getUpdates``). So the offset
    remains at the oldest update that is not stored, even if later ones are. Telegram returns at
    most 100 updates, which limits the work in progress.
    """

    def __init__(self) -> None:
        self._next: int | None = None
        self._open: set[int] = set()
        self._stored: set[int] = set()
        self._settled = asyncio.Event()
        self._settled.set()

    @property
    def offset(self) -> int | None:
        """The first update to request, or ``None`` before the first update."""
        return min(self._open, default=self._next)

    @property
    def is_settled(self) -> bool:
        """Whether all received updates are stored."""
        return not self._open

    def take(self, ids: Iterable[int]) -> list[int]:
        """Add a batch, and return the new ids in order."""
        batch = list(ids)
        fresh = [i for i in dict.fromkeys(batch) if i not in self._open | self._stored]
        if batch:
            # Not the highest id ever: after a week without updates, Telegram may restart anywhere.
            self._next = max(batch) + 1
        self._open.update(fresh)
        if self._open:
            self._settled.clear()
        return fresh

    def finish(self, update_id: int) -> None:
        """Mark an update as stored."""
        self._open.discard(update_id)
        self._stored.add(update_id)
        if not self._open:
            # None of them is requested again.
            self._stored.clear()
            self._settled.set()

    async def wait(self) -> None:
        """Wait until all updates are stored, for at most half a second."""
        try:
            async with asyncio.timeout(_LOOK_AGAIN_S):
                await self._settled.wait()
        except TimeoutError:
            return


class Poller:
    """Receives updates by long polling.

    Args:
        intake: notified after every answer of Telegram.
        put: stores an update, and calls its second argument when it is stored.
        kinds: kinds of updates to request.
    """

    def __init__(
        self,
        ctx: PluginContext,
        client: Client,
        intake: Intake,
        put: Callable[[object, Callable[[], None]], None],
        kinds: Sequence[str],
    ) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._client = client
        self._intake = intake
        self._put = put
        self._kinds = kinds
        self._backlog = Backlog()

    async def run(self) -> None:
        """Receive until cancelled.

        Raises:
            CallFailed: Telegram cannot be reached, or does not allow this program to receive.
        """
        while True:
            batch = await self._ask()
            self._intake.alive()
            by_id = {i: update for update in batch if (i := _id_of(update)) is not None}
            for update_id in self._backlog.take(by_id):
                self._put(by_id[update_id], partial(self._backlog.finish, update_id))
            await self._backlog.wait()
            if len(by_id) < len(batch):
                # An update without an id cannot be confirmed, and would be returned immediately.
                await self._ctx.clock.sleep(_LOOK_AGAIN_S)

    async def _ask(self) -> list[object]:
        """Return the next updates; retry after temporary failures."""
        for attempt in range(1, _ATTEMPTS):
            try:
                return await self._fetch()
            except CallFailed as error:
                if error.cause not in {Cause.UNREACHABLE, Cause.BUSY}:
                    raise
                pause_s = error.retry_after_s
                self._log.debug("no updates: {}", error)
            pause_s = 2.0 ** (attempt - 1) if pause_s is None else pause_s
            await self._ctx.clock.sleep(min(pause_s, _LONGEST_PAUSE_S))
        return await self._fetch()

    async def _fetch(self) -> list[object]:
        return await self._client.fetch_updates(
            self._backlog.offset, self._kinds, wait=self._backlog.is_settled
        )


def _id_of(update: object) -> int | None:
    found = update.get("update_id") if isinstance(update, dict) else None
    return found if type(found) is int else None
