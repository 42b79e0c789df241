"""State that must outlive a connection, because the core creates a channel for each start."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from nanobot_core import finish_in_thread
from nanobot_core.chat import RichText

if TYPE_CHECKING:
    from nanobot_core import PluginContext


_KEPT = 500


class Leftovers:
    """Records on disk which messages show drafts.

    Disk errors are ignored: they cost a stale draft, but no answer.

    Args:
        path: the file. Its folder must exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._shown: list[tuple[str, int]] = []
        self._before: list[tuple[str, int]] | None = None
        self._file = asyncio.Lock()

    async def before(self) -> list[tuple[str, int]]:
        """Return the drafts of the previous process that have not been removed."""
        async with self._file:
            return list(await self._read_before())

    async def add(self, chat_id: str, message_id: int) -> None:
        """Record that a message shows a draft."""
        self._shown = [*self._shown, (chat_id, message_id)][-_KEPT:]
        await self._write()

    async def remove(self, chat_id: str, message_id: int) -> None:
        """Record that a message no longer shows a draft."""
        gone = (chat_id, message_id)
        self._shown = [draft for draft in self._shown if draft != gone]
        async with self._file:
            self._before = [draft for draft in await self._read_before() if draft != gone]
        await self._write()

    async def _write(self) -> None:
        async with self._file:
            # Read the drafts of the previous process before overwriting them.
            noted = [*await self._read_before(), *self._shown][-_KEPT:]
            with suppress(OSError):
                await finish_in_thread(partial(_replace, self._path, json.dumps(noted)))

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


KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Recent(Generic[KeyT, ValueT]):
    """A mapping that drops the oldest entries."""

    def __init__(self, size: int = _KEPT) -> None:
        self._size = size
        self._entries: OrderedDict[KeyT, ValueT] = OrderedDict()

    def get(self, key: KeyT) -> ValueT | None:
        """Return the value of `key`, or ``None``."""
        return self._entries.get(key)

    def put(self, key: KeyT, value: ValueT) -> None:
        """Store `value` as the newest entry."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def drop(self, key: KeyT) -> None:
        """Remove `key`, if it exists."""
        self._entries.pop(key, None)


@dataclass(slots=True)
class ShownDraft:
    """A message that shows a draft.

    Attributes:
        shown: its text; ``None`` after an edit of unknown outcome.
    """

    message_id: int
    shown: RichText | None


@dataclass(slots=True)
class Memory:
    """The state of the channel in this process.

    Attributes:
        leftovers: visible drafts, recorded on disk.
        sent: idempotency key to the number of pieces that were sent.
        drafts: chat and draft to the message that shows it.
        moved: old to new ids of groups.
        has_begun: the channel has received updates before.
    """

    leftovers: Leftovers
    sent: Recent[str, int] = field(default_factory=Recent)
    drafts: Recent[tuple[str, str], ShownDraft] = field(default_factory=Recent)
    moved: Recent[int | str, int] = field(default_factory=Recent)
    has_begun: bool = False


def build_memory(ctx: PluginContext) -> Memory:
    """Return an empty memory, for ``ctx.shared``."""
    return Memory(Leftovers(ctx.data_dir / "drafts.json"))
