"""The stream of events to a browser."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from nanobot_page.access import require_login
from nanobot_page.events import Events

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from nanobot_core import PluginContext
    from nanobot_page.access import Login
    from nanobot_page.events import Event

BEAT_S: Final = 15.0
MAX_STREAMS: Final = 6
"""Streams of one login; a browser needs one, whatever the number of its tabs."""
_HEADERS: Final = {"cache-control": "no-store, no-transform", "x-accel-buffering": "no"}


def shown_to(login: Login, events: Sequence[Event]) -> Sequence[Event]:
    """Return the events that a login may read."""
    if not login.guest:
        return events
    return [
        event
        for event in events
        if not event.is_private and (not event.session or login.may_read(event.session))
    ]


class Streams:
    """Sends events as they happen (Server-sent events, WHATWG HTML, section 9.2)."""

    def __init__(self, ctx: PluginContext) -> None:
        self._events = ctx.shared(Events)
        self._clock = ctx.clock
        self._open: Counter[str] = Counter()

    async def follow(self, request: Request) -> Response:
        """Stream the events after ``after``, or after ``Last-Event-ID``.

        An id that is unknown or too old is answered by the event ``reset`` with the latest id: the
        page has to load what it shows again.
        """
        login = require_login(request)
        if self._open[login.id] >= MAX_STREAMS:
            raise HTTPException(429, "too many streams", {"retry-after": "5"})
        after = request.headers.get("last-event-id") or request.query_params.get("after", "")
        return StreamingResponse(
            self._pieces(login, after), media_type="text/event-stream", headers=_HEADERS
        )

    @asynccontextmanager
    async def _counted(self, login: Login) -> AsyncIterator[None]:
        self._open[login.id] += 1
        try:
            yield
        finally:
            self._open[login.id] -= 1
            if not self._open[login.id]:
                del self._open[login.id]

    async def _pieces(self, login: Login, after: str) -> AsyncIterator[str]:
        async with self._counted(login):
            yield "retry: 500\n\n"
            while not login.ended.is_set():
                found = self._events.after(after)
                if found is None:
                    after = self._events.last
                    yield f"event: reset\nid: {after}\ndata: {{}}\n\n"
                elif found:
                    after = self._events.id_of(found[-1].number)
                    for event in shown_to(login, found):
                        yield f"id: {self._events.id_of(event.number)}\ndata: {event.data}\n\n"
                elif not await self._news(login):
                    # A comment would not do: browsers do not tell the page about those.
                    yield "event: beat\ndata: {}\n\n"

    async def _news(self, login: Login) -> bool:
        """Wait for an event or the end of the login; False if neither came before the next beat."""
        async with asyncio.TaskGroup() as group:
            beat = group.create_task(self._clock.sleep(BEAT_S))
            waits = {
                beat,
                group.create_task(self._events.changed.wait()),
                group.create_task(login.ended.wait()),
            }
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        return bool(done - {beat})
