"""Drafts that are on show, noted on disk: a process that is killed leaves them in the chats."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

_KEPT = 500


class Leftovers:
    """Messages that show drafts, by chat.

    What cannot be read or written is passed over: it costs a stale draft and no answer.

    Args:
        path: file of the notes; its folder exists.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._shown: list[tuple[str, int]] = []
        self._before: list[tuple[str, int]] | None = None
        self._file = asyncio.Lock()

    async def before(self) -> list[tuple[str, int]]:
        """Return the drafts of the process before this one that were not removed yet."""
        async with self._file:
            return list(await self._read_before())

    async def add(self, chat_id: str, message_id: int) -> None:
        """Note that a message shows a draft."""
        self._shown = [*self._shown, (chat_id, message_id)][-_KEPT:]
        await self._write()

    async def remove(self, chat_id: str, message_id: int) -> None:
        """Note that a message shows a whole answer, or is gone."""
        gone = (chat_id, message_id)
        self._shown = [draft for draft in self._shown if draft != gone]
        async with self._file:
            self._before = [draft for draft in await self._read_before() if draft != gone]
        await self._write()

    async def _write(self) -> None:
        async with self._file:
            # What the process before this one left is read before it is written over.
            noted = [*await self._read_before(), *self._shown][-_KEPT:]
            with suppress(OSError):
                await asyncio.to_thread(_replace, self._path, json.dumps(noted))

    async def _read_before(self) -> list[tuple[str, int]]:
        if self._before is None:
            self._before = await asyncio.to_thread(_read, self._path)
        return self._before


def _read(path: Path) -> list[tuple[str, int]]:
    try:
        noted = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    found = []
    for entry in noted if isinstance(noted, list) else ():
        match entry:
            case [str(chat_id), int(message_id)]:
                found.append((chat_id, message_id))
    return found


def _replace(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
