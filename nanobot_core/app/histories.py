"""Histories: the stored sessions, for programs that list, show and change them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nanobot_core.contracts.client import SessionEntry, SessionHit, SessionPage
from nanobot_core.contracts.store import SessionSummary
from nanobot_core.errors import SessionError
from nanobot_core.text import shorten
from nanobot_core.turns.model_command import KEY as MODEL
from nanobot_core.turns.recorder import FOLDER

if TYPE_CHECKING:
    from nanobot_core.contracts.store import StoredSession
    from nanobot_core.messages import Message
    from nanobot_core.turns.pipeline import TurnPipeline

TITLE: Final = "title"
"""Key in a session's metadata of the title that a person gave it."""
MAX_TITLE_CHARS: Final = 200
MAX_PAGE: Final = 500
MAX_SEARCHED: Final = 1_000
"""Sessions that one search reads, the latest ones."""
_HELD: Final = 2_000
"""Messages that the store keeps at hand; older pages are read from the start of the session."""
_TITLE_CHARS: Final = 80


class Histories:
    """The `SessionAccess` of one agent.

    Args:
        pipeline: returns what turns use, whose sessions and locks these are; raises
            `RuntimeError` while the agent is not running.
    """

    def __init__(self, pipeline: Callable[[], TurnPipeline]) -> None:
        self._pipeline = pipeline

    async def entries(self, *, offset: int = 0, limit: int = 50) -> Sequence[SessionEntry]:
        """Return sessions, the latest first."""
        store = self._pipeline().sessions.store
        wanted = (await store.summaries())[offset : offset + min(limit, MAX_PAGE)]
        stored = await asyncio.gather(*(store.load(each.key, 1) for each in wanted))
        return [_entry(summary, found) for summary, found in zip(wanted, stored, strict=True)]

    async def page(
        self, key: str, *, before: int | None = None, limit: int = 50
    ) -> SessionPage | None:
        """Return the newest messages of a session, or those before a number."""
        pipeline, limit = self._pipeline(), max(1, min(limit, MAX_PAGE))
        stored = await pipeline.sessions.store.load(key, _HELD)
        if stored is None:
            return None
        total = stored.last_index
        end = total if before is None else max(0, min(before, total))
        first = max(0, end - limit)
        if first >= stored.first_index:
            start = stored.first_index
            messages = list(stored.messages[first - start : end - start])
        else:
            messages = await self._read(key, first, end)
        summary = await pipeline.sessions.store.summary(key)
        entry = (
            _entry(summary, stored)
            if summary
            else _entry(SessionSummary(key=key, updated_at=stored.state.updated_at, size=0), stored)
        )
        model = stored.state.metadata.get(MODEL)
        return SessionPage(
            entry=entry,
            messages=tuple(messages),
            first_index=first,
            total=total,
            model=model if isinstance(model, str) else "",
            is_busy=pipeline.locks.is_held(key),
        )

    async def search(self, text: str, *, limit: int = 50) -> Sequence[SessionHit]:
        """Return messages that contain `text`, of the latest sessions first."""
        store, wanted = self._pipeline().sessions.store, text.casefold()
        found: list[SessionHit] = []
        if not wanted:
            return found
        for summary in (await store.summaries())[:MAX_SEARCHED]:
            newest: deque[SessionHit] = deque(maxlen=limit - len(found))
            index = 0
            async for message in store.read(summary.key):
                if wanted in message.text.casefold():
                    newest.append(SessionHit(key=summary.key, index=index, message=message))
                index += 1
            found += reversed(newest)
            if len(found) >= limit:
                break
        return found

    async def set_title(self, key: str, title: str) -> bool:
        """Give a session a title, empty for none; False if it does not exist."""
        pipeline = self._pipeline()
        title = shorten(" ".join(title.split()), MAX_TITLE_CHARS)
        async with pipeline.locks.hold(key):
            if await pipeline.sessions.store.load(key, 1) is None:
                return False
            session = await pipeline.sessions.open(key)
            metadata = {
                name: each for name, each in session.state.metadata.items() if name != TITLE
            }
            metadata |= {TITLE: title} if title else {}
            await pipeline.sessions.append(session, metadata=metadata)
        return True

    async def create(self, key: str, messages: Sequence[Message]) -> None:
        """Create a session with a history."""
        pipeline = self._pipeline()
        async with pipeline.locks.hold(key):
            if await pipeline.sessions.store.load(key, 1) is not None:
                raise SessionError(key, "it exists; choose another key")
            session = await pipeline.sessions.open(key)
            await pipeline.sessions.append(session, *messages)

    async def branch(self, key: str, until: int, new_key: str) -> bool:
        """Create a session with the messages of another one before the number `until`."""
        if await self._pipeline().sessions.store.load(key, 1) is None:
            return False
        await self.create(new_key, await self._read(key, 0, until))
        return True

    async def delete(self, key: str) -> bool:
        """Delete a session for good; False if it does not exist."""
        return await self._pipeline().delete_session(key)

    async def _read(self, key: str, first: int, end: int) -> list[Message]:
        """Return messages by number, read from the start of the session."""
        found: list[Message] = []
        index = 0
        async for message in self._pipeline().sessions.store.read(key):
            if index >= end:
                break
            if index >= first:
                found.append(message)
            index += 1
        return found


def _entry(summary: SessionSummary, stored: StoredSession | None) -> SessionEntry:
    entry = SessionEntry(key=summary.key, updated_at=summary.updated_at, size=summary.size)
    if stored is None:  # deleted meanwhile
        return entry
    title, folder = stored.state.metadata.get(TITLE), stored.state.metadata.get(FOLDER)
    entry = replace(entry, folder=folder if isinstance(folder, str) else "")
    if isinstance(title, str) and title:
        return replace(entry, title=title, is_titled=True)
    said = stored.messages[-1].text if stored.messages else ""
    return replace(entry, title=shorten(" ".join(said.split()), _TITLE_CHARS))
